"""`kitbag context`: what fills a session's context window, compared with the provider's count."""

from typing import Any

import click

from kitbag.cli import output
from kitbag.cli.library_options import json_option
from kitbag.library.scopes import find_places
from kitbag.views.context import describe_last_request, describe_skill_tokens

_BAR_WIDTH = 12
_MAX_ROWS = 20
"""For skills that are not loaded, and for turns; --json has all."""


@click.command()
@click.option(
    "--session",
    "session_id",
    default="",
    metavar="ID",
    help="Show this session.",
    show_default="the newest in this directory",
)
@json_option
def command(session_id: str, as_json: bool) -> None:
    """Show what the next model request contains and costs: sections, tools, skills, memory files and turns."""
    from kitbag.runtime.context_report import report_session_context

    report = report_session_context(find_places(), session_id)
    if as_json:
        return output.as_json(report)
    for warning in report["warnings"]:
        output.remark(f"{output.style('warning', 'yellow')}: {output.clean(warning)}")
    _print_report(report)
    return None


def _print_report(report: dict[str, Any]) -> None:
    turns = output.format_count(len(report["turns"]), "turn")
    details = [output.clean(report[name]) for name in ("session", "model", "mode", "persona") if report[name]]
    output.echo(f"session {', '.join(details)}, {turns}")
    window, used = report["window"], report["tokens"]
    full = min(1.0, used / window) if window else 0.0
    output.echo(f"{'█' * round(full * 30):░<30} {used:,} of {window:,} tokens, {full:.1%} of the window")
    output.echo(f"{report['left']:,} tokens left before compaction at {report['compacted_at']:,}\n")
    _print_groups(report)
    _print_skills(report)
    _print_tools(report["tools"])
    if report["turns"]:
        _print_turns(report["turns"])
    if last_request := describe_last_request(report):
        output.echo(f"\n{last_request}")


def _print_groups(report: dict[str, Any]) -> None:
    most = max((row["tokens"] for row in report["groups"]), default=0) or 1
    rows = [
        (row["kind"], f"{row['tokens']:,}", _bar(row["tokens"], most), f"{row['bytes']:,}", _format_name(row))
        for row in report["groups"]
    ]
    output.table(("KIND", "TOKENS", "SHARE", "BYTES", "WHAT"), rows)
    output.echo(
        f"{output.format_count(report['tokens'], 'token')} in {report['bytes']:,} bytes: all text of the next request\n"
    )


def _bar(tokens: int, most: int) -> str:
    return "█" * round(tokens / most * _BAR_WIDTH) or ("▏" if tokens else "")


def _format_name(row: dict[str, Any]) -> str:
    name = output.shorten_path(row["name"]) if row["name"].startswith("/") else row["name"]
    return f"{name} ({row['count']})" if row["count"] > 1 else name


def _print_skills(report: dict[str, Any]) -> None:
    totals = describe_skill_tokens(report)
    if not totals:
        return
    ordered = sorted(report["skills"]["each"], key=lambda one: (-one["loaded"], -one["possible"], one["name"]))
    shown = ordered[: max(_MAX_ROWS, sum(1 for one in ordered if one["loaded"]))]
    rows = [(one["name"], *(_format_count(one[key]) for key in ("listed", "loaded", "possible"))) for one in shown]
    output.table(("SKILL", "LISTED", "LOADED", "POSSIBLE"), rows)
    omitted = len(ordered) - len(shown)
    more = f"; {output.format_count(omitted, 'more skill')} in --json" if omitted else ""
    output.echo(f"{totals}{more}\n")


def _print_tools(tools: list[dict[str, Any]]) -> None:
    keys = ("described", "calls", "call_tokens", "result_tokens")
    rows = [(tool["name"], *(_format_count(tool[key]) for key in keys)) for tool in tools]
    output.table(("TOOL", "DESCRIBED", "CALLS", "ASKED", "RESULTS"), rows)


def _print_turns(turns: list[dict[str, Any]]) -> None:
    output.echo()
    shown = turns[-_MAX_ROWS:]
    if len(turns) > len(shown):
        output.echo(f"({output.format_count(len(turns) - len(shown), 'earlier turn')} in --json)")
    rows = [
        (
            str(turn["number"]),
            f"{turn['tokens']:,}",
            f"{turn['shown']:,}",
            f"{turn['cached']:,}",
            f"{turn['said']:,}",
            "?" if turn["cost"] is None else f"${turn['cost']:.4f}",
            turn["model"],
        )
        for turn in shown
    ]
    output.table(("TURN", "HERE NOW", "SHOWN", "CACHED", "SAID", "COST", "MODEL"), rows)


def _format_count(value: int) -> str:
    return f"{value:,}" if value else "-"
