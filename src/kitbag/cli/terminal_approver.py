"""Asks the person at the terminal, also when input and output of the program are pipes.

Used by commands that run something. What was typed before the question appeared is thrown away, and an answer is a
letter and Enter, so that nobody answers by accident. Leaving the question, by Ctrl-C or by closing the terminal, is no.
"""

import asyncio
import codecs
import contextlib
import os
import select
from collections.abc import Generator
from typing import Final

from kitbag.cli.output import width_of
from kitbag.errors import KitbagError, UsageError
from kitbag.permissions.approvals import Answer, Question
from kitbag.permissions.question_view import GUTTER, MOST, shown
from kitbag.text.hidden import for_terminal

TERMINAL: Final = "/dev/tty"
_CONTINUED: Final = "┆ "
_LEFT: Final = Answer("deny", reason="the question was left without an answer")
_HELP: Final = "answer with one of the letters, then Enter"


class _LeftError(Exception):
    """No answer will come."""


class TerminalApprover:
    one_at_a_time = True

    def __init__(self, terminal: str = TERMINAL) -> None:
        self._terminal = terminal

    def is_there(self) -> bool:
        """Whether somebody can be asked: there is a terminal, and we are in its foreground."""
        with contextlib.suppress(OSError), _opened(self._terminal):
            return True
        return False

    async def ask(self, question: Question) -> Answer:
        """Raises KitbagError when nobody can be asked."""
        stop, stopper = os.pipe()
        asking = asyncio.get_running_loop().run_in_executor(None, self._ask, question, stop)
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            os.write(stopper, b"x")
            await asyncio.wait([asking])  # until the terminal is as it was
            raise
        finally:
            os.close(stopper)
            os.close(stop)

    def _ask(self, question: Question, stop: int) -> Answer:
        try:
            with _opened(self._terminal) as descriptor:
                return _Dialog(descriptor, stop).ask(question)
        except OSError as error:
            raise KitbagError(f"there is no terminal to ask at ({error.strerror or error})", "use one") from error
        except _LeftError:
            return _LEFT


@contextlib.contextmanager
def _opened(path: str) -> Generator[int, None, None]:
    descriptor = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        # In the background, to read from a terminal is to be stopped.
        if os.tcgetpgrp(descriptor) != os.getpgrp():
            raise OSError(0, "in the background")
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _quiet(descriptor: int) -> Generator[None, None, None]:
    """Keys come one by one and are not echoed, Ctrl-C too. What was typed before or after is thrown away."""
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


class _Dialog:
    def __init__(self, descriptor: int, stop: int) -> None:
        import locale

        self._descriptor = descriptor
        self._stop = stop
        self._encoding = locale.getencoding()
        self._keys = codecs.getincrementaldecoder("utf-8")("replace")
        self._typed = ""

    def ask(self, question: Question) -> Answer:
        self._show(shown(question))
        with _quiet(self._descriptor):
            try:
                answer = None
                while answer is None:
                    answer = self._choose(question)
            finally:
                self._write("\n")
        return answer

    def _choose(self, question: Question) -> Answer | None:
        self._show(_menu(question))
        letter = self._line("> ").strip().lower()
        if letter in ("y", "yes"):
            return Answer("allow")
        if letter == "s":
            return Answer("allow", "session", question.suggestion)
        if letter == "r":
            return self._rule(question.suggestion)
        if letter in ("n", "no"):
            return Answer("deny", reason=self._line("why (Enter for no reason): ").strip())
        self._show(shown(question, most=None) if letter == "e" else [_HELP])
        return None

    def _rule(self, suggestion: str) -> Answer | None:
        """None: back to the question."""
        from kitbag.permissions.rules import parse_rule

        text = self._line("rule to add to your settings: ", suggestion).strip()
        if not text:
            return None
        try:
            parse_rule(text, "allow", "", "user", "/")
        except UsageError as error:
            self._show([f"{for_terminal(error.problem)}; {for_terminal(error.fix)}"])
            return self._rule(text)
        return Answer("allow", "rule", text)

    def _line(self, prompt: str, text: str = "") -> str:
        self._write(prompt + for_terminal(text))
        while True:
            key = self._key()
            if key in "\r\n":
                self._write("\n")
                return text
            if key == "\x03" or (key == "\x04" and not text):
                raise _LeftError
            if key in "\x7f\b\x15":
                gone = text if key == "\x15" else text[-1:]
                text = text[: len(text) - len(gone)]
                self._write("\b \b" * sum(max(width_of(for_terminal(char)), 0) for char in gone))
            elif key == "\x1b":
                self._skip_sequence()
            elif key.isprintable():
                text += key
                self._write(for_terminal(key))

    def _skip_sequence(self) -> None:
        """An arrow key and its like: several characters that are no text."""
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
                raise _LeftError
            data = os.read(self._descriptor, 1024)
            if not data:
                raise _LeftError
            self._typed = self._keys.decode(data)
        key, self._typed = self._typed[0], self._typed[1:]
        return key

    def _show(self, lines: list[str]) -> None:
        try:
            width = os.get_terminal_size(self._descriptor).columns
        except OSError:
            width = 0
        wrapped = [part for line in lines for part in _wrapped(line, max(width or 80, 20) - 1)]
        self._write("".join(f"{line}\n" for line in wrapped))

    def _write(self, text: str) -> None:
        data = text.encode(self._encoding, "backslashreplace")
        while data:
            data = data[os.write(self._descriptor, data) :]


def _menu(question: Question) -> list[str]:
    rule = for_terminal(question.suggestion)
    exactly = f"what `{rule}` matches" if rule else "exactly this"
    lines = ["", "  y  allow it once", f"  s  allow {exactly} until this session ends"]
    lines.append("  r  allow it, and write a rule" + (f" such as `{rule}`" if rule else ""))
    lines.append("  n  no")
    if len(shown(question, most=None)) != len(shown(question, most=MOST)):
        lines.append("  e  show all of it")
    return lines


def _wrapped(line: str, width: int) -> list[str]:
    """Ours to do: where a terminal wraps, the rest of an action's line would start like a line of ours."""
    mark = _CONTINUED if line.startswith(GUTTER) else "    "
    lines: list[str] = []
    start, begins = 0, ""
    while len(line) - start > (width - len(begins)) // 2:  # else it fits, however wide its characters are
        end = min(len(line), start + width - len(begins))
        while end - start > 1 and width_of(line[start:end]) > width - len(begins):
            end -= 1
        if end == len(line):
            break
        lines.append(begins + line[start:end])
        start, begins = end, mark
    return [*lines, begins + line[start:]]
