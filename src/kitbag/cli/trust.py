"""`kitbag trust ...`: what a workspace would run or allow, shown whole; then a person's answer, kept for just that."""

import os
import sys
from collections.abc import Iterable
from typing import Any

import click

from kitbag.cli import output
from kitbag.cli.options import json_option
from kitbag.errors import NotFoundError, UsageError
from kitbag.library.scopes import Places, find_places
from kitbag.permissions.trust import Change, Trust, forget, trust_workspace, trusted_workspaces, workspace_trust
from kitbag.permissions.workspace_acts import ACT_KINDS, Act
from kitbag.permissions.workspace_items import Item
from kitbag.text.hidden import for_terminal

_HEADINGS = {
    "command": "Commands that its texts run",
    "server": "Servers",
    "hook": "Hooks, and what else other tools run",
    "script": "Scripts",
    "mode": "Permission modes",
    "tools": "Tools that its skills and agents ask for",
    "setting": "Settings",
    "environment": "Environment variables that its texts read",
}
_STATES = {
    "nothing": "brings nothing, so it needs no trust",
    "trusted": "is trusted",
    "untrusted": "is not trusted",
    "changed": "was trusted, and has changed since",
}
_PLURALS = {"memory": "memory files", "settings": "settings", "configuration": "files of other tools' settings"}
_SHORT_HASH = 12


class _TrustGroup(click.Group):
    """`kitbag trust [PATH]` is `kitbag trust add [PATH]`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("--help", "-h")):
            args = ["add", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_TrustGroup)
def command() -> None:
    """See what a workspace would run, and trust it. `kitbag trust PATH` is `kitbag trust add PATH`."""


def _places(path: str) -> Places:
    if not os.path.isdir(path):
        raise UsageError(f"{path}: not a directory", "give the directory of a workspace")
    return find_places(path)


@command.command()
@click.argument("path", default=".")
@click.option("--yes", is_flag=True, help="Trust it without being asked.")
@json_option
def add(path: str, yes: bool, as_json: bool) -> Any:
    """Show what the workspace of PATH would run, ask, and trust it."""
    places = _places(path)
    trust = workspace_trust(places)
    if trust.state not in ("untrusted", "changed"):
        return output.as_json(to_json(trust)) if as_json else print_trust(trust)
    if not as_json:
        print_trust(trust)
    if not yes and (as_json or not (sys.stdin and sys.stdin.isatty()) or not sys.stdout.isatty()):
        raise UsageError("nobody can be asked here", "read what it would run, then: kitbag trust --yes")
    if trust.whole and not yes and not _agrees():
        output.remark("nothing was stored")
        sys.exit(1)
    remark = trust_workspace(places, trust)
    if remark:
        output.remark(output.clean(remark))
    if as_json:
        return output.as_json(to_json(trust._replace(state="trusted", changes=())))
    return output.echo(f"trusted {output.clean(trust.root)}")


def _agrees() -> bool:
    sys.stdout.flush()
    return click.confirm("Trust it? What is listed above may then run, under your permission rules", err=True)


@command.command()
@click.argument("path", default=".")
@json_option
def show(path: str, as_json: bool) -> None:
    """What the workspace of PATH would run or allow, and whether it is trusted. Changes nothing."""
    trust = workspace_trust(_places(path))
    if as_json:
        output.as_json(to_json(trust))
    else:
        print_trust(trust)


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """The workspaces that you trust."""
    store = trusted_workspaces(find_places())
    rows = [(record, os.path.isdir(root)) for root, record in sorted(store.records.items())]
    if store.problem:
        output.remark(output.clean(store.problem))
    if as_json:
        return output.as_json(
            [
                {"root": one.root, "trusted_at": one.trusted_at, "acts": len(one.acts), "exists": exists}
                for one, exists in rows
            ]
        )
    output.table(
        ("TRUSTED", "CAN DO", "WORKSPACE"),
        [
            (one.trusted_at[:10], output.count(len(one.acts), "thing"), one.root + ("" if exists else " (gone)"))
            for one, exists in rows
        ],
    )
    return output.footer("workspace", len(rows), 0, 0)


@command.command()
@click.argument("path", required=False)
@click.option("--all", "everything", is_flag=True, help="Trust no workspace any more.")
@json_option
def remove(path: str | None, everything: bool, as_json: bool) -> None:
    """Trust the workspace of PATH no more."""
    if (path is None) == (not everything):
        raise UsageError("say which workspace", "give its path, or --all")
    places = find_places()
    known = trusted_workspaces(places).records
    roots: list[str] | None = None
    if path is not None:
        names = (os.path.abspath(path), os.path.realpath(path), os.path.realpath(find_places(path).project))
        roots = [name for name in dict.fromkeys(names) if name in known][:1]
        if not roots:
            raise NotFoundError(f"{path} is not trusted", "kitbag trust list")
    gone, remark = forget(places, roots)
    if remark:
        output.remark(output.clean(remark))
    if as_json:
        return output.as_json({"removed": gone})
    for root in gone:
        output.echo(f"no longer trusted: {output.clean(root)}")
    return None if gone else output.remark("no workspace was trusted")


# --- how it looks -----------------------------------------------------------------------------------------------


def print_trust(trust: Trust) -> None:
    """Everything that can act, whole and escaped, grouped by what it is."""
    colour = {"untrusted": "yellow", "changed": "red"}.get(trust.state, "green")
    output.echo(f"{output.style(output.clean(trust.root), 'bold')} {output.style(_STATES[trust.state], colour)}")
    if trust.items:
        output.echo(f"It brings {_contents(trust.items)}.")
    if trust.state == "changed":
        _print_changes(trust.changes)
    for kind in ACT_KINDS:
        found = [(item, act) for item in trust.items for act in item.acts if act.kind == kind]
        if found:
            _heading(_HEADINGS[kind], len(found))
            _print_acts(found)
    if trust.items and not any(item.acts for item in trust.items):
        output.echo("Nothing in it runs or allows anything: it is text for a model.")
    unreadable = [item for item in trust.items if item.problem]
    if unreadable:
        _heading("Could not be read", len(unreadable))
        for item in unreadable:
            output.echo(f"  {output.clean(item.path)}: {output.clean(item.problem)}")
    if not trust.whole:
        output.echo(output.style("\nNot all of it could be looked at, so it can't be trusted:", "red"))
    for problem in trust.problems:
        output.echo(f"  {output.clean(problem)}")


def _contents(items: Iterable[Item]) -> str:
    counts: dict[str, int] = {}
    for item in items:
        counts[item.kind] = counts.get(item.kind, 0) + 1
    return ", ".join(
        f"{number:,} {_PLURALS[kind]}" if kind in _PLURALS and number > 1 else _one(kind, number)
        for kind, number in counts.items()
    )


def _one(kind: str, number: int) -> str:
    noun = {"memory": "memory file", "settings": "settings file", "configuration": "file of another tool's settings"}
    return output.count(number, noun.get(kind, kind))


def _heading(text: str, number: int) -> None:
    output.echo(f"\n{output.style(text, 'bold')} {output.style(f'({number:,})', 'dim')}")


def _print_acts(found: Iterable[tuple[Item, Act]]) -> None:
    said = ""
    for item, act in found:
        place = output.clean(f"{item.path}:{act.line}" if act.line else item.path)
        head = f"  {output.style(place, 'cyan')}{output.style(f'  ({act.note})' if act.note else '', 'dim')}"
        if head != said:
            output.echo(head)
            said = head
        for line in _lines(_with_hash(act.text, act.digest)):
            output.echo(f"    {line}")


def _with_hash(text: str, digest: str) -> str:
    return f"{text}  sha256 {digest[:_SHORT_HASH]}" if digest else text


def _lines(text: str) -> list[str]:
    """Nothing hides: no control or hidden character, no tab, no line that is cut."""
    return [for_terminal(line).replace("\t", "\\t") for line in text.split("\n")]


def _print_changes(changes: Iterable[Change]) -> None:
    changes = list(changes)
    _heading("Changed since you trusted it", len(changes))
    for change in changes:
        place = output.clean(f"{change.path}:{change.line}" if change.line else change.path)
        what = {"+": "new", "~": "changed", "-": "gone"}[change.mark]
        output.echo(f"  {output.style(place, 'cyan')} {change.kind}, {what}")
        for sign, text, colour in (("-", change.old, "red"), ("+", change.new, "green")):
            for line in _lines(text) if text else ():
                output.echo(output.style(f"    {sign} {line}", colour))


def to_json(trust: Trust) -> dict[str, Any]:
    return {
        "root": trust.root,
        "state": trust.state,
        "whole": trust.whole,
        "problems": list(trust.problems),
        "items": [
            {
                "kind": item.kind,
                "name": item.name,
                "path": item.path,
                "problem": item.problem,
                "acts": [act._asdict() for act in item.acts],
            }
            for item in trust.items
        ],
        "changes": [change._asdict() for change in trust.changes],
    }
