"""`kitbag trust`: shows everything a workspace would run or allow, asks, and stores trust for exactly that."""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec

from kitbag.cli import output
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.library_options import json_option
from kitbag.errors import NotFoundError, UsageError
from kitbag.library.scopes import Places, find_places
from kitbag.permissions.trust.workspace_items import count_items
from kitbag.permissions.trust.workspace_trust import (
    TrustChange,
    WorkspaceTrust,
    check_trust,
    revoke_trust,
    trust_workspace,
    trusted_workspaces,
)
from kitbag.views import trust as words


class _TrustGroup(CommandGroup):
    """`kitbag trust [PATH]` is `kitbag trust add [PATH]`."""

    bare_command = "add"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in self.get_help_option_names(ctx):
            args = [self.bare_command, *args]
        return super().parse_args(ctx, args)


@click.group(cls=_TrustGroup)
def command() -> None:
    """Show what a workspace would run, and trust it. `kitbag trust PATH` is short for `kitbag trust add PATH`."""


def _places(path: str) -> Places:
    if not os.path.isdir(path):
        raise UsageError(f"{path}: not a directory", "pass the directory of a workspace")
    return find_places(path)


@command.command()
@click.argument("path", default=".")
@click.option("--yes", is_flag=True, help="Trust the workspace without asking.")
@json_option
def add(path: str, yes: bool, as_json: bool) -> Any:
    """Show what the workspace at PATH would run, then ask whether to trust it."""
    places = _places(path)
    trust = check_trust(places)
    if trust.state not in ("untrusted", "changed"):
        return output.as_json(trust_json(trust)) if as_json else print_trust(trust)
    if not as_json:
        print_trust(trust)
    if not yes and (as_json or not (sys.stdin and sys.stdin.isatty()) or not sys.stdout.isatty()):
        raise UsageError("needs an interactive terminal", "review what it would run, then run `kitbag trust --yes`")
    if trust.is_complete and not yes and not _confirm():
        output.remark("not trusted; nothing was changed")
        sys.exit(1)
    remark = trust_workspace(places, trust)
    if remark:
        output.remark(output.clean(remark))
    if as_json:
        return output.as_json(trust_json(msgspec.structs.replace(trust, state="trusted", changes=())))
    return output.echo(f"trusted {output.clean(trust.root)}")


def _confirm() -> bool:
    sys.stdout.flush()
    output.remark("if you trust it, the items above may run, subject to your permission rules")
    return click.confirm("Trust this workspace?", err=True)


@command.command()
@click.argument("path", default=".")
@json_option
def show(path: str, as_json: bool) -> None:
    """Show what the workspace at PATH would run or allow, and whether it is trusted."""
    trust = check_trust(_places(path))
    if as_json:
        output.as_json(trust_json(trust))
    else:
        print_trust(trust)


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List trusted workspaces."""
    store = trusted_workspaces(find_places())
    rows = [(record, os.path.isdir(root)) for root, record in sorted(store.records.items())]
    if store.problem:
        output.remark(output.clean(store.problem))
    if as_json:
        return output.as_json(
            [
                {"root": one.root, "trusted_at": one.trusted_at, "acts": one.capability_count, "exists": exists}
                for one, exists in rows
            ]
        )
    output.table(
        ("TRUSTED", "CAPABILITIES", "WORKSPACE"),
        [
            (
                one.trusted_at[:10],
                str(one.capability_count),
                one.root + ("" if exists else " (gone)"),
            )
            for one, exists in rows
        ],
    )
    return output.footer("workspace", len(rows), 0, 0)


@command.command()
@click.argument("path", required=False)
@click.option("--all", "everything", is_flag=True, help="Stop trusting all workspaces.")
@json_option
def remove(path: str | None, everything: bool, as_json: bool) -> None:
    """Stop trusting the workspace at PATH."""
    if (path is None) == (not everything):
        raise UsageError("no workspace given", "pass its path, or --all")
    places = find_places()
    known = trusted_workspaces(places).records
    roots: list[str] | None = None
    if path is not None:
        names = (os.path.abspath(path), os.path.realpath(path), os.path.realpath(find_places(path).project))
        roots = [name for name in dict.fromkeys(names) if name in known][:1]
        if not roots:
            raise NotFoundError(
                f"{path} is not a trusted workspace", "list trusted workspaces with `kitbag trust list`"
            )
    removed, remark = revoke_trust(places, roots)
    if remark:
        output.remark(output.clean(remark))
    if as_json:
        return output.as_json({"removed": removed})
    for root in removed:
        output.echo(f"no longer trusted: {output.clean(root)}")
    return None if removed else output.remark("no workspaces were trusted")


# --- printing ---------------------------------------------------------------------------------------------------


def print_trust(trust: WorkspaceTrust) -> None:
    """Every capability, whole and escaped, grouped by kind."""
    color = {"untrusted": "yellow", "changed": "red"}.get(trust.state, "green")
    output.echo(
        f"{output.style(output.clean(trust.root), 'bold')} {output.style(words.STATE_LABELS[trust.state], color)}"
    )
    if trust.items:
        output.echo(f"It contains {count_items(trust.items)}.")
    if trust.state == "changed":
        _print_changes(trust.changes)
    for group in words.list_trust_groups(trust):
        _heading(group.heading, len(group.entries))
        _print_entries(group.entries)
    if trust.items and not any(item.capabilities for item in trust.items):
        output.echo(words.TEXT_ONLY_NOTE)
    unreadable = [item for item in trust.items if item.problem]
    if unreadable:
        _heading(words.UNREADABLE_HEADING, len(unreadable))
        for item in unreadable:
            output.echo(f"  {output.clean(item.path)}: {output.clean(item.problem)}")
    if not trust.is_complete:
        output.echo(output.style(f"\n{words.INCOMPLETE_HEADING}", "red"))
    for problem in trust.problems:
        output.echo(f"  {output.clean(problem)}")


def _heading(text: str, number: int) -> None:
    output.echo(f"\n{output.style(text, 'bold')} {output.style(f'({number:,})', 'dim')}")


def _print_entries(entries: Iterable[words.TrustEntry]) -> None:
    printed = ""
    for entry in entries:
        place = output.clean(entry.place)
        head = f"  {output.style(place, 'cyan')}{output.style(f'  ({entry.note})' if entry.note else '', 'dim')}"
        if head != printed:
            output.echo(head)
            printed = head
        for line in words.safe_lines(entry.text):
            output.echo(f"    {line}")


def _print_changes(changes: Sequence[TrustChange]) -> None:
    _heading(words.CHANGED_HEADING, len(changes))
    for change in changes:
        place, what = words.describe_change(change)
        output.echo(f"  {output.style(output.clean(place), 'cyan')} {what}")
        for sign, text, color in (("-", change.old, "red"), ("+", change.new, "green")):
            for line in words.safe_lines(text) if text else ():
                output.echo(output.style(f"    {sign} {line}", color))


def trust_json(trust: WorkspaceTrust) -> dict[str, Any]:
    return {
        "root": trust.root,
        "state": trust.state,
        "whole": trust.is_complete,
        "problems": list(trust.problems),
        "items": [
            {
                "kind": item.kind,
                "name": item.name,
                "path": item.path,
                "problem": item.problem,
                "acts": [act.to_json() for act in item.capabilities],
            }
            for item in trust.items
        ],
        "changes": [msgspec.structs.asdict(change) for change in trust.changes],
    }
