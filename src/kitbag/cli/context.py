"""`kitbag context`: what fills a session's window, piece by piece, beside what the provider counted."""

from typing import Any

import click

from kitbag.cli import output
from kitbag.cli.options import json_option
from kitbag.library.scopes import find_places

_BAR = 16


@click.command()
@click.option("--session", "session_id", default="", metavar="ID", help="This session; the newest of this directory.")
@json_option
def command(session_id: str, as_json: bool) -> None:
    """What a session's next request would carry: every section, tool, skill, memory file and turn, and its cost."""
    found = _look(session_id)
    if as_json:
        return output.as_json(found)
    _show(found)
    return None


def _look(session_id: str) -> dict[str, Any]:
    from kitbag.runtime.context import context_of

    return context_of(find_places(), session_id)


def _show(found: dict[str, Any]) -> None:
    output.echo(
        f"session {output.clean(found['session'])}, {output.clean(found['model'])}, "
        f"{output.count(len(found['turns']), 'turn')}"
    )
    most = max((row["tokens"] for row in found["groups"]), default=0) or 1
    rows = [
        (
            row["kind"],
            f"{row['tokens']:,}",
            "█" * round(row["tokens"] / most * _BAR) or ("▏" if row["tokens"] else ""),
            f"{row['bytes']:,}",
            _named(row),
        )
        for row in found["groups"]
    ]
    output.table(("KIND", "TOKENS", "SHARE", "BYTES", "WHAT"), rows)
    window, used = found["window"], found["tokens"]
    full = min(1.0, used / window) if window else 0.0
    output.echo(f"\n{'█' * round(full * 40):░<40}  {used:,} of {window:,} tokens, {full:.1%} of the window")
    skills = found["skills"]
    output.echo(
        f"skills: {skills['listed']:,} tokens listed, {skills['loaded']:,} loaded, {skills['possible']:,} if all were"
    )
    if found["turns"]:
        output.echo()
        output.table(
            ("TURN", "SHOWN", "CACHED", "SAID", "COST", "MODEL"),
            [
                (
                    str(turn["number"]),
                    f"{turn['shown']:,}",
                    f"{turn['cached']:,}",
                    f"{turn['said']:,}",
                    "" if turn["cost"] is None else f"${turn['cost']:.4f}",
                    turn["model"],
                )
                for turn in found["turns"]
            ],
        )
    last = found["last_request"]
    if last["provider"]:
        output.echo(
            f"last request: {last['provider']:,} tokens by the provider's count, {last['ours']:,} by ours, "
            f"{last['residual']:+,} between them"
        )


def _named(row: dict[str, Any]) -> str:
    name = output.short_path(row["name"]) if row["name"].startswith("/") else row["name"]
    return f"{name} ({row['count']})" if row["count"] > 1 else name
