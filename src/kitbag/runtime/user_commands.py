"""A command that the person runs themselves, `!command` in the chat: in their own shell, with their own rights, as in
another window. What it printed goes with their next message, as data.

Used by the chat, and by Agent, which puts what was run beside the words of the person.
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
"""Of all commands between two messages."""
_MAX_SECONDS: Final = 24 * 3600.0
_RUNNER_OUTPUT_CHARS: Final = 2_000
"""Characters that the runner keeps for itself, to say why nothing could be started."""
_OUTPUT_OMITTED: Final = "[What it printed is left out for want of room. Ask the person for what you need of it.]"


class UserCommand:
    text = ""
    """What it printed, also when it was cancelled."""
    lines = 0
    outcome = "stopped"
    """How it ended, in words; empty: well."""
    seconds = 0.0

    def __init__(self, command: str, directory: str) -> None:
        self.command = command
        self._directory = directory

    async def run(self, progress: Callable[[str], None]) -> None:
        """To its end, or until it is cancelled: then nothing of it goes on. `progress` hears each second, in another
        thread, what it printed last."""
        output, begun = CommandOutput(), time.monotonic()

        def work(stop: threading.Event) -> CommandResult:
            given = {**os.environ, "PWD": self._directory}
            wanted = ShellCommand(
                self.command, self._directory, given, _MAX_SECONDS, _RUNNER_OUTPUT_CHARS, stop, output.feed
            )
            return run_command(wanted, lambda _: progress(output.last_line()))

        try:
            ran = await run_in_own_thread(work)
            self.text = ran.text if not output.size else ""
            if not ran.stop_reason:
                self.outcome = format_exit_code(ran.status) if ran.status else ""
        finally:
            shown = output.render()
            self.text, self.lines = shown.text or self.text, shown.lines
            self.seconds = time.monotonic() - begun


def queue_for_model(agent: "Agent", command: UserCommand) -> bool:
    """For the next message, without the person's secrets. False: there is room only to say that it was run."""
    hide = agent.journal.redactor.redact_known
    fits = sum(map(len, agent.user_command_blocks)) + len(command.text) <= MAX_CHARS
    printed = (command.text or "(no output)") if fits else _OUTPUT_OMITTED
    body = "\n".join(part for part in (f"[{command.outcome}]" if command.outcome else "", hide(printed)) if part)
    agent.user_command_blocks.append(
        untrusted_block("mentioned-command", {"name": hide(command.command), "run-by": "the person"}, body)
    )
    return fits
