"""Follows a command that the user moved to the background: it stays a child of this process and becomes a task.

Used by delegation. command_task runs commands that start in the background.
"""

import asyncio
import os
import time

import msgspec

from kitbag.agent.shield import run_to_completion
from kitbag.processes.command_runner import CommandResult
from kitbag.tasks.board import Board
from kitbag.tasks.command_task import describe_command_end
from kitbag.tasks.output_file import OutputFile
from kitbag.tasks.stop_signals import StopSignals
from kitbag.tasks.task import Task, TaskResult
from kitbag.tools.delegation import RunningCommand

_SESSION_CLOSED = "its session was closed"


async def follow_command(board: Board, task: Task, command: RunningCommand, signals: StopSignals) -> None:
    """Records the result when the command has ended. If canceled, ends the command first."""
    started_at = time.monotonic()
    journal = board.journal
    output = OutputFile(os.path.dirname(journal.path), task.id, journal.redactor)
    command.attach(output.feed, output.flush_idle)
    problem = ""
    with signals.watch(task.id, task.run) as stop_requested:
        watch = asyncio.ensure_future(stop_requested.wait())
        try:
            await asyncio.wait([command.result, watch], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            problem = _SESSION_CLOSED
            raise
        finally:
            watch.cancel()
            await run_to_completion(_finish(board, task, command, output, problem, started_at))


async def _finish(
    board: Board, task: Task, command: RunningCommand, output: OutputFile, problem: str, started_at: float
) -> None:
    if not command.result.done():
        command.result.cancel()
        await asyncio.wait([command.result])
    await asyncio.to_thread(output.close)
    result = _result_of(command.text, command.result, output, problem)
    result = msgspec.structs.replace(result, seconds=round(time.monotonic() - started_at, 3))
    if output.problem:
        await board.warn(task.id, output.problem)
    await board.finish(task.id, task.run, result)


def _result_of(text: str, done: "asyncio.Future[CommandResult]", output: OutputFile, problem: str) -> TaskResult:
    if done.cancelled():
        return TaskResult(status="cancelled", text=output.tail, error=problem, full_length=output.size)
    error = done.exception()
    if error is not None:
        return TaskResult(status="failed", text=output.tail, error=str(error), full_length=output.size)
    return describe_command_end(text, done.result(), output.tail, output.size)
