"""`kitbag quarantine`: lists, restores and deletes control files that a command created past the sandbox."""

import sys
import time
from typing import Any

import click

from kitbag.cli import output
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.library_options import json_option
from kitbag.errors import UsageError
from kitbag.library.scopes import find_places
from kitbag.sandbox.quarantine import QuarantinedPath, delete, find_quarantined, list_quarantine, restore
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.text.human_format import format_age

_yes_option = click.option("--yes", is_flag=True, help="Do not ask; required without an interactive terminal.")


@click.group(cls=CommandGroup)
def command() -> None:
    """List, restore and delete control files that commands created past the sandbox."""


@command.command("list")
@json_option
def list_command(as_json: bool) -> Any:
    """List quarantined files, newest first."""
    found = list_quarantine(find_places().kitbag_home)
    if as_json:
        return output.as_json([_to_json(one) for one in found])
    if not found:
        return output.remark("the quarantine is empty")
    for one in found:
        _print(one)
    return None


@command.command("restore")
@click.argument("identifier", metavar="ID")
@_yes_option
def restore_command(identifier: str, yes: bool) -> None:
    """Move a quarantined file back. Programs may run commands from it then."""
    home = find_places().kitbag_home
    found = find_quarantined(identifier, home)
    if _confirms(found, "Restore it?", yes):
        restore(found, home)
        output.echo(f"restored {output.clean(found.path)}")


@command.command("delete")
@click.argument("identifier", metavar="ID")
@_yes_option
def delete_command(identifier: str, yes: bool) -> None:
    """Delete a quarantined file."""
    home = find_places().kitbag_home
    found = find_quarantined(identifier, home)
    if _confirms(found, "Delete it?", yes):
        delete(found, home)
        output.echo(f"deleted {output.clean(found.path)}")


def _confirms(found: QuarantinedPath, question: str, yes: bool) -> bool:
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UsageError("needs an interactive terminal", "review it with `kitbag quarantine`, then add --yes")
    _print(found)
    return click.confirm(question, err=True)


def _print(found: QuarantinedPath) -> None:
    output.echo(f"{found.id}  {output.clean(found.path)}  {format_age(time.time() - found.at)}")
    output.echo(f"  created by: {output.clean(collapse_whitespace(found.command)[:200])}")


def _to_json(found: QuarantinedPath) -> dict[str, Any]:
    return {"id": found.id, "path": found.path, "command": found.command, "at": found.at}
