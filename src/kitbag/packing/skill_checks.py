"""All diagnostics of one skill: its file, what a model gets of it, its place among the others.

Used by `kitbag skills validate`, by the web UI's editor and by skill_selection. Uses library and skill_delivery.
"""

import os

from kitbag.errors import Diagnostic
from kitbag.library.registry import Registry
from kitbag.library.routing.triggers import compile_trigger, is_regex_trigger
from kitbag.library.scopes import Root, boundary_for_directory
from kitbag.library.skill_files import read_skill_details
from kitbag.library.skills import COMMAND, FLAT, Skill, read_skill
from kitbag.packing.skill_delivery import render_skill
from kitbag.text.frontmatter import find_field_line
from kitbag.text.tokens import estimate_tokens


def check_skill(registry: Registry, path: str) -> list[Diagnostic]:
    """All diagnostics for one skill."""
    path = os.path.abspath(path)
    if os.path.isdir(path):
        file = next((f for n in ("SKILL.md", "skill.md") if os.path.lexists(f := os.path.join(path, n))), None)
        if file is None:
            fix = "add SKILL.md with `name:` and `description:` in its frontmatter"
            return [Diagnostic(severity="error", code="no-skill", file=path, line=0, problem="no SKILL.md", fix=fix)]
    else:
        file = path
    try:
        skill, diagnostics = _read_again(registry, file)
    except OSError as error:
        return [
            Diagnostic(
                severity="error",
                code="unreadable",
                file=file,
                line=0,
                problem=f"can't be read: {error.strerror}",
                fix="check the path",
            )
        ]
    if skill is None:
        head = Diagnostic(
            severity="error",
            code="no-head",
            file=file,
            line=1,
            problem="no frontmatter (`---`) at the start",
            fix="add `name:` and `description:`",
        )
        return diagnostics or [head]
    delivery = render_skill(skill)
    known = registry.diagnostics(file)
    return list(
        dict.fromkeys(
            [
                *diagnostics,
                *delivery.problems,
                *known,
                *check_triggers(registry, skill),
                *_check_size(skill, delivery.body),
            ]
        )
    )


def check_triggers(registry: Registry, skill: Skill) -> list[Diagnostic]:
    """Triggers, of its file and of a manifest, that are patterns and match nothing because they can't be used."""
    problems: list[Diagnostic] = []
    if any(map(is_regex_trigger, skill.keywords.split("\n"))):  # else its file need not be read
        problems += [
            trigger_problem(skill, trigger, problem)
            for trigger in read_skill_details(skill).triggers
            if (problem := _pattern_problem(trigger))
        ]
    entry = registry.manifest_entry(skill)
    for trigger in entry.dispatch_triggers if entry is not None else ():
        if problem := _pattern_problem(trigger):
            found = trigger_problem(skill, trigger, problem)
            problems.append(found._replace(file=entry.file if entry else "", line=0))
    return problems


def _pattern_problem(trigger: str) -> str:
    return compile_trigger(trigger)[1] if is_regex_trigger(trigger) else ""


def trigger_problem(skill: Skill, trigger: str, problem: str) -> Diagnostic:
    return Diagnostic(
        severity="warning",
        code="trigger",
        file=skill.path,
        line=find_field_line(skill.path, "triggers", skill.root.boundary),
        problem=f"trigger {trigger[:60]!r} is not a usable pattern: {problem}",
        fix="use plain words",
    )


def _read_again(registry: Registry, file: str) -> tuple[Skill | None, list[Diagnostic]]:
    """As the library reads it, if it is in there: a command needs no frontmatter and has no `name`."""
    known = next((skill for skill in registry.skills if skill.path == file), None)
    if known is not None:
        flags = known.flags & (COMMAND | FLAT)
        return read_skill(known.root, known.location, file, known.name, known.team, known.group, flags)
    flat = os.path.basename(file).lower() != "skill.md"
    folder = os.path.dirname(file)
    name = os.path.splitext(os.path.basename(file))[0] if flat else os.path.basename(folder)
    return read_skill(explicit_root(folder), os.path.basename(file), file, name, flags=FLAT if flat else 0)


def _check_size(skill: Skill, body: str) -> list[Diagnostic]:
    diagnostics: list[Diagnostic] = []
    tokens = estimate_tokens(body)
    if not body.strip():
        diagnostics.append(
            Diagnostic(
                severity="warning",
                code="empty-body",
                file=skill.path,
                line=0,
                problem="no instructions",
                fix="write them below the frontmatter",
            )
        )
    elif tokens > 5000 or body.count("\n") > 500:
        what = f"{tokens:,} tokens in {body.count(chr(10)) + 1:,} lines; recommended: at most 5,000 and 500"
        diagnostics.append(
            Diagnostic(
                severity="info",
                code="long-body",
                file=skill.path,
                line=0,
                problem=what,
                fix="move details to references/",
            )
        )
    if len(skill.description) > 1024:
        what = f"the description has {len(skill.description):,} characters; other tools allow at most 1,024"
        diagnostics.append(
            Diagnostic(
                severity="info",
                code="long-description",
                file=skill.path,
                line=2,
                problem=what,
                fix="say briefly what the skill does and when to use it",
            )
        )
    return diagnostics


def explicit_root(directory: str) -> Root:
    """For a directory that is not in the library."""
    return Root(directory, "skills", "extra", "kitbag", (0, 0), boundary=boundary_for_directory(directory))
