"""A program that asks at a terminal while its input and output are pipes."""

import codecs
import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from typing import Any

from conftest import World
from support.waiting import TEST_TIMEOUT, wait_until

PROGRAM = """
import asyncio, json, os, signal, sys
from kitbag.cli import interruption
from kitbag.cli.terminal_dialog import TERMINAL_STYLE, TerminalDialog
from kitbag.dialogs.approver import DialogApprover
from kitbag.permissions.approvals.approval import Approvals, Permit
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import SandboxSupport, Workspace
from kitbag.permissions.rules.rule import PermissionRules

home, root, settings, *wishes = sys.argv[1:]
async def main():
    approver = DialogApprover(TerminalDialog(), TERMINAL_STYLE)
    approvals = Approvals(approver, settings)
    allowed = Permissions(Workspace(root=root, home=home, kitbag_home=home + "/.kitbag"), "default", PermissionRules(), SandboxSupport(kind="none"))
    for wish in wishes:
        tool, arguments = json.loads(wish)
        try:
            async with asyncio.timeout(None) as limit:
                loop = asyncio.get_running_loop()
                loop.add_signal_handler(signal.SIGUSR1, lambda: limit.reschedule(loop.time()))
                found = await approvals.authorize(allowed, tool, arguments, asked_by="main")
        except TimeoutError:
            print(json.dumps("timeout"), flush=True)
            continue
        if isinstance(found, Permit):
            found.use(tool, arguments)
            print(json.dumps(["permit", found.notice]), flush=True)
        else:
            print(json.dumps([found.by, found.reason]), flush=True)
interruption.run_interruptible(main())
"""


class Terminal:
    """A program whose input and output are pipes, and whose terminal is ours."""

    def __init__(self, world: World, *wishes: object, program: str = PROGRAM) -> None:
        self._screen, inner = pty.openpty()
        self.inner = inner
        self.before = termios.tcgetattr(inner)
        self.settings = world.home / ".kitbag/settings.toml"
        self.seen = ""
        # It becomes the leader of a session whose terminal is this one, as in a terminal window.
        start = "import fcntl, sys, termios; fcntl.ioctl(3, termios.TIOCSCTTY, 0); exec(sys.argv.pop(1))"
        arguments = [str(world.home), str(world.workspace), str(self.settings)]
        self._characters = codecs.getincrementaldecoder("utf-8")()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _at_three(inner) + start, program, *arguments, *map(json.dumps, wishes)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=world.env, start_new_session=True, pass_fds=(inner,),
        )  # fmt: skip

    def see(self, text: str) -> str:
        """Reads until the text is on the screen; what is shown up to there."""

        def is_there() -> bool:
            ended = self.process.poll() is not None
            self._take_in()
            assert text in self.seen or not ended, (self.seen, self.process.communicate())
            return text in self.seen

        wait_until(is_there, lambda: self.seen)
        shown, _, self.seen = self.seen.partition(text)
        return shown + text

    def read_to_the_end(self) -> None:
        """As a terminal does: a program may wait until what it wrote has been shown."""

        def has_ended() -> bool:
            self._take_in()
            return self.process.poll() is not None

        wait_until(has_ended, lambda: self.seen)

    def _take_in(self) -> None:
        while select.select([self._screen], [], [], 0)[0]:
            # A read may end inside a character, or between the two of a line's end.
            read = self._characters.decode(os.read(self._screen, 65536))
            self.seen = (self.seen + read).replace("\r\n", "\n")

    def call_off(self) -> None:
        """As whoever asks does when the answer is not wanted any more."""
        self.process.send_signal(signal.SIGUSR1)

    def type(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def said(self) -> list[Any]:
        """What the program printed into its pipe by its end."""
        out, errors = self.process.communicate(timeout=TEST_TIMEOUT)
        assert self.process.returncode == 0, errors
        return [json.loads(line) for line in out.splitlines()]

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.communicate()
        with contextlib.suppress(OSError):
            os.close(self._screen)
        os.close(self.inner)

    def hang_up(self) -> None:
        os.close(self._screen)


def _at_three(inner: int) -> str:
    return f"import os; os.dup2({inner}, 3); "
