"""`kitbag skills lint`: checks skills, and which of them messages will confuse."""

import os

import click

from kitbag.cli import output
from kitbag.cli.library_options import json_option, library_options, open_registry
from kitbag.cli.skills_explain import MAX_INDEX_SECONDS


@click.command("lint")
@click.argument("targets", nargs=-1)
@click.option("--collisions", is_flag=True, help="Find pairs of skills that messages will confuse, instead.")
@library_options
@json_option
def lint(
    targets: tuple[str, ...], collisions: bool, dirs: tuple[str, ...], team: str, persona: str, as_json: bool
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
    found = find_collisions(registry, skills, wait=MAX_INDEX_SECONDS)
    if as_json:
        output.as_json([one.to_json() for one in found])
        raise SystemExit(1 if found else 0)
    for one in found:
        overlap = f": {one.overlap:.0%} of a description is in the other" if one.overlap else ""
        output.echo(output.style(output.clean(f"{one.first} and {one.second}"), "bold") + overlap)
        for message in one.messages:
            output.echo(f"  confused by: {output.clean(message)}")
        for name, words in ((one.first, one.first_words), (one.second, one.second_words)):
            if words:
                output.echo(f"  words for {output.clean(name)}: {output.clean(', '.join(words))}")
        if not one.first_words and not one.second_words:
            output.echo("  their instructions have no words of their own: describe what differs, or merge them")
    checked = len(skills) if skills is not None else len(registry.skills)
    output.echo(f"{output.format_count(len(found), 'collision')} among {output.format_count(checked, 'skill')}")
    raise SystemExit(1 if found else 0)


def _skill_name(target: str) -> str:
    """A path to a skill's directory or file stands for its name."""
    if os.sep in target or os.path.isdir(target):
        directory = target if os.path.isdir(target) else os.path.dirname(target)
        return os.path.basename(os.path.abspath(directory))
    return target
