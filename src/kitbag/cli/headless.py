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
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kitbag.agent.run import Run
from kitbag.cli import output
from kitbag.cli.interruption import InterruptedRunError, Interruption
from kitbag.cli.interruption import run_interruptible as run_hearing
from kitbag.cli.run_options import build_run_options, check_options
from kitbag.cli.run_output import RunOutput, create_run_output, is_denied
from kitbag.cli.stdin import InputPrompt, JsonPromptReader, read_prompt
from kitbag.errors import KitbagError, UsageError
from kitbag.events import ToolFinished
from kitbag.runtime.agent import Agent, Options


def ask(options: dict[str, Any]) -> int:
    """Returns the exit code."""
    try:
        check_options(options)
        headless_options = HeadlessOptions(
            prompt=options["prompt"],
            options=build_run_options(options),
            output_format=options["output_format"],
            input_format=options["input_format"],
            wait_for_background=options["waits"],
        )
    except KitbagError as error:
        create_run_output(options["output_format"]).fail(error)
        return error.exit_code
    return run_headless(headless_options)


if TYPE_CHECKING:
    from kitbag.dialogs.approver import DialogApprover
    from kitbag.dialogs.asker import DialogAsker

STATUS_CODES: Final = {
    "completed": 0,
    "failed": 7,
    "empty": 9,
    "max-turns": 11,
    "over-budget": 12,
    "cancelled": 130,
}

DENIED: Final = 6
"""Every tool call was denied."""


class HeadlessOptions(msgspec.Struct, frozen=True, kw_only=True):
    prompt: str
    """`-`: read the prompt from standard input."""
    options: Options
    output_format: str = "text"
    input_format: str = "text"
    wait_for_background: bool = True
    """Whether to wait for background tasks that outlast the answer."""


def run_headless(options: HeadlessOptions) -> int:
    """Returns the exit code."""
    # Startup leaves no garbage worth collecting, and a run may be long.
    gc.freeze()
    gc.enable()
    run_output = create_run_output(options.output_format)
    with Interruption() as interruption:
        try:
            first = _first_prompt(options)
            return run_hearing(_run_all(options, first, run_output, interruption))
        except KitbagError as error:
            run_output.fail(error)
            return error.exit_code
        except (InterruptedRunError, asyncio.CancelledError):
            if not interruption.signal_number:
                raise
            run_output.fail(KitbagError("cancelled"))
            return interruption.exit_code
        except OSError:
            raise  # from our own output: main reports it
        except Exception as error:  # noqa: BLE001 - the outermost place that can tell it without a secret in it
            run_output.internal_error(f"{type(error).__name__}: {error}", traceback.format_exc())
            return 1


def _first_prompt(options: HeadlessOptions) -> InputPrompt | None:
    """Read before anything is started. None: prompts come line by line."""
    if options.input_format == "text":
        return read_prompt(options.prompt)
    if options.prompt != "-":
        fix = "stream-json prompts are read from standard input: put -p last without a prompt, or use -p -"
        raise UsageError("-p PROMPT and --input-format stream-json can't be combined", fix)
    return None


async def _prompts(first: InputPrompt | None) -> AsyncIterator[InputPrompt]:
    if first is not None:
        yield first
        return
    lines = JsonPromptReader()
    while (prompt := await lines.next()) is not None:
        yield prompt


async def _run_all(
    options: HeadlessOptions, first: InputPrompt | None, run_output: RunOutput, interruption: Interruption
) -> int:
    task = asyncio.current_task()
    assert task is not None
    interruption.on_signal(task.cancel)
    code, count = 0, 0
    calls: list[bool] = []  # whether each was denied
    approver, asker = _terminal_approver_and_asker(options)
    async with Agent(options=options.options, approver=approver, person=asker) as agent:
        run_output.redactor = agent.journal.redactor

        async def answer(prompt: InputPrompt) -> int:
            async with agent.run(prompt.text, prompt.images) as run:
                interruption.on_signal(run.cancel)
                async for event in run:
                    run_output.event(event)
                    if isinstance(event, ToolFinished):
                        calls.append(is_denied(event))
                if not interruption.signal_number:  # otherwise the signal's cancel has been called
                    interruption.on_signal(task.cancel)
            return _exit_code(run)

        async for prompt in _prompts(first):
            count += 1
            code = await answer(prompt)
            if code or interruption.signal_number:
                break
        if not count:
            raise UsageError("no prompt on standard input", "send one JSON object per line")
        if not code and not interruption.signal_number:
            code = await _finish_background(agent, options, answer, run_output)
        run_output.end()
    if interruption.signal_number:
        return interruption.exit_code
    return code or (DENIED if calls and all(calls) else 0)  # an answer without the work is no success


async def _finish_background(
    agent: Agent, options: HeadlessOptions, answer: Callable[[InputPrompt], Awaitable[int]], run_output: RunOutput
) -> int:
    """Waits for background tasks that outlast the answer: the model is notified of each end and may continue."""
    delegation = agent.delegation
    if delegation is None or not (delegation.unfinished() or delegation.has_notifications()):
        return 0
    from kitbag.cli.background_wait import STILL_RUNNING, still_running_message, wait_for_background

    while True:
        if delegation.has_notifications():
            code = await answer(InputPrompt(text="", images=()))
            if code:
                return code
            continue
        unfinished = delegation.unfinished()
        if unfinished and options.wait_for_background:
            try:
                unfinished = await wait_for_background(agent, _remark, run_output.event)
            except asyncio.CancelledError:
                if unfinished := delegation.unfinished():
                    _remark(still_running_message(unfinished))
                raise
            if not unfinished:
                continue
        if unfinished:
            _remark(still_running_message(unfinished))
            return STILL_RUNNING
        return 0


def _remark(text: str) -> None:
    output.remark(output.clean(text))


def _terminal_approver_and_asker(options: HeadlessOptions) -> "tuple[DialogApprover | None, DialogAsker | None]":
    """Only if the user typed the command and reads its answer: a script must never wait for input."""
    streams: tuple[object, ...] = (sys.stdin, sys.stdout, sys.stderr)  # None if closed
    if options.output_format != "text" or not all(isinstance(one, TextIOBase) and one.isatty() for one in streams):
        return None, None
    from kitbag.cli.terminal_dialog import TerminalDialog, terminal_approver
    from kitbag.dialogs.asker import DialogAsker

    approver = terminal_approver()
    return (approver, DialogAsker(TerminalDialog())) if approver is not None else (None, None)


def _exit_code(run: Run) -> int:
    ended = run.ended
    if ended.status == "failed" and run.error is not None:
        return run.error.exit_code
    return STATUS_CODES[ended.status]
