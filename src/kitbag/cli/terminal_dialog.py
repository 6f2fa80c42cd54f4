"""The Dialog at the controlling terminal, even if stdin and stdout are pipes: shows lines and reads keys until Enter.

Used by commands that run something. Input typed before a question is discarded, and the keys belong to the dialog while
it is open. An answer needs Enter, to prevent accidents. Text of others is shown behind a gutter, so that it can't
imitate Kitbag's. Ctrl-C or closing the terminal leaves the whole question.
"""

import asyncio
import codecs
import contextlib
import os
import re
import select
from collections.abc import Generator
from typing import Final, TypeVar

from kitbag.cli.block_lines import block_lines, quote_lines
from kitbag.dialogs.approver import ApprovalStyle, DialogApprover
from kitbag.dialogs.form import Form, FormAnswer, FormSequence, next_step
from kitbag.errors import KitbagError
from kitbag.permissions.approvals.question_view import GUTTER
from kitbag.text.hidden_characters import escape_for_terminal
from kitbag.text.terminal_width import text_width

TERMINAL_PATH: Final = "/dev/tty"
TERMINAL_STYLE: Final = ApprovalStyle(asks_why=True, left_reason="the question was not answered")
_CONTINUATION: Final = "┆ "
_WORDS: Final = {"yes": "y", "no": "n"}
_NUMBERS: Final = re.compile(r"[\d\s,;]+")
T = TypeVar("T")


class _DialogLeftError(Exception):
    """The user left the dialog."""


class TerminalDialog:
    """Implements Dialog."""

    no_user_reason = ""  # then `run` raises

    def __init__(self, terminal: str = TERMINAL_PATH) -> None:
        self._terminal = terminal

    def is_available(self) -> bool:
        """Whether the user can be asked: there is a terminal, and this process is in its foreground."""
        with contextlib.suppress(OSError), _open_terminal(self._terminal):
            return True
        return False

    async def run(self, forms: FormSequence[T]) -> T | None:
        """Reads in a thread. Canceling restores the terminal."""
        stop, stopper = os.pipe()
        running = asyncio.get_running_loop().run_in_executor(None, self._run_in_thread, forms, stop)
        try:
            return await asyncio.shield(running)
        except _DialogLeftError:
            return None
        except asyncio.CancelledError:
            os.write(stopper, b"x")
            await asyncio.wait([running])  # until the terminal is restored
            if not running.cancelled():
                running.exception()  # retrieved, or asyncio logs it
            raise
        finally:
            os.close(stopper)
            os.close(stop)

    def _run_in_thread(self, forms: FormSequence[T], stop: int) -> T:
        try:
            with _open_terminal(self._terminal) as descriptor:
                return _ask_forms(_TerminalLines(descriptor, stop), forms)
        except OSError as error:
            raise KitbagError(
                f"needs an interactive terminal ({error.strerror or error})", "run it in an interactive terminal"
            ) from error


def terminal_approver() -> DialogApprover | None:
    """None if the user can't be asked."""
    dialog = TerminalDialog()
    return DialogApprover(dialog, TERMINAL_STYLE) if dialog.is_available() else None


# Forms as lines


def _ask_forms(lines: "_TerminalLines", forms: FormSequence[T]) -> T:
    step = next_step(forms)
    if not isinstance(step, Form):
        return step.value
    is_menu = bool(step.options) and not step.free_text_hint
    lines.show(block_lines(step.above) if is_menu else _question_lines(step))
    with lines.reading_keys():
        answer = _read_choice(lines, step) if is_menu else _read_answer(lines, step)
        while isinstance(step := next_step(forms, answer), Form):
            lines.show(block_lines(step.above))
            answer = _read_choice(lines, step) if step.options else _read_text(lines, step)
    return step.value


def _question_lines(form: Form) -> list[str]:
    lines = ["", *block_lines(form.above)]
    for option in form.options:
        lines += quote_lines(f"{option.key}  {option.label}{f': {option.note}' if option.note else ''}".strip())
    if not form.options:
        return [*lines, "Type your answer and press Enter. To give no answer, just press Enter."]
    numbers = "Type numbers such as 1,2" if form.multiple else "Type a number"
    return [*lines, f"{numbers} or your own answer, and press Enter. To give no answer, just press Enter."]


def _read_answer(lines: "_TerminalLines", form: Form) -> FormAnswer:
    """Options by their numbers, or free text."""
    count = len(form.options)
    while True:
        typed = lines.read_line("> ").strip()
        if not typed or not count or not _NUMBERS.fullmatch(typed):
            return FormAnswer(text=typed)
        numbers = list(dict.fromkeys(int(number) for number in re.findall(r"\d{1,9}", typed)))
        if not numbers or not all(1 <= number <= count for number in numbers):
            lines.show(
                [f"the options are 1 to {count}; to give a different number as your own answer, add a word to it"]
            )
        elif len(numbers) > 1 and not form.multiple:
            lines.show(["choose one of them, or type your own answer"])
        else:
            return FormAnswer(tuple(form.options[number - 1].key for number in numbers))


def _read_choice(lines: "_TerminalLines", form: Form) -> FormAnswer:
    """An option by its letter."""
    while True:
        options = [f"  {option.key}  {escape_for_terminal(option.label)}" for option in form.options]
        lines.show(["", escape_for_terminal(form.prompt), *options])
        typed = lines.read_line("> ").strip().lower()
        key = _WORDS.get(typed, typed)
        if any(option.key == key for option in form.options):
            return FormAnswer((key,))
        lines.show(["type one of the letters and press Enter"])


def _read_text(lines: "_TerminalLines", form: Form) -> FormAnswer:
    """One line of text, on the line of the prompt."""
    prompt = form.prompt[:1].lower() + form.prompt[1:].removesuffix(":")
    hint = (
        f", {form.free_text_hint}; to go back, just press Enter"
        if form.free_text_hint and not form.initial_text
        else ""
    )
    return FormAnswer(text=lines.read_line(f"{prompt}{hint}: ", form.initial_text).strip())


# The terminal


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


class _TerminalLines:
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
                raise _DialogLeftError
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
                raise _DialogLeftError
            data = os.read(self._descriptor, 1024)
            if not data:
                raise _DialogLeftError
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
