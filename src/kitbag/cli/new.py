"""`kitbag new`: creates a skill, an agent, a persona or a command from a template and opens it in an editor."""

import os
from typing import Any

import click

from kitbag.cli import output
from kitbag.cli.library_options import json_option
from kitbag.errors import Diagnostic
from kitbag.library.new_items import ITEM_KINDS, NewItem, plan_item, write_item
from kitbag.library.registry import Registry
from kitbag.library.scopes import find_places

_TRIES = {
    "skill": "use it: /{name} in the chat; check it: kitbag skills validate {name}",
    "agent": 'run it: kitbag agents run {name} "PROMPT"',
    "persona": "use it: kitbag --persona {name}",
    "command": "use it: /{name} in the chat",
}


@click.command()
@click.argument("kind", type=click.Choice(ITEM_KINDS))
@click.argument("name")
@click.option(
    "--description",
    default="",
    metavar="TEXT",
    help="Write this description.",
    show_default="a placeholder to replace",
)
@click.option("--user", is_flag=True, help="Create it for all your projects instead of this one.")
@click.option("--no-edit", is_flag=True, help="Do not open it in your editor ($VISUAL or $EDITOR).")
@json_option
def command(kind: Any, name: str, description: str, user: bool, no_edit: bool, as_json: bool) -> None:
    """Create a skill, agent, persona or command with comments that explain its fields, and edit it.

    It is created in the project's .kitbag directory, or in yours with --user. An existing one is never overwritten
    (exit code 6). Without an interactive terminal, no editor opens.
    """
    places = find_places()
    base = places.kitbag_home if user else os.path.join(places.project, ".kitbag")
    item = plan_item(kind, name, base, description)
    write_item(item, base)
    if output.is_interactive() and not (no_edit or as_json):
        click.edit(filename=item.path)
    problems = _problems(item)
    if as_json:
        return output.as_json(
            {
                "kind": kind,
                "name": name,
                "path": item.path,
                "problems": [output.diagnostic_json(problem) for problem in problems],
            }
        )
    output.echo(f"created {output.clean(output.shorten_path(item.path))}")
    for problem in problems:
        for line in output.diagnostic_lines(problem):
            output.echo(line)
    output.remark(_TRIES[kind].format(name=name))
    if not user:
        suggest_trust()
    return None


def _problems(item: NewItem) -> list[Diagnostic]:
    """What is wrong after editing, such as a name that another item takes."""
    return [problem for problem in Registry(find_places()).diagnostics() if problem.file == item.path]


def suggest_trust(items: str = "it") -> None:
    from kitbag.permissions.trust.workspace_trust import check_trust

    if not check_trust(find_places()).can_load_items:
        output.remark(f"to let agents use {items}, trust this workspace: kitbag trust")
