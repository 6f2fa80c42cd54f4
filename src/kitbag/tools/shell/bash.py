"""Bash: runs one command as it was decided, with limits on time and output, and leaves no processes behind.

Used by the agent loop, which has asked for permission. foreground_command runs it, exit_status interprets its exit
code. The user can move it to the background while it runs.
"""

import asyncio
import contextlib
import re
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType, structs

from kitbag.errors import InvalidError
from kitbag.messages import Text
from kitbag.permissions.model import PermissionDecision
from kitbag.processes.command_runner import MAX_OUTPUT_BYTES, CommandResult
from kitbag.sandbox.confine import describe_confinement
from kitbag.text.hidden_characters import collapse_whitespace, reveal_hidden
from kitbag.text.human_format import format_count
from kitbag.tools.base import Arguments, Tool, ToolContext, ToolOutput, error_output, load_description, text_output
from kitbag.tools.delegation import Delegation, RunningCommand
from kitbag.tools.files.paths import display_path, visible_line
from kitbag.tools.files.read import format_size
from kitbag.tools.shell.command_run import AgentCommand, confinement_for
from kitbag.tools.shell.exit_status import exit_meaning, format_exit_code, leaves_background_jobs
from kitbag.tools.shell.foreground_command import FinishedCommand, ForegroundCommand
from kitbag.tools.shell.working_directory import workspace_directory

MAX_TIMEOUT_MS: Final = 600_000
DEFAULT_TIMEOUT_MS: Final = 120_000
MAX_COMMAND_BYTES: Final = 100_000
"""The kernel's limit for one argument is 128 KB."""
NO_OUTPUT: Final = "(no output)"
_SANDBOX_ERROR = re.compile(
    r"Read-only file system|Network is unreachable|[Cc]ould not resolve host|Temporary failure in name resolution"
)
"""What programs print when the sandbox blocks them, even if they continue."""


class BashArguments(Arguments, frozen=True):
    command: Annotated[str, Meta(min_length=1, max_length=MAX_COMMAND_BYTES)]
    timeout: Annotated[int, Meta(ge=1, le=MAX_TIMEOUT_MS)] | UnsetType = UNSET
    description: Annotated[str, Meta(max_length=1_000, description="What it does, briefly.")] = ""
    run_in_background: bool = False


async def _bash(arguments: BashArguments, context: ToolContext) -> ToolOutput:
    problem = _check_command(arguments.command)
    if problem is not None:
        return problem
    if not workspace_directory(context.directory, context.workspace):
        return _missing_directory_output(context)
    decision = context.decision or _decide_without_loop(arguments.command, context)
    command = AgentCommand(
        text=arguments.command,
        directory=context.directory,
        timeout_seconds=(arguments.timeout or DEFAULT_TIMEOUT_MS) / 1_000,
        workspace=context.workspace,
        decision=decision,
        mode=context.permissions.mode,
        session_id=context.session_id,
        environment=context.environment,
    )
    try:
        if arguments.run_in_background:
            return await _start_in_background(arguments, command, context)
        foreground = ForegroundCommand(command, context)
        running = asyncio.ensure_future(_run_recorded(foreground))
        switch, delegation = context.background_switch, context.delegation
        if switch is not None and delegation is not None and await switch.run(running):
            return await _move_to_background(arguments, foreground, running, delegation)
        done = await running
    except InvalidError as error:
        return error_output(f"the command did not run: {visible_line(error.problem)}", visible_line(error.fix))
    return _render_output(command, done, context)


# --- before the run ---------------------------------------------------------------------------------------------


def _check_command(command: str) -> ToolOutput | None:
    if not command.strip():
        return error_output("command is empty", "Provide a command.")
    if "\0" in command:
        return error_output("the command contains a NUL character", "Use \\0 in printf instead.")
    try:
        size = len(command.encode())
    except UnicodeEncodeError as error:
        problem = (
            f"character {error.start + 1:,} of the command is an unpaired surrogate (U+{ord(command[error.start]):04X})"
        )
        return error_output(problem, "Use the complete character.")
    if size > MAX_COMMAND_BYTES:
        return error_output(
            f"the command is too long: {size:,} bytes, maximum {MAX_COMMAND_BYTES:,}",
            "Save it to a file with Write and run the file.",
        )
    return None


async def _start_in_background(arguments: BashArguments, command: AgentCommand, context: ToolContext) -> ToolOutput:
    delegation = context.delegation
    if delegation is None:
        return error_output("background commands are not available here", "Run it in the foreground with a timeout.")
    confinement_for(command)  # denies here what would be denied when it runs
    seconds = command.timeout_seconds if arguments.timeout else 0.0  # no timeout unless one was set
    report = await delegation.start_command(
        command.text,
        collapse_whitespace(reveal_hidden(arguments.description)),
        command.directory,
        seconds,
        command.decision,
        (context.session_id, context.call_id) if _may_change_files(context, command) else ("", ""),
    )
    if report.error:
        return error_output(f"the command was not started: {report.error}")
    until = f" with a timeout of {seconds:g} s" if seconds else ""
    lines = [
        f"Running in the background as task {report.id}{until}. {delegation.end_notice}",
        f'Check its output with TaskOutput(task_id="{report.id}", block=false), stop it with'
        f' TaskStop(task_id="{report.id}"). Undo covers its changes once it has ended.',
        *(f"Warning: {collapse_whitespace(warning)}" for warning in report.warnings),
    ]
    return text_output("\n".join(lines), f"running in the background as {report.id}")


async def _move_to_background(
    arguments: BashArguments,
    foreground: ForegroundCommand,
    running: "asyncio.Task[FinishedCommand]",
    delegation: Delegation,
) -> ToolOutput:
    context = foreground.context
    if context.change_recorder is not None:
        context.change_recorder.move_to_background(context.call_id)
    command = RunningCommand(
        text=arguments.command,
        description=collapse_whitespace(reveal_hidden(arguments.description)),
        directory=context.directory,
        result=foreground.result_of(running),
        attach=foreground.attach,
    )
    try:
        report = await delegation.adopt_command(command)
    except BaseException:
        command.result.cancel()  # nothing would follow it
        raise
    text = (
        f"The user moved the command to the background; it is still running, as task {report.id}."
        f' {delegation.end_notice} Check its output with TaskOutput(task_id="{report.id}", block=false), stop it with'
        f' TaskStop(task_id="{report.id}").'
    )
    return text_output(text, f"moved to the background as {report.id}")


def _missing_directory_output(context: ToolContext) -> ToolOutput:
    """An earlier command may have deleted it or replaced it by a link."""
    where = visible_line(context.directory)
    root = workspace_directory(context.workspace.root, context.workspace)
    if not root or context.directory == root:
        return error_output(f"the directory {where} no longer exists", "Commands cannot run until it is restored.")
    output = error_output(
        f"the command did not run: {where} is no longer a directory in the workspace",
        f"Commands now start in {visible_line(root)}.",
    )
    return structs.replace(output, new_directory=root)


def _decide_without_loop(command: str, context: ToolContext) -> PermissionDecision:
    """For use without the agent loop: only what needs no approval."""
    decision = context.permissions.decide("Bash", {"command": command}, context.directory)
    return decision if decision.effect == "allow" else msgspec.structs.replace(decision, effect="deny")


def _record_changes(context: ToolContext, command: AgentCommand) -> AbstractAsyncContextManager[None]:
    """Records what the command changes in the workspace, for undo. A command that only reads is not recorded."""
    if context.change_recorder is None or not _may_change_files(context, command):
        return contextlib.nullcontext()
    named = tuple(dict.fromkeys(part.path for part in command.decision.parts if part.path))
    return context.change_recorder.record_command(context.call_id, named)


def _may_change_files(context: ToolContext, command: AgentCommand) -> bool:
    """Only where changes are recorded."""
    if context.change_recorder is None or command.decision.sandbox == "read-only":
        return False
    from kitbag.permissions.decisions.command import is_read_only
    from kitbag.shell.analysis import analyze

    return not is_read_only(analyze(command.text))


# --- the run ----------------------------------------------------------------------------------------------------


async def _run_recorded(foreground: ForegroundCommand) -> FinishedCommand:
    async with _record_changes(foreground.context, foreground.command):
        return await foreground.run()


# --- after the run ----------------------------------------------------------------------------------------------


def _render_output(command: AgentCommand, done: FinishedCommand, context: ToolContext) -> ToolOutput:
    result, output, _ = done
    printed = output.text or (result.text if not output.lines else "")
    meaning = exit_meaning(command.text, result.status) if not result.stop_reason else ""
    failed = bool(result.stop_reason) or (result.status != 0 and not meaning)
    end = _describe_end(result, command.timeout_seconds)
    new_directory, about_directory = _find_new_directory(done, context)
    notes = [
        *output.notes,
        *([f"[{format_exit_code(result.status)}: {meaning}.]"] if meaning else []),
        *about_directory,
    ]
    if not failed and leaves_background_jobs(command.text):
        notes.append(
            "[Background processes that the command started were stopped."
            " Use run_in_background for long-running commands.]"
        )
    runner_notes = [visible_line(note) for note in result.notes]
    notes += [f"[{note}]" for note in runner_notes]
    if failed or _SANDBOX_ERROR.search(printed):
        notes += _advice(result, command)
    body = printed if printed.strip() else NO_OUTPUT if not failed else ""
    text = "\n".join(part for part in (end if failed else "", body, *notes) if part)
    count = format_count(output.lines, "line") if output.lines else "no output"
    summary = [
        f"exit {_exit_code(result)}" if not result.stop_reason else end.rstrip("."),
        *([meaning] if meaning else []),
        count,
    ]
    summary += [f"now in {display_path(new_directory, context)}"] if new_directory else []
    details = "\n".join(part for part in (printed, *(f"[{note}]" for note in runner_notes)) if part)
    return ToolOutput(
        content=(Text(text),),
        summary=", ".join([*summary, *runner_notes]),
        is_error=failed,
        truncation=output.truncation,
        details=details,
        new_directory=new_directory,
    )


def _exit_code(result: CommandResult) -> int:
    return result.status if result.status >= 0 else 128 - result.status


def _describe_end(result: CommandResult, timeout_seconds: float) -> str:
    if result.stop_reason == "time":
        return f"Timed out after {timeout_seconds:g} s."
    if result.stop_reason == "output":
        return f"Stopped after printing {format_size(MAX_OUTPUT_BYTES)}."
    return format_exit_code(result.status)


def _find_new_directory(done: FinishedCommand, context: ToolContext) -> tuple[str, list[str]]:
    """The next command's directory if it changes, and the notes about it."""
    end = done.final_directory
    if end is None:
        return "", []
    if not end or done.result.stop_reason:
        return "", [f"[Working directory is still {visible_line(context.directory)}.]"]
    found = workspace_directory(end, context.workspace)
    if found:
        return (
            ("", []) if found == context.directory else (found, [f"[Working directory is now {visible_line(found)}.]"])
        )
    return "", [
        f"[Working directory is still {visible_line(context.directory)}: {visible_line(end)} is not in the workspace.]"
    ]


def _advice(result: CommandResult, command: AgentCommand) -> list[str]:
    notes: list[str] = []
    if result.stop_reason == "time":
        notes.append(f"[Use run_in_background or a longer timeout (up to {MAX_TIMEOUT_MS} ms).]")
    confinement = confinement_for(command)
    if confinement is not None and not result.stop_reason:
        notes.append(f"[Sandbox: {describe_confinement(confinement)}]")
    return notes


BASH = Tool(name="Bash", description=load_description("Bash"), arguments=BashArguments, run=_bash)
