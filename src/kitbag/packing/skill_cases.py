"""Reads the test cases that lie beside a skill: which messages should load it and which should not.

Finds the files and decodes them; skill_case_formats knows their fields. Reading never raises: a case that can't be used
is a Diagnostic. Used by `kitbag skills test` and skill_collisions.
"""

import csv
import os
from collections.abc import Sequence
from typing import Final

import msgspec

from kitbag.errors import Diagnostic
from kitbag.library.skills import COMMAND, FLAT, Skill
from kitbag.packing.skill_case_formats import CaseReader, SkillCase
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.text.safe_json import parse_json
from kitbag.text.safe_yaml import YamlError, parse_yaml
from kitbag.text.source_files import SourceError, read_text

_SUFFIXES: Final = (".json", ".jsonl", ".yaml", ".yml", ".csv")
_MAX_BYTES: Final = 4 * 1024 * 1024
_CASE_FILES: Final = ("eval", "evals", "trigger_evals", "trigger_tests")
"""Names of files that must have cases, wherever they lie; in `evals/` and `tests/`, also `triggers`."""
_TRIGGERS: Final = "triggers"
_FOLDERS: Final = ("", "evals", "tests")
_JSON_FIX: Final = "fix the file; JSON has no comments and no comma after the last item"


class CaseFile(msgspec.Struct, frozen=True, kw_only=True):
    cases: tuple[SkillCase, ...] = ()
    problems: tuple[Diagnostic, ...] = ()


def find_case_files(skill: Skill) -> list[str]:
    """The files in `evals/`, and those beside the skill and in `tests/` whose name says that they are test cases."""
    if skill.flags & (FLAT | COMMAND):
        return []
    found: list[str] = []
    for folder in _FOLDERS:
        try:
            names = sorted(os.listdir(os.path.join(skill.directory, folder)))
        except OSError:
            continue
        for name in names:
            if name.endswith(_SUFFIXES) and (folder == "evals" or _must_have_cases(os.path.join(folder, name))):
                found.append(os.path.join(skill.directory, folder, name))
    return [path for path in found if os.path.isfile(path)]


def _must_have_cases(path: str) -> bool:
    name = os.path.splitext(os.path.basename(path))[0].lower().replace("-", "_")
    return name in _CASE_FILES or (name == _TRIGGERS and os.path.basename(os.path.dirname(path)) in _FOLDERS[1:])


def read_cases(skill: Skill, path: str) -> CaseFile:
    """A file in `evals/` that has no cases, such as results of an earlier run, is ignored, unless its name says
    otherwise."""
    must_have_cases = _must_have_cases(path)
    reader = CaseReader(skill.full_name, path, is_explicit=must_have_cases)
    try:
        text, _, problems = read_text(path, skill.root.boundary, _MAX_BYTES)
        if any(one.code == "file-too-large" for one in problems):
            return _failed(path, f"larger than {_MAX_BYTES >> 20} MB", fix="split the file")
        _decode(reader, path, text)
    except SourceError as error:
        return _failed(path, error.problem, fix=error.fix)
    except YamlError as error:
        problem = f"invalid YAML: {error.problem.problem.removeprefix('not valid YAML: ')}"
        return _failed(path, problem, error.problem.line + 1, error.problem.fix)
    except csv.Error as error:
        return _failed(path, f"invalid CSV: {error}")
    except (ValueError, RecursionError) as error:
        return _failed(path, f"invalid JSON: {_json_problem(error)}", getattr(error, "lineno", 0), _JSON_FIX)
    if not reader.cases and not reader.problems and must_have_cases:
        return _failed(path, "no test cases", fix='write a list such as [{"query": "...", "should_trigger": true}]')
    return CaseFile(cases=tuple(reader.cases), problems=tuple(reader.problems))


def _decode(reader: CaseReader, path: str, text: str) -> None:
    if path.endswith((".yaml", ".yml")):
        reader.read(parse_yaml(text)[0])
    elif path.endswith(".csv"):
        reader.read(list(csv.DictReader(text.splitlines(keepends=True))))
    elif path.endswith(".jsonl"):
        for line_number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                try:
                    reader.read_next(parse_json(line))
                except (ValueError, RecursionError) as error:
                    reader.report(f"invalid JSON: {_json_problem(error)}", "fix the line", line_number)
    elif text.strip():
        reader.read(parse_json(text))


def _json_problem(error: ValueError | RecursionError) -> str:
    """Without the line, which the Diagnostic has."""
    text = str(getattr(error, "msg", error))
    column = getattr(error, "colno", 0)
    return f"{text[:1].lower()}{text[1:]} at column {column}" if column else text


def find_contradictions(cases: Sequence[SkillCase]) -> list[Diagnostic]:
    """Messages that should and should not load the same skill: one of the two cases fails whatever happens."""
    seen: dict[tuple[str, str], SkillCase] = {}
    found: list[Diagnostic] = []
    for case in cases:
        other = seen.setdefault((case.skill, collapse_whitespace(case.message).casefold()), case)
        if other.should_load != case.should_load:
            where = f"case {other.id}" if other.file == case.file else f"case {other.id} of {other.file}"
            problem = f"case {case.id} contradicts {where}: the same message should load {case.skill} and should not"
            found.append(_problem(case.file, problem, "delete one of the two"))
    return found


def _problem(path: str, problem: str, fix: str, line: int = 0) -> Diagnostic:
    return Diagnostic(severity="error", code="skill-test", file=path, line=line, problem=problem, fix=fix)


def _failed(path: str, problem: str, line: int = 0, fix: str = "fix the file") -> CaseFile:
    return CaseFile(problems=(_problem(path, problem, fix, line),))
