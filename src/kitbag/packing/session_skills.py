"""The skills of one conversation: delivered once, with a receipt for every further asking, dropped when asked.

Used by the Skill tool, by `/name`, by compaction, over MCP, and by SkillRegistry. Commands and arguments in a skill are
the business of `Prepare`, which asks policy; without one they stay the text they are.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from kitbag.errors import Diagnostic, InvalidError, NotFoundError
from kitbag.library.registry import Registry
from kitbag.library.skill_files import read_details
from kitbag.library.skills import Skill, string_list
from kitbag.packing.delivery import Delivery, deliver
from kitbag.packing.substitutions import Given
from kitbag.text.tokens import estimate_tokens
from kitbag.text.truncate import truncate_lines

By = Literal["model", "user", "preload"]
Prepare = Callable[[Skill, str, int, Given], tuple[str, tuple[Diagnostic, ...]]]
"""The body with commands run and arguments in place: (skill, body, its first line, arguments) -> (text, warnings)."""


class Delivered(NamedTuple):
    name: str
    text: str
    """What the model gets: the whole block, only what is new, or one line."""
    tokens: int
    digest: str
    problems: tuple[Diagnostic, ...] = ()
    loaded: "Loaded | None" = None
    """What is loaded now because of it; None for a receipt, and for what lives only one turn."""


class Loaded(NamedTuple):
    name: str
    tokens: int
    at: str
    by: By
    digest: str
    arguments: str
    text: str
    """The whole block, as it was last delivered."""


class SessionSkills:
    def __init__(
        self, library: Registry, prepare: Prepare | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.library = library
        self._prepare = prepare
        self._clock = clock
        self._loaded: dict[str, Loaded] = {}

    def load(self, name: str, arguments: str = "", by: By = "model") -> Delivered:
        """Raises NotFoundError or AmbiguousError for the name, InvalidError for a skill that is closed or broken."""
        skill = self.find(name, by)
        delivery = self._deliver(skill, arguments)
        known = self._loaded.get(skill.full_name)
        digest = _digest(delivery.text)
        if by == "user":  # for one turn: it is not kept, and what is kept stays
            return Delivered(skill.full_name, delivery.text, _tokens(delivery.text), digest, delivery.problems)
        if known is not None and known.digest == digest:
            text = f"The skill {skill.full_name} is loaded already ({known.tokens} tokens, {known.at}), unchanged."
            return Delivered(skill.full_name, text, _tokens(text), digest, delivery.problems)
        text = delivery.text if known is None else _what_is_new(skill.full_name, known, delivery.text, arguments)
        self._loaded.pop(skill.full_name, None)  # so that the newest stands last
        loaded = Loaded(skill.full_name, _tokens(delivery.text), self._now(), by, digest, arguments, delivery.text)
        self._loaded[skill.full_name] = loaded
        return Delivered(skill.full_name, text, _tokens(text), digest, delivery.problems, loaded)

    def find(self, name: str, by: By = "model") -> Skill:
        """A skill that whoever asks may load. Only such ones are suggested for a name that is unknown."""
        try:
            skill = self.library.find_skill(name)
        except NotFoundError as error:
            skills, view = self.library.skills, self.library.view()
            close = [skills.get(other) for other in skills.close(name, 20)]
            names = [skill.full_name for skill in close if self.library.judge(skill, view).model][:5]
            hint = f"did you mean {', '.join(names)}?" if names else "use a name from the catalog, or search"
            raise NotFoundError(error.problem, hint) from None
        verdict = self.library.judge(skill)
        if not (verdict.user if by == "user" else verdict.model):
            who = "a person" if by == "user" else "a model"
            raise InvalidError(f"{skill.full_name!r} can't be loaded by {who}: {verdict.reason}")
        return skill

    def _deliver(self, skill: Skill, arguments: str) -> Delivery:
        names = string_list(read_details(skill).metadata.get("arguments"))
        given = Given(arguments, names, from_one=skill.root.dialect == "opencode")
        notes: list[Diagnostic] = []

        def prepared(body: str, first_line: int) -> str:
            if self._prepare is None:
                return body
            text, warnings = self._prepare(skill, body, first_line, given)
            notes.extend(warnings)
            return text

        delivery = deliver(skill, arguments, prepared)
        failed = next((problem for problem in delivery.problems if problem.severity == "error"), None)
        if failed is not None or not os.path.exists(skill.path):
            what = failed.problem if failed else "can't be read any more"
            raise InvalidError(f"{skill.path}: {what}", failed.fix if failed else "restore the file")
        return delivery._replace(problems=(*delivery.problems, *notes))

    def unload(self, name: str) -> str | None:
        """The full name of what was dropped; None when it was not loaded."""
        found = self.loaded_name(name)
        if found is not None:
            del self._loaded[found]
        return found

    def loaded_name(self, name: str) -> str | None:
        """What was loaded under that name, also when its file is gone since."""
        wanted = name.strip().lower()
        for full in self._loaded:
            if full.lower() == wanted:
                return full
        ends = [full for full in self._loaded if full.lower().endswith(f":{wanted}")]
        return ends[0] if len(ends) == 1 else None

    def loaded(self) -> list[Loaded]:
        """The oldest first."""
        return list(self._loaded.values())

    def restore(self, loaded: Iterable[Loaded]) -> None:
        """What a resumed conversation already holds."""
        self._loaded = {one.name: one for one in loaded}

    def reattachment(self, each: int = 5_000, altogether: int = 25_000) -> list[Delivered]:
        """After compaction: the most recent first, each cut to its limit, as many as fit."""
        attached: list[Delivered] = []
        left = altogether
        for one in reversed(self.loaded()):
            cut = truncate_lines(one.text, min(each, left), estimate_tokens)
            if not cut.text:
                break
            left -= cut.tokens
            attached.append(Delivered(one.name, cut.text, cut.tokens, one.digest))
        return attached

    def _now(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _tokens(text: str) -> int:
    return estimate_tokens(text)


def _what_is_new(name: str, known: Loaded, text: str, arguments: str) -> str:
    """Only the lines that the conversation does not have yet, unless most of it is new."""
    import difflib

    old, new = known.text.splitlines(), text.splitlines()
    changed = [
        line
        for tag, _, _, start, end in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if tag in ("replace", "insert")
        for line in new[start:end]
    ]
    gone = len(old) > len(new) and not changed
    if len("\n".join(changed)) * 2 > len(text) or gone:
        return text
    why = "other arguments" if arguments != known.arguments else "its file changed"
    inside = "\n".join(changed)
    return f"The skill {name} is loaded already; {why}. The lines that are new:\n{inside}"
