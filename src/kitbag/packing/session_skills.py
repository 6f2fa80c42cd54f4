"""The skills of one conversation: delivered once, with a receipt for every further asking, dropped when asked.

Used by the Skill tool, by `/name`, by compaction, over MCP, and by SkillRegistry. Commands in a skill are the business
of a `Prepare` that asks policy (prepare.RunsCommands); without one they stay the text they are.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

from kitbag.errors import Diagnostic, InvalidError, KitbagError, NotFoundError
from kitbag.library.names import normalize_name, slugify
from kitbag.library.registry import Registry
from kitbag.library.skill_files import read_skill_details
from kitbag.library.skills import Skill, to_string_list, to_text
from kitbag.library.visibility import Verdict
from kitbag.packing.skill_delivery import RenderedSkill, path_variables, printable_path, render_skill
from kitbag.packing.skill_permissions import DenyGrant, SkillPermissions, deny_grant_by_scope, read_skill_permissions
from kitbag.text.plain_frontmatter import Metadata
from kitbag.text.tokens import estimate_tokens

if TYPE_CHECKING:
    from kitbag.packing.substitutions import InvocationArguments

RequestedBy = Literal["model", "user", "preload"]
PrepareSkill = Callable[[Skill, str, int, "InvocationArguments"], tuple[str, tuple[Diagnostic, ...]]]
"""(skill, its instructions, the line they begin at, arguments) -> (what is delivered instead, warnings)."""
_REQUESTER_NAMES: dict[RequestedBy, str] = {"model": "a model", "user": "a person", "preload": "an agent's `skills:`"}


class SkillDelivery(NamedTuple):
    name: str
    text: str
    """What the model gets: the whole block, only what is new, or one line."""
    tokens: int
    digest: str
    problems: tuple[Diagnostic, ...] = ()
    loaded: "LoadedSkill | None" = None
    """What is loaded now because of it; None for a receipt, and for what lives only one turn."""
    rendered: RenderedSkill | None = None
    """All of the skill as it is now."""
    permissions: SkillPermissions | None = None
    """What it changes about the tools until the person speaks again."""


class SkillFork(NamedTuple):
    """A skill with `context: fork`: not for this conversation, but the task of an agent of its own."""

    name: str
    agent: str
    model: str
    text: str
    problems: tuple[Diagnostic, ...] = ()


class LoadedSkill(NamedTuple):
    name: str
    tokens: int
    loaded_at: str
    loaded_by: RequestedBy
    digest: str
    arguments: str
    text: str
    """The block as the conversation holds it."""


class SessionSkills:
    """Calls may come from several threads; each skill is delivered to one of them."""

    def __init__(
        self,
        library: Registry,
        prepare: PrepareSkill | None = None,
        clock: Callable[[], float] = time.time,
        deny_grant: DenyGrant = deny_grant_by_scope,
    ) -> None:
        """`withhold`: why a skill does not get what its `allowed-tools` ask for."""
        self.library = library
        self.session_id = ""
        """What `${CLAUDE_SESSION_ID}` in a skill stands for."""
        self._prepare = prepare or _prepare_without_commands
        self._deny_grant = deny_grant
        self._active_permissions: list[SkillPermissions] = []
        self._clock = clock
        self._loaded: dict[str, LoadedSkill] = {}
        """The one that was asked for last stands last."""
        self._preloaded = ""
        self._lock = threading.RLock()

    def set_preloaded_text(self, preloaded: str) -> None:
        """The text of the skills that an agent starts with: what stands there is not delivered once more."""
        self._preloaded = preloaded

    def begin_turn(self) -> None:
        """The person has spoken: what skills allowed or took away is over."""
        with self._lock:
            self._active_permissions = []

    def active_permissions(self) -> tuple[SkillPermissions, ...]:
        """What the skills that were asked for since then change about the tools, in their order."""
        with self._lock:
            return tuple(self._active_permissions)

    def load(self, name: str, arguments: str = "", by: RequestedBy = "model") -> SkillDelivery:
        """Raises NotFoundError or AmbiguousError for the name, InvalidError for a skill that is closed or broken, and
        what its commands end in."""
        with self._lock:
            skill = self.find(name, by)
        metadata = read_skill_details(skill).metadata
        rights, problems = read_skill_permissions(skill, metadata, self.library.places, self._deny_grant, by)
        delivery = self._render(skill, arguments, metadata)  # commands take their time: others may load meanwhile
        delivery = delivery._replace(problems=(*delivery.problems, *problems))
        with self._lock:
            if rights and not any(map(rights.equals_ignoring_requester, self._active_permissions)):
                self._active_permissions.append(rights)
            return self._record(skill.full_name, delivery, arguments, by)._replace(permissions=rights or None)

    def fork(self, name: str, arguments: str = "", by: RequestedBy = "model") -> SkillFork | None:
        """None for a skill that belongs into the conversation. Raises what `load` raises."""
        with self._lock:
            skill = self.find(name, by)
        metadata = read_skill_details(skill).metadata
        if to_text(metadata.get("context", "")).strip().lower() != "fork":
            return None
        delivery = self._render(skill, arguments, metadata)
        agent = to_text(metadata.get("agent", "")).strip() or "general-purpose"
        model = to_text(metadata.get("model", "")).strip()
        return SkillFork(skill.full_name, agent, "" if model == "inherit" else model, delivery.text, delivery.problems)

    def _record(self, name: str, delivery: RenderedSkill, arguments: str, by: RequestedBy) -> SkillDelivery:
        digest = _digest(delivery.text)
        if delivery.text in self._preloaded:
            return _make_delivery(name, f"The skill {name} stands in your instructions: follow it.", digest, delivery)
        known = self._loaded.pop(name, None)
        if known is not None and known.digest == digest:
            self._loaded[name] = known
            text = (
                f"The skill {name} is loaded already ({known.tokens} tokens, {known.loaded_at}), unchanged: follow it."
            )
            return _make_delivery(name, text, digest, delivery)
        if by == "user":  # for one turn: it is not kept, and what is kept stays
            if known is not None:
                self._loaded[name] = known
            return _make_delivery(name, delivery.text, digest, delivery)
        text = delivery.text
        if known is not None:
            from kitbag.packing.skill_receipts import render_changes

            text = render_changes(name, _reload_reason(known, arguments), known.text, delivery.text)
        tokens = estimate_tokens(delivery.text)
        loaded = self._loaded[name] = LoadedSkill(name, tokens, self._now(), by, digest, arguments, delivery.text)
        return _make_delivery(name, text, digest, delivery)._replace(loaded=loaded)

    def find(self, name: str, by: RequestedBy = "model") -> Skill:
        """A skill that whoever asks may load. Only such ones are suggested for a name that is unknown."""
        try:
            skill = self.library.find_skill(name)
        except NotFoundError as error:
            skills, view = self.library.skills, self.library.visibility_context()
            close = [skills.get(other) for other in skills.suggest(name, 20)]
            names = [skill.full_name for skill in close if _is_allowed(self.library.evaluate(skill, view), by)][:5]
            hint = f"did you mean {', '.join(names)}?" if names else "use a name from the catalog, or search"
            raise NotFoundError(error.problem, hint) from None
        verdict = self.library.evaluate(skill)
        if not _is_allowed(verdict, by):
            raise InvalidError(f"{skill.full_name!r} can't be loaded by {_REQUESTER_NAMES[by]}: {verdict.reason}")
        return skill

    def _render(self, skill: Skill, arguments: str, metadata: Metadata) -> RenderedSkill:
        from kitbag.packing.substitutions import InvocationArguments

        names = to_string_list(metadata.get("arguments"))
        variables = (("CLAUDE_PROJECT_DIR", printable_path(self.library.places.project)),)
        if self.session_id:
            variables = (*variables, ("CLAUDE_SESSION_ID", self.session_id))
        given = InvocationArguments(arguments, names, skill.root.dialect == "opencode", variables)
        notes: list[Diagnostic] = []

        def prepared(body: str, first_line: int) -> str:
            text, warnings = self._prepare(skill, body, first_line, given)
            notes.extend(warnings)
            return text

        delivery = render_skill(skill, arguments, prepared)
        failed = next((problem for problem in delivery.problems if problem.severity == "error"), None)
        if failed is not None or not os.path.exists(skill.path):
            what = failed.problem if failed else "can't be read any more"
            raise InvalidError(f"{skill.path}: {what}", failed.fix if failed else "restore the file")
        return delivery._replace(problems=(*delivery.problems, *notes))

    def unload(self, name: str) -> str | None:
        """The full name of what was dropped; None when it was not loaded."""
        with self._lock:
            found = self.loaded_name(name)
            if found is not None:
                del self._loaded[found]
                # What it took away stays so, or unloading would be a way around it.
                left = (one._replace(grants=()) if one.skill == found else one for one in self._active_permissions)
                self._active_permissions = [one for one in left if one]
            return found

    def loaded_name(self, name: str) -> str | None:
        """What was loaded under that name, also when its file is gone since."""
        with self._lock:
            wanted = normalize_name(name)
            for full in self._loaded:
                if normalize_name(full) == wanted:
                    return full
            try:
                found = self.library.find_skill(name).full_name
            except KitbagError:
                short = slugify(name)
                ends = [full for full in self._loaded if short and slugify(_last_part(full)) == short]
                return ends[0] if len(ends) == 1 else None
            return found if found in self._loaded else None

    def loaded(self) -> list[LoadedSkill]:
        """The one that was asked for last stands last."""
        with self._lock:
            return list(self._loaded.values())

    def restore(self, loaded: Iterable[LoadedSkill]) -> None:
        """What a resumed conversation already holds, in the order of its times."""
        ordered = sorted(loaded, key=lambda one: one.loaded_at)
        with self._lock:
            self._loaded = {one.name: one for one in ordered}

    def reattach_after_compaction(self, per_skill: int = 5_000, total: int = 25_000) -> list[SkillDelivery]:
        """After compaction: the most recent first, each cut to its limit. What does not fit is no longer loaded, and
        a line says so; what was cut counts as loaded with the text it has now, so that loading it again brings the
        rest. `loaded` of each is what the conversation holds from here on."""
        from kitbag.packing.skill_receipts import truncate_block

        attached: list[SkillDelivery] = []
        left = total
        with self._lock:
            kept: dict[str, LoadedSkill] = {}
            for one in reversed(self._loaded.values()):
                text = truncate_block(one.text, min(per_skill, left))
                if not text:
                    note = (
                        f"[The skill {one.name} was loaded and is not any more, to make room: load it again if needed.]"
                    )
                    attached.append(SkillDelivery(one.name, note, estimate_tokens(note), one.digest))
                    continue
                tokens = estimate_tokens(text)
                left -= tokens
                if text != one.text:
                    one = one._replace(text=text, tokens=tokens, digest=_digest(text))
                kept[one.name] = one
                attached.append(SkillDelivery(one.name, text, tokens, one.digest, loaded=one))
            self._loaded = dict(reversed(kept.items()))
        return attached

    def _now(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))


def _prepare_without_commands(
    skill: Skill, body: str, first_line: int, given: "InvocationArguments"
) -> tuple[str, tuple[Diagnostic, ...]]:
    from kitbag.packing.substitutions import ArgumentSubstitution

    del first_line
    substitution = ArgumentSubstitution(given, body, path_variables(skill))
    return substitution.append_unused_arguments(substitution.substitute_in_text(body)), ()


def _make_delivery(name: str, text: str, digest: str, whole: RenderedSkill) -> SkillDelivery:
    return SkillDelivery(name, text, estimate_tokens(text), digest, whole.problems, rendered=whole)


def _reload_reason(known: LoadedSkill, arguments: str) -> str:
    from kitbag.text.truncate import MARKER

    if MARKER in known.text:
        return "only a part of it was here"
    return "the arguments are others" if arguments != known.arguments else "its text is another by now"


def _is_allowed(verdict: Verdict, by: RequestedBy) -> bool:
    return verdict.user if by == "user" else verdict.preload if by == "preload" else verdict.model


def _last_part(name: str) -> str:
    """`commit` of `git:commit` and of `team/commit`."""
    return name.replace("/", ":").rpartition(":")[2]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
