"""`kitbag skills`: list, show, search, validate, index, enable and disable skills; more in `skills_*` modules."""

from typing import TYPE_CHECKING, Any

import click

from kitbag.cli import output
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.library_options import json_option, library_options, open_registry, project_option, set_state
from kitbag.cli.number_types import IntRange
from kitbag.cli.skills_budget import budget
from kitbag.cli.skills_explain import explain
from kitbag.cli.skills_lint import lint
from kitbag.cli.skills_list import list_skills, origin
from kitbag.cli.skills_test import test
from kitbag.cli.skills_usage import usage
from kitbag.cli.stdin import read_message
from kitbag.errors import UsageError
from kitbag.library.skills import Skill
from kitbag.library.visibility import skill_to_json
from kitbag.settings import ITEM_STATES

if TYPE_CHECKING:
    from kitbag.library.registry import Registry
    from kitbag.library.routing.skill_search import SkillMatch


@click.group(cls=CommandGroup)
def command() -> None:
    """List, search, show, check, enable and disable skills."""


for _subcommand in (explain, test, lint, budget, usage):
    command.add_command(_subcommand)


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Include disabled skills and those of other teams.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["list", "table", "xml"]),
    help="Print the catalog that the model sees, in this format.",
    show_default="none: print a human-readable listing",
)
@click.option(
    "--client",
    type=click.Choice(["kitbag", "mcp"]),
    help="With --format: name the tools that this client's model has.",
    show_default="kitbag",
)
@library_options
@json_option
def list_(
    everything: bool, form: Any, client: str | None, dirs: tuple[str, ...], team: str, persona: str, as_json: bool
) -> None:
    """List skills and commands, and where each comes from."""
    if client and not form:
        raise UsageError("--client needs --format", "add --format list, table or xml")
    registry = open_registry(dirs, team, persona)
    if form:
        return _print_catalog(registry, form, as_json, over_mcp=client == "mcp")
    return list_skills(registry, everything=everything, as_json=as_json)


def _print_catalog(registry: "Registry", form: Any, as_json: bool, *, over_mcp: bool) -> None:
    from kitbag.packing.catalog import catalog_budget, render_skills
    from kitbag.text.tokens import estimate_tokens

    catalog = render_skills(registry.visible_skills(), catalog_budget(registry.settings), form, over_mcp=over_mcp)
    if as_json:
        output.as_json({**catalog.to_json(), "tokens": estimate_tokens(catalog.text)})
    elif catalog.text:
        output.exact(catalog.text)
    else:
        output.remark("no skills: the model sees no catalog")


@command.command()
@click.argument("name")
@click.option(
    "--level",
    type=click.Choice(["0", "1", "2"]),
    help="Print exactly what the model sees at this level.",
    show_default="a human-readable summary",
)
@library_options
@json_option
def show(name: str, level: str | None, dirs: tuple[str, ...], team: str, persona: str, as_json: bool) -> None:
    """Show a skill: its instructions, who can use it and its token cost."""
    registry = open_registry(dirs, team, persona)
    skill = registry.find_skill(name)
    if level is None:
        _show_card(registry, skill, as_json)
    else:
        _show_level(registry, skill, int(level), as_json)


def _show_level(registry: "Registry", skill: Skill, level: int, as_json: bool) -> None:
    """Exactly what a model gets at a level."""
    from kitbag.errors import InvalidError
    from kitbag.text.tokens import estimate_tokens
    from kitbag.views.skill_card import list_skill_files, skill_level_text

    verdict = registry.evaluate(skill)
    if not verdict.is_usable:
        raise InvalidError(
            f"{skill.full_name!r} is not available: {verdict.reason}",
            "enable it with `kitbag skills enable`, or use another --persona",
        )
    text = skill_level_text(registry, skill, level)
    tokens = estimate_tokens(text)
    if as_json:
        details: dict[str, Any] = {"full_name": skill.full_name, "level": level, "tokens": tokens, "text": text}
        if level == 2:
            details["files"] = list_skill_files(skill)
        return output.as_json(details)
    if text:
        output.exact(text)
    elif level == 0:
        output.remark(f"not in the model's catalog: {verdict.reason}")
    else:
        output.remark("no other files")
    return output.echo(output.style(f"(level {level}: {output.format_count(tokens, 'token')})", "dim"))


def _show_card(registry: "Registry", skill: Skill, as_json: bool) -> None:
    from kitbag.errors import Diagnostic
    from kitbag.views.skill_card import skill_card, skill_card_fields, skill_file_rows

    details = skill_card(registry, skill)
    if as_json:
        return output.as_json(details)
    output.echo(output.style(output.clean(skill.full_name), "bold"))
    output.fields(skill_card_fields(registry, skill, details))
    if details["files"]:
        output.echo()
        output.table(("FILE", "BYTES", "TOKENS"), skill_file_rows(details))
    for problem in details["problems"]:
        for line in output.diagnostic_lines(Diagnostic(**problem)):
            output.echo(line)
    return None


@command.command()
@click.argument("name")
@library_options
@json_option
def which(name: str, dirs: tuple[str, ...], team: str, persona: str, as_json: bool) -> None:
    """Show which file is used for a name, which files are shadowed, and why."""
    registry = open_registry(dirs, team, persona)
    winners = registry.skills.candidates(name) or [registry.find_skill(name)]
    rows: list[dict[str, Any]] = []
    used = "used" if len(winners) == 1 else "by full name"
    for winner in winners:
        rows.append(_claim(registry, winner, True))
        rows += [_claim(registry, loser, False) for first, loser in registry.skills.shadowed if first is winner]
    if as_json:
        return output.as_json(rows)
    return output.table(
        ("", "FULL NAME", "SCOPE", "RULE", "PATH"),
        [
            (
                used if row["used"] else "shadowed",
                row["full_name"],
                row["scope"],
                row["rule"],
                output.shorten_path(row["path"]),
            )
            for row in rows
        ],
    )


def _claim(registry: "Registry", skill: Skill, used: bool) -> dict[str, Any]:
    return {
        "name": skill.name,
        "full_name": skill.full_name,
        "description": skill.description,
        "scope": skill.root.scope,
        "path": skill.path,
        "used": used,
        "rule": registry.describe_precedence(skill.root),
    }


@command.command()
@click.argument("query", nargs=-1, required=True)
@click.option("--most", type=IntRange(1), default=10, show_default=True, help="Show at most this many results.")
@library_options
@json_option
def search(query: tuple[str, ...], most: int, dirs: tuple[str, ...], team: str, persona: str, as_json: bool) -> None:
    """Search skills by a message or by words: names, descriptions, tags, triggers and instructions.

    If QUERY is -, read it from standard input.
    """
    from kitbag.cli.progress_line import MAX_INDEX_SECONDS, wait_for_index
    from kitbag.library.routing.skill_search import search_skills as find

    text = read_message(query)
    registry = open_registry(dirs, team, persona)
    wait_for_index(registry, MAX_INDEX_SECONDS)
    hits = find(registry, text, most)
    if as_json:
        return output.as_json([_match_to_json(hit) for hit in hits])
    output.table(
        ("NAME", "SCOPE", "WHY", "DESCRIPTION"),
        [(h.skill.full_name, origin(h.skill), h.reason, h.skill.summary) for h in hits],
    )
    if not hits:
        output.remark("no matches")
    return None


def _match_to_json(match: "SkillMatch") -> dict[str, Any]:
    return {
        **skill_to_json(match.skill, match.visibility),
        "score": match.score,
        "probability": match.probability,
        "why": match.reason,
    }


@command.command()
@click.argument("targets", nargs=-1)
@click.option("--portable", is_flag=True, help="Apply the strict rules of the Agent Skills specification.")
@library_options
@json_option
def validate(
    targets: tuple[str, ...], portable: bool, dirs: tuple[str, ...], team: str, persona: str, as_json: bool
) -> None:
    """Check skills by name or path, or all of them. Exits with 1 if problems are found."""
    from kitbag.cli import skills_validate as skill_checks

    raise SystemExit(skill_checks.validate(open_registry(dirs, team, persona), targets, portable, as_json))


@command.command("index")
@click.argument("root", required=False)
@click.option(
    "--output",
    "target",
    metavar="FILE",
    help="Write to FILE; - is stdout.",
    show_default="manifest.json in the directory",
)
@json_option
def index_(root: str | None, target: str | None, as_json: bool) -> None:
    """Write manifest.json for a directory of skills (default: the project's .kitbag/skills)."""
    from kitbag.cli import skills_validate as skill_checks

    skill_checks.write_index(root, target, as_json)


@command.command()
@click.argument("name")
@project_option
@json_option
def enable(name: str, project: bool, as_json: bool) -> None:
    """Enable a skill."""
    set_state("skills", name, "on", project, as_json)


@command.command()
@click.argument("name")
@project_option
@json_option
def disable(name: str, project: bool, as_json: bool) -> None:
    """Disable a skill: it is neither listed nor loaded."""
    set_state("skills", name, "off", project, as_json)


@command.command("set")
@click.argument("name")
@click.argument("state", type=click.Choice(ITEM_STATES))
@project_option
@json_option
def set_(name: str, state: str, project: bool, as_json: bool) -> None:
    """Set the state of a skill: on, name-only (no description), user-only (hidden from the model) or off."""
    set_state("skills", name, state, project, as_json)
