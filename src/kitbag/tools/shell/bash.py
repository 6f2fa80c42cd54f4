"""Bash: one command, run as it was judged, bounded in time and output, with nothing of it left.

Used by the loop, which has asked for permission. command_run confines and runs it, command_output bounds what it
prints, command_directory learns where it ended, exit_status says what its status means.
"""

import asyncio
import contextlib
import re
import threading
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Final, NamedTuple

from msgspec import UNSET, Meta, UnsetType

from kitbag.errors import InvalidError
from kitbag.messages import Text
from kitbag.permissions.model import Judgement
from kitbag.processes.command_runner import FLOOD_BYTES, Ran
from kitbag.sandbox.confine import describe
from kitbag.text.hidden_characters import one_line, reveal_hidden
from kitbag.tools.base import Arguments, Context, Outcome, Tool, answer, description, failure
from kitbag.tools.files.paths import number_of, shown, visible
from kitbag.tools.files.read import amount
from kitbag.tools.shell.command_output import Output, Shown
from kitbag.tools.shell.command_run import Wanted, confinement_of, in_own_thread, run_wanted
from kitbag.tools.shell.exit_status import answer_of, exit_code, leaves_work_behind
from kitbag.tools.shell.working_directory import Trail, inside

LONGEST_TIME: Final = 600_000
USUAL_TIME: Final = 120_000
MOST_BYTES: Final = 100_000
"""The kernel takes no longer argument than 128 KB."""
NOTHING_PRINTED: Final = "(no output)"
_HELD = re.compile(
    r"Read-only file system|Network is unreachable|[Cc]ould not resolve host|Temporary failure in name resolution"
)
"""What programs say in a sandbox, also those that go on after it."""


class BashArguments(Arguments, frozen=True):
    command: Annotated[str, Meta(min_length=1, max_length=MOST_BYTES)]
    timeout: Annotated[int, Meta(ge=1, le=LONGEST_TIME, description="Milliseconds.")] | UnsetType = UNSET
    description: Annotated[str, Meta(max_length=1_000, description="What it does, in a few words.")] = ""
    run_in_background: bool = False


class _Done(NamedTuple):
    ran: Ran
    output: Shown
    end: str | None
    """Where the shell was when it ended: empty when that is not known, None for a command that does not move."""


async def _bash(arguments: BashArguments, context: Context) -> Outcome:
    unusable = _unusable(arguments.command)
    if unusable is not None:
        return unusable
    if not inside(context.directory, context.workspace):
        return _gone(context)
    judgement = context.judgement or _judged(arguments.command, context)
    wanted = Wanted(
        arguments.command,
        context.directory,
        (arguments.timeout or USUAL_TIME) / 1_000,
        context.workspace,
        judgement,
        context.permissions.mode,
        context.session_id,
        environment=context.environment,
    )
    try:
        if arguments.run_in_background:
            return await _in_background(arguments, wanted, context)
        async with _kept(context, wanted):
            done = await _run(wanted, context)
    except InvalidError as error:
        return failure(f"the command did not run: {visible(error.problem)}", visible(error.fix))
    return _outcome(wanted, done, context)


# --- before -----------------------------------------------------------------------------------------------------


def _unusable(command: str) -> Outcome | None:
    if not command.strip():
        return failure("there is no command", "Give one.")
    if "\0" in command:
        return failure("the command has a NUL character, which no command can have", "Write it as \\0 inside printf.")
    try:
        size = len(command.encode())
    except UnicodeEncodeError as error:
        problem = f"character {error.start + 1:,} of the command is half of one (U+{ord(command[error.start]):04X})"
        return failure(problem, "Write the whole character.")
    if size > MOST_BYTES:
        return failure(
            f"the command has {size:,} bytes, and {MOST_BYTES:,} are possible",
            "Write it to a file with Write, and run that.",
        )
    return None


async def _in_background(arguments: BashArguments, wanted: Wanted, context: Context) -> Outcome:
    delegation = context.delegation
    if delegation is None:
        return failure("background commands are not available here", "Run it in the foreground, with a timeout.")
    confinement_of(wanted)  # so that it is refused here, if it is
    seconds = wanted.seconds if arguments.timeout else 0.0  # it has no end unless one was set
    report = await delegation.start_command(
        wanted.text, one_line(reveal_hidden(arguments.description)), wanted.directory, seconds, wanted.judgement
    )
    if report.error:
        return failure(f"the command was not started: {report.error}")
    until = f", for {seconds:g} s at most" if seconds else ""
    lines = [
        f"It runs in the background as task {report.id}{until}. You will be told when it ends.",
        f'See what it prints with TaskOutput(task_id="{report.id}", block=false), end it with'
        f' TaskStop(task_id="{report.id}"). Undo does not take back what it changes.',
        *(f"Warning: {one_line(warning)}" for warning in report.warnings),
    ]
    return answer("\n".join(lines), f"runs in the background as {report.id}")


def _gone(context: Context) -> Outcome:
    """A command before this one may have deleted it, or put a link in its place."""
    where = visible(context.directory)
    root = inside(context.workspace.root, context.workspace)
    if not root or context.directory == root:
        return failure(f"the directory {where} is not there any more", "Nothing can be run until it is.")
    found = failure(
        f"the directory {where} is no folder of the workspace any more, so nothing was run",
        f"From now on commands start in {visible(root)}.",
    )
    return found._replace(directory=root)


def _judged(command: str, context: Context) -> Judgement:
    """For whoever uses the tool without the loop: only what needs no answer."""
    judgement = context.permissions.decide("Bash", {"command": command}, context.directory)
    return judgement if judgement.effect == "allow" else judgement._replace(effect="deny")


def _kept(context: Context, wanted: Wanted) -> AbstractAsyncContextManager[None]:
    """So that what it changes in the workspace can be taken back; what can't change anything does not pay for it."""
    if context.changes is None or wanted.judgement.sandbox == "read-only":
        return contextlib.nullcontext()
    from kitbag.permissions.decisions.command import only_reads
    from kitbag.shell.analysis import analyse

    if only_reads(analyse(wanted.text)):
        return contextlib.nullcontext()
    return context.changes.around_command(context.call_id)


# --- while it runs ----------------------------------------------------------------------------------------------


async def _run(wanted: Wanted, context: Context) -> _Done:
    loop = asyncio.get_running_loop()
    output = Output()

    def work(stop: threading.Event) -> _Done:
        def tick(seconds: float) -> None:
            line = output.last_line()
            text = f"{seconds:.0f} s: {line}" if line else f"{seconds:.0f} s"
            if not stop.is_set():
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(context.progress, text)

        with Trail(wanted.text) as trail:
            traced = wanted._replace(text=trail.text, descriptors=trail.descriptors)
            ran = run_wanted(traced, stop, output.take, tick)
            return _Done(ran, output.shown(trail.added), trail.end())

    return await in_own_thread(work)


# --- after ------------------------------------------------------------------------------------------------------


def _outcome(wanted: Wanted, done: _Done, context: Context) -> Outcome:
    ran, output, _ = done
    printed = output.text or (ran.text if not output.lines else "")
    says = answer_of(wanted.text, ran.status) if not ran.stopped else ""
    failed = bool(ran.stopped) or (ran.status != 0 and not says)
    ended = _ended(ran, wanted.seconds)
    moved, about_directory = _moved(done, context)
    remarks = [*output.remarks, *([f"[{exit_code(ran.status)}: {says}.]"] if says else []), *about_directory]
    if not failed and leaves_work_behind(wanted.text):
        remarks.append("[What it left running was ended with it. Use run_in_background for what is to go on.]")
    notes = [visible(note) for note in ran.notes]
    remarks += [f"[{note}]" for note in notes]
    if failed or _HELD.search(printed):
        remarks += _advice(ran, wanted)
    body = printed if printed.strip() else NOTHING_PRINTED if not failed else ""
    text = "\n".join(part for part in (ended if failed else "", body, *remarks) if part)
    count = number_of(output.lines, "line") if output.lines else "no output"
    summary = [f"exit {_code(ran)}" if not ran.stopped else ended.rstrip("."), *([says] if says else []), count]
    summary += [f"now in {shown(moved, context)}"] if moved else []
    details = "\n".join(part for part in (printed, *(f"[{note}]" for note in notes)) if part)
    return Outcome(
        (Text(text),),
        ", ".join([*summary, *notes]),
        is_error=failed,
        cut=output.cut,
        details=details,
        directory=moved,
    )


def _code(ran: Ran) -> int:
    return ran.status if ran.status >= 0 else 128 - ran.status


def _ended(ran: Ran, seconds: float) -> str:
    if ran.stopped == "time":
        return f"Stopped after {seconds:g} s, when its time was over."
    if ran.stopped == "output":
        return f"Stopped after it had printed {amount(FLOOD_BYTES)}."
    return exit_code(ran.status)


def _moved(done: _Done, context: Context) -> tuple[str, list[str]]:
    """Where the next command starts, if elsewhere, and what is to be said about it."""
    end = done.end
    if end is None:
        return "", []
    if not end or done.ran.stopped:
        return "", [f"[Still in {visible(context.directory)}.]"]
    found = inside(end, context.workspace)
    if found:
        return ("", []) if found == context.directory else (found, [f"[Now in {visible(found)}.]"])
    return "", [f"[Back in {visible(context.directory)}: {visible(end)} is no folder of the workspace.]"]


def _advice(ran: Ran, wanted: Wanted) -> list[str]:
    found: list[str] = []
    if ran.stopped == "time":
        found.append(f"[Use run_in_background, or a longer timeout: {LONGEST_TIME} ms at most.]")
    confinement = confinement_of(wanted)
    if confinement is not None and not ran.stopped:
        found.append(f"[Ran in: {describe(confinement)}]")
    return found


BASH = Tool("Bash", description("Bash"), BashArguments, _bash)
