"""Runs a user's own command, `!command` in the chat: in their shell, with their permissions, as in another terminal.

Used by the chat. The output goes with the next message as data (base_agent).
"""

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kitbag.processes.command_runner import CommandResult, ShellCommand, run_command
from kitbag.tools.shell.command_output import CommandOutput
from kitbag.tools.shell.command_run import run_in_own_thread
from kitbag.tools.shell.exit_status import format_exit_code
from kitbag.tools.web.untrusted_text import untrusted_block

if TYPE_CHECKING:
    from kitbag.runtime.agent import Agent

MAX_CHARS: Final = 60_000
"""For all commands between two messages."""
_MAX_SECONDS: Final = 24 * 3600.0
_RUNNER_OUTPUT_CHARS: Final = 2_000
"""Output that the runner itself keeps, to explain why a command could not start."""
_OUTPUT_OMITTED: Final = "[Output omitted: too long. Ask the user for the part you need.]"


class UserCommand:
    text = ""
    """The output, also of a cancelled command."""
    lines = 0
    outcome = "stopped"
    """How it ended; empty: successfully."""
    seconds = 0.0

    def __init__(self, command: str, directory: str) -> None:
        self.command = command
        self._directory = directory

    async def run(self, progress: Callable[[str], None]) -> None:
        """Until it ends or is cancelled; then no process of it stays. `progress` gets the last line of output every
        second, in another thread."""
        output, started = CommandOutput(), time.monotonic()

        def work(stop: threading.Event) -> CommandResult:
            environment = {**os.environ, "PWD": self._directory}
            options = ShellCommand(
                text=self.command,
                directory=self._directory,
                environment=environment,
                timeout=_MAX_SECONDS,
                max_characters=_RUNNER_OUTPUT_CHARS,
                stop=stop,
                on_output=output.feed,
            )
            return run_command(options, lambda _: progress(output.last_line()))

        try:
            ran = await run_in_own_thread(work)
            self.text = ran.text if not output.size else ""
            if not ran.stop_reason:
                self.outcome = format_exit_code(ran.status) if ran.status else ""
        finally:
            rendered = output.render()
            self.text, self.lines = rendered.text or self.text, rendered.lines
            self.seconds = time.monotonic() - started


def queue_for_model(agent: "Agent", command: UserCommand) -> bool:
    """Adds the output to the next message, without the user's secrets. False: too long, so only the command is
    mentioned."""
    hide = agent.journal.redactor.redact_known
    fits = sum(map(len, agent.user_command_blocks)) + len(command.text) <= MAX_CHARS
    printed = (command.text or "(no output)") if fits else _OUTPUT_OMITTED
    body = "\n".join(part for part in (f"[{command.outcome}]" if command.outcome else "", hide(printed)) if part)
    agent.user_command_blocks.append(
        untrusted_block("mentioned-command", {"name": hide(command.command), "run-by": "the user"}, body)
    )
    return fits
