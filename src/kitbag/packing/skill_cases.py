"""Reads the test cases that lie beside a skill: which messages should load it and which should not.

Formats: `evals/evals.json` with `assertions` or `expectations`, `[{query, should_trigger}]`, lists under
`should_trigger` and `should_not_trigger`, each as JSON, JSON lines or YAML. Reading never raises: a case that can't be
used is a Diagnostic. Used by `kitbag skills test`.
"""

import os
from typing import Any, Final, cast

import msgspec

from kitbag.errors import Diagnostic
from kitbag.library.skills import COMMAND, FLAT, Skill
from kitbag.text.safe_json import parse_json
from kitbag.text.safe_yaml import YamlError, parse_yaml
from kitbag.text.source_files import SourceError, read_text

_SUFFIXES: Final = (".json", ".jsonl", ".yaml", ".yml")
_MAX_BYTES: Final = 4 * 1024 * 1024
_MAX_CASES: Final = 5_000
_LISTS: Final = ("evals", "cases", "tests", "queries", "prompts")
_MESSAGES: Final = ("query", "prompt", "request", "message", "input", "text")
_POSITIVE: Final = ("should_trigger", "triggers", "positive")
_NEGATIVE: Final = ("should_not_trigger", "should_not", "no_trigger", "negative", "near_negatives")
_CLAIMS: Final = ("assertions", "expectations", "expected_behavior")
_WORDS: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class SkillCase(msgspec.Struct, frozen=True, kw_only=True):
    skill: str
    """The full name of the skill that the file belongs to."""
    message: str
    should_load: bool
    id: str
    file: str
    claims: int = 0
    """Number of assertions about the answer; routing does not check them."""


class CaseFile(msgspec.Struct, frozen=True, kw_only=True):
    cases: tuple[SkillCase, ...] = ()
    problems: tuple[Diagnostic, ...] = ()


def find_case_files(skill: Skill) -> list[str]:
    """`evals.json`, `evals.yaml` and the files in `evals/`, sorted."""
    if skill.flags & (FLAT | COMMAND):
        return []
    found: list[str] = []
    for folder, is_own in ((skill.directory, False), (os.path.join(skill.directory, "evals"), True)):
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            stem, suffix = os.path.splitext(name)
            if suffix in _SUFFIXES and (is_own or stem in ("evals", "trigger_evals", "trigger-evals")):
                found.append(os.path.join(folder, name))
    return [path for path in found if os.path.isfile(path)]


def read_cases(skill: Skill, path: str) -> CaseFile:
    """A file in `evals/` that has no cases, such as results of an earlier run, is ignored, unless its name says
    otherwise."""
    reader = _CaseReader(skill.full_name, path)
    try:
        text = read_text(path, skill.root.boundary, _MAX_BYTES)[0]
        if path.endswith(".jsonl"):
            reader.read_lines(text)
        else:
            reader.read(parse_yaml(text)[0] if path.endswith((".yaml", ".yml")) else parse_json(text))
    except SourceError as error:
        return _failed(path, error.problem)
    except YamlError as error:
        return _failed(path, f"invalid YAML: {error.problem.problem}", error.problem.line + 1)
    except (ValueError, RecursionError) as error:
        return _failed(path, f"invalid JSON: {_json_problem(error)}", getattr(error, "lineno", 0))
    is_meant = os.path.splitext(os.path.basename(path))[0].replace("-", "_") in ("evals", "trigger_evals", "triggers")
    if not reader.cases and not reader.problems and is_meant:
        return _failed(path, "no test cases", fix="write a list of `query` and `should_trigger`")
    return CaseFile(cases=tuple(reader.cases), problems=tuple(reader.problems))


def _json_problem(error: ValueError | RecursionError) -> str:
    """Without the line, which the Diagnostic has."""
    return str(getattr(error, "msg", error))


class _CaseReader:
    def __init__(self, skill: str, path: str) -> None:
        self._skill, self._path = skill, path
        self.cases: list[SkillCase] = []
        self.problems: list[Diagnostic] = []

    def read(self, value: Any) -> None:
        if isinstance(value, list):
            for number, item in enumerate(cast("list[Any]", value), 1):
                self._read_item(item, number, None)
        elif isinstance(value, dict):
            table = cast("dict[str, Any]", value)
            for name in _LISTS:
                for number, item in enumerate(_as_list(table.get(name)), 1):
                    self._read_item(item, number, None)
            for names, expected in ((_POSITIVE, True), (_NEGATIVE, False)):
                for number, item in enumerate((item for name in names for item in _as_list(table.get(name))), 1):
                    self._read_item(item, number, expected)

    def read_lines(self, text: str) -> None:
        """One case a line."""
        number = 0
        for at, line in enumerate(text.splitlines(), 1):
            if line.strip():
                number += 1
                try:
                    self._read_item(parse_json(line), number, None)
                except (ValueError, RecursionError) as error:
                    self._report(f"invalid JSON: {_json_problem(error)}", "fix the line", at)

    def _read_item(self, item: Any, number: int, expected: bool | None) -> None:
        if isinstance(item, str) and expected is not None:
            self._add(item, expected, f"{'' if expected else 'not-'}{number}")
        if not isinstance(item, dict):
            return
        table = cast("dict[str, Any]", item)
        is_case = expected is not None or not table.keys().isdisjoint((*_POSITIVE, *_CLAIMS, "expected_output"))
        message = next((table[name] for name in _MESSAGES if isinstance(table.get(name), str)), "")
        if not is_case and not message:
            return
        if not message.strip():
            self._report(f"case {number} has no message", "add `query` or `prompt`")
            return
        loads = table.get("should_trigger", True if expected is None else expected)
        if not isinstance(loads, bool):
            known = _WORDS.get(str(loads).strip().lower())
            if known is None:
                self._report(f"case {number}: `should_trigger` is {loads!r}", "use true or false")
                return
            loads = known
        claims = sum(len(_as_list(table.get(name))) for name in _CLAIMS)
        self._add(message, loads, str(table.get("id", table.get("name", number))), claims)

    def _add(self, message: str, should_load: bool, case_id: str, claims: int = 0) -> None:
        if len(self.cases) >= _MAX_CASES:
            return
        self.cases.append(
            SkillCase(
                skill=self._skill,
                message=message,
                should_load=should_load,
                id=case_id,
                file=self._path,
                claims=claims,
            )
        )

    def _report(self, problem: str, fix: str, line: int = 0) -> None:
        self.problems.append(_problem(self._path, problem, fix, line))


def _as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _problem(path: str, problem: str, fix: str, line: int = 0) -> Diagnostic:
    return Diagnostic(severity="error", code="skill-test", file=path, line=line, problem=problem, fix=fix)


def _failed(path: str, problem: str, line: int = 0, fix: str = "fix the file") -> CaseFile:
    return CaseFile(problems=(_problem(path, problem, fix, line),))
