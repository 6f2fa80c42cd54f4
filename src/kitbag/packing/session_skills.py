"""The skills loaded in one session: each is delivered once; loading it again returns a receipt or the changes.

Used by the Skill tool, `/name`, compaction, mcp_server and SkillRegistry; uses skill_delivery and prepare_skill.
Commands in a skill run only through the PrepareSkill that a session is given; without one they stay text.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

import msgspec

from kitbag.errors import Diagnostic, InvalidError, KitbagError, NotFoundError
from kitbag.library.names import normalize_name, slugify
from kitbag.library.registry import Registry
from kitbag.library.skill_files import read_skill_details
from kitbag.library.skills import Skill, counts_arguments_from_one, to_string_list, to_text
from kitbag.library.visibility import Verdict
from kitbag.packing.skill_delivery import RenderedSkill, printable_path, render_skill
from kitbag.packing.skill_permissions import DenyGrant, SkillPermissions, deny_grant_by_scope, read_skill_permissions
from kitbag.text.plain_frontmatter import Metadata
from kitbag.text.tokens import estimate_tokens

if TYPE_CHECKING:
    from kitbag.packing.substitutions import InvocationArguments

RequestedBy = Literal["model", "user", "preload"]
FoundBy = Literal["", "suggestion", "search"]
"""How a model found a skill that it loads; empty: in the catalog, or by itself."""
PrepareSkill = Callable[[Skill, str, int, "InvocationArguments"], tuple[str, tuple[Diagnostic, ...]]]
"""(skill, its body, the line at which the body starts, arguments) -> (text to deliver, warnings)."""
_REQUESTER_NAMES: dict[RequestedBy, str] = {"model": "the model", "user": "the user", "preload": "an agent's `skills:`"}


class SkillDelivery(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    text: str
    """What the model gets: the whole block, the changed lines, or a one-line receipt."""
    tokens: int
    digest: str
    problems: tuple[Diagnostic, ...] = ()
    loaded: "LoadedSkill | None" = None
    """Set if this delivery loaded the skill; None for a receipt and for a skill that holds for one turn only."""
    rendered: RenderedSkill | None = None
    """The whole skill as it is now."""
    part: str = ""
    """`part 2 of 4`, if the skill is delivered in parts."""
    permissions: SkillPermissions | None = None
    """Changes to tool permissions until the user's next message."""

    @property
    def warnings(self) -> tuple[str, ...]:
        return _list_warnings(self.problems)

    @property
    def text_with_limits(self) -> str:
        """With a notice of the tools that the skill denies."""
        limits = self.permissions.model_notice() if self.permissions is not None else ""
        return f"{self.text}\n\n{limits}" if limits else self.text

    def request_text(self, arguments: str) -> str:
        """What follows the skill in a message that invokes it, `/name arguments`. The arguments are only there, because
        the message stays when the skill is gone."""
        return arguments or f"Follow the skill {self.name}."


class SkillFork(msgspec.Struct, frozen=True, kw_only=True):
    """A skill with `context: fork`: it becomes the task of a separate agent."""

    name: str
    agent: str
    model: str
    text: str
    problems: tuple[Diagnostic, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        return _list_warnings(self.problems)


class LoadedSkill(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    tokens: int
    loaded_at: str
    loaded_by: RequestedBy
    digest: str
    arguments: str
    text: str
    """The block as it is in the session."""
    found: FoundBy = ""


class _RenderedVersion(msgspec.Struct, frozen=True, kw_only=True):
    stamp: tuple[int, int]
    arguments: str
    rendered: RenderedSkill


class SessionSkills:
    """Thread-safe."""

    def __init__(
        self,
        library: Registry,
        prepare: PrepareSkill | None = None,
        clock: Callable[[], float] = time.time,
        deny_grant: DenyGrant = deny_grant_by_scope,
        max_tokens: int = 0,
    ) -> None:
        """`deny_grant`: why a skill does not get what its `allowed-tools` request. `max_tokens`: a larger skill is
        delivered in parts; 0: never."""
        self._max_tokens = max_tokens
        self._rendered: dict[str, _RenderedVersion] = {}
        """The skills that are delivered in parts, so that their commands run once."""
        self.library = library
        self.session_id = ""
        """Value of `${CLAUDE_SESSION_ID}` in skills."""
        self._prepare = prepare or _make_reading_preparer(library)
        self._deny_grant = deny_grant
        self._active_permissions: list[SkillPermissions] = []
        self._clock = clock
        self._loaded: dict[str, LoadedSkill] = {}
        """Most recently requested last."""
        self._preloaded = ""
        self._found: dict[str, FoundBy] = {}
        """How the model learned of skills, by full name."""
        self._lock = threading.RLock()

    def set_preloaded_text(self, preloaded: str) -> None:
        """Sets the preloaded skills in the agent's prompt, which are not delivered again."""
        self._preloaded = preloaded

    def note_found(self, names: Iterable[str], by: FoundBy) -> None:
        """Recorded with each of these skills if it is loaded later."""
        with self._lock:
            self._found.update(dict.fromkeys(names, by))

    def is_suggested(self, name: str) -> bool:
        """Whether this run suggested the skill, with a message or for a file."""
        with self._lock:
            return self._found.get(name) == "suggestion"

    def begin_turn(self) -> None:
        """Called at each user message: permission changes by skills end."""
        with self._lock:
            self._active_permissions = []

    def active_permissions(self) -> tuple[SkillPermissions, ...]:
        """Permission changes by the skills of this turn, in order."""
        with self._lock:
            return tuple(self._active_permissions)

    def load(self, name: str, arguments: str = "", by: RequestedBy = "model", part: int = 0) -> SkillDelivery:
        """`part`: of a long skill, from 1; 0: the first. Raises NotFoundError or AmbiguousError for the name,
        InvalidError if the skill may not be loaded or can't be read, and the errors of its PrepareSkill."""
        with self._lock:
            skill = self.find(name, by)
        fields = read_skill_details(skill).fields
        permissions, problems = read_skill_permissions(skill, fields, self.library.places, self._deny_grant, by)
        # Outside the lock: commands may take long.
        delivery = self._render_for_part(skill, arguments, fields, part, by)
        delivery = msgspec.structs.replace(delivery, problems=(*delivery.problems, *problems))
        with self._lock:
            if permissions and not any(map(permissions.equals_ignoring_requester, self._active_permissions)):
                self._active_permissions.append(permissions)
            return msgspec.structs.replace(
                self._deliver(skill, delivery, arguments, by, part), permissions=permissions or None
            )

    def _deliver(
        self, skill: Skill, rendered: RenderedSkill, arguments: str, by: RequestedBy, part: int
    ) -> SkillDelivery:
        name, blocks = skill.full_name, self._split(skill, rendered)
        if not 0 <= part <= max(len(blocks), 1):
            count = f"{len(blocks)} parts" if blocks else "one part"
            fix = f"use part=1 to part={len(blocks)}" if blocks else "omit `part`"
            raise InvalidError(f"the skill {name} has {count}, and no part {part}", fix)
        if not blocks:
            self._rendered.pop(name, None)
            return self._record(name, rendered, arguments, by)
        self._rendered[name] = _RenderedVersion(stamp=_file_stamp(skill), arguments=arguments, rendered=rendered)
        delivery = self._record_part(name, rendered, blocks, arguments, by, part or 1)
        return msgspec.structs.replace(delivery, part=f"part {part or 1} of {len(blocks)}")

    def _split(self, skill: Skill, rendered: RenderedSkill) -> tuple[str, ...]:
        """The blocks of a long skill. None if the model may not load it, because it could not load the other parts."""
        if not self._max_tokens or estimate_tokens(rendered.text) <= self._max_tokens:
            return ()
        if rendered.text in self._preloaded or not self.library.evaluate(skill).model:
            return ()
        from kitbag.packing.skill_parts import split_skill

        return split_skill(skill.full_name, rendered, self._max_tokens)

    def _record_part(
        self,
        name: str,
        rendered: RenderedSkill,
        blocks: tuple[str, ...],
        arguments: str,
        by: RequestedBy,
        part: int,
    ) -> SkillDelivery:
        """Loaded parts are one loaded skill whose text is their blocks, in order."""
        from kitbag.packing.skill_parts import join_blocks, split_blocks

        previous = self._loaded.get(name)
        earlier = split_blocks(previous.text) if previous is not None else {}
        valid = {at: block for at, block in earlier.items() if at <= len(blocks) and blocks[at - 1] == block}
        text = blocks[part - 1]
        digest = _digest(text)
        if part in valid:
            self._loaded[name] = self._loaded.pop(name)  # most recently requested last
            receipt = f"Part {part} of {len(blocks)} of the skill {name} is already loaded and unchanged. Follow it."
            return _make_delivery(name, receipt, digest, rendered)
        if by == "user":  # for one turn only
            return _make_delivery(name, text, digest, rendered)
        outdated = sorted(earlier.keys() - valid.keys() - {part})
        if outdated:
            numbers = ", ".join(map(str, outdated))
            problem = f"The skill {name} has changed or was truncated"
            text = f"{problem}; load again what you need of part {numbers}.\n\n{text}"
        whole = join_blocks({**valid, part: blocks[part - 1]})
        self._loaded.pop(name, None)
        loaded = self._loaded[name] = LoadedSkill(
            name=name,
            tokens=estimate_tokens(whole),
            loaded_at=self._now(),
            loaded_by=by,
            digest=_digest(whole),
            arguments=arguments,
            text=whole,
            found=self._found.get(name, ""),
        )
        return msgspec.structs.replace(_make_delivery(name, text, digest, rendered), loaded=loaded)

    def fork(self, name: str, arguments: str = "", by: RequestedBy = "model") -> SkillFork | None:
        """None if the skill does not fork. Raises the same errors as `load`."""
        with self._lock:
            skill = self.find(name, by)
        fields = read_skill_details(skill).fields
        if to_text(fields.get("context", "")).strip().lower() != "fork":
            return None
        delivery = self._render(skill, arguments, fields)
        agent = to_text(fields.get("agent", "")).strip() or "general-purpose"
        model = to_text(fields.get("model", "")).strip()
        return SkillFork(
            name=skill.full_name,
            agent=agent,
            model="" if model == "inherit" else model,
            text=delivery.text,
            problems=delivery.problems,
        )

    def _record(self, name: str, delivery: RenderedSkill, arguments: str, by: RequestedBy) -> SkillDelivery:
        digest = _digest(delivery.text)
        if delivery.text in self._preloaded:
            return _make_delivery(
                name, f"The skill {name} is already in your instructions. Follow it.", digest, delivery
            )
        previous = self._loaded.pop(name, None)
        if previous is not None and _is_same(previous, delivery, arguments, by):
            self._loaded[name] = previous
            size = f"{previous.tokens} tokens, {previous.loaded_at}"
            text = f"The skill {name} is already loaded ({size}) and unchanged. Follow it."
            return _make_delivery(name, text, digest, delivery)
        if by == "user":  # for one turn only: not recorded, and an earlier load stays
            if previous is not None:
                self._loaded[name] = previous
            return _make_delivery(name, delivery.text, digest, delivery)
        text = delivery.text
        if previous is not None:
            from kitbag.packing.skill_receipts import render_changes

            text = render_changes(name, _reload_reason(previous, arguments), previous.text, delivery.text)
        tokens = estimate_tokens(delivery.text)
        loaded = self._loaded[name] = LoadedSkill(
            name=name,
            tokens=tokens,
            loaded_at=self._now(),
            loaded_by=by,
            digest=digest,
            arguments=arguments,
            text=delivery.text,
            found=self._found.get(name, ""),
        )
        return msgspec.structs.replace(_make_delivery(name, text, digest, delivery), loaded=loaded)

    def find(self, name: str, by: RequestedBy = "model") -> Skill:
        """A skill that the requester may load. Suggestions for an unknown name are limited to these."""
        try:
            skill = self.library.find_skill(name)
        except NotFoundError as error:
            skills, view = self.library.skills, self.library.visibility_context()
            candidates = [skills.get(other) for other in skills.suggest(name, 20)]
            names = [skill.full_name for skill in candidates if _is_allowed(self.library.evaluate(skill, view), by)][:5]
            hint = f"did you mean {', '.join(names)}?" if names else "use a name from the catalog, or search for one"
            raise NotFoundError(error.problem, hint) from None
        verdict = self.library.evaluate(skill)
        if not _is_allowed(verdict, by):
            raise InvalidError(f"{skill.full_name!r} cannot be loaded by {_REQUESTER_NAMES[by]}: {verdict.reason}")
        return skill

    def _render_for_part(
        self, skill: Skill, arguments: str, fields: Metadata, part: int, by: RequestedBy
    ) -> RenderedSkill:
        """A further part comes from the same text as the parts before it, if the file is unchanged."""
        with self._lock:
            version = self._rendered.get(skill.full_name)
        is_current = version is not None and version.stamp == _file_stamp(skill)
        if part > 0 and version is not None and is_current and arguments in ("", version.arguments):
            return version.rendered
        return self._render(skill, arguments, fields, names_arguments=by != "user")

    def _render(self, skill: Skill, arguments: str, fields: Metadata, *, names_arguments: bool = True) -> RenderedSkill:
        """`names_arguments`: the block itself says what the arguments are."""
        from kitbag.packing.substitutions import InvocationArguments

        names = to_string_list(fields.get("arguments"))
        variables = (("CLAUDE_PROJECT_DIR", printable_path(self.library.places.project)),)
        if self.session_id:
            variables = (*variables, ("CLAUDE_SESSION_ID", self.session_id))
        has_lines = "\n" in arguments.strip()  # for which the block's header has no place
        invocation = InvocationArguments(
            text=arguments,
            names=names,
            one_based=counts_arguments_from_one(skill),
            append=names_arguments and has_lines,
            variables=variables,
        )
        warnings_found: list[Diagnostic] = []

        def prepared(body: str, first_line: int) -> str:
            text, warnings = self._prepare(skill, body, first_line, invocation)
            warnings_found.extend(warnings)
            return text

        delivery = render_skill(skill, arguments if names_arguments and not has_lines else "", prepared)
        failed = next((problem for problem in delivery.problems if problem.severity == "error"), None)
        if failed is not None or not os.path.exists(skill.path):
            problem = failed.problem if failed else "the file no longer exists"
            raise InvalidError(f"{skill.path}: {problem}", failed.fix if failed else "restore the file")
        return msgspec.structs.replace(delivery, problems=(*delivery.problems, *warnings_found))

    def unload(self, name: str) -> str | None:
        """The full name of the unloaded skill; None if it was not loaded."""
        with self._lock:
            found = self.loaded_name(name)
            if found is not None:
                del self._loaded[found]
                self._rendered.pop(found, None)
                # Its tool limits stay, or unloading would bypass them.
                remaining = (
                    msgspec.structs.replace(permissions, grants=()) if permissions.skill == found else permissions
                    for permissions in self._active_permissions
                )
                self._active_permissions = [permissions for permissions in remaining if permissions]
            return found

    def loaded_name(self, name: str) -> str | None:
        """The full name of a loaded skill, even if its file is gone."""
        with self._lock:
            key = normalize_name(name)
            for full_name in self._loaded:
                if normalize_name(full_name) == key:
                    return full_name
            try:
                found = self.library.find_skill(name).full_name
            except KitbagError:
                short = slugify(name)
                matches = [full_name for full_name in self._loaded if short and slugify(_last_part(full_name)) == short]
                return matches[0] if len(matches) == 1 else None
            return found if found in self._loaded else None

    def loaded(self) -> list[LoadedSkill]:
        """Most recently requested last."""
        with self._lock:
            return list(self._loaded.values())

    def restore(self, loaded: Iterable[LoadedSkill]) -> None:
        """Sets the skills of a resumed session."""
        ordered = sorted(loaded, key=lambda skill: skill.loaded_at)
        with self._lock:
            self._loaded = {skill.name: skill for skill in ordered}

    def reattach_after_compaction(self, per_skill: int = 5_000, total: int = 25_000) -> list[SkillDelivery]:
        """Skills to attach after compaction, most recent first, each truncated to its limit. A skill that does not fit
        is unloaded, with a note. A truncated skill is recorded with its truncated text, so that loading it again
        delivers the rest. `loaded` of each delivery is what the session holds from now on."""
        from kitbag.packing.skill_receipts import truncate_block

        deliveries: list[SkillDelivery] = []
        remaining = total
        with self._lock:
            kept: dict[str, LoadedSkill] = {}
            for skill in reversed(self._loaded.values()):
                text = truncate_block(skill.text, min(per_skill, remaining))
                if not text:
                    status = "was unloaded to free context"
                    note = f"[The skill {skill.name} {status}. Load it again if needed.]"
                    deliveries.append(
                        SkillDelivery(name=skill.name, text=note, tokens=estimate_tokens(note), digest=skill.digest)
                    )
                    continue
                tokens = estimate_tokens(text)
                remaining -= tokens
                if text != skill.text:
                    skill = msgspec.structs.replace(skill, text=text, tokens=tokens, digest=_digest(text))
                kept[skill.name] = skill
                deliveries.append(
                    SkillDelivery(name=skill.name, text=text, tokens=tokens, digest=skill.digest, loaded=skill)
                )
            self._loaded = dict(reversed(kept.items()))
        return deliveries

    def _now(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))


def _make_reading_preparer(library: Registry) -> PrepareSkill:
    def prepare(
        skill: Skill, body: str, first_line: int, arguments: "InvocationArguments"
    ) -> tuple[str, tuple[Diagnostic, ...]]:
        from kitbag.packing.prepare_skill import reading_preparer

        return reading_preparer(library)(skill, body, first_line, arguments)

    return prepare


def _list_warnings(problems: Iterable[Diagnostic]) -> tuple[str, ...]:
    """With file and line."""
    return tuple(f"{problem.place}: {problem.problem}" for problem in problems if problem.severity != "info")


def _is_same(previous: LoadedSkill, delivery: RenderedSkill, arguments: str, by: RequestedBy) -> bool:
    """Whether the session has this text already. The block of an invocation does not name its arguments."""
    if by == "user" and arguments:
        return previous.arguments == arguments and delivery.content in previous.text
    return previous.digest == _digest(delivery.text)


def _make_delivery(name: str, text: str, digest: str, rendered: RenderedSkill) -> SkillDelivery:
    return SkillDelivery(
        name=name, text=text, tokens=estimate_tokens(text), digest=digest, problems=rendered.problems, rendered=rendered
    )


def _reload_reason(previous: LoadedSkill, arguments: str) -> str:
    from kitbag.text.truncate import MARKER

    if MARKER in previous.text:
        return "it was truncated"
    return "its arguments changed" if arguments != previous.arguments else "its text changed"


def _is_allowed(verdict: Verdict, by: RequestedBy) -> bool:
    return verdict.user if by == "user" else verdict.preload if by == "preload" else verdict.model


def _file_stamp(skill: Skill) -> tuple[int, int]:
    try:
        status = os.stat(skill.path)
    except OSError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)


def _last_part(name: str) -> str:
    """`commit` for `git:commit` and `team/commit`."""
    return name.replace("/", ":").rpartition(":")[2]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
