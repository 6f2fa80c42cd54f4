"""A dialog at the controlling terminal, even if stdin and stdout are pipes: shows lines and reads keys until Enter.

Used by terminal_approver and terminal_asker. Input typed before a question is discarded, and the keys belong to the
dialog while it is open. Ctrl-C or closing the terminal raises DialogLeftError.
"""

import asyncio
import codecs
import contextlib
import os
import select
from collections.abc import Callable, Generator
from typing import Final, TypeVar

from kitbag.errors import KitbagError
from kitbag.permissions.approvals.question_view import GUTTER
from kitbag.text.hidden_characters import escape_for_terminal
from kitbag.text.terminal_width import text_width

TERMINAL_PATH: Final = "/dev/tty"
_CONTINUATION: Final = "┆ "
T = TypeVar("T")


class DialogLeftError(Exception):
    """The user left the dialog."""


def is_available(terminal: str) -> bool:
    """Whether the user can be asked: there is a terminal, and this process is in its foreground."""
    with contextlib.suppress(OSError), _open_terminal(terminal):
        return True
    return False


async def run_dialog(terminal: str, dialogue: "Callable[[TerminalDialog], T]") -> T:
    """Runs in a thread. Raises KitbagError if there is no terminal, and DialogLeftError. Cancelling restores the
    terminal."""
    stop, stopper = os.pipe()
    running = asyncio.get_running_loop().run_in_executor(None, _run_in_thread, terminal, dialogue, stop)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        os.write(stopper, b"x")
        await asyncio.wait([running])  # until the terminal is restored
        if not running.cancelled():
            running.exception()  # retrieved, or asyncio logs it
        raise
    finally:
        os.close(stopper)
        os.close(stop)


def _run_in_thread(terminal: str, dialogue: "Callable[[TerminalDialog], T]", stop: int) -> T:
    try:
        with _open_terminal(terminal) as descriptor:
            return dialogue(TerminalDialog(descriptor, stop))
    except OSError as error:
        raise KitbagError(f"there is no terminal to ask at ({error.strerror or error})", "use one") from error


@contextlib.contextmanager
def _open_terminal(path: str) -> Generator[int, None, None]:
    descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        # A background process that reads from the terminal is stopped.
        if os.tcgetpgrp(descriptor) != os.getpgrp():
            raise OSError(0, "in the background")
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _raw_input(descriptor: int) -> Generator[None, None, None]:
    """Reads single keys without echo, Ctrl-C included. Discards input from before and after."""
    import termios

    try:
        before = termios.tcgetattr(descriptor)
        during = termios.tcgetattr(descriptor)
        during[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
        during[6][termios.VMIN] = 1
        during[6][termios.VTIME] = 0
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, during)
    except termios.error as error:
        raise OSError(error.args[0], "not a terminal") from error
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)


class TerminalDialog:
    def __init__(self, descriptor: int, stop: int) -> None:
        import locale

        self._descriptor = descriptor
        self._stop = stop
        self._encoding = locale.getencoding()
        self._keys = codecs.getincrementaldecoder("utf-8")("replace")
        self._typed = ""

    @contextlib.contextmanager
    def reading_keys(self) -> Generator[None, None, None]:
        """`read_line` works only inside."""
        with _raw_input(self._descriptor):
            self._typed = ""  # typed before this question
            try:
                yield
            finally:
                self.write("\n")

    def read_line(self, prompt: str, text: str = "") -> str:
        self.write(prompt + escape_for_terminal(text))
        while True:
            key = self._key()
            if key in "\r\n":
                self.write("\n")
                return text
            if key == "\x03" or (key == "\x04" and not text):
                raise DialogLeftError
            if key in "\x7f\b\x15":
                erased = text if key == "\x15" else text[-1:]
                text = text[: len(text) - len(erased)]
                self.write("\b \b" * sum(max(text_width(escape_for_terminal(char)), 0) for char in erased))
            elif key == "\x1b":
                self._skip_sequence()
            elif key.isprintable():
                text += key
                self.write(escape_for_terminal(key))

    def _skip_sequence(self) -> None:
        """Skips an escape sequence, such as an arrow key."""
        if not self._typed:
            return
        if self._key() == "[":
            while self._typed and not "@" <= self._key() <= "~":
                pass
        elif self._typed:
            self._key()

    def _key(self) -> str:
        while not self._typed:
            ready, _, _ = select.select([self._descriptor, self._stop], [], [])
            if self._stop in ready:
                raise DialogLeftError
            data = os.read(self._descriptor, 1024)
            if not data:
                raise DialogLeftError
            self._typed = self._keys.decode(data)
        key, self._typed = self._typed[0], self._typed[1:]
        return key

    def show(self, lines: list[str]) -> None:
        try:
            width = os.get_terminal_size(self._descriptor).columns
        except OSError:
            width = 0
        wrapped = [part for line in lines for part in _wrap_line(line, max(width or 80, 20) - 1)]
        self.write("".join(f"{line}\n" for line in wrapped))

    def write(self, text: str) -> None:
        data = text.encode(self._encoding, "backslashreplace")
        while data:
            data = data[os.write(self._descriptor, data) :]


def _wrap_line(line: str, width: int) -> list[str]:
    """Not left to the terminal: a wrapped line of the action would look like one of Kitbag's."""
    is_ours = not line.startswith(GUTTER)
    mark = "    " if is_ours else _CONTINUATION
    lines: list[str] = []
    start, begins = 0, ""
    while len(line) - start > (width - len(begins)) // 2:  # otherwise it fits even with wide characters
        end = min(len(line), start + width - len(begins))
        while end - start > 1 and text_width(line[start:end]) > width - len(begins):
            end -= 1
        if end == len(line):
            break
        if is_ours:  # break between words if possible
            end = line.rfind(" ", start + (end - start) // 2, end) + 1 or end
        lines.append(begins + line[start:end])
        start, begins = end, mark
    return [*lines, begins + line[start:]]
