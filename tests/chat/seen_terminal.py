"""The terminal face at a pseudo-terminal in the same process: keys go in, and pyte keeps the screen a person would see."""

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import termios
import time
import tty
from collections.abc import AsyncIterator, Callable
from typing import Any

import pyte
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.output.vt100 import Vt100_Output

from kitbag.chat.terminal.terminal_ui import TerminalUI
from kitbag.chat.ui import UserAction
from support.waiting import until_true

_ALONE_SECONDS = 0.06
"""More than `ttimeoutlen` and `timeoutlen` of the application."""
ENTER, ESCAPE, UP, DOWN = "\r", "\x1b", "\x1b[A", "\x1b[B"


class Seen:
    def __init__(self, columns: int, rows: int, **given: Any) -> None:
        self.master, slave = pty.openpty()
        os.set_blocking(self.master, False)
        self._set_size(columns, rows)
        self.screen = pyte.HistoryScreen(columns, rows, history=5000, ratio=0.5)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._passed = 0.0
        self._stopped: float | None = None
        self._reading = open(slave, encoding="utf-8", closefd=True)  # noqa: SIM115
        self._writing = open(os.dup(slave), "w", encoding="utf-8")  # noqa: SIM115
        self.settings_before = termios.tcgetattr(slave)
        self.terminal = TerminalUI(
            input=Vt100Input(self._reading),
            output=Vt100_Output.from_pty(self._writing, term="xterm-256color", enable_bell=False),
            environment={"TERM": "xterm-256color", **given.pop("environment", {})},
            **{"clock": self._clock, **given},
        )

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.master)
        self._reading.close()
        with contextlib.suppress(OSError):
            self._writing.close()

    def _clock(self) -> float:
        return (time.monotonic() if self._stopped is None else self._stopped) + self._passed

    def stop_clock(self) -> None:
        """From now on no time passes for the face, however long the machine takes, but what is said here."""
        self._stopped = time.monotonic()

    def pass_time(self, seconds: float = 10.0) -> None:
        """For the clock of the face: nobody has typed for so long."""
        self._passed += seconds

    # What is done

    def type(self, *keys: str) -> None:
        os.write(self.master, "".join(keys).encode())

    async def press(self, *keys: str) -> None:
        """One by one, each Esc long enough before the next."""
        for key in keys:
            self.type(key)
            await (self.settle() if key.startswith(ESCAPE) else self._read())

    async def settle(self) -> None:
        """Until what was typed has been read and taken for keys. A lone Esc is known by its being alone for a moment,
        twice: a timer here that begins after one there, and is longer, ends after it, also where both are late."""
        for _ in range(2):
            await self._read()
            await asyncio.sleep(_ALONE_SECONDS)

    async def _read(self) -> None:
        """Until what was typed has been read, and what that began has begun."""
        await self.until(lambda: self.waiting_bytes() == 0)
        for _ in range(5):
            await asyncio.sleep(0)

    def waiting_bytes(self) -> int:
        return struct.unpack("i", fcntl.ioctl(self._reading.fileno(), termios.FIONREAD, b"\0" * 4))[0]

    async def paste(self, text: str) -> None:
        for at in range(0, len(text), 1000):  # a pseudo-terminal takes in no more at a time
            self.type("\x1b[200~" * (at == 0) + text[at : at + 1000])
            await asyncio.sleep(0)
        self.type("\x1b[201~")

    async def resize(self, columns: int, rows: int) -> None:
        self.take_in()
        self._set_size(columns, rows)
        self.screen.resize(rows, columns)
        os.kill(os.getpid(), signal.SIGWINCH)
        for _ in range(5):  # of the loop, so that it is heard
            await asyncio.sleep(0)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def use_screen_anew(self) -> None:
        """After something of it was replaced."""
        self._stream = pyte.ByteStream(self.screen)

    # What is seen

    def take_in(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            while data := os.read(self.master, 65536):
                self.raw += data
                self._stream.feed(data)

    def rows(self) -> list[str]:
        self.take_in()
        return [line.rstrip() for line in self.screen.display]

    def text(self) -> str:
        return "\n".join(self.rows()).rstrip()

    def all(self) -> str:
        self.take_in()
        gone = ["".join(row[at].data for at in range(self.screen.columns)).rstrip() for row in self.screen.history.top]
        return "\n".join([*gone, *self.rows()]).rstrip()

    async def until(self, condition: Callable[[], object]) -> None:
        await until_true(condition, self.all)

    async def until_seen(self, *texts: str) -> None:
        await self.until(lambda: all(text in seen for seen in [self.text()] for text in texts))

    async def until_gone(self, *texts: str) -> None:
        await self.until(lambda: not any(text in seen for seen in [self.text()] for text in texts))

    async def until_keys_count(self) -> None:
        """For the question that stands there."""
        await self.until(lambda: (state := self.terminal._forms.state) is not None and state.accepts_keys)

    async def next(self) -> UserAction:
        reading = asyncio.ensure_future(self.terminal.next())
        await self.until(reading.done)
        return reading.result()

    def settings_are_as_before(self) -> bool:
        return termios.tcgetattr(self._writing.fileno()) == self.settings_before

    def is_raw(self) -> bool:
        return not termios.tcgetattr(self._writing.fileno())[tty.LFLAG] & termios.ICANON


@contextlib.asynccontextmanager
async def seen(columns: int = 80, rows: int = 24, **given: Any) -> AsyncIterator[Seen]:
    """Closed at the end, as it is in the chat."""
    shown = Seen(columns, rows, **given)
    try:
        yield shown
    finally:
        await shown.terminal.close()
        shown.take_in()
        shown.close()


async def started(shown: Seen) -> None:
    """Ready for keys, and no key has come lately."""
    from kitbag.chat.ui import ChatStatus, LiveState

    shown.terminal.draw(LiveState(), ChatStatus(model="model-x", mode="default"))
    await shown.until_seen("> ", "model-x")
    shown.pass_time()
