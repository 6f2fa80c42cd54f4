"""`kitbag -p`: answers prompts non-interactively. Kitbag denies what it would ask, unless the user sits at the
terminal.

Used by ask. Uses runtime for the agent, stdin for prompts, run_output for printing, and interruption for signals.
"""

import asyncio
import gc
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from io import TextIOBase
from typing import TYPE_CHECKING, Final, NamedTuple

from kitbag.agent.run import Run
from kitbag.cli import output
from kitbag.cli.interruption import InterruptedRunError, Interruption
from kitbag.cli.interruption import run_interruptible as run_hearing
from kitbag.cli.run_output import RunOutput, create_run_output
from kitbag.cli.stdin import InputPrompt, JsonPromptReader, read_prompt
from kitbag.errors import KitbagError, UsageError
from kitbag.runtime.agent import Agent, Options

if TYPE_CHECKING:
    from kitbag.cli.terminal_approver import TerminalApprover
    from kitbag.cli.terminal_asker import TerminalAsker

STATUS_CODES: Final = {
    "completed": 0,
    "failed": 7,
    "empty": 9,
    "max-turns": 11,
    "max-tokens": 12,
    "max-cost": 12,
    "cancelled": 130,
}


BROKEN_PIPE: Final = 141


class HeadlessOptions(NamedTuple):
    prompt: str
    """`-`: read the prompt from standard input."""
    options: Options
    output_format: str = "text"
    input_format: str = "text"
    wait_for_background: bool = True
    """Whether to wait for background tasks that outlast the answer."""


def run_headless(wanted: HeadlessOptions) -> int:
    """Returns the exit code."""
    # Startup leaves no garbage worth collecting, and a run may be long.
    gc.freeze()
    gc.enable()
    report = create_run_output(wanted.output_format)
    with Interruption() as interruption:
        try:
            first = _first_prompt(wanted)
            return run_hearing(_run_all(wanted, first, report, interruption))
        except KitbagError as error:
            report.fail(error)
            return error.exit_code
        except (InterruptedRunError, asyncio.CancelledError):
            if not interruption.signal_number:
                raise
            report.fail(KitbagError("cancelled"))
            return interruption.exit_code
        except BrokenPipeError:
            return BROKEN_PIPE  # here, because click would turn it into a 1
        except OSError:
            raise  # from our own output: main reports it
        except Exception as error:  # noqa: BLE001 - the outermost place that can tell it without a secret in it
            report.internal_error(f"{type(error).__name__}: {error}", traceback.format_exc())
            return 1


def _first_prompt(wanted: HeadlessOptions) -> InputPrompt | None:
    """Read before anything is started. None: prompts come line by line."""
    if wanted.input_format == "text":
        return read_prompt(wanted.prompt)
    if wanted.prompt != "-":
        fix = "the prompts come on standard input: put -p last without a text, or write -p -"
        raise UsageError("-p with a text and --input-format stream-json", fix)
    return None


async def _prompts(first: InputPrompt | None) -> AsyncIterator[InputPrompt]:
    if first is not None:
        yield first
        return
    lines = JsonPromptReader()
    while (request := await lines.next()) is not None:
        yield request


async def _run_all(
    wanted: HeadlessOptions, first: InputPrompt | None, report: RunOutput, interruption: Interruption
) -> int:
    task = asyncio.current_task()
    assert task is not None
    interruption.on_signal(task.cancel)
    code, count = 0, 0
    approver, person = _terminal_approver_and_asker(wanted)
    async with Agent(options=wanted.options, approver=approver, person=person) as agent:
        report.redactor = agent.journal.redactor

        async def answer(request: InputPrompt) -> int:
            async with agent.run(request.text, request.images) as run:
                interruption.on_signal(run.cancel)
                async for event in run:
                    report.event(event)
                if not interruption.signal_number:  # otherwise the signal's cancel has been called
                    interruption.on_signal(task.cancel)
            return _exit_code(run)

        async for request in _prompts(first):
            count += 1
            code = await answer(request)
            if code or interruption.signal_number:
                break
        if not count:
            raise UsageError("there is no request", "send one on standard input, as JSON on one line")
        if not code and not interruption.signal_number:
            code = await _finish_background(agent, wanted, answer)
        report.end()
    return interruption.exit_code if interruption.signal_number else code


async def _finish_background(
    agent: Agent, wanted: HeadlessOptions, answer: Callable[[InputPrompt], Awaitable[int]]
) -> int:
    """Waits for background tasks that outlast the answer: the model is notified of each end and may continue."""
    delegation = agent.delegation
    if delegation is None or not (delegation.unfinished() or delegation.has_notifications()):
        return 0
    from kitbag.cli.background_wait import STILL_RUNNING, still_running_message, wait_for_background

    while True:
        if delegation.has_notifications():
            code = await answer(InputPrompt("", ()))
            if code:
                return code
            continue
        left = delegation.unfinished()
        if left and wanted.wait_for_background:
            try:
                left = await wait_for_background(agent, _remark)
            except asyncio.CancelledError:
                if left := delegation.unfinished():
                    _remark(still_running_message(left))
                raise
            if not left:
                continue
        if left:
            _remark(still_running_message(left))
            return STILL_RUNNING
        return 0


def _remark(text: str) -> None:
    output.remark(output.clean(text))


def _terminal_approver_and_asker(wanted: HeadlessOptions) -> "tuple[TerminalApprover | None, TerminalAsker | None]":
    """Only if the user typed the command and reads its answer: a script must never wait for input."""
    streams: tuple[object, ...] = (sys.stdin, sys.stdout, sys.stderr)  # None if closed
    if wanted.output_format != "text" or not all(isinstance(one, TextIOBase) and one.isatty() for one in streams):
        return None, None
    from kitbag.cli.terminal_approver import TerminalApprover
    from kitbag.cli.terminal_asker import TerminalAsker

    approver = TerminalApprover()
    return (approver, TerminalAsker()) if approver.is_available() else (None, None)


def _exit_code(run: Run) -> int:
    ended = run.ended
    if ended.status == "failed" and run.error is not None:
        return run.error.exit_code
    return STATUS_CODES[ended.status]
