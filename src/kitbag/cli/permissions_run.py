"""`kitbag permissions run`: decides about a command as for an agent, and runs it only in the sandbox."""

import os
import sys
from concurrent.futures import Future
from typing import Any, Literal

import click
import msgspec

from kitbag.cli import output
from kitbag.cli.library_options import json_option
from kitbag.cli.number_options import NumberRange
from kitbag.cli.permission_options import OpenedPermissions, open_permissions, permission_options
from kitbag.errors import InvalidError, UsageError
from kitbag.permissions.model import PermissionDecision
from kitbag.processes.command_runner import CommandResult, ShellCommand
from kitbag.sandbox.confine import SandboxError, describe_confinement, run_confined
from kitbag.sandbox.confinement import Confinement, WriteQuestion, answer_by_rules

MAX_OUTPUT_CHARACTERS = 1_000_000
STOPPED_EXIT_CODE = 124
EXIT_CODES = """\b
Exit codes: those of the command, and
  2    invalid command line
  6    denied, or no sandbox available; the command did not run
  124  stopped: timeout or too much output
"""


@click.command(epilog=EXIT_CODES)
@click.argument("text", metavar="COMMAND")
@click.option(
    "--profile",
    type=click.Choice(["read-only", "workspace"]),
    help="Use this sandbox profile.",
    show_default="the one the permission decision requires",
)
@click.option("--network", is_flag=True, help="Allow network access.")
@click.option(
    "--timeout",
    "seconds",
    type=NumberRange(0.1, 86_400),
    default=120,
    show_default=True,
    metavar="SECONDS",
    help="Stop the command after SECONDS.",
)
@click.option("--yes", is_flag=True, help="Approve the command if it needs approval. Denied commands stay denied.")
@permission_options
@json_option
def command(
    text: str,
    profile: Literal["read-only", "workspace"] | None,
    network: bool,
    seconds: float,
    yes: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Run a Bash command as an agent would: under your rules and mode, and only in the sandbox."""
    opened = open_permissions(**options)
    here = os.path.realpath(os.getcwd())
    decision = opened.permissions.decide("Bash", {"command": text}, here)
    for diagnostic in () if as_json else opened.diagnostics:
        for line in output.diagnostic_lines(diagnostic, sys.stderr):
            output.remark(line)
    if decision.effect == "deny":
        fix = "run `kitbag permissions test` with the same arguments to see why"
        raise InvalidError(f"denied: {_describe_reason(decision)}", fix)
    confinement = _confinement(decision, opened, profile, network)
    if decision.effect == "ask" and not yes:
        _require_approval(text, decision, opened, confinement, here)
    given = ShellCommand(
        text=text, directory=here, environment=dict(os.environ), timeout=seconds, max_characters=MAX_OUTPUT_CHARACTERS
    )
    confinement = msgspec.structs.replace(confinement, on_question=_write_question(text, opened, here))
    ran = run_confined(given, confinement=confinement, workspace=opened.permissions.workspace)
    if as_json:
        output.as_json(_result_json(text, decision, opened, confinement, ran))
    else:
        _print_result(confinement, ran, seconds)
    sys.exit(_exit_status(ran))


def _confinement(
    decision: PermissionDecision,
    opened: OpenedPermissions,
    profile: Literal["read-only", "workspace"] | None,
    network: bool,
) -> Confinement:
    if opened.loaded.mode == "plan" and (profile == "workspace" or network):
        raise UsageError("plan mode allows no writes and no network", "use another mode")
    protection = opened.permissions.sandbox_support
    if protection.kind == "none":
        raise SandboxError(f"no sandbox available: {protection.problem}", protection.fix)
    # A command without a sandbox runs only after a user's approval; then it is confined as far as possible.
    by_a_person = decision.sandbox == "none" or decision.effect == "ask"
    wanted = profile or ("workspace" if decision.sandbox == "none" else decision.sandbox)
    return msgspec.structs.replace(
        Confinement.of_decision(decision),
        profile=wanted,
        network=network or decision.network,
        protects_control_paths=not by_a_person,
    )


def _require_approval(
    text: str, decision: PermissionDecision, opened: OpenedPermissions, confinement: Confinement, here: str
) -> None:
    """Returns if the user approves. Raises InvalidError otherwise."""
    from kitbag.cli import interruption
    from kitbag.cli.terminal_dialog import terminal_approver
    from kitbag.permissions.approvals.approval import Approvals, Denial

    approver = terminal_approver()
    if approver is None:
        fix = "run it in a terminal, add --yes, or add a rule such as --allow 'Bash(...)'"
        raise InvalidError(f"needs approval: {_describe_reason(decision)}", fix)
    settings_file = os.path.join(opened.permissions.workspace.kitbag_home, "settings.toml")
    approvals = Approvals(approver, settings_file)
    given, facts = {"command": text}, (("runs in", describe_confinement(confinement)),)
    found = interruption.run_interruptible(approvals.authorize(opened.permissions, "Bash", given, here, facts=facts))
    if isinstance(found, Denial):
        raise InvalidError(f"not run: {found.reason}")
    found.use("Bash", given, here, approvals.with_session_rules(opened.permissions))
    if found.notice:
        output.remark(output.clean(found.notice))


def _write_question(text: str, opened: OpenedPermissions, here: str) -> WriteQuestion:
    """Asks about protected paths that the command wants to write while it runs."""
    from kitbag.cli import interruption
    from kitbag.cli.terminal_dialog import terminal_approver
    from kitbag.permissions.approvals.approval import Approvals, Denial

    approver = terminal_approver()
    if approver is None:
        return answer_by_rules(opened.permissions, here)
    approvals = Approvals(approver, os.path.join(opened.permissions.workspace.kitbag_home, "settings.toml"))

    def ask(path: str) -> "Future[str]":
        future: Future[str] = Future()
        if approvals.with_session_rules(opened.permissions).allows_writing(path, here):
            future.set_result("")
            return future
        facts = (("requested by", f"Bash({text})"),)
        found = interruption.run_interruptible(
            approvals.authorize(opened.permissions, "Edit", {"file_path": path}, here, facts=facts)
        )
        future.set_result(found.reason if isinstance(found, Denial) else "")
        return future

    return ask


def _describe_reason(decision: PermissionDecision) -> str:
    deciding = [part for part in decision.parts if part.effect == decision.effect and part.rule]
    return deciding[0].reason_with_rule(deciding[0].source) if deciding else decision.reason


def _print_result(confinement: Confinement, ran: CommandResult, seconds: float) -> None:
    if ran.text:
        output.exact(ran.text)
    for note in ran.notes:
        output.remark(f"{output.style('warning', 'yellow', sys.stderr)}: {output.clean(note)}")
    if ran.truncated_bytes:
        output.remark(f"{output.format_count(ran.truncated_bytes, 'more byte')} of output not shown")
    if ran.stop_reason:
        why = f"timed out after {seconds:g} seconds" if ran.stop_reason == "time" else "too much output"
        output.remark(f"{output.style('error', 'red', sys.stderr)}: stopped: {why}")
    output.remark(output.style(f"ran in: {describe_confinement(confinement)}", "dim", sys.stderr))


def _exit_status(ran: CommandResult) -> int:
    if ran.stop_reason:
        return STOPPED_EXIT_CODE
    return ran.status if ran.status >= 0 else 128 - ran.status


def _result_json(
    text: str, decision: PermissionDecision, opened: OpenedPermissions, confinement: Confinement, ran: CommandResult
) -> dict[str, Any]:
    return {
        "command": text,
        "effect": decision.effect,
        "reason": decision.reason,
        "parts": [part.to_json() for part in decision.parts],
        "sandbox": confinement.profile,
        "network": confinement.network,
        "protection": msgspec.structs.asdict(opened.permissions.sandbox_support),
        "status": _exit_status(ran),
        "stopped": ran.stop_reason,
        "output": ran.text,
        "cut": ran.truncated_bytes,
        "notes": list(ran.notes),
    }
