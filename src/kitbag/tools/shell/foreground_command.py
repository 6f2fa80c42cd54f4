"""A command that the caller waits for: shows its progress, and can continue in the background.

Used by bash. command_run confines and runs it, command_output bounds its output, working_directory tracks `cd`.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

from msgspec import structs

from kitbag.processes.command_runner import CommandResult
from kitbag.tools.base import ToolContext
from kitbag.tools.shell.command_output import CommandOutput, RenderedOutput
from kitbag.tools.shell.command_run import AgentCommand, run_agent_command, run_in_own_thread
from kitbag.tools.shell.working_directory import DirectoryTracker


class FinishedCommand(NamedTuple):
    result: CommandResult
    output: RenderedOutput
    final_directory: str | None
    """The shell's directory at its end: empty if unknown, None if the command does not change it."""


class ForegroundCommand:
    def __init__(self, command: AgentCommand, context: ToolContext) -> None:
        self.context = context
        self._output = CommandOutput()
        self._prefix = ""
        """Text that Kitbag added to the command."""
        self._lift_timeout = threading.Event()
        self._attached: tuple[Callable[[bytes], None], Callable[[], None]] | None = None
        self._lock = threading.Lock()
        self.command = structs.replace(command, lift_timeout=self._lift_timeout)

    async def run(self) -> FinishedCommand:
        loop, context, command = asyncio.get_running_loop(), self.context, self.command
        authorize_write = context.authorize_write
        if authorize_write is not None:

            def ask(path: str) -> "Future[str]":
                return asyncio.run_coroutine_threadsafe(authorize_write(path), loop)

            command = structs.replace(command, on_question=ask)

        def work(stop: threading.Event) -> FinishedCommand:
            def tick(seconds: float) -> None:
                line = self._output.last_line()
                text = f"{seconds:.0f} s: {line}" if line else f"{seconds:.0f} s"
                if self._attached is not None:
                    with self._lock:
                        self._attached[1]()
                elif not stop.is_set():
                    with contextlib.suppress(RuntimeError):  # the loop is closed
                        loop.call_soon_threadsafe(context.progress, text)

            with DirectoryTracker(command.text) as trail:
                self._prefix = trail.prefix
                traced = structs.replace(command, text=trail.text, descriptors=trail.descriptors)
                result = run_agent_command(traced, stop, self._feed, tick)
                return FinishedCommand(result, self._output.render(trail.prefix), trail.final_directory())

        return await run_in_own_thread(work)

    def _feed(self, chunk: bytes) -> None:
        with self._lock:
            self._output.feed(chunk)
            if self._attached is not None:
                self._attached[0](chunk)

    def attach(self, feed: Callable[[bytes], None], tick: Callable[[], None]) -> None:
        """Passes on what was printed so far and all that follows. From now on there is no timeout."""
        with self._lock:
            if self._output.size:
                feed(self._output.render(self._prefix).text.encode(errors="replace") + b"\n")
            self._attached = (feed, tick)
        self._lift_timeout.set()

    def result_of(self, running: "asyncio.Task[FinishedCommand]") -> "asyncio.Future[CommandResult]":
        """The end of the command without its output, which is attached elsewhere."""

        async def wait() -> CommandResult:
            return (await running).result

        return asyncio.ensure_future(wait())
