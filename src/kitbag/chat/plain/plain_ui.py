"""The ChatUI that writes lines of text: for pipes, dumb terminals, `--plain` and screen readers.

Used by select_ui. Redraws nothing and uses no colors; each line starts with a word that says what it is. Piped input
consists of messages only and can't answer questions.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final

from kitbag.chat.forced_exit import cancel_forced_exit, force_exit_after
from kitbag.chat.plain.forms import form_lines, parse_form_answer
from kitbag.chat.plain.input import MAX_LINE_LENGTH, StdinReader
from kitbag.chat.plain.rendering import PlainRenderer
from kitbag.chat.ui import (
    ChatStatus,
    ExitRequested,
    Form,
    FormAnswer,
    KeyPressed,
    LiveState,
    Panel,
    Submitted,
    UserAction,
)
from kitbag.text.human_format import format_duration
from kitbag.views.blocks import Block, DiffBlock, NoticeBlock, UserBlock, VerbatimBlock

DOUBLE_PRESS_SECONDS: Final = 2.0
"""A second Ctrl-C within this time exits."""
_TELL_SECONDS: Final = 10.0
_INTERRUPTED: Final = 130
_MOST_QUEUED: Final = 100
"""Queued lines: the rest of a long file is read as these are processed."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class PlainUI:
    """Implements ChatUI."""

    is_plain = True

    def __init__(self, stdin: Any, stdout: Any) -> None:
        """Streams with a file descriptor, or None."""
        self.hide: Callable[[str], str] = lambda text: text
        self._output = stdout
        self._input = StdinReader(stdin, self._wake)
        self.can_ask = self._input.is_terminal
        self._is_seen = stdout is not None and stdout.isatty()
        self._deeds: deque[UserAction] = deque()
        self._news = asyncio.Event()
        self._asking = asyncio.Lock()
        self._question: asyncio.Event | None = None
        """Set when the user cancels it."""
        self._live = LiveState()
        self._telling: asyncio.TimerHandle | None = None
        self._prompted = False
        """`you: ` was written without a line break."""
        self._echoed = ""
        """What the user typed after it, which need not be shown again."""
        self._is_gone = False
        self._ended = False
        self._interrupted_at = 0.0
        self._old_handlers: dict[int, Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    # Output

    def show(self, *blocks: Block) -> None:
        lines = PlainRenderer(self.hide)
        for block in blocks:
            if isinstance(block, UserBlock) and self._echoed and block.text.strip() == self._echoed.strip():
                self._echoed = ""
                continue
            self._write("".join(f"{line}\n" for line in lines.render(block)))

    def draw(self, live: LiveState, status: ChatStatus) -> None:
        del status
        before, self._live = self._live, live
        was_working = bool(before.activity)
        if live.activity and not was_working:
            self._tell_later()
        elif not live.activity and self._telling is not None:
            self._telling.cancel()
            self._telling = None
        if (was_working and not live.activity) or len(live.queued) < len(before.queued):
            self._wake()

    def _tell_later(self) -> None:
        if self._is_seen:
            with contextlib.suppress(RuntimeError):  # without an event loop, nothing takes long
                self._telling = asyncio.get_running_loop().call_later(_TELL_SECONDS, self._tell_work)

    def _tell_work(self) -> None:
        live = self._live
        if self._question is None:
            what = "; ".join(" ".join(part for part in (one.name, one.title) if part) for one in live.running)
            said = f"working: {format_duration(time.monotonic() - live.started_at)}, {what or live.activity}"
            self._write(PlainRenderer(self.hide).line(said) + "\n")
        self._tell_later()

    def _write(self, text: str, *, ends: bool = True) -> None:
        if self._is_gone or not text:
            return
        if self._prompted and ends:
            text, self._prompted = f"\n{text}", False
        try:
            encoding = self._output.encoding or "utf-8"
            self._output.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._output.flush()
        except (OSError, ValueError, AttributeError):  # the output is closed
            self._lose_output()

    def _lose_output(self) -> None:
        self._is_gone = True
        with contextlib.suppress(OSError, ValueError, AttributeError):
            # Python would flush the rest of the buffer at exit and report an error.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._output.fileno())
            os.close(nowhere)
        self._do(ExitRequested(immediately=True))

    # User actions

    def _wake(self) -> None:
        self._news.set()

    def _do(self, deed: UserAction) -> None:
        self._deeds.append(deed)
        self._wake()

    async def next(self) -> UserAction:
        self._begin()
        while True:
            self._news.clear()
            if self._deeds:
                return self._given(self._deeds.popleft())
            if self._question is None and not self._ended and len(self._live.queued) < _MOST_QUEUED:
                deed = self._said()
                if deed is not None:
                    return self._given(deed)
                self._prompt()
            await self._news.wait()

    def _given(self, deed: UserAction) -> UserAction:
        if isinstance(deed, ExitRequested):
            self._ended = True
            if deed.immediately:
                self._give_back_signals()  # nothing handles them from here on
        return deed

    def _said(self) -> UserAction | None:
        """The next non-blank line, or the end of input."""
        while (line := self._input.take_line()) is not None:
            was_prompted, self._prompted = self._prompted, False
            if line.strip():
                self._echoed = line if was_prompted else ""
                return Submitted(line.strip("\n"), is_piped=not self._input.is_terminal)
            if was_prompted:
                self._prompt()
        if self._input.skipped_lines:
            self._input.skipped_lines = 0
            problem = f"a line of more than {MAX_LINE_LENGTH >> 20} MB was left out"
            self.show(NoticeBlock("warning", problem, "put it in a file and name the file"))
        return ExitRequested(immediately=False) if self._input.at_end else None

    def _prompt(self) -> None:
        if self._input.is_terminal and self._is_seen and not self._prompted and not self._live.activity:
            self._write("you: ", ends=False)
            self._prompted = True

    # Questions

    async def ask(self, form: Form) -> FormAnswer | None:
        async with self._asking:
            self._begin()
            # Nobody approves anything here and the output may be a log, so redact secrets in exact text, too.
            self.show(*(form.above if self.can_ask else map(_with_secrets_hidden, form.above)))
            clean = PlainRenderer(self.hide)
            if not self.can_ask:
                said = f"question: {clean.clean(form.prompt)}"
                self._write(f"{said}\nwarning: nobody can answer, because the input is no terminal\n")
                return None
            dropped = self._input.begin_question()
            self._question = asyncio.Event()
            try:
                if dropped.strip():
                    words = "what you had typed" if form.secret else dropped.strip()  # it may be part of the secret
                    self.show(NoticeBlock("warning", f"not sent, because there is a question first: {words}"))
                with self._unseen() if form.secret else contextlib.nullcontext():
                    return await self._answered(form, clean)
            finally:
                self._question = None
                self._input.end_question(secret=form.secret)
                self._wake()

    async def _answered(self, form: Form, clean: PlainRenderer) -> FormAnswer | None:
        self._write("".join(f"{line}\n" for line in form_lines(form, clean.line)))
        while True:
            self._write("answer: ", ends=False)
            line = await self._answer()
            if line is None or form.secret:
                self._write("\n")
            if line is None:
                return None
            found = parse_form_answer(form, line)
            if isinstance(found, FormAnswer):
                return found
            self._write(f"{clean.line(found)}\n")

    async def _answer(self) -> str | None:
        """None if the user cancels."""
        while self._question is not None and not self._question.is_set():
            self._news.clear()
            line = self._input.take_answer()
            if line is not None:
                return line
            if self._input.at_end or self._is_gone:
                return None
            await self._news.wait()
        return None

    @contextlib.contextmanager
    def _unseen(self) -> Generator[None, None, None]:
        """Turns off the echo of typed input."""
        import termios

        descriptor = self._input.descriptor
        before = termios.tcgetattr(descriptor)
        during = termios.tcgetattr(descriptor)
        during[3] &= ~termios.ECHO
        termios.tcsetattr(descriptor, termios.TCSADRAIN, during)
        try:
            yield
        finally:
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)

    # Not available in plain mode

    async def open(self, panel: Panel) -> bool:
        del panel
        return False

    def insert(self, text: str) -> None:
        """Without an input line, shows the text so that it is not lost."""
        if text.strip():
            self.show(NoticeBlock("warning", f"not sent: {text}", "type it again, if you still want it"))

    def clear(self) -> None:
        pass

    # Start and end

    def _begin(self) -> None:
        self._input.start()
        if self._loop is not None or self._ended:
            return
        self._loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            with contextlib.suppress(ValueError, RuntimeError, OSError):  # not in the main thread
                old = signal.getsignal(number)
                self._loop.add_signal_handler(number, self._signalled, number)
                self._old_handlers[number] = old
                if number != signal.SIGINT:
                    force_exit_after(number)

    def _signalled(self, number: int) -> None:
        if number != signal.SIGINT or self._ended:
            return self._do(ExitRequested(immediately=True, exit_code=128 + number))
        if self._question is not None and not self._question.is_set():
            self._question.set()
            return self._wake()
        now = time.monotonic()
        is_second = now - self._interrupted_at < DOUBLE_PRESS_SECONDS
        self._interrupted_at = now
        if is_second:
            return self._do(ExitRequested(immediately=True, exit_code=_INTERRUPTED))
        if self._live.activity:
            return self._do(KeyPressed("cancel"))
        self._write("press Ctrl-C again to leave\n")
        return self._wake()

    def _give_back_signals(self) -> None:
        if self._old_handlers:
            cancel_forced_exit()
        for number, old in self._old_handlers.items():
            with contextlib.suppress(ValueError, RuntimeError, OSError, TypeError):
                if self._loop is not None and not self._loop.is_closed():
                    self._loop.remove_signal_handler(number)
                signal.signal(number, old)
        self._old_handlers = {}

    async def close(self) -> None:
        self._ended = True
        self._input.stop()
        self._give_back_signals()
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        if self._prompted:
            self._write("\n", ends=False)
            self._prompted = False


def _with_secrets_hidden(block: Block) -> Block:
    return block._replace(exact=False) if isinstance(block, VerbatimBlock | DiffBlock) else block
