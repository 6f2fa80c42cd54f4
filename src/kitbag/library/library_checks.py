"""Checks across all items: collisions, references to missing names, nested skills, skill contents.

Used by `Registry.diagnostics` and `kitbag doctor`; too slow for listings.
"""

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kitbag.errors import Diagnostic
from kitbag.library.discover import SKIPPED_FOLDERS, is_container_folder
from kitbag.library.item_files import TOOL_FOLDERS, find_item_folder
from kitbag.library.names import LibraryItem
from kitbag.library.scan_budget import ScanBudget
from kitbag.library.scopes import Root, describe_precedence
from kitbag.library.skills import COMMAND, FLAT, NO_MODEL, Skill
from kitbag.library.visibility import is_named_in
from kitbag.settings import Settings
from kitbag.text.frontmatter import find_field_line
from kitbag.text.hidden_characters import find_disguises, format_code_points
from kitbag.text.human_format import format_count
from kitbag.text.source_files import SourceError, read_text

if TYPE_CHECKING:
    from kitbag.library.agents import AgentFile
    from kitbag.library.names import Namespace
    from kitbag.library.personas import Persona

CHAT_COMMANDS = frozenset(
    (
        "help", "env", "skills", "agents", "persona", "model", "mode", "context", "tasks", "stop", "resume", "compact",
        "clear", "permissions", "doctor", "reload", "export", "exit",
    )
)  # fmt: skip

_MAX_POLICY_BYTES = 64 * 1024
_MAX_SUGGESTIONS = 20
"""Finding similar names is slow in a large library."""


def check_collisions(
    shadowed: "Iterable[tuple[LibraryItem, LibraryItem]]", precedence: str, file: str = ""
) -> list[Diagnostic]:
    """`file`: only for the loser in this file."""
    diagnostics: list[Diagnostic] = []
    for winner, loser in shadowed:
        if file and loser.path != file:
            continue
        if os.path.realpath(winner.path) == os.path.realpath(loser.path):
            continue  # the same file in two roots
        rule = _collision_rule(winner, loser, precedence)
        problem = f"{loser.full_name!r} is shadowed by {winner.path} ({rule})"
        shadows_builtin = loser.root.scope == "built-in"
        fix = (
            "no action needed if you meant to replace the built-in item"
            if shadows_builtin
            else "rename or remove one of them"
        )
        severity = "info" if shadows_builtin else "warning"
        diagnostics.append(
            Diagnostic(severity=severity, code="shadowed", file=loser.path, line=0, problem=problem, fix=fix)
        )
    return diagnostics


def _collision_rule(winner: LibraryItem, loser: LibraryItem, precedence: str) -> str:
    first, second = describe_precedence(winner.root, precedence), describe_precedence(loser.root, precedence)
    if first != second:
        return f"{first} before {second}"
    if (winner.root.kind, loser.root.kind) == ("skills", "commands"):
        return f"{first}: skills before commands"
    if winner.root.path != loser.root.path:
        return f"{first}: closer directory first, then by tool"
    return "same root: directory with that name first, then by depth, then alphabetically"


class _UnknownNames:
    """Reports references to missing items."""

    def __init__(self, skills: "Namespace[Skill]", agents: "Namespace[AgentFile]") -> None:
        self._skills, self._agents = skills, agents
        self._suggestions = _MAX_SUGGESTIONS
        self.diagnostics: list[Diagnostic] = []

    def check_persona(self, persona: "Persona") -> None:
        for field, names in (
            ("core_skills", persona.core_skills),
            ("skills", persona.skills),
            ("on_demand_skills", persona.on_demand_skills),
        ):
            for name in names:
                if not any(is_named_in(skill, (name,)) for skill in self._skills.candidates(name)):
                    self.report(persona.path, persona.root, field, name, "skill", self._skills)
        for name in persona.subagents or ():
            if not any(is_named_in(agent, (name,)) for agent in self._agents.candidates(name)):
                self.report(persona.path, persona.root, "subagents", name, "agent", self._agents)

    def report(
        self, path: str, root: Root, field: str, name: str, noun: str, known: "Namespace[Skill] | Namespace[AgentFile]"
    ) -> None:
        self._suggestions -= 1
        similar = known.suggest(name, 3) if self._suggestions >= 0 else []
        fix = f"did you mean {', '.join(similar)}?" if similar else f"fix the name, or add the {noun}"
        problem = f"`{field}` refers to an unknown {noun} {name!r}"
        line = find_field_line(path, field, root.boundary, name)
        self.diagnostics.append(
            Diagnostic(severity="warning", code="unknown-name", file=path, line=line, problem=problem, fix=fix)
        )


def check_persona_names(
    persona: "Persona", skills: "Namespace[Skill]", agents: "Namespace[AgentFile]"
) -> list[Diagnostic]:
    """Names that one persona declares and that do not exist. Fast enough for every start."""
    unknown = _UnknownNames(skills, agents)
    unknown.check_persona(persona)
    return unknown.diagnostics


def check_declared_names(
    skills: "Namespace[Skill]",
    agents: "Namespace[AgentFile]",
    personas: "Iterable[Persona]",
    settings: Settings,
    file: str = "",
) -> list[Diagnostic]:
    """References to missing items in personas, agents, skills and settings. `file`: only those in this file."""

    def is_checked(item: LibraryItem) -> bool:
        return not file or item.path == file

    unknown = _UnknownNames(skills, agents)
    diagnostics = unknown.diagnostics
    for persona in filter(is_checked, personas):
        unknown.check_persona(persona)
    for agent in filter(is_checked, agents):
        for name in agent.skills:
            if not skills.candidates(name):
                unknown.report(agent.path, agent.root, "skills", name, "skill", skills)
    for skill in filter(is_checked, skills):
        for name in skill.subagents:
            if not agents.candidates(name):
                unknown.report(skill.path, skill.root, "subagents", name, "agent", agents)
        if skill.full_name.lower() in CHAT_COMMANDS:
            problem = f"the chat command /{skill.full_name.lower()} takes precedence over this skill"
            diagnostics.append(
                Diagnostic(
                    severity="warning",
                    code="reserved-name",
                    file=skill.path,
                    line=0,
                    problem=problem,
                    fix="rename the skill",
                )
            )
    return diagnostics + _check_short_names(skills, agents, settings)


def _check_short_names(
    skills: "Namespace[Skill]", agents: "Namespace[AgentFile]", settings: Settings
) -> list[Diagnostic]:
    """States apply to full names only. An unknown name is not reported: it may exist in another project."""
    diagnostics: list[Diagnostic] = []
    for group, namespace in (("skills", skills), ("agents", agents)):
        for name, state in settings.states(group).items():
            matches = [] if namespace.get_exact(name) else namespace.candidates(name)
            if matches:
                problem = f"`{group}.{name}` has no effect: not a full name"
                fix = f"use the full name: {', '.join(item.full_name for item in matches[:5])}"
                diagnostics.append(
                    Diagnostic(
                        severity="warning", code="unknown-name", file=state.source, line=0, problem=problem, fix=fix
                    )
                )
    return diagnostics


def find_nested_skills(skills: Iterable[Skill]) -> list[Diagnostic]:
    """SKILL.md files inside another skill's folder, which are not loaded. Walks folders: for doctor only."""
    diagnostics: list[Diagnostic] = []
    budget = ScanBudget()
    budget.start()
    for skill in skills:
        if skill.flags & (FLAT | COMMAND) or skill.root.scope == "built-in":
            continue
        for directory, folders, files in os.walk(skill.directory):
            if not budget.take():
                return [*diagnostics, budget.diagnostic(skill.directory)]
            folders[:] = [name for name in folders if name[0] != "." and name != "node_modules"]
            if directory.count(os.sep) - skill.directory.count(os.sep) > 5:
                folders.clear()
            if directory != skill.directory and "SKILL.md" in files:
                path = os.path.join(directory, "SKILL.md")
                if is_container_folder(skill.directory):
                    folders.clear()  # the loaded skill's own
                    continue
                problem = f"ignored: it is inside the skill {skill.full_name!r}"
                diagnostics.append(
                    Diagnostic(
                        severity="info",
                        code="nested-skill",
                        file=path,
                        line=0,
                        problem=problem,
                        fix="move its directory next to the other skills",
                    )
                )
    return diagnostics


def find_unsearched_items(directories: Iterable[str], roots: Iterable[Root]) -> list[Diagnostic]:
    """Folders of skills, agents and commands in directories given with `--dir` that are outside the folders loaded from
    there, as in a repository with `.claude/skills` and `plugins/x/skills`. Walks folders: for doctor only."""
    diagnostics: list[Diagnostic] = []
    searched = {(root.kind, root.path) for root in roots}
    budget = ScanBudget()
    budget.start()
    for directory in directories:
        counts: dict[str, dict[str, int]] = {"skills": {}, "agents": {}, "commands": {}}
        for folder, subfolders, files in os.walk(directory):
            if not budget.take():
                return [*diagnostics, budget.diagnostic(directory)]
            subfolders[:] = sorted(
                name for name in subfolders if (name[0] != "." or name in TOOL_FOLDERS) and name not in SKIPPED_FOLDERS
            )
            if "SKILL.md" in files:
                subfolders.clear()
                _count_unsearched(counts["skills"], directory, os.path.dirname(folder), 1, searched, "skills")
                continue
            parts = os.path.relpath(folder, directory).split(os.sep)
            at = find_item_folder(parts)
            kind = parts[at] if at >= 0 else ""
            if kind in counts:
                number = sum(name.endswith(".md") and name.lower() != "readme.md" for name in files)
                top = os.path.join(directory, *parts[: at + 1])
                _count_unsearched(counts[kind], directory, top, number, searched, kind)
        for kind, folders in counts.items():
            if folders:
                diagnostics.append(_unsearched_problem(directory, kind, folders))
    return diagnostics


def _count_unsearched(
    counts: dict[str, int], directory: str, folder: str, number: int, searched: set[tuple[str, str]], kind: str
) -> None:
    if (kind, directory) in searched:
        return
    above = folder
    while number and len(above) >= len(directory):
        if (kind, above) in searched:
            return
        above = os.path.dirname(above)
    if number:
        counts[folder] = counts.get(folder, 0) + number


def _unsearched_problem(directory: str, kind: str, folders: dict[str, int]) -> Diagnostic:
    largest = sorted(folders, key=lambda folder: (-folders[folder], folder))
    shown = ", ".join(os.path.relpath(folder, directory) for folder in largest[:3])
    more = f" and {len(largest) - 3} more directories" if len(largest) > 3 else ""
    problem = f"{format_count(sum(folders.values()), kind[:-1])} not loaded from {shown}{more}"
    fix = f"to load them, add --dir {largest[0]}"
    return Diagnostic(severity="info", code="not-searched", file=directory, line=0, problem=problem, fix=fix)


def check_skill_contents(skills: "Namespace[Skill]") -> list[Diagnostic]:
    """Problems in the body and the details: hidden characters, missing `requires`. For doctor."""
    from kitbag.library.skill_files import read_skill_body, read_skill_details

    diagnostics: list[Diagnostic] = []
    suggestions = _MAX_SUGGESTIONS
    for skill in skills:
        if skill.root.scope == "built-in":
            continue
        body = read_skill_body(skill)
        diagnostics += body.problems
        hidden = find_disguises(body.text)
        if hidden:
            line = body.first_line + body.text.count("\n", 0, hidden[0][0])
            problem = f"the body contains hidden characters, shown as [U+...]: {format_code_points(hidden)}"
            diagnostics.append(
                Diagnostic(
                    severity="warning",
                    code="hidden-characters",
                    file=skill.path,
                    line=line,
                    problem=problem,
                    fix="remove them",
                )
            )
        diagnostics += _check_codex_policy(skill)
        for name in read_skill_details(skill).requires:
            if not skills.candidates(name):
                suggestions -= 1
                similar = skills.suggest(name, 3) if suggestions >= 0 else []
                similar = [other for other in similar if other != skill.full_name]
                problem = f"`requires` refers to an unknown skill {name!r}"
                line = find_field_line(skill.path, "requires", skill.root.boundary, name)
                diagnostics.append(
                    Diagnostic(
                        severity="warning",
                        code="unknown-name",
                        file=skill.path,
                        line=line,
                        problem=problem,
                        fix=f"did you mean {', '.join(similar)}?" if similar else "fix the name, or add the skill",
                    )
                )
    return diagnostics


def _check_codex_policy(skill: Skill) -> list[Diagnostic]:
    """Codex keeps in a file of its own that models must not load a skill by themselves; Kitbag reads the field."""
    path = os.path.join(skill.directory, "agents", "openai.yaml")
    if skill.flags & (FLAT | COMMAND | NO_MODEL) or not os.path.isfile(path):
        return []
    try:
        text = read_text(path, skill.root.boundary, _MAX_POLICY_BYTES)[0]
    except SourceError:
        return []
    match = re.search(r"(?m)^\s+allow_implicit_invocation:\s*['\"]?(false|no|off)\b", text)
    if match is None:
        return []
    line = text.count("\n", 0, match.start(1)) + 1
    problem = f"`allow_implicit_invocation: {match[1]}` limits the skill in Codex only: models can load it here"
    fix = "add `disable-model-invocation: true` to SKILL.md"
    return [Diagnostic(severity="warning", code="field-misplaced", file=path, line=line, problem=problem, fix=fix)]
