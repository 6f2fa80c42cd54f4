"""`kitbag skills lint`: checks skills, and which of them messages will confuse."""

import os
from typing import TYPE_CHECKING

import click

from kitbag.cli import output
from kitbag.cli.library_options import json_option, library_options, limit_option, open_registry
from kitbag.cli.progress_line import MAX_COMPLETE_INDEX_SECONDS, ProgressLine, wait_for_index

if TYPE_CHECKING:
    from kitbag.packing.skill_collisions import SkillCollision


@click.command("lint")
@click.argument("targets", nargs=-1)
@click.option("--collisions", is_flag=True, help="Find pairs of skills that messages will confuse, instead.")
@limit_option
@library_options
@json_option
def lint(
    targets: tuple[str, ...],
    collisions: bool,
    limit: int,
    dirs: tuple[str, ...],
    team: str,
    persona: str,
    as_json: bool,
) -> None:
    """Check skills as `validate` does, or find collisions. Exits with 1 if problems are found.

    With --collisions: pairs of skills whose descriptions overlap, messages for which the wrong one is chosen, and words
    of their instructions that would separate them in a description.
    """
    registry = open_registry(dirs, team, persona)
    if not collisions:
        from kitbag.cli import skills_validate as skill_checks

        raise SystemExit(skill_checks.validate(registry, targets, False, as_json))
    from kitbag.packing.skill_collisions import find_collisions

    skills = [registry.find_skill(_skill_name(target)) for target in targets] if targets else None
    wait_for_index(registry, MAX_COMPLETE_INDEX_SECONDS)
    with ProgressLine() as line:
        report = find_collisions(
            registry, skills, most=limit, report=lambda done, total: line.count("skills compared", done, total)
        )
    if as_json:
        output.as_json([one.to_json() for one in report.collisions])
    else:
        for one in report.collisions:
            _print(one)
        checked = len(skills) if skills is not None else len(registry.skills)
        output.echo(f"{output.format_count(report.total, 'collision')} among {output.format_count(checked, 'skill')}")
    output.report_omitted("more collision", report.total - len(report.collisions))
    raise SystemExit(1 if report.total else 0)


def _print(one: "SkillCollision") -> None:
    overlap = f": {one.overlap:.0%} of a description is in the other" if one.overlap else ""
    output.wrapped(output.style(output.clean(f"{one.first} and {one.second}"), "bold") + overlap)
    for message in one.messages:
        output.wrapped(f"  confused by: {output.clean(message)}")
    for name, words in ((one.first, one.first_words), (one.second, one.second_words)):
        if words:
            output.wrapped(f"  words for {output.clean(name)}: {output.clean(', '.join(words))}")
    if not one.first_words and not one.second_words:
        output.wrapped("  their instructions have no words of their own: describe what differs, or merge them")


def _skill_name(target: str) -> str:
    """A path to a skill's directory or file stands for its name."""
    if os.sep in target or os.path.isdir(target):
        directory = target if os.path.isdir(target) else os.path.dirname(target)
        return os.path.basename(os.path.abspath(directory))
    return target
