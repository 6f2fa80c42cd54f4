"""`kitbag` with a terminal of its own, read as text. For screens that are drawn, see chat/pseudo_terminal."""

import codecs
import os
import pty
import sys

from conftest import World
from support.waiting import read_some


class TerminalProgram:
    def __init__(self, world: World, *words: str) -> None:
        self.screen = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pid, self._main = pty.fork()
        if self._pid == 0:
            os.chdir(world.workspace)
            os.execve(sys.executable, [sys.executable, "-m", "kitbag", *words], world.env)

    def until(self, text: str) -> None:
        while text not in self.screen:
            assert self._read(), self.screen

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def end(self) -> int:
        """Its exit code."""
        while self._read():
            pass
        os.close(self._main)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def _read(self) -> bool:
        """False when the program has ended."""
        found = read_some(self._main, or_end=True)
        self.screen = (self.screen + self._decoder.decode(found)).replace("\r\n", "\n")
        return bool(found)
