"""Reads lines from a terminal, a pipe or a file without blocking the event loop.

Used by plain_ui. The buffer is bounded, so that a large file is read only as fast as it is processed. A line that ends
in `\\` continues on the next.
"""

import asyncio
import codecs
import contextlib
import os
import select
from collections import deque
from collections.abc import Callable
from typing import Any, Final

_CHUNK: Final = 1 << 16
_MAX_BUFFERED: Final = 1_000
MAX_LINE_LENGTH: Final = 10 << 20


class StdinReader:
    def __init__(self, stream: Any, on_input: Callable[[], None]) -> None:
        """`on_input` is called when a line or the end of input may be available."""
        self.descriptor = _descriptor(stream)
        self.is_terminal = self.descriptor >= 0 and os.isatty(self.descriptor)
        self.at_end = self.descriptor < 0
        self.skipped_lines = 0
        """Number of lines skipped because they were too long."""
        self._lines: deque[str] = deque()
        self._answers: deque[str] | None = None
        """Receives lines while a question is open."""
        self._rest = ""
        self._is_skipping = False
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._on_input = on_input
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_polled = False

    def start(self) -> None:
        """Also restarts after `stop`."""
        if self.at_end or self._loop is not None or self._is_polled:
            return
        loop = asyncio.get_running_loop()
        try:
            loop.add_reader(self.descriptor, self._readable)
            self._loop = loop
        except (OSError, PermissionError):  # a regular file, which is always readable
            self._is_polled = True

    def stop(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self.descriptor)
        self._loop = None

    def take_line(self) -> str | None:
        """The next line without its line break; None if there is none yet, or at the end of input."""
        while not self._lines and self._is_polled and not self.at_end:
            self._read()
        if not self._lines:
            return None
        line = self._lines.popleft()
        if len(self._lines) < _MAX_BUFFERED // 2:
            self.start()
        return line

    def begin_question(self) -> str:
        """For a terminal. Complete lines typed before remain messages; an incomplete line is discarded and returned."""
        self._drain()
        dropped, self._rest = self._rest, ""
        self._answers = deque()
        return dropped

    def take_answer(self) -> str | None:
        return self._answers.popleft() if self._answers else None

    def end_question(self, *, secret: bool = False) -> None:
        """Other lines typed meanwhile become messages, unless they may be part of a secret: those are discarded."""
        if secret:
            self._drain()
            self._rest = ""
        else:
            self._lines += self._answers or ()
        self._answers = None

    def _drain(self) -> None:
        """Also reads an incomplete line, which a terminal withholds in canonical mode."""
        import termios

        with contextlib.suppress(termios.error, OSError):
            before = termios.tcgetattr(self.descriptor)
            during = termios.tcgetattr(self.descriptor)
            during[3] &= ~termios.ICANON
            during[6][termios.VMIN], during[6][termios.VTIME] = 0, 0
            termios.tcsetattr(self.descriptor, termios.TCSANOW, during)
            try:
                while data := os.read(self.descriptor, _CHUNK):
                    self._split(self._decoder.decode(data))
            finally:
                termios.tcsetattr(self.descriptor, termios.TCSANOW, before)

    def _readable(self) -> None:
        ready, _, _ = select.select([self.descriptor], [], [], 0)  # another process may read it, too
        if ready:
            self._read()
        if len(self._lines) >= _MAX_BUFFERED or self.at_end:
            self.stop()
        self._on_input()

    def _read(self) -> None:
        try:
            data = os.read(self.descriptor, _CHUNK)
        except BlockingIOError:
            return
        except OSError:  # the terminal is gone
            data = b""
        self._split(self._decoder.decode(data, not data))
        if not data:
            self.at_end = True
            if self._rest.strip() and not self._is_skipping:
                self._lines.append(self._rest)
            self._rest = ""

    def _split(self, text: str) -> None:
        *lines, rest = text.split("\n")
        for line in lines:
            whole, self._rest = self._rest + line.removesuffix("\r"), ""
            if self._is_skipping:
                self._is_skipping = False
            elif (len(whole) - len(whole.rstrip("\\"))) % 2:
                self._rest = f"{whole[:-1]}\n"
            else:
                (self._lines if self._answers is None else self._answers).append(whole)
        if not self._is_skipping:
            self._rest += rest
        if len(self._rest) > MAX_LINE_LENGTH:
            self._rest, self._is_skipping = "", True
            self.skipped_lines += 1


def _descriptor(stream: Any) -> int:
    """-1 if there is none."""
    try:
        return -1 if stream is None or stream.closed else int(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return -1
