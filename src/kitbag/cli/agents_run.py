"""`kitbag agents run NAME PROMPT`: runs an agent without a session around it."""

import os
import sys
from typing import Any

import click

from kitbag.cli import interruption, output
from kitbag.cli.headless import STATUS_CODES
from kitbag.cli.library_options import json_option, library_options
from kitbag.cli.pack_options import ALLOW_OPTIONS, pack_options, parse_budgets, parse_names, parse_pairs
from kitbag.cli.queue_options import parse_queue_options, queue_options
from kitbag.cli.tasks import open_board
from kitbag.errors import UsageError
from kitbag.events import Notice
from kitbag.library.scopes import find_places
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
    type=click.IntRange(1),
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
@click.option("--trust-workspace", is_flag=True, help="Trust this workspace for this run.")
@queue_options
@pack_options
@library_options
@json_option
def run(name: str, prompt: str, **options: Any) -> None:
    """Run an agent in the foreground or background.

    In the foreground, progress goes to stderr and the answer to stdout. Exit codes are the same as for -p, and 1 if the
    result of a packed task does not meet its output requirements.
    """
    if not prompt and not options["pack"]:
        raise UsageError("no prompt", "usage: kitbag agents run NAME 'PROMPT'")
    selection = _parse_selection(options)
    if selection != PackSelection(allow_options=ALLOW_OPTIONS) and not options["pack"]:
        raise UsageError("options for packing need a task to pack", "add --pack TASK")
    options["queueing"] = parse_queue_options(options)
    notices: list[Notice] = []
    with open_board(create=True) as board:
        report = interruption.run_interruptible(_run_agent(board.journal, name, prompt, options, selection, notices))
    if options["as_json"]:
        output.as_json({**report.to_json(), "notices": _notices_json(report, notices)})
    elif not report.is_finished:
        output.echo(report.id)
    elif report.text:
        output.exact(report.text)
    for warning in report.further_warnings:
        if warning not in (notice.line() for notice in notices):
            output.remark(output.clean(f"warning: {warning}"))
    if not report.is_finished and not options["as_json"]:
        output.remark(
            f"{_describe_start(report)}; follow it with `kitbag tasks watch`"
            f" or `kitbag tasks output {report.id} --wait 600`"
        )
    elif report.is_finished and report.status != "completed" and not options["as_json"]:
        output.remark(output.clean(f"{report.name}: {report.status}{': ' if report.error else ''}{report.error}"))
    sys.exit(_exit_code(report))


def _describe_start(report: TaskReport) -> str:
    if report.is_existing:
        return f"a task with this key exists and is {report.status}; nothing was started"
    return output.clean(report.activity) if report.status == "scheduled" else "running in the background"


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
    journal: Any, name: str, prompt: str, options: dict[str, Any], selection: PackSelection, notices: list[Notice]
) -> TaskReport:
    """`notices`: receives those of the start, which are also printed."""
    from kitbag.assembly.environment import diagnostic_notice, untrusted_notices
    from kitbag.assembly.run_options import Options
    from kitbag.cli.terminal_dialog import terminal_approver
    from kitbag.tasks.delegation import TaskDelegation
    from kitbag.tasks.standalone_setup import load_standalone_setup

    run_options = Options(
        directory=os.getcwd(),
        mode=options["permission_mode"],
        trust_workspace=options["trust_workspace"],
        allow_env=options["environment"],
        team=options["team"],
        persona=options["persona"],
        extra=tuple(os.path.abspath(directory) for directory in options["dirs"]),
    )
    approver = terminal_approver() if not options["as_json"] else None
    # Only a user may choose a script or another provider: it becomes the parent's model.
    model = str(options["model"])
    inherited = load_standalone_setup(find_places().cwd, run_options, model, None, journal, notices.append, approver)
    notices += [*map(diagnostic_notice, inherited.environment.diagnostics), *untrusted_notices(inherited.environment)]
    for notice in notices:
        output.remark(output.clean(f"{notice.severity}: {notice.line()}"))
    try:
        delegation = TaskDelegation(lambda: inherited, "")
        request = DelegationRequest(
            agent=name,
            prompt=prompt,
            description="",
            background=options["background"],
            model=inherited.chosen.reference if model else "",
            max_turns=options["max_turns"] or 0,
            resume=options["resume"],
            pack=options["pack"],
            pack_selection=selection,
            queueing=options["queueing"],
        )
        return await delegation.start(request, _print_progress)
    finally:
        await inherited.provider.close()


def _print_progress(text: str) -> None:
    output.remark(output.style(output.clean(text), "dim", sys.stderr))


def _exit_code(report: TaskReport) -> int:
    if not report.is_finished:
        return 0
    if report.violations:
        return 1
    return {**STATUS_CODES, "interrupted": 7}.get(report.status, 7)
