"""A command that the person runs themselves, `!command` in the chat: in their own shell, with their own rights, as in
another window. What it printed goes with their next message, as data.

Used by the chat, and by Agent, which puts what was run beside the words of the person.
"""

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kitbag.processes.command_runner import Command, Ran, run_command
from kitbag.tools.shell.command_output import Output
from kitbag.tools.shell.command_run import in_own_thread
from kitbag.tools.shell.exit_status import exit_code
from kitbag.tools.web.untrusted_text import block

if TYPE_CHECKING:
    from kitbag.runtime.agent import Agent

MOST_CHARACTERS: Final = 60_000
"""Of all commands between two messages."""
_LONGEST_SECONDS: Final = 24 * 3600.0
_KEPT: Final = 2_000
"""Characters that the runner keeps for itself, to say why nothing could be started."""
_NO_ROOM: Final = "[What it printed is left out for want of room. Ask the person for what you need of it.]"


class PersonCommand:
    text = ""
    """What it printed, also when it was cancelled."""
    lines = 0
    end = "stopped"
    """How it ended, in words; empty: well."""
    seconds = 0.0

    def __init__(self, command: str, directory: str) -> None:
        self.command = command
        self._directory = directory

    async def run(self, progress: Callable[[str], None]) -> None:
        """To its end, or until it is cancelled: then nothing of it goes on. `progress` hears each second, in another
        thread, what it printed last."""
        output, begun = Output(), time.monotonic()

        def work(stop: threading.Event) -> Ran:
            given = {**os.environ, "PWD": self._directory}
            wanted = Command(self.command, self._directory, given, _LONGEST_SECONDS, _KEPT, stop, output.take)
            return run_command(wanted, lambda _: progress(output.last_line()))

        try:
            ran = await in_own_thread(work)
            self.text = ran.text if not output.size else ""
            if not ran.stopped:
                self.end = exit_code(ran.status) if ran.status else ""
        finally:
            shown = output.shown()
            self.text, self.lines = shown.text or self.text, shown.lines
            self.seconds = time.monotonic() - begun


def keep_for_model(agent: "Agent", ran: PersonCommand) -> bool:
    """For the next message, without the person's secrets. False: there is room only to say that it was run."""
    hide = agent.journal.redactor.known
    fits = sum(map(len, agent.ran_by_person)) + len(ran.text) <= MOST_CHARACTERS
    printed = (ran.text or "(no output)") if fits else _NO_ROOM
    body = "\n".join(part for part in (f"[{ran.end}]" if ran.end else "", hide(printed)) if part)
    agent.ran_by_person.append(block("mentioned-command", {"name": hide(ran.command), "run-by": "the person"}, body))
    return fits
