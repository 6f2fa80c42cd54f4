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
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

import msgspec

from kitbag.chat.configured_keys import list_keys
from kitbag.chat.forced_exit import cancel_forced_exit, force_exit_after
from kitbag.chat.plain.forms import form_lines, parse_form_answer
from kitbag.chat.plain.input import MAX_LINE_LENGTH, StdinReader
from kitbag.chat.plain.rendering import PlainRenderer
from kitbag.chat.ui import ChatStatus, ExitRequested, KeyPressed, LiveState, Panel, Submitted, UserAction
from kitbag.dialogs.form import Form, FormAnswer
from kitbag.text.human_format import format_duration
from kitbag.views.blocks import Block, DiffBlock, NoticeBlock, UserBlock, VerbatimBlock, text_block

DOUBLE_PRESS_SECONDS: Final = 2.0
"""A second Ctrl-C within this time exits."""
_PROGRESS_SECONDS: Final = 10.0
_INTERRUPTED: Final = 130
_MAX_QUEUED: Final = 100
"""Queued lines: the rest of a long file is read as these are processed."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class PlainUI:
    """Implements ChatUI."""

    is_plain = True
    keeps_everything = False
    keys: tuple[tuple[str, str], ...] = list_keys()

    def __init__(self, stdin: Any, stdout: Any) -> None:
        """Streams with a file descriptor, or None."""
        self.redact: Callable[[str], str] = lambda text: text
        self._output = stdout
        self._input = StdinReader(stdin, self._wake)
        self.can_ask = self._input.is_terminal
        self._is_terminal = stdout is not None and stdout.isatty()
        self._actions: deque[UserAction] = deque()
        self._changed = asyncio.Event()
        self._form_lock = asyncio.Lock()
        self._question: asyncio.Event | None = None
        """Set when the user cancels it."""
        self._live = LiveState()
        self._progress_timer: asyncio.TimerHandle | None = None
        self._prompted = False
        """`you: ` was written without a line break."""
        self._echoed = ""
        """What the user typed after it, which need not be shown again."""
        self._is_output_closed = False
        self._ended = False
        self._interrupted_at = 0.0
        self._old_handlers: dict[int, Any] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    # Output

    def show(self, *blocks: Block) -> None:
        lines = PlainRenderer(self.redact)
        for block in blocks:
            if isinstance(block, UserBlock) and self._echoed and block.text.strip() == self._echoed.strip():
                self._echoed = ""
                continue
            self._write("".join(f"{line}\n" for line in lines.render(block)))

    def hint(self, text: str) -> None:
        self.show(text_block(text))

    def unfold(self, expanded: Sequence[Block]) -> None:
        self.show(*expanded)

    async def copy(self, text: str) -> bool:
        from kitbag.chat.clipboard import write_clipboard

        return await asyncio.to_thread(write_clipboard, text)

    def fold(self) -> None:
        """What is written stays."""

    def draw(self, live: LiveState, status: ChatStatus) -> None:
        del status
        before, self._live = self._live, live
        was_working = bool(before.activity)
        if live.activity and not was_working:
            self._schedule_progress()
        elif not live.activity and self._progress_timer is not None:
            self._progress_timer.cancel()
            self._progress_timer = None
        if (was_working and not live.activity) or _count_waiting(live) < _count_waiting(before):
            self._wake()

    def _schedule_progress(self) -> None:
        if self._is_terminal:
            with contextlib.suppress(RuntimeError):  # without an event loop, nothing takes long
                self._progress_timer = asyncio.get_running_loop().call_later(_PROGRESS_SECONDS, self._show_progress)

    def _show_progress(self) -> None:
        live = self._live
        if self._question is None:
            calls = "; ".join(" ".join(part for part in (one.name, one.title) if part) for one in live.running)
            line_text = f"working: {format_duration(time.monotonic() - live.started_at)}, {calls or live.activity}"
            self._write(PlainRenderer(self.redact).line(line_text) + "\n")
        self._schedule_progress()

    def _write(self, text: str, *, ends: bool = True) -> None:
        if self._is_output_closed or not text:
            return
        if self._prompted and ends:
            text, self._prompted = f"\n{text}", False
        try:
            encoding = self._output.encoding or "utf-8"
            self._output.write(text.encode(encoding, "backslashreplace").decode(encoding))
            self._output.flush()
        except (OSError, ValueError, AttributeError):  # the output is closed
            self._close_output()

    def _close_output(self) -> None:
        self._is_output_closed = True
        with contextlib.suppress(OSError, ValueError, AttributeError):
            # Python would flush the rest of the buffer at exit and report an error.
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, self._output.fileno())
            os.close(devnull)
        self._emit(ExitRequested(immediately=True))

    # User actions

    def _wake(self) -> None:
        self._changed.set()

    def _emit(self, action: UserAction) -> None:
        self._actions.append(action)
        self._wake()

    async def next(self) -> UserAction:
        self._start()
        while True:
            self._changed.clear()
            if self._actions:
                return self._deliver(self._actions.popleft())
            if self._question is None and not self._ended and _count_waiting(self._live) < _MAX_QUEUED:
                action = self._next_line_action()
                if action is not None:
                    return self._deliver(action)
                self._prompt()
            await self._changed.wait()

    def _deliver(self, action: UserAction) -> UserAction:
        if isinstance(action, ExitRequested):
            self._ended = True
            if action.immediately:
                self._restore_signals()  # nothing handles them from here on
        return action

    def _next_line_action(self) -> UserAction | None:
        """The next non-blank line, or the end of input."""
        while (line := self._input.take_line()) is not None:
            was_prompted, self._prompted = self._prompted, False
            if line.strip():
                self._echoed = line if was_prompted else ""
                return Submitted(text=line.strip("\n"), is_piped=not self._input.is_terminal)
            if was_prompted:
                self._prompt()
        if self._input.skipped_lines:
            self._input.skipped_lines = 0
            problem = f"skipped a line longer than {MAX_LINE_LENGTH >> 20} MB"
            self.show(NoticeBlock("warning", problem, "put the text in a file and mention the file"))
        return ExitRequested(immediately=False) if self._input.at_end else None

    def _prompt(self) -> None:
        if self._input.is_terminal and self._is_terminal and not self._prompted and not self._live.activity:
            self._write("you: ", ends=False)
            self._prompted = True

    # Questions

    async def ask(self, form: Form) -> FormAnswer | None:
        async with self._form_lock:
            self._start()
            # Nothing is approved here and the output may be a log, so redact secrets in exact text, too.
            self.show(*(form.above if self.can_ask else map(_without_exact, form.above)))
            clean = PlainRenderer(self.redact)
            if not self.can_ask:
                line_text = f"question: {clean.clean(form.prompt)}"
                self._write(f"{line_text}\nwarning: can't ask: needs an interactive terminal\n")
                return None
            dropped = self._input.begin_question()
            self._question = asyncio.Event()
            try:
                if dropped.strip():
                    words = "typed text" if form.secret else dropped.strip()  # it may be part of the secret
                    self.show(NoticeBlock("warning", f"not sent; answer the question first: {words}"))
                with self._without_echo() if form.secret else contextlib.nullcontext():
                    return await self._read_form_answer(form, clean)
            finally:
                self._question = None
                self._input.end_question(secret=form.secret)
                self._wake()

    async def _read_form_answer(self, form: Form, clean: PlainRenderer) -> FormAnswer | None:
        self._write("".join(f"{line}\n" for line in form_lines(form, clean.line)))
        while True:
            self._write("answer: ", ends=False)
            line = await self._read_answer()
            if line is None or form.secret:
                self._write("\n")
            if line is None:
                return None
            found = parse_form_answer(form, line)
            if isinstance(found, FormAnswer):
                return found
            self._write(f"{clean.line(found)}\n")

    async def _read_answer(self) -> str | None:
        """None if the user cancels."""
        while self._question is not None and not self._question.is_set():
            self._changed.clear()
            line = self._input.take_answer()
            if line is not None:
                return line
            if self._input.at_end or self._is_output_closed:
                return None
            await self._changed.wait()
        return None

    @contextlib.contextmanager
    def _without_echo(self) -> Generator[None, None, None]:
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

    def insert(self, *submissions: Submitted) -> None:
        """Without an input line, shows the text so that it is not lost."""
        if text := "\n".join(one.display_text for one in submissions).strip():
            self.show(NoticeBlock("warning", f"not sent: {text}", "type it again to send it"))

    def clear(self) -> None:
        pass

    # Start and end

    def _start(self) -> None:
        self._input.start()
        if self._loop is not None or self._ended:
            return
        self._loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            with contextlib.suppress(ValueError, RuntimeError, OSError):  # not in the main thread
                old = signal.getsignal(number)
                self._loop.add_signal_handler(number, self._on_signal, number)
                self._old_handlers[number] = old
                if number != signal.SIGINT:
                    force_exit_after(number)

    def _on_signal(self, number: int) -> None:
        if number != signal.SIGINT or self._ended:
            return self._emit(ExitRequested(immediately=True, exit_code=128 + number))
        if self._question is not None and not self._question.is_set():
            self._question.set()
            return self._wake()
        now = time.monotonic()
        is_second = now - self._interrupted_at < DOUBLE_PRESS_SECONDS
        self._interrupted_at = now
        if is_second:
            return self._emit(ExitRequested(immediately=True, exit_code=_INTERRUPTED))
        if self._live.activity:
            return self._emit(KeyPressed("cancel"))
        self._write("press Ctrl-C again to exit\n")
        return self._wake()

    def _restore_signals(self) -> None:
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
        self._restore_signals()
        if self._progress_timer is not None:
            self._progress_timer.cancel()
            self._progress_timer = None
        if self._prompted:
            self._write("\n", ends=False)
            self._prompted = False


def _count_waiting(live: LiveState) -> int:
    return len(live.queued) + len(live.steering)


def _without_exact(block: Block) -> Block:
    return msgspec.structs.replace(block, exact=False) if isinstance(block, VerbatimBlock | DiffBlock) else block
