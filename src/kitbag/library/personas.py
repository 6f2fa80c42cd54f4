"""Personas: which of a team's skills and agents a role sees (format of seed 002).

`read_persona` reads `_persona_<name>.yaml` or `personas/<name>.yaml` and never raises for content.
Used by the registry and visibility; uses text/frontmatter.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

from kitbag.errors import Diagnostic
from kitbag.library.dialects.field_names import PERSONA_FIELDS
from kitbag.library.dialects.field_spelling import FieldSpelling
from kitbag.library.names import normalize_name, sanitize_name
from kitbag.library.scopes import Root
from kitbag.library.skills import to_string_list, to_text
from kitbag.text.frontmatter import key_line
from kitbag.text.frontmatter_fields import parse_metadata
from kitbag.text.hidden_characters import find_disguises, format_code_points, remove_hidden
from kitbag.text.plain_frontmatter import Metadata
from kitbag.text.source_files import FileProblem, PathBoundary, SourceError, read_text

_MAX_BYTES = 256 * 1024
_EMPTY_VALUES = ("", "null", "~")
_SPELLING = FieldSpelling({field: (field,) for field in PERSONA_FIELDS}, (), ())


class Persona(NamedTuple):
    root: Root
    path: str
    name: str
    display_name: str
    description: str
    team: str
    core_skills: tuple[str, ...]
    skills: tuple[str, ...]
    on_demand_skills: tuple[str, ...]
    subagents: tuple[str, ...] | None
    """None: not declared, so all of the team's agents."""
    system_prompt_additions: str
    default_model: str

    @property
    def full_name(self) -> str:
        return f"{self.team}/{self.name}" if self.team else self.name

    @property
    def declared_skills(self) -> tuple[str, ...]:
        return (*self.core_skills, *self.skills, *self.on_demand_skills)


def read_persona(path: str, root: Root, team: str = "") -> tuple[Persona | None, list[Diagnostic]]:
    diagnostics: list[Diagnostic] = []

    metadata, text = _read_fields(path, root.boundary, diagnostics)
    if not metadata:
        return None, diagnostics

    def warn(key: str, problem: str, fix: str, code: str = "persona") -> None:
        line = key_line(text, key, 1)
        diagnostics.append(Diagnostic(severity="warning", code=code, file=path, line=line, problem=problem, fix=fix))

    metadata = _SPELLING.rename({key: value for key, value in metadata.items() if value not in _EMPTY_VALUES}, [])
    stem = os.path.splitext(os.path.basename(path))[0].removeprefix("_persona_")
    name, name_problem = sanitize_name(metadata.get("name"), stem)
    if name_problem:
        problem = f"{name_problem}; the name {name!r} is used"
        warn("name", problem, "use lowercase letters, digits and `-`", "name-unusable")
    _check_fields(metadata, warn)
    declared_team = to_text(metadata.get("team", "")).strip()
    if team and declared_team and normalize_name(declared_team) != normalize_name(team):
        warn(
            "team",
            f"`team` is {declared_team!r}, but the file is in the directory of {team!r}; {team!r} is used",
            "fix `team`",
        )

    def get_text_field(key: str) -> str:
        declared = metadata.get(key, "")
        value = "\n".join(map(to_text, declared)) if isinstance(declared, list) else to_text(declared)
        value = value.strip()
        hidden = find_disguises(value)
        if hidden:
            warn(
                key,
                f"`{key}` contains hidden characters, removed: {format_code_points(hidden)}",
                "remove them",
                "hidden-characters",
            )
        return remove_hidden(value)

    return (
        Persona(
            root=root,
            path=path,
            name=name,
            display_name=get_text_field("display_name") or name,
            description=get_text_field("description"),
            team=team or (sanitize_name(declared_team, "")[0] if declared_team else ""),
            core_skills=to_string_list(metadata.get("core_skills")),
            skills=to_string_list(metadata.get("skills")),
            on_demand_skills=to_string_list(metadata.get("on_demand_skills")),
            subagents=to_string_list(metadata["subagents"]) if "subagents" in metadata else None,
            system_prompt_additions=get_text_field("system_prompt_additions"),
            default_model=get_text_field("default_model"),
        ),
        diagnostics,
    )


def _check_fields(metadata: Metadata, warn: Callable[[str, str, str], None]) -> None:
    for key in metadata:
        if key not in PERSONA_FIELDS:
            warn(key, f"unknown field `{key}`; ignored", f"known fields: {', '.join(sorted(PERSONA_FIELDS))}")
    for key in ("core_skills", "skills", "on_demand_skills", "subagents"):
        if isinstance(metadata.get(key), dict):
            fix = f"write `{key}:` followed by one `- name` per line"
            warn(key, f"`{key}` must be a list of names, not a mapping", fix)


def _read_fields(path: str, boundary: PathBoundary | None, diagnostics: list[Diagnostic]) -> tuple[Metadata, str]:
    """The fields that can be read, and the text."""
    problems: list[FileProblem] = []
    try:
        content, _, problems = read_text(path, boundary, _MAX_BYTES)
    except SourceError as error:
        diagnostics.append(
            Diagnostic(severity="error", code=error.code, file=path, line=0, problem=error.problem, fix=error.fix)
        )
        return {}, ""
    metadata = parse_metadata(content, 1, PERSONA_FIELDS, problems)
    severity = "warning" if metadata else "error"
    for problem in problems:
        description = problem.problem.replace("the frontmatter is", "the file is")
        diagnostics.append(
            Diagnostic(
                severity=severity, code=problem.code, file=path, line=problem.line, problem=description, fix=problem.fix
            )
        )
    if not metadata and not problems:
        diagnostics.append(
            Diagnostic(
                severity="error",
                code="persona",
                file=path,
                line=1,
                problem="the file is empty",
                fix="add `name:` and `description:`",
            )
        )
    return metadata, content
