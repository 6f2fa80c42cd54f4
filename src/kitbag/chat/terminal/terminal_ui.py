"""The ChatUI at a terminal: an input line that stays usable during a turn, with the scrollback above it.

Used by select_ui, through make_terminal. prompt_toolkit draws the input line, live region, forms and panels (layout);
views/rendering turns blocks into text that is printed above and never redrawn. All text is sanitized here.
"""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from prompt_toolkit.completion import Completer
from prompt_toolkit.history import History
from prompt_toolkit.input import Input
from prompt_toolkit.output import Output
from prompt_toolkit.styles import Style

from kitbag.chat.terminal.ansi_text import parse_ansi_lines
from kitbag.chat.terminal.form_queue import FormQueue
from kitbag.chat.terminal.inline_screen import QUERY_KEYBOARD, InlineApplication
from kitbag.chat.terminal.input_line import InputLine, PasteHandler
from kitbag.chat.terminal.key_bindings import (
    KeyActions,
    make_bindings,
    register_basic_sequences,
    register_extended_keys,
)
from kitbag.chat.terminal.layout import ChatLayout, FrameState, TextCleaners
from kitbag.chat.terminal.live_region import FRAME_SECONDS, is_working
from kitbag.chat.terminal.panel_runner import PanelRunner
from kitbag.chat.terminal.signals import signal_handlers, terminal_restorer
from kitbag.chat.terminal.text_fragments import FragmentLine, wrap
from kitbag.chat.terminal.title_and_bell import TitleAndBell
from kitbag.chat.ui import ChatStatus, ExitRequested, Form, FormAnswer, LiveState, Panel, Submitted, UserAction
from kitbag.errors import KitbagError
from kitbag.views.blocks import Block, DiffBlock, NoticeBlock, ReplyBlock, ToolBlock
from kitbag.views.rendering.diff import diff_body
from kitbag.views.rendering.styled_text import Cleaner

_PICTURE_SECONDS: Final = 1 / 30
_SHARE: Final = 4
"""Drawing takes at most one part in this many of the time if frames are slow."""
_SLOWEST_SECONDS: Final = 0.25
_KEPT_BLOCKS: Final = 200
"""Blocks kept to redraw the screen (Ctrl-L)."""
_GONE: Final = 129
_TERMINATED: Final = 143


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class BlockRenderer(Protocol):
    """The functions of views/rendering/render."""

    def render(self, block: Block, width: int, *, color: bool, hide: Callable[[str], str]) -> str: ...
    def needs_gap(self, above: Block | None, block: Block) -> bool: ...
    def render_tail(
        self, markdown: str, width: int, height: int, *, color: bool, hide: Callable[[str], str]
    ) -> str: ...


class TerminalUI:
    is_plain = False
    can_ask = True

    def __init__(
        self,
        *,
        history: History | None = None,
        completer: Completer | None = None,
        pastes: PasteHandler | None = None,
        rendering: BlockRenderer | None = None,
        input: Input | None = None,  # noqa: A002 - prompt_toolkit's name
        output: Output | None = None,
        environment: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
        bell: bool = True,
    ) -> None:
        """Draws nothing before the first call of show, draw, next, ask or open. `bell`: rings for a user who is
        away."""
        self.hide: Callable[[str], str] = lambda text: text
        self._cleaner = Cleaner(lambda text: self.hide(text))  # noqa: PLW0108 - the chat replaces it later
        self._rendering = rendering
        self._clock = clock
        self._is_coloured = not environment.get("NO_COLOR")
        self._live, self._status = LiveState(), ChatStatus()
        self._hint = ("", float("-inf"))
        self._deeds: asyncio.Queue[UserAction] = asyncio.Queue()
        self._left: ExitRequested | None = None
        self._unprinted: list[Block] = []
        self._printed: deque[Block] = deque(maxlen=_KEPT_BLOCKS)
        self._wipes = False
        self._last_picture = self._picture_cost = 0.0
        self._next_picture: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._suspended = False
        self._is_closed = False
        self._line = InputLine(
            history=history,
            completer=completer,
            pastes=pastes,
            emit=self._emit,
            show=self.show,
            hint=self._give_hint,
            is_working=lambda: is_working(self._live),
            has_queued=lambda: bool(self._live.queued),
            clock=clock,
        )
        self._asking = FormQueue(self.show, self._changed, clock, lambda: bool(self._line.buffer.text.strip()))
        self._opening = PanelRunner(self.show, self._changed)
        self._make_application(input, output, environment)
        write = self._app.output.write_raw
        self._attention = TitleAndBell(write, self._cleaner.line, clock, environment, bell=bell)

    def _make_application(self, input_: Input | None, output: Output | None, environment: Mapping[str, str]) -> None:
        register_basic_sequences()
        cleaning = TextCleaners(self._cleaner.text, self._cleaner.line, self._tail)
        self._picture = ChatLayout(
            self._line, self._asking, self._opening, self._look, cleaning, lambda: not self._app.inline_renderer.reflows
        )
        deeds = KeyActions(
            self._emit, self._draw_again, self._suspend, self._edit, self._keyboard_told, self._failed, self._clock
        )
        bindings = make_bindings(self._line, self._asking, self._opening, self._picture, deeds)
        self._app = InlineApplication(
            layout=self._picture.layout,
            style=Style([]),
            bindings=bindings,
            is_coloured=self._is_coloured,
            input=input_,
            output=output,
            take_printed=self._take_printed,
            on_terminal_gone=lambda: self._leave(_GONE),
            environment=environment,
        )
        self._app.before_render += self._compose
        self._app.key_processor.before_key_press += self._key_pressed

    # Sanitizing: views/rendering for printed text, `_cleaner` for drawn text; both use styled_text.Cleaner

    def _tail(self, markdown: str, width: int, height: int) -> list[FragmentLine]:
        try:
            text = self._drawing().render_tail(markdown, width, height, color=self._is_coloured, hide=self.hide)
            lines = parse_ansi_lines(text)
        except Exception:  # noqa: BLE001 - as below
            lines = [[("", line)] for line in wrap(self._cleaner.text(markdown[-width * height :]), width)]
        above = self._printed[-1] if self._printed else None
        begun = ReplyBlock(markdown, begins=not isinstance(above, ReplyBlock))
        return [[], *lines] if lines and len(lines) < height and self._drawing().needs_gap(above, begun) else lines

    def _render(self, block: Block, width: int) -> str:
        try:
            return self._drawing().render(block, width, color=self._is_coloured, hide=self.hide)
        except Exception as error:  # noqa: BLE001 - a block that fails to render must neither end the chat nor get lost
            return f"{self._cleaner.text(f'{block} (not drawn: {error})')}\n"

    def _drawing(self) -> BlockRenderer:
        if self._rendering is None:
            from kitbag.views.rendering import render as rendering

            self._rendering = rendering
        return self._rendering

    # Output

    @property
    def is_drawn(self) -> bool:
        """Whether the input line is visible, or drawing has failed."""
        return self._last_picture > 0 or self._has_ended

    def show(self, *blocks: Block) -> None:
        if self._loop is not None and threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.show, *blocks)
            return
        self._unprinted.extend(blocks)
        self._begin()
        if self._has_ended:
            self._print_rest()
        else:
            self._draw_soon()

    def draw(self, live: LiveState, status: ChatStatus) -> None:
        self._live, self._status = live, status
        self._begin()
        self._draw_soon()

    def clear(self) -> None:
        self._printed.clear()
        self._wipes = True
        self._draw_soon()

    def insert(self, text: str) -> None:
        self._line.insert(text)
        self._draw_soon()

    def _take_printed(self, width: int) -> str:
        """The text to print above the next frame."""
        if self._wipes:
            self._wipes = False
            self._app.inline_renderer.clear_screen()
            rows = self._app.output.get_size().rows
            again = "".join(self._together(None, self._printed, width).splitlines(keepends=True)[-rows:])
        else:
            again = ""
        return again + self._together_new(width)

    def _together_new(self, width: int) -> str:
        above = self._printed[-1] if self._printed else None
        blocks, self._unprinted = self._unprinted, []
        for at, block in enumerate(blocks):
            blocks[at] = self._once(block)
            self._printed.append(blocks[at])
        return self._together(above, blocks, width)

    def _once(self, block: Block) -> Block:
        """Drops a diff from a collapsed tool block if the approval question already showed it."""
        changes = diff_body(block.details) if isinstance(block, ToolBlock) and not block.is_open else ""
        is_known = changes and any(
            isinstance(one, DiffBlock) and diff_body(one.text) == changes for one in self._printed
        )
        return block._replace(details="") if is_known and isinstance(block, ToolBlock) else block

    def _together(self, above: Block | None, blocks: Iterable[Block], width: int) -> str:
        texts: list[str] = []
        for block in blocks:
            text = self._render(block, width)
            if text and self._drawing().needs_gap(above, block):
                texts.append("\n")
            texts.append(text)
            above = block
        return "".join(texts)

    def _print_rest(self) -> None:
        """Prints pending blocks after the application ended."""
        width = self._app.output.get_size().columns
        text = self._together_new(width)
        if text:
            with contextlib.suppress(OSError):
                self._app.output.write_raw(text.replace("\n", "\r\n"))
                self._app.output.flush()

    def _look(self) -> FrameState:
        hint, until = self._hint
        return FrameState(self._live, self._status, hint if self._clock() < until else "", self._clock())

    def _compose(self, _: object) -> None:
        size = self._app.output.get_size()
        self._picture.compose(size.columns, size.rows)
        asks = self._asking.state is not None or self._status.questions > 0
        standing = "asks" if asks else "works" if is_working(self._live) else "rests"
        self._attention.update(standing, self._status.directory)
        self._last_picture = time.monotonic()
        if is_working(self._live):
            self._draw_soon(FRAME_SECONDS)

    def _draw_soon(self, seconds: float = 0.0) -> None:
        """Schedules a frame, with a limited frame rate; later changes are included in it."""
        if self._has_ended or not self._app.is_running:
            return
        loop = asyncio.get_running_loop()
        between = min(max(_PICTURE_SECONDS, self._picture_cost * _SHARE), _SLOWEST_SECONDS)
        due = loop.time() + max(seconds, self._last_picture + between - time.monotonic(), 0.0)
        if self._next_picture is not None:
            if self._next_picture.when() <= due:
                return
            self._next_picture.cancel()
        self._next_picture = loop.call_at(due, self._draw_now)

    def _draw_now(self) -> None:
        self._next_picture = None
        began = time.monotonic()
        self._app.draw_now()
        self._picture_cost = time.monotonic() - began

    def _changed(self) -> None:
        self._picture.focus()
        self._app.invalidate()

    def _give_hint(self, text: str, seconds: float) -> None:
        self._hint = (text, self._clock() + seconds)
        if self._running is not None:
            asyncio.get_running_loop().call_later(seconds + 0.05, self._draw_soon)

    # User actions

    async def next(self) -> UserAction:
        self._begin()
        if self._deeds.empty() and self._left is not None:
            return self._left
        return await self._deeds.get()

    async def ask(self, form: Form) -> FormAnswer | None:
        self._begin()
        return await self._asking.ask(form)

    async def open(self, panel: Panel) -> bool:
        self._begin()
        await self._opening.open(panel)
        return True

    def _emit(self, deed: UserAction) -> None:
        if isinstance(deed, ExitRequested):
            self._left = deed
        if isinstance(deed, Submitted):
            self._picture.shows_welcome = False
        self._deeds.put_nowait(deed)

    def _key_pressed(self, _: object) -> None:
        self._attention.record_key()
        if self._picture.shows_line():
            self._asking.typing_pause.record_key()

    def _keyboard_told(self) -> None:
        if not self._app.inline_renderer.has_extended_keys:
            register_extended_keys()
            self._app.inline_renderer.has_extended_keys = True
            self._app.inline_renderer.reflows = True  # every terminal with extended keys also reflows

    def _draw_again(self) -> None:
        self._wipes = True
        self._app.invalidate()

    def _failed(self, error: Exception) -> None:
        problem = error.problem if isinstance(error, KitbagError) else f"{type(error).__name__}: {error}"
        self.show(NoticeBlock("error", f"that key did not work: {problem}"))

    def _suspend(self) -> None:
        self._suspended = True
        self._app.suspend_to_background()
        asyncio.get_running_loop().call_later(0.5, self._go_on)

    def _go_on(self) -> None:
        self._suspended = False

    def _edit(self) -> None:
        self._line.buffer.open_in_editor()

    # Start and end

    @property
    def _has_ended(self) -> bool:
        return self._is_closed or (self._running is not None and self._running.done())

    def _begin(self) -> None:
        """Without an event loop, output waits for one."""
        if self._running is None and not self._is_closed and _is_in_loop():
            self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
            self._running = self._loop.create_task(self._run())

    async def _run(self) -> None:
        problem: Block | None = None
        told: dict[int, Callable[[], object]] = {
            signal.SIGTERM: lambda: self._leave(_TERMINATED),
            signal.SIGHUP: lambda: self._leave(_GONE),
            signal.SIGCONT: self._continued,
        }
        with signal_handlers(told, terminal_restorer(self._app.input)):
            try:
                await self._app.run_async(pre_run=self._keys_come, set_exception_handler=False)
            except EOFError:
                self._leave(_GONE)
            except Exception as error:  # noqa: BLE001 - shown once the terminal is restored
                problem = NoticeBlock("error", f"the terminal could not be drawn: {type(error).__name__}: {error}")
                self._leave(1)
            finally:
                self._end()
        if problem is not None:
            self._unprinted.append(problem)
        self._print_rest()

    def _keys_come(self) -> None:
        """Keys arrive from now on. The first ones were typed during start-up and not meant for a form."""
        self._asking.typing_pause.record_key()
        self._app.output.write_raw(QUERY_KEYBOARD)

    def _end(self) -> None:
        if self._next_picture is not None:
            self._next_picture.cancel()
            self._next_picture = None
        self._asking.close()
        self._opening.close()
        with contextlib.suppress(OSError):
            self._attention.restore()
            self._app.output.flush()

    def _leave(self, code: int) -> None:
        if self._left is None:
            self._emit(ExitRequested(immediately=True, exit_code=code))
        self._asking.close()
        self._opening.close()

    def _continued(self) -> None:
        """The shell may have changed the terminal's mode meanwhile."""
        if self._app.can_draw and not self._suspended:  # otherwise it is drawn anyway
            self._app.input.raw_mode().__enter__()
            self._app.inline_renderer.reset()
            self._app.invalidate()

    async def close(self) -> None:
        running, self._is_closed = self._running, True
        if running is not None:
            while not running.done() and self._app.future is None:
                await asyncio.sleep(0)
            if self._app.future is not None and not self._app.future.done():
                self._app.exit()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(running)
        self._end()
        self._print_rest()
