"""`kitbag pack`: turns a task into the context of a subagent."""

import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from kitbag.cli import output
from kitbag.cli.library_options import json_option, library_options, open_registry
from kitbag.cli.number_types import IntRange
from kitbag.cli.pack_options import ALLOW_OPTIONS, pack_options, parse_budgets, parse_names, parse_pairs
from kitbag.cli.permission_options import permission_options
from kitbag.errors import KitbagError
from kitbag.ledger import Ledger
from kitbag.library.registry import Registry
from kitbag.packing.pack import Packer, PackOptions, Payload
from kitbag.packing.references.permissions import ReferencePermissions
from kitbag.packing.references.resolve import ReferenceRequest
from kitbag.packing.task_sources import load_children, load_task
from kitbag.text.hidden_characters import escape_for_terminal

if TYPE_CHECKING:
    from kitbag.permissions.rules.load import PermissionFlags

EXIT_CODES = """\b
Exit codes:
  0   success
  2   invalid command line
  4   task not found
  6   a skill, task or reference is unusable
  10  over budget after all allowed truncation
  13  the workspace is not trusted
"""


@click.command(epilog=EXIT_CODES)
@click.argument("task")
@pack_options
@click.option(
    "--available-context",
    "available",
    type=IntRange(0),
    help="Set the size of the subagent's context, in tokens.",
    show_default="the `budget.total` setting",
)
@click.option(
    "--context-used",
    "used",
    type=IntRange(0),
    default=0,
    show_default=True,
    help="Set how many tokens of the context are already in use.",
)
@click.option("--children", is_flag=True, help="Pack every child of this task.")
@click.option(
    "--agent",
    "agent_name",
    metavar="NAME",
    help="Pack for this agent; its preloaded skills count against the budget.",
    show_default="none",
)
@click.option(
    "--model", default="", metavar="NAME", help="Warn about skills that exclude this model.", show_default="none"
)
@click.option("--explain", is_flag=True, help="List the parts of the payload instead.")
@permission_options
@library_options
@json_option
def command(task: str, as_json: bool, **options: Any) -> None:
    """Build a subagent's context from TASK (an ID, a file, or - for standard input)."""
    # A signal that ends this process also ends the commands it runs.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    _pack(task, as_json, options)


def _pack(task: str, as_json: bool, options: dict[str, Any]) -> None:
    registry = open_registry(options["dirs"], options["team"], options["persona"])
    asks = bool(sys.stdin and sys.stdin.isatty()) and sys.stderr.isatty()
    packer = Packer(
        registry,
        policy=_reference_permissions(registry, options),
        progress=_print_progress,
        ask=_confirm if asks else None,
        allow_options=("--allow", *ALLOW_OPTIONS),
    )
    chosen = PackOptions(
        skills=parse_names(options["names"]),
        strategy=options["strategy"],
        output=options["kind"],
        values=parse_pairs("--var", options["variables"]),
        available=options["available"],
        used=options["used"],
        model=options["model"],
        budgets=parse_budgets(options["budgets"]),
        agent=registry.find_agent(options["agent_name"]) if options["agent_name"] else None,
    )
    loaded, warnings = load_task(task, packer.source())
    tasks = [loaded]
    if options["children"]:
        tasks, more = load_children(loaded, packer.source())
        warnings += more
    payloads: list[Payload] = []
    for one in tasks:
        try:
            payloads.append(packer.pack(one, chosen, None if payloads else warnings))
        except KitbagError as error:
            if options["children"]:
                error.problem = f"{one.id}: {error.problem}"
            raise
    if as_json:
        cache = {"skill_reads": packer.reads, "skill_uses": packer.uses}
        packed = [payload.to_json() for payload in payloads]
        return output.as_json(
            {"epic": loaded.id, "children": packed, "cache": cache}
            if options["children"]
            else {**packed[0], "cache": cache}
        )
    for payload in payloads:
        if options["children"]:
            output.echo(f"=== {output.clean(payload.task.id)}")
        if options["explain"]:
            print_explanation(payload)
        else:
            output.exact(payload.text.rstrip("\n"))
        for warning in payload.warnings:
            for line in output.diagnostic_lines(warning, sys.stderr):
                output.remark(line)
    if options["children"] and not payloads:
        for warning in warnings:
            for line in output.diagnostic_lines(warning, sys.stderr):
                output.remark(line)
        output.remark("the task has no children")
    return None


def _reference_permissions(registry: Registry, options: dict[str, Any]) -> ReferencePermissions:
    return ReferencePermissions(
        registry.places,
        registry.settings,
        given=_permission_inputs(options),
        allow_commands=options["allow_commands"],
        allow_environment=frozenset(options["environment"]),
        trust_workspace=options["trust_workspace"],
    )


def _permission_inputs(options: dict[str, Any]) -> "PermissionFlags | None":
    if not any(options[name] for name in ("permission_mode", "allow", "ask", "deny")):
        return None
    from kitbag.permissions.rules.load import PermissionFlags

    return PermissionFlags(
        mode=options["permission_mode"], allow=options["allow"], ask=options["ask"], deny=options["deny"]
    )


def _confirm(requests: tuple[ReferenceRequest, ...]) -> bool:
    """Asks once for everything that needs approval, shown whole and escaped; only the payload goes to stdout."""
    for request in requests:
        what = {"file": "read", "environment": "read the variable", "command": "run"}[request.kind]
        reason = f" ({output.clean(request.decision.reason)})" if request.decision.reason else ""
        output.remark(f"{output.clean(output.shorten_path(request.file))}:{request.line} wants to {what}{reason}:")
        for line in request.subject.split("\n"):
            output.remark(f"    {escape_for_terminal(line)}".replace("\t", "\\t"))
    return click.confirm(f"Allow {'it' if len(requests) == 1 else f'all {len(requests)}'}?", err=True)


def _print_progress(what: str, seconds: float) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{output.style(f'{seconds:.0f} s  {output.clean(what)}', 'dim', sys.stderr)}")
        sys.stderr.flush()


def print_explanation(payload: Payload) -> None:
    output.echo(
        f"{output.clean(payload.task.id)}: {payload.tokens:,} tokens ({payload.counter}), "
        f"{payload.choice.strategy} because {payload.choice.reason}"
    )
    reasons = [f"{one.skill.full_name} ({one.reason})" for one in payload.selected]
    output.echo(f"skills: {output.clean(', '.join(reasons))}")
    print_ledger(payload.ledger)


def print_ledger(ledger: Ledger) -> None:
    """A row and a bar for each entry."""
    most = max((entry.tokens for entry in ledger.entries), default=0) or 1
    output.table(
        ("KIND", "TOKENS", "SHARE", "CUT", "STATUS", "SOURCE", "WHY"),
        [
            (
                entry.kind,
                f"{entry.tokens:,}",
                "█" * round(entry.tokens / most * 12) or ("▏" if entry.tokens else ""),
                f"{entry.tokens_cut:,}" if entry.tokens_cut else "",
                entry.status,
                output.shorten_path(entry.source),
                entry.reason,
            )
            for entry in ledger.entries
        ],
    )
    output.echo(
        f"{ledger.tokens:,} tokens in {output.format_count(len(ledger.entries), 'entry').replace('entrys', 'entries')}"
    )
