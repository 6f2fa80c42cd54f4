"""`kitbag agents run NAME PROMPT`: runs an agent without a session around it."""

import sys
from typing import Any

import click

from kitbag.cli import interruption, output
from kitbag.cli.agents_run_each import check_each_options, each_options, run_each
from kitbag.cli.headless import STATUS_CODES
from kitbag.cli.library_options import json_option, library_options
from kitbag.cli.number_types import IntRange
from kitbag.cli.pack_options import ALLOW_OPTIONS, pack_options, parse_budgets, parse_names, parse_pairs
from kitbag.cli.queue_options import parse_queue_options, queue_options
from kitbag.cli.tasks import open_board
from kitbag.errors import UsageError
from kitbag.events import Notice
from kitbag.packing.output_schema import load_output_schema
from kitbag.tools.delegation import DelegationRequest, PackSelection, TaskReport


@click.command("run")
@click.argument("name")
@click.argument("prompt", default="", required=False)
@click.option("--background", is_flag=True, help="Start the agent in the background and print its task ID.")
@click.option(
    "--resume", default="", metavar="ID", help="Resume this task of the agent.", show_default="start a new task"
)
@click.option(
    "--pack",
    default="",
    metavar="TASK",
    help="Start with the context that `kitbag pack TASK` builds.",
    show_default="none",
)
@click.option(
    "--model",
    default="",
    metavar="NAME",
    help="Use this model.",
    show_default="the agent's own, else the `model` setting",
)
@click.option(
    "--max-turns",
    type=IntRange(1),
    help="Stop after this many model requests.",
    show_default="the agent's own, else 50",
)
@click.option(
    "--permission-mode",
    default="",
    metavar="MODE",
    help="Set the caller's permission mode; if it is plan, the agent runs in plan mode.",
    show_default="the `permissions.mode` setting",
)
@click.option(
    "--output-schema",
    default="",
    metavar="FILE",
    help="Require an answer that is JSON and valid against the JSON Schema in FILE.",
    show_default="none",
)
@each_options
@click.option("--trust-workspace", is_flag=True, help="Trust this workspace for this run.")
@queue_options
@pack_options
@library_options
@json_option
def run(name: str, prompt: str, **options: Any) -> None:
    """Run an agent in the foreground or background, or one for each row of a file.

    In the foreground, progress goes to stderr and the answer to stdout. Exit codes are the same as for -p, and 1 if the
    result of a packed task does not meet its output requirements.

    With --each, every row of the file becomes a background task, and its columns fill {{column}} in PROMPT. Results are
    appended to a JSON Lines file as they come; the same command resumes where it stopped. Exits with 0 if all rows are
    completed, 1 if some failed, 130 after Ctrl-C.
    """
    check_each_options(options)
    if not prompt and not options["pack"]:
        raise UsageError("no prompt", "usage: kitbag agents run NAME 'PROMPT'")
    selection = _parse_selection(options)
    if selection != PackSelection(allow_options=ALLOW_OPTIONS) and not options["pack"]:
        raise UsageError("options for packing need a task to pack", "add --pack TASK")
    schema = load_output_schema(options["output_schema"]) if options["output_schema"] else {}
    request = DelegationRequest(
        agent=name,
        prompt=prompt,
        background=options["background"],
        max_turns=options["max_turns"] or 0,
        resume=options["resume"],
        pack=options["pack"],
        pack_selection=selection,
        output_schema=schema,
        queueing=parse_queue_options(options),
    )
    notices: list[Notice] = []
    with open_board(create=True) as board:
        if options["each"]:
            sys.exit(run_each(board, request, options))
        report = interruption.run_interruptible(_run_agent(board.journal, request, options, notices))
    sys.exit(show_report(report, notices, is_background=options["background"], as_json=options["as_json"]))


def show_report(report: TaskReport, notices: list[Notice], *, is_background: bool, as_json: bool) -> int:
    """Returns the exit code. `notices`: printed already."""
    if as_json:
        output.as_json({**report.to_json(), "notices": _notices_json(report, notices)})
    elif is_background:
        output.echo(report.id)
    elif report.text:
        output.exact(report.text)
    for warning in report.further_warnings:
        if warning not in (notice.line() for notice in notices):
            output.remark(output.clean(f"warning: {warning}"))
    if is_background and not as_json:
        output.remark(_describe_start(report))
    elif report.status != "completed" and not as_json:
        output.remark(output.clean(f"{report.name}: {report.status}{': ' if report.error else ''}{report.error}"))
    return 0 if is_background else _exit_code(report)


def _describe_start(report: TaskReport) -> str:
    """Of a background task, which may have ended already."""
    if report.is_finished:
        return output.clean(
            f"{report.status}{': ' if report.error else ''}{report.error}; see `kitbag tasks show {report.id}`"
        )
    state = "running in the background"
    if report.is_existing:
        state = f"a task with this key exists and is {report.status}; nothing was started"
    elif report.status == "scheduled":
        state = output.clean(report.activity)
    return f"{state}; follow it with `kitbag tasks watch` or `kitbag tasks output {report.id} --wait 600`"


def _notices_json(report: TaskReport, notices: list[Notice]) -> list[dict[str, str]]:
    """Of the start and of the task, as `-p` prints them."""
    shown = {notice.line(): notice for notice in notices}
    shown |= {text: Notice(severity="warning", text=text) for text in report.warnings if text not in shown}
    return [{"severity": one.severity, "text": one.text, "fix": one.fix} for one in shown.values()]


def _parse_selection(options: dict[str, Any]) -> PackSelection:
    return PackSelection(
        skills=parse_names(options["names"]),
        strategy=options["strategy"] or "",
        output=options["kind"] or "",
        values=parse_pairs("--var", options["variables"]),
        budgets=parse_budgets(options["budgets"]),
        allow_commands=options["allow_commands"],
        allow_options=ALLOW_OPTIONS,
    )


async def _run_agent(
    journal: Any, request: DelegationRequest, options: dict[str, Any], notices: list[Notice]
) -> TaskReport:
    """`notices`: receives those of the start, which are also printed."""
    from kitbag.cli.agent_delegation import open_delegation

    async with open_delegation(journal, request, options, notices) as (delegation, request):
        return await delegation.start(request, _print_progress)


def _print_progress(text: str) -> None:
    output.remark(output.style(output.clean(text), "dim", sys.stderr))


def _exit_code(report: TaskReport) -> int:
    if report.violations:
        return 1
    return {**STATUS_CODES, "interrupted": 7}.get(report.status, 7)
