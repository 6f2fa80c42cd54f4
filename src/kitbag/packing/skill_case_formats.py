"""The fields that test cases of skills have in the formats people use: of skill-creator and Anthropic's guides, of
promptfoo, and lists of messages that should and should not trigger.

Names are compared without case, `_` and `-`, so `shouldTrigger` is `should_trigger`. Used by skill_cases.
"""

import json
import re
from typing import Any, Final, cast

import msgspec

from kitbag.errors import Diagnostic
from kitbag.library.names import slugify

_MAX_CASES: Final = 5_000
_MAX_DEPTH: Final = 3
_LISTS: Final = frozenset(
    (
        "eval",
        "evals",
        "cases",
        "test",
        "tests",
        "queries",
        "prompts",
        "scenarios",
        "trigger",
        "triggersuite",
        "triggerevaluation",
    )
)
"""Lists of cases, or tables with such lists."""
_POSITIVE: Final = frozenset(("shouldtrigger", "shouldactivate", "should", "triggers", "positive", "positives"))
_NEGATIVE: Final = frozenset(
    ("shouldnottrigger", "shouldnotactivate", "shouldnot", "notrigger", "negative", "negatives", "near", "nearmisses")
)
_LIST_SUFFIX: Final = re.compile(r"(?<=.)(?:cases|evals|negatives|prompts|queries|tests)$")
_MESSAGES: Final = (
    "query", "prompt", "request", "message", "input", "text", "userinput", "userrequest", "usermessage", "question",
)  # fmt: skip
_EXPECTED: Final = (
    "shouldtrigger", "shouldactivate", "shouldload", "shouldinvoke", "expectedtrigger", "expecttrigger",
)  # fmt: skip
_EXPECTED_WORD: Final = ("expected", "expectedaction", "expect")
_EXPECTED_SKILL: Final = ("expectedskill", "expectskill", "expect")
_CLAIMS: Final = ("assertions", "expectations", "expectedbehavior", "expectedbehaviors", "assert", "checks", "rubric")
_SIGNS_OF_A_CASE: Final = frozenset((*_EXPECTED, *_EXPECTED_SKILL, *_CLAIMS, "expectedoutput"))
_WORDS: Final = {
    **dict.fromkeys(("true", "yes", "1", "trigger", "shouldtrigger", "activate", "positive"), True),
    **dict.fromkeys(("false", "no", "0", "notrigger", "donottrigger", "shouldnottrigger"), False),
    **dict.fromkeys(("donotactivate", "shouldnotactivate", "negative"), False),
}
_NO_SKILL: Final = frozenset(("", "null", "none"))


class SkillCase(msgspec.Struct, frozen=True, kw_only=True):
    skill: str
    """The full name of the skill that the file belongs to."""
    message: str
    should_load: bool
    id: str
    file: str
    claims: int = 0
    """Number of assertions about the answer; routing does not check them."""


class CaseReader:
    """Collects the cases and problems of one file."""

    def __init__(self, skill: str, path: str, *, is_explicit: bool) -> None:
        """`is_explicit`: the name of the file says that it has cases, so an item that is none is a problem."""
        self._skill, self._path, self._is_explicit = skill, path, is_explicit
        self._number = 0
        self.cases: list[SkillCase] = []
        self.problems: list[Diagnostic] = []

    def read(self, value: Any, expected: bool | None = None, depth: int = 0) -> None:
        """A list of cases, a table with lists of cases, or one case."""
        if isinstance(value, list):
            self._number = 0
            for item in cast("list[Any]", value):
                self.read_next(item, expected)
        elif isinstance(value, dict) and depth < _MAX_DEPTH:
            table = cast("dict[Any, Any]", value)
            if not depth and _is_case(table):
                self.read_next(table, expected)
                return
            is_promptfoo = "providers" in table
            for name, inner in table.items():
                key = _list_key(name)
                if key in _POSITIVE or key in _NEGATIVE:
                    self.read(inner, key in _POSITIVE, depth + 1)
                elif key in _LISTS and not (is_promptfoo and key == "prompts"):  # templates
                    self.read(inner, expected, depth + 1)
                elif key == "skills":
                    self._read_own(inner, depth)
                elif self._is_own(name):
                    self.read(inner, expected, depth + 1)

    def _read_own(self, skills: Any, depth: int) -> None:
        """Of a file for several skills: a table by their names, or a list of tables with `name`."""
        if isinstance(skills, dict):
            for name, inner in cast("dict[Any, Any]", skills).items():
                if self._is_own(name):
                    self.read(inner, None, depth + 1)
        for inner in cast("list[Any]", skills) if isinstance(skills, list) else ():
            if isinstance(inner, dict) and self._is_own(cast("dict[str, Any]", inner).get("name")):
                self.read(inner, None, depth + 1)

    def read_next(self, item: Any, expected: bool | None = None) -> None:
        """The next case of the file: a message, or a table with one."""
        self._number += 1
        number = self._number
        if isinstance(item, str) and (expected is not None or self._is_explicit):
            self._add(item, expected is not False, f"{'not-' if expected is False else ''}{number}")
        if not isinstance(item, dict):
            return
        table = {_key(name): value for name, value in cast("dict[Any, Any]", item).items()}
        message = _find_message(table)
        if not message.strip():
            if self._is_explicit or expected is not None or not _SIGNS_OF_A_CASE.isdisjoint(table):
                self.report(f"case {number} has no message", "write the message as a text under `query` or `prompt`")
            return
        claims = [claim for name in _CLAIMS for claim in _as_list(table.get(name))]
        loads, problem = self._find_expectation(table, claims, expected)
        if problem:
            self.report(f"case {number}: {problem}", "use true or false")
            return
        self._add(message, loads, str(table.get("id", table.get("name", number))), len(claims))

    def _find_expectation(self, table: dict[str, Any], claims: list[Any], expected: bool | None) -> tuple[bool, str]:
        """Whether the skill should load, and why that is not known."""
        for name in _EXPECTED:
            if name in table:
                value = table[name]
                known = value if isinstance(value, bool) else _WORDS.get(_key(value))
                shown = json.dumps(value, default=str)[:80]
                return known is True, "" if known is not None else f"`should_trigger` is {shown}"
        for name in _EXPECTED_WORD:
            if (known := _WORDS.get(_key(table.get(name)))) is not None:
                return known, ""
        for name in _EXPECTED_SKILL:
            if name in table and (name != "expect" or " " not in str(table[name])):  # else it is about the answer
                return any(self._is_own(one) for one in _as_list(table[name])), ""
        used = [use for claim in claims if (use := _read_skill_use(claim)) is not None]
        if used and expected is None:
            return any(kind == "skill-used" and self._is_own(name) for kind, name in used), ""
        return expected is not False, ""

    def _is_own(self, name: Any) -> bool:
        """Plugins put their name before the skill's."""
        if not isinstance(name, str) or _key(name) in _NO_SKILL:
            return False
        return slugify(name) == slugify(self._skill) or slugify(name.rpartition(":")[2]) == slugify(
            self._skill.rpartition(":")[2]
        )

    def _add(self, message: str, should_load: bool, case_id: str, claims: int = 0) -> None:
        if not message.strip():
            return self.report(f"case {case_id} has no message", "write a message")
        if len(self.cases) >= _MAX_CASES:
            if len(self.cases) == _MAX_CASES and not any("only the first" in one.problem for one in self.problems):
                self.report(f"only the first {_MAX_CASES:,} cases are used", "split the file")
            return None
        case = SkillCase(
            skill=self._skill, message=message, should_load=should_load, id=case_id, file=self._path, claims=claims
        )
        return self.cases.append(case)

    def report(self, problem: str, fix: str, line: int = 0) -> None:
        self.problems.append(
            Diagnostic(severity="error", code="skill-test", file=self._path, line=line, problem=problem, fix=fix)
        )


def _read_skill_use(claim: Any) -> tuple[str, Any] | None:
    """The kind and the skill of promptfoo's `skill-used` and `not-skill-used`."""
    if not isinstance(claim, dict):
        return None
    fields = cast("dict[str, Any]", claim)
    if fields.get("type") not in ("skill-used", "not-skill-used"):
        return None
    value: Any = fields.get("value")
    return str(fields["type"]), cast("dict[str, Any]", value).get("name") if isinstance(value, dict) else value


def _is_case(table: dict[Any, Any]) -> bool:
    keys = {_key(name): value for name, value in table.items()}
    lists = (keys[key] for key in keys if _list_key(key) in _LISTS)
    has_sign = not _SIGNS_OF_A_CASE.isdisjoint(keys) or isinstance(keys.get("skills"), list)
    return has_sign and bool(_find_message(keys)) and not any(isinstance(value, list) for value in lists)


def _find_message(table: dict[str, Any]) -> str:
    """By normalized name; promptfoo has it in `vars`, where a single text is the message whatever its name."""
    message = next((table[name] for name in _MESSAGES if isinstance(table.get(name), str)), "")
    if message or not isinstance(table.get("vars"), dict):
        return message
    variables = {_key(name): value for name, value in cast("dict[Any, Any]", table["vars"]).items()}
    texts = [value for value in variables.values() if isinstance(value, str)]
    return _find_message(variables) or (texts[0] if len(texts) == 1 else "")


def _key(name: Any) -> str:
    return re.sub(r"[\W_]+", "", str(name)).lower()


def _list_key(name: Any) -> str:
    """`should_trigger_prompts` is `should_trigger`."""
    return _LIST_SUFFIX.sub("", _key(name))


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return cast("list[Any]", value)
    return [value] if isinstance(value, str) and value else []
