"""`kitbag context`: what the model was given in each call, what it cost and why; compared, checked and drawn."""

from typing import TYPE_CHECKING, Any

import click

from kitbag.cli import output
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.library_options import json_option
from kitbag.library.scopes import find_places
from kitbag.text.human_format import format_cost
from kitbag.views.context import describe_last_request, describe_skill_tokens

if TYPE_CHECKING:
    from kitbag.agent.model_calls import ModelCall
    from kitbag.runtime.context_calls import CallContext, SessionContext
    from kitbag.runtime.context_costs import ContextCosts
    from kitbag.runtime.context_diff import CallDiff

_BAR_WIDTH = 12
_MAX_ROWS = 20
"""For skills that are not loaded, for turns and for absent items; --json has all."""


class _ContextGroup(CommandGroup):
    bare_command = "show"


@click.group(cls=_ContextGroup)
def command() -> None:
    """Show what the model was given and what it cost; compare and check calls."""


_session_option = click.option(
    "--session",
    "session_id",
    default="",
    metavar="ID",
    help="Show this session.",
    show_default="the newest in this directory",
)
_svg_option = click.option(
    "--svg", metavar="FILE", help="Draw it to a new FILE; - is stdout.", show_default="no picture"
)


@command.command()
@_session_option
@click.option(
    "--call",
    "number",
    type=int,
    metavar="N",
    help="Show call N; -1 is the last.",
    show_default="the next one; for --svg and --html the last",
)
@_svg_option
@click.option(
    "--html",
    metavar="FILE",
    help="Write all of it to a new HTML file that works offline; - is stdout.",
    show_default="no file",
)
@json_option
def show(session_id: str, number: int | None, svg: str | None, html: str | None, as_json: bool) -> None:
    """Show what a model request contains and costs: sections, tools, skills, memory files and turns."""
    if svg or html:
        return _write_files(session_id, number, svg, html)
    if number is not None:
        context, call = _load_call(session_id, number)
        explained = context.explain(call)
        return output.as_json(explained.to_json()) if as_json else _print_call(context, explained)
    from kitbag.runtime.context_report import report_session_context

    report = report_session_context(find_places(), session_id)
    if as_json:
        return output.as_json(report)
    _print_warnings(report["warnings"])
    return _print_report(report)


@command.command()
@_session_option
@_svg_option
@json_option
def calls(session_id: str, svg: str | None, as_json: bool) -> None:
    """List the model calls of a session, what each skill cost, and what loading on demand saved."""
    from kitbag.runtime.context_costs import compute_costs

    context = _load(session_id)
    costs = compute_costs(context)
    if svg:
        from kitbag.views.context_pictures import draw_costs

        return output.write_picture(svg, draw_costs(costs), "the cost over time")
    if as_json:
        return output.as_json({"session": context.history.session.id, **costs.to_json()})
    return _print_costs(costs)


@command.command()
@click.argument("first", metavar="[A", type=int, required=False)
@click.argument("second", metavar="[B]]", type=int, required=False)
@_session_option
@json_option
def diff(first: int | None, second: int | None, session_id: str, as_json: bool) -> None:
    """Compare two calls: pieces, the first byte that differs, and the cached part. Default: the last call with the
    one before it; with one number, that call with the one before it. Put `--` before negative numbers."""
    from kitbag.runtime.context_diff import diff_calls

    context = _load(session_id)
    history = context.history
    after = history.find(second if second is not None else first if first is not None else -1)
    before = history.find(first) if second is not None and first is not None else history.before(after)
    if before is None:
        raise click.UsageError(f"Call {after.number} is the first: there is nothing to compare it with.")
    found = diff_calls(context, before, after)
    return output.as_json(found.to_json()) if as_json else _print_diff(found)


@command.command()
@_session_option
@json_option
def check(session_id: str, as_json: bool) -> None:
    """Reconcile every call with the journal and the provider's counts, and say what broke its cache. Exit code 1: there
    are problems."""
    from kitbag.runtime.context_check import check_calls, summarize_check

    context = _load(session_id)
    found = check_calls(context)
    if as_json:
        output.as_json({"session": context.history.session.id, **found.to_json()})
    else:
        for line in summarize_check(found):
            output.echo(line)
        for finding in found.findings:
            mark = output.style(finding.severity, "red" if finding.severity == "problem" else "dim")
            place = f"call {finding.call}: " if finding.call else ""
            output.echo(f"{mark}: {place}{output.clean(finding.text)}")
        output.echo(output.format_count(len(found.problems), "problem"))
    raise SystemExit(1 if found.problems else 0)


def _load(session_id: str) -> "SessionContext":
    from kitbag.runtime.context_calls import load_session_context

    context = load_session_context(find_places(), session_id)
    _print_warnings(context.history.session.warnings)
    return context


def _load_call(session_id: str, number: int | None) -> "tuple[SessionContext, ModelCall]":
    context = _load(session_id)
    history = context.history
    is_next = number is None or number == len(history.calls) + 1
    return context, history.next_request() if is_next or number is None else history.find(number)


def _write_files(session_id: str, number: int | None, svg: str | None, html: str | None) -> None:
    from kitbag.views.context_pictures import draw_call

    context, call = _load_call(session_id, number)
    if number is None and context.history.calls:
        call = context.history.find(-1)
    explained = context.explain(call)
    if svg:
        output.write_picture(svg, draw_call(explained), "the context")
    if html:
        from kitbag.runtime.context_check import check_calls
        from kitbag.runtime.context_costs import compute_costs
        from kitbag.views.context_page import render_context_page

        session = context.history.session
        page = render_context_page(
            session.id, explained, compute_costs(context), check_calls(context), session.journal.redactor.redact_text
        )
        output.write_picture(html, page, "the context")


def _print_warnings(warnings: list[str]) -> None:
    for warning in warnings:
        output.remark(f"{output.style('warning', 'yellow')}: {output.clean(warning)}")


def _print_call(context: "SessionContext", explained: "CallContext") -> None:
    call = explained.call
    when = call.at[:19].replace("T", " ") or "now"
    output.echo(f"call {call.number} of {len(context.history.calls)}, {output.clean(call.model)}, {when}")
    usage = call.usage
    if usage.total_input:
        counts = f"{usage.total_input:,} tokens counted by the provider ({usage.cache_read:,} cached)"
        output.echo(f"{counts}, {explained.tokens:,} by Kitbag ({explained.residual:+,}); {format_cost(call.cost)}")
    for text in explained.unknown:
        output.remark(f"note: {output.clean(text)}")
    output.echo()
    rows = [
        (
            f"{piece.offset:,}",
            piece.kind,
            f"{piece.tokens:,}",
            f"{piece.bytes:,}",
            _format_small_cost(piece.cost),
            output.shorten_path(piece.name) if piece.name.startswith("/") else piece.name,
            f"{piece.source}: {piece.reason}" if piece.message else piece.reason,
        )
        for piece in explained.pieces
    ]
    headers = ("BYTE", "KIND", "TOKENS", "BYTES", "COST", "NAME", "WHY")
    output.table(headers, rows, whole=("BYTE", "TOKENS"), omit=("COST", "BYTES"))
    output.echo(f"{output.format_count(explained.tokens, 'token')} in {explained.bytes:,} bytes\n")
    shown = explained.absent[:_MAX_ROWS]
    absent = [(item.kind, _format_count(item.tokens or 0), item.name, item.reason) for item in shown]
    if absent:
        output.table(("NOT SENT", "TOKENS", "NAME", "WHY"), absent)
    if len(shown) < len(explained.absent):
        output.echo(f"{len(explained.absent) - len(shown)} more in --json")


def _format_small_cost(cost: float | None) -> str:
    return "?" if cost is None else f"${cost:.5f}"


def _print_costs(costs: "ContextCosts") -> None:
    rows = [
        (
            str(row.call.number),
            row.call.at[11:19],
            f"{row.tokens:,}",
            f"{row.call.usage.total_input:,}",
            f"{row.call.usage.cache_read:,}",
            "?" if row.predicted is None else f"{row.predicted:,}",
            f"{row.call.usage.output:,}",
            "?" if row.call.cost is None else f"${row.call.cost:.4f}",
            row.call.model if row.call.kind == "turn" else f"{row.call.model} (compaction)",
        )
        for row in costs.timeline[-_MAX_ROWS * 3 :]
    ]
    if len(rows) < len(costs.timeline):
        output.echo(f"({output.format_count(len(costs.timeline) - len(rows), 'earlier call')} in --json)")
    headers = ("CALL", "TIME", "TOKENS", "COUNTED", "CACHED", "PREDICTED", "OUTPUT", "COST", "MODEL")
    output.table(headers, rows, omit=("TIME", "PREDICTED", "OUTPUT"))
    used = [skill for skill in costs.skills if skill.total_tokens]
    if used:
        output.echo()
        skill_rows = [
            (
                skill.name,
                f"{skill.listed_tokens:,} x {skill.listed_requests}",
                f"{skill.tokens:,} x {skill.requests}",
                f"{skill.total_tokens:,}",
                _format_small_cost(skill.cost),
            )
            for skill in used[:_MAX_ROWS]
        ]
        output.table(("SKILL", "LISTED x CALLS", "LOADED x CALLS", "TOKENS", "COST"), skill_rows)
        if len(used) > _MAX_ROWS:
            output.echo(f"{output.format_count(len(used) - _MAX_ROWS, 'more skill')} in --json")
    for title, savings in (("TOKENS", costs.savings.tokens), ("WORDS x 1.3", costs.savings.words)):
        if savings:
            output.echo()
            saving_rows = [(row.name, f"{row.everything:,}", f"{row.used:,}", f"{row.saved:.0%}") for row in savings]
            output.table((title, "ALL SKILLS LOADED", "KITBAG", "SAVED"), saving_rows)


def _print_diff(found: "CallDiff") -> None:
    first = f"call {found.first}" if found.first else "the last call before the fork"
    output.echo(f"{first} and call {found.second}")
    shared = f"{found.shared_bytes:,} bytes, about {found.shared_tokens:,} tokens"
    broken = found.divergence
    if broken is None:
        output.echo(f"call {found.second} continues it: {shared} are the same")
    else:
        place = f"{broken.kind} {output.clean(broken.name)}".strip()
        output.echo(f"first difference at byte {broken.offset:,}: byte {broken.within:,} of {place}")
        output.echo(f"cause: {output.clean(broken.cause) or 'unknown'}; {shared} before it are the same")
        output.echo(f"  - {output.clean(broken.before) or '(ends here)'}")
        output.echo(f"  + {output.clean(broken.after) or '(ends here)'}")
    if found.predicted is not None:
        output.echo(f"cached: {found.predicted:,} tokens predicted, {found.reported:,} reported by the provider")
    rows = [
        (
            {"added": "+", "removed": "-", "changed": "~"}[change.change],
            change.kind,
            f"{change.tokens_after - change.tokens_before:+,}",
            f"{change.bytes_after - change.bytes_before:+,}",
            f"{change.offset:,}",
            output.shorten_path(change.name) if change.name.startswith("/") else change.name,
        )
        for change in found.changes
    ]
    if rows:
        output.echo()
        output.table(("", "KIND", "TOKENS", "BYTES", "AT BYTE", "NAME"), rows)


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
    output.table(("TOOL", "DESCRIBED", "CALLS", "ARGUMENTS", "RESULTS"), rows)


def _print_turns(turns: list[dict[str, Any]]) -> None:
    output.echo()
    shown = turns[-_MAX_ROWS:]
    if len(turns) > len(shown):
        output.echo(f"({output.format_count(len(turns) - len(shown), 'earlier turn')} in --json)")
    rows = [
        (
            str(turn["number"]),
            f"{turn['tokens']:,}",
            f"{turn['input']:,}",
            f"{turn['cached']:,}",
            f"{turn['output']:,}",
            "?" if turn["cost"] is None else f"${turn['cost']:.4f}",
            turn["model"],
        )
        for turn in shown
    ]
    output.table(("TURN", "IN CONTEXT", "INPUT", "CACHED", "OUTPUT", "COST", "MODEL"), rows)


def _format_count(value: int) -> str:
    return f"{value:,}" if value else "-"
