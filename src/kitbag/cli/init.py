"""`kitbag init`: creates a workspace's .kitbag directory with a sample skill and agent; never overwrites."""

import os
import sys

import click

from kitbag.cli import output
from kitbag.cli.library_options import json_option
from kitbag.cli.new import suggest_trust
from kitbag.errors import UsageError
from kitbag.library.new_items import ItemKind, NewItem, existing_file, make_directories, plan_item, write_item
from kitbag.library.scopes import find_places

_SAMPLES: tuple[tuple[ItemKind, str], ...] = (("skill", "commit-style"), ("agent", "project-guide"))
_FOLDERS = ("skills", "agents")


@click.command()
@click.option("--samples/--no-samples", default=True, show_default=True, help="Create a sample skill and agent.")
@click.option("--yes", is_flag=True, help="Do not ask; required without an interactive terminal.")
@json_option
def command(samples: bool, yes: bool, as_json: bool) -> None:
    """Set up this project: create .kitbag with a sample skill and agent.

    Existing files are kept as they are. Run it as often as you like.
    """
    places = find_places()
    base = os.path.join(places.project, ".kitbag")
    items = [plan_item(kind, name, base, template=f"sample-{kind}") for kind, name in _SAMPLES] if samples else []
    missing = [item for item in items if not existing_file(item)]
    folders = [os.path.join(base, folder) for folder in _FOLDERS]
    to_create = [item.path for item in missing] or [folder for folder in folders if not os.path.isdir(folder)]
    kept = [item.path for item in items if item not in missing]
    if to_create and not yes:
        _confirm(places.project, to_create, as_json)
    _create(missing, base)
    if as_json:
        return output.as_json({"directory": base, "created": to_create, "kept": kept})
    for path in to_create:
        output.echo(f"created {output.clean(output.shorten_path(path))}")
    for path in kept:
        output.echo(f"kept    {output.clean(output.shorten_path(path))}")
    if not to_create:
        output.remark("nothing to do: everything exists")
    output.remark("create your own: kitbag new skill NAME; list skills: kitbag skills list")
    suggest_trust("them")
    return None


def _create(items: list[NewItem], base: str) -> None:
    for item in items:
        write_item(item, base)
    for folder in _FOLDERS:
        make_directories(base, folder)


def _confirm(project: str, paths: list[str], as_json: bool) -> None:
    """Exits with 1 if the user declines."""
    if as_json or not output.is_interactive():
        raise UsageError("needs an interactive terminal", "add --yes to create the files without asking")
    output.echo(f"Create in {output.clean(project)}:")
    for path in paths:
        output.echo(f"  {output.clean(os.path.relpath(path, project))}")
    sys.stdout.flush()
    if not click.confirm("Continue?", default=True, err=True):
        output.remark("nothing was created")
        sys.exit(1)
