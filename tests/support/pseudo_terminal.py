"""A program in a pseudo-terminal of its own: keys go in, and what a person would see is read from a screen that pyte
keeps as a terminal does, with everything that has scrolled away. Used by the tests of the chat and by bench/at_terminal."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

import pyte

from support.waiting import wait_until

ENTER = "\r"
ESCAPE = "\x1b"
CTRL_C = "\x03"
CTRL_D = "\x04"
CTRL_O = "\x0f"
SHIFT_TAB = "\x1b[Z"
UP = "\x1b[A"
TAB = "\t"
DOWN = "\x1b[B"
_AT_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
"""Makes the terminal the process's own, so that Ctrl-C and its closing reach it."""


class PseudoTerminal:
    def __init__(
        self, command: Sequence[str], directory: str, environment: Mapping[str, str], columns: int = 80, rows: int = 24
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=5000, ratio=0.5)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._master, self._slave = pty.openpty()
        self._resize(columns, rows)
        self.before = termios.tcgetattr(self._slave)
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _AT_TERMINAL, *command],
            cwd=directory,
            env={"TERM": "xterm-256color", **environment},
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._master)
        os.close(self._slave)

    # What is done

    def press(self, *keys: str) -> None:
        """Each as a key of its own, so that an Esc is not taken for the beginning of the next one."""
        for key in keys:
            os.write(self._master, key.encode())
            self._take_in(0.06 if key == ESCAPE else 0.0)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def say(self, text: str) -> None:
        """Typed, seen in the line, and sent."""
        self.type(text)
        self.until(lambda: text.split("\n")[-1][-20:].rstrip() in self.text())
        self.press(ENTER)

    def paste(self, text: str) -> None:
        self.type(f"\x1b[200~{text}\x1b[201~")

    def resize(self, columns: int, rows: int) -> None:
        self._resize(columns, rows)
        self.screen.resize(rows, columns)
        os.killpg(self.process.pid, signal.SIGWINCH)

    def _resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    # What is seen

    def text(self) -> str:
        """All that stands on the screen now."""
        self._take_in()
        return "\n".join(line.rstrip() for line in self.screen.display)

    def all(self) -> str:
        """With what has scrolled away."""
        self._take_in()
        gone = ["".join(row[at].data for at in range(self.screen.columns)).rstrip() for row in self.screen.history.top]
        return "\n".join([*gone, *(line.rstrip() for line in self.screen.display)])

    def until(self, condition: Callable[[], object]) -> None:
        def is_so() -> bool:
            ended = self.process.poll()
            self._take_in()
            found = bool(condition())  # what was true at its end counts
            assert found or ended is None, f"it ended with {ended}; the screen:\n{self.all()}"
            return found

        wait_until(is_so, self.all)

    def until_seen(self, *texts: str) -> None:
        """All of them, anywhere on the screen or above it."""
        self.until(lambda: all(text.rstrip() in seen for seen in [self.all()] for text in texts))

    def choose(self, key: str, prompt: str = "or press a key · Esc ") -> None:
        """Answers the question that stands there."""
        self.until(lambda: prompt in self.text())
        self.press(key)
        self.until(lambda: prompt not in self.text())

    def watch(self, seconds: float) -> None:
        """Takes in what comes within this time. For benchmarks."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._take_in(0.02)

    def until_ended(self) -> int:
        def has_ended() -> bool:
            self._take_in()
            return self.process.poll() is not None

        wait_until(has_ended, self.all)
        self._take_in()
        return self.process.returncode

    def settings_are_as_before(self) -> bool:
        """Of the terminal: echo, lines, signals."""
        return termios.tcgetattr(self._slave) == self.before

    def _take_in(self, seconds: float = 0.0) -> None:
        """What has come; `seconds`: to wait for something."""
        while select.select([self._master], [], [], seconds)[0]:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                return
            self.raw += data
            self._answer(data)
            self._stream.feed(data)
            seconds = 0.0

    def _answer(self, data: bytes) -> None:
        """What a terminal is asked: where the cursor stands."""
        if b"\x1b[6n" in data:
            os.write(self._master, f"\x1b[{self.screen.cursor.y + 1};{self.screen.cursor.x + 1}R".encode())
