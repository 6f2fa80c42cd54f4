"""Personas: what a person in a role sees of a team's skills and agents (seed 002's files).

`read_persona` reads `_persona_<name>.yaml` or `personas/<name>.yaml`; it never raises for content.
Used by the registry and by the visibility rule.
"""

import os
from typing import NamedTuple

from kitbag.errors import Diagnostic
from kitbag.library.names import sanitize_name
from kitbag.library.scopes import Root
from kitbag.library.skills import to_string_list, to_text
from kitbag.text.frontmatter import parse_metadata
from kitbag.text.hidden_characters import find_hidden, format_code_points, remove_hidden
from kitbag.text.plain_frontmatter import Metadata
from kitbag.text.source_files import FileProblem, PathBoundary, SourceError, read_text

PERSONA_FIELDS = frozenset(
    (
        "name", "display_name", "description", "team", "core_skills", "skills", "on_demand_skills", "subagents",
        "system_prompt_additions", "default_model",
    )
)  # fmt: skip
_MAX_BYTES = 256 * 1024
_EMPTY_VALUES = ("", "null", "~")


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
    """None: the file does not say, so all of the team's."""
    system_prompt_additions: str
    default_model: str

    @property
    def full_name(self) -> str:
        return f"{self.team}/{self.name}" if self.team else self.name

    @property
    def declared_skills(self) -> tuple[str, ...]:
        return (*self.core_skills, *self.skills, *self.on_demand_skills)


def read_persona(path: str, root: Root, team: str = "") -> tuple[Persona | None, list[Diagnostic]]:
    found: list[Diagnostic] = []

    def note(line: int, problem: str, fix: str, code: str = "persona") -> None:
        found.append(Diagnostic("warning", code, path, line, problem, fix))

    metadata = _read_fields(path, root.boundary, found)
    if metadata is None:
        return None, found
    metadata = {key: value for key, value in metadata.items() if value not in _EMPTY_VALUES}
    stem = os.path.splitext(os.path.basename(path))[0].removeprefix("_persona_")
    name, wrong = sanitize_name(metadata.get("name"), stem)
    if wrong:
        note(1, f"{wrong}; it is called {name!r}", "use lower-case letters, digits and `-`", "name-unusable")
    for key in metadata:
        if key not in PERSONA_FIELDS:
            note(
                1,
                f"`{key}` is not a field of personas; ignored",
                f"known fields: {', '.join(sorted(PERSONA_FIELDS))}",
            )
    written_team = to_text(metadata.get("team", "")).strip()
    if team and written_team and written_team.casefold() != team.casefold():
        note(
            1,
            f"`team` is {written_team!r} but the file lies in the folder of {team!r}, which counts",
            "correct `team`",
        )

    def text(key: str) -> str:
        written = metadata.get(key, "")
        value = "\n".join(map(to_text, written)) if isinstance(written, list) else to_text(written)
        value = value.strip()
        hidden = find_hidden(value)
        if hidden:
            note(
                1,
                f"`{key}` has hidden characters, left out: {format_code_points(hidden)}",
                "remove them",
                "hidden-characters",
            )
        return remove_hidden(value)

    for key in ("core_skills", "skills", "on_demand_skills", "subagents"):
        if isinstance(metadata.get(key), dict):
            note(1, f"`{key}` is a map; a list of names is needed", f"write `{key}:` and one `- name` a line")
    return (
        Persona(
            root, path, name, text("display_name") or name, text("description"),
            team or (sanitize_name(written_team, "")[0] if written_team else ""),
            to_string_list(metadata.get("core_skills")), to_string_list(metadata.get("skills")),
            to_string_list(metadata.get("on_demand_skills")),
            to_string_list(metadata["subagents"]) if "subagents" in metadata else None,
            text("system_prompt_additions"), text("default_model"),
        ),
        found,
    )  # fmt: skip


def _read_fields(path: str, boundary: PathBoundary | None, found: list[Diagnostic]) -> Metadata | None:
    """What can be recovered of the fields; None when there are none at all."""
    problems: list[FileProblem] = []
    try:
        content, _, problems = read_text(path, boundary, _MAX_BYTES)
    except SourceError as error:
        found.append(Diagnostic("error", error.code, path, 0, error.problem, error.fix))
        return None
    metadata = parse_metadata(content, 1, PERSONA_FIELDS, problems)
    severity = "warning" if metadata else "error"
    for p in problems:
        what = p.problem.replace("the head is", "the file is")
        found.append(Diagnostic(severity, p.code, path, p.line, what, p.fix))
    if not metadata and not problems:
        found.append(Diagnostic("error", "persona", path, 1, "the file is empty", "write `name:` and so on"))
    return metadata or None
