"""The ChatUI at a terminal: an input line that stays usable while the agent works, with the scrollback above it.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec
from prompt_toolkit.completion import Completer
from prompt_toolkit.data_structures import Size
from prompt_toolkit.history import History
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.output import Output
from prompt_toolkit.styles import Style

from kitbag.chat.configured_keys import key_label, list_keys, parse_keys
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
from kitbag.chat.terminal.panels import PanelRunner
from kitbag.chat.terminal.reflow import Reflow, reflow_of
from kitbag.chat.terminal.signals import signal_handlers, terminal_restorer
from kitbag.chat.terminal.terminal_queries import TerminalQueries
from kitbag.chat.terminal.text_fragments import FragmentLine, parse_ansi_lines, wrap
from kitbag.chat.terminal.theme import ChatTheme
from kitbag.chat.terminal.title_and_bell import TitleAndBell
from kitbag.chat.ui import ChatStatus, ExitRequested, LiveState, Panel, Submitted, UserAction
from kitbag.dialogs.form import Form, FormAnswer
from kitbag.errors import KitbagError
from kitbag.views.blocks import Block, DiffBlock, NoticeBlock, ReplyBlock, ToolBlock
from kitbag.views.rendering.styled_text import Cleaner

_FRAME_INTERVAL: Final = 1 / 30
_DRAW_SHARE: Final = 4
"""Drawing takes at most one part in this many of the time if frames are slow."""
_MAX_FRAME_INTERVAL: Final = 0.25
_SIZE_SECONDS: Final = 0.3
"""tmux passes a new size on within this time."""
_KEPT_BLOCKS: Final = 200
"""Blocks kept to redraw the screen (Ctrl-L)."""
_MAX_COPIED: Final = 70_000
"""Characters. Terminals ignore longer texts."""
_HINT_SECONDS: Final = 4.0
_EXIT_HANGUP: Final = 129
_EXIT_SIGTERM: Final = 143


def _is_in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class BlockRenderer(Protocol):
    """The functions of views/rendering/render."""

    def render(self, block: Block, width: int, *, color: bool, hide: Callable[[str], str], details_key: str) -> str: ...
    def needs_gap(self, above: Block | None, block: Block) -> bool: ...
    def render_tail(
        self, markdown: str, width: int, height: int, *, color: bool, hide: Callable[[str], str]
    ) -> str: ...


class TerminalUI:
    is_plain = False
    keeps_everything = False
    can_ask = True

    def __init__(
        self,
        *,
        history: History | None = None,
        completer: Completer | None = None,
        pastes: PasteHandler | None = None,
        renderer: BlockRenderer | None = None,
        input: Input | None = None,  # noqa: A002 - prompt_toolkit's name
        output: Output | None = None,
        environment: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
        bell: bool = True,
        missing_mentions: Callable[[str], Sequence[str]] = lambda text: (),
        vim: bool = False,
        keys: Sequence[str] = (),
        theme: str = "auto",
    ) -> None:
        """Draws nothing before the first call of show, draw, next, ask or open. `bell`: rings for a user who is
        away. `missing_mentions`: the `@names` of a message that match nothing. `vim`, `keys`, `theme`: the settings
        of the chat with these names."""
        self.redact: Callable[[str], str] = lambda text: text
        self._cleaner = Cleaner(lambda text: self.redact(text))  # noqa: PLW0108 - the chat replaces it later
        self._renderer = renderer
        self._clock = clock
        self._theme = ChatTheme(theme, environment)
        self._make_state()
        self._line = InputLine(
            history=history,
            completer=completer,
            pastes=pastes,
            emit=self._emit,
            show=self.show,
            hint=self._show_hint,
            is_working=lambda: is_working(self._live),
            has_queued=lambda: bool(self._live.queued or self._live.steering),
            clock=clock,
            missing_mentions=missing_mentions,
        )
        self._forms = FormQueue(self.show, self._changed, clock, lambda: bool(self._line.buffer.text.strip()))
        self._panels = PanelRunner(self.show, self._changed)
        self._keys, key_problems = parse_keys(keys)
        self.keys = list_keys(self._keys)
        self._unprinted += [NoticeBlock("warning", problem) for problem in key_problems]
        self._make_application(input, output, environment, vim)
        write = self._app.output.write_raw
        self._title_and_bell = TitleAndBell(write, self._cleaner.line, clock, environment, bell=bell)

    def _make_state(self) -> None:
        self._live, self._status = LiveState(), ChatStatus()
        self._hint = ("", float("-inf"))
        self._actions: asyncio.Queue[UserAction] = asyncio.Queue()
        self._exit: ExitRequested | None = None
        self._unprinted: list[Block] = []
        self._printed: deque[Block] = deque(maxlen=_KEPT_BLOCKS)
        self._folded: dict[int, Block] = {}
        """What unfolded blocks were, by their identity in `_printed`."""
        self._first_unfolded: int | None = None
        """Index in `_printed` from which everything is printed again."""
        self._clears_screen = False
        self._last_frame = self._frame_cost = 0.0
        self._next_frame: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._suspended = False
        self._is_closed = False

    def _make_application(
        self, input_: Input | None, output: Output | None, environment: Mapping[str, str], vim: bool
    ) -> None:
        register_basic_sequences()
        cleaners = TextCleaners(
            text=self._cleaner.text, line=self._cleaner.line, tail=self._tail, blocks=self._block_lines
        )
        self._layout = ChatLayout(
            line=self._line,
            forms=self._forms,
            panels=self._panels,
            get_frame=self._get_frame,
            cleaners=cleaners,
            rewraps=lambda: self._app.inline_renderer.reflow.rewraps,
        )
        actions = KeyActions(
            emit=self._emit,
            redraw=self._redraw_screen,
            suspend=self._suspend,
            edit=self._edit,
            on_extended_keys=self._enable_extended_keys,
            on_error=self._show_key_error,
            clock=self._clock,
            keys=self._keys,
        )
        bindings = make_bindings(self._line, self._forms, self._panels, self._layout, actions)
        self._app = InlineApplication(
            layout=self._layout.layout,
            style=Style([]),
            bindings=bindings,
            is_colored=self._theme.is_colored,
            input=input_,
            output=output,
            take_printed=self._take_printed,
            draw_soon=self._draw_soon,
            on_terminal_gone=lambda: self._request_exit(_EXIT_HANGUP),
            environment=environment,
            vim=vim,
        )
        self._app.style_transformation = self._theme.style_transformation
        self._queries = TerminalQueries(
            self._app.input,
            self._app.output,
            environment,
            on_color=self._on_background if self._theme.follows_terminal else None,
            on_name=self._on_terminal_name,
            on_size=self._on_size,
        )
        self._app.before_render += self._compose
        self._app.key_processor.before_key_press += self._key_pressed

    # Sanitizing: views/rendering for printed text, `_cleaner` for drawn text; both use styled_text.Cleaner

    def _tail(self, markdown: str, width: int, height: int) -> list[FragmentLine]:
        try:
            text = self._get_renderer().render_tail(
                markdown, width, height, color=self._theme.is_colored, hide=self.redact
            )
            lines = parse_ansi_lines(text)
        except Exception:  # noqa: BLE001 - as below
            lines = [[("", line)] for line in wrap(self._cleaner.text(markdown[-width * height :]), width)]
        above = self._printed[-1] if self._printed else None
        started = ReplyBlock(markdown, begins=not isinstance(above, ReplyBlock))
        return (
            [[], *lines] if lines and len(lines) < height and self._get_renderer().needs_gap(above, started) else lines
        )

    def _block_lines(self, blocks: tuple[Block, ...], width: int) -> list[FragmentLine]:
        return parse_ansi_lines(self._render_all(None, blocks, width))

    def _render(self, block: Block, width: int) -> str:
        try:
            text = self._get_renderer().render(
                block,
                width,
                color=self._theme.is_colored,
                hide=self.redact,
                details_key=key_label(self._keys["details"]),
            )
            return self._theme.apply(text)
        except Exception as error:  # noqa: BLE001 - a block that fails to render must neither end the chat nor get lost
            return f"{self._cleaner.text(f'{block} (rendering failed: {error})')}\n"

    def _get_renderer(self) -> BlockRenderer:
        if self._renderer is None:
            from kitbag.views.rendering import render as renderer

            self._renderer = renderer
        return self._renderer

    # Output

    @property
    def is_drawn(self) -> bool:
        """Whether the input line is visible, or drawing has failed."""
        return self._last_frame > 0 or self._has_ended

    def show(self, *blocks: Block) -> None:
        if self._loop is not None and threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self.show, *blocks)
            return
        self._unprinted.extend(blocks)
        self._start()
        if self._has_ended:
            self._print_pending()
        else:
            self._draw_soon()

    def draw(self, live: LiveState, status: ChatStatus) -> None:
        self._live, self._status = live, status
        self._start()
        self._draw_soon()

    def clear(self) -> None:
        self._printed.clear()
        self._clears_screen = True
        self._draw_soon()

    def insert(self, *submissions: Submitted) -> None:
        self._line.insert(*submissions)
        self._draw_soon()

    def _take_printed(self, width: int) -> str:
        """The text to print above the next frame."""
        repeated = ""
        if self._clears_screen:
            self._clears_screen = False
            self._app.inline_renderer.clear_screen()
            self._layout.count_printed(0, is_cleared=True)
            repeated = self._render_screen(width)
        text = repeated + self._render_new(width)
        self._layout.count_printed(text.count("\n"))
        return text

    def _render_screen(self, width: int) -> str:
        """As much as fits, and all of what was unfolded."""
        first, self._first_unfolded = self._first_unfolded, None
        if first is not None:
            return self._render_all(None, list(self._printed)[first:], width)
        rows = self._app.output.get_size().rows
        return "".join(self._render_all(None, self._printed, width).splitlines(keepends=True)[-rows:])

    def hint(self, text: str) -> None:
        self._show_hint(text, _HINT_SECONDS)
        self._draw_soon()

    async def copy(self, text: str) -> bool:
        """With a program of this machine, or else OSC 52, which most terminals support, also over SSH."""
        import base64

        from kitbag.chat.clipboard import write_clipboard

        if await asyncio.to_thread(write_clipboard, text):
            return True
        data = base64.b64encode(text[:_MAX_COPIED].encode("utf-8", "replace")).decode()
        self._app.output.write_raw(f"\x1b]52;c;{data}\x1b\\")
        self._app.output.flush()
        return True

    def unfold(self, expanded: Sequence[Block]) -> None:
        from kitbag.chat.terminal.folding import unfold_blocks

        blocks = list(self._printed)
        size = self._app.output.get_size()
        first, left = len(blocks), size.rows
        while first and left > 0:
            first -= 1
            left -= self._render(blocks[first], size.columns).count("\n")
        unfolded = unfold_blocks(blocks[first:], expanded)
        self._folded = dict(zip(map(id, unfolded), blocks[first:], strict=True))
        self._printed = deque([*blocks[:first], *unfolded], maxlen=_KEPT_BLOCKS)
        self._first_unfolded = first
        self._redraw_screen()

    def fold(self) -> None:
        from kitbag.chat.terminal.folding import fold_block

        folded = [self._folded.get(id(block)) or fold_block(block) for block in self._printed]
        self._printed, self._folded = deque(folded, maxlen=_KEPT_BLOCKS), {}
        self._redraw_screen()

    def _render_new(self, width: int) -> str:
        above = self._printed[-1] if self._printed else None
        blocks, self._unprinted = self._unprinted, []
        for at, block in enumerate(blocks):
            blocks[at] = self._without_known_diff(block)
            self._printed.append(blocks[at])
        return self._render_all(above, blocks, width)

    def _without_known_diff(self, block: Block) -> Block:
        """Drops a diff from a collapsed tool block if the approval question already showed it."""
        from kitbag.views.rendering.diff import diff_body

        changes = diff_body(block.details) if isinstance(block, ToolBlock) and not block.is_open else ""
        is_known = changes and any(
            isinstance(one, DiffBlock) and diff_body(one.text) == changes for one in self._printed
        )
        return msgspec.structs.replace(block, details="") if is_known and isinstance(block, ToolBlock) else block

    def _render_all(self, above: Block | None, blocks: Iterable[Block], width: int) -> str:
        texts: list[str] = []
        for block in blocks:
            text = self._render(block, width)
            if text and self._get_renderer().needs_gap(above, block):
                texts.append("\n")
            texts.append(text)
            above = block
        return "".join(texts)

    def _print_pending(self) -> None:
        """Prints pending blocks after the application ended."""
        width = self._app.output.get_size().columns
        text = self._render_new(width)
        if text:
            with contextlib.suppress(OSError):
                self._app.output.write_raw(text.replace("\n", "\r\n"))
                self._app.output.flush()

    def _get_frame(self) -> FrameState:
        hint, until = self._hint
        return FrameState(
            live=self._live, status=self._status, hint=hint if self._clock() < until else "", now=self._clock()
        )

    def _compose(self, _: object) -> None:
        size = self._app.output.get_size()
        height = self._layout.height
        self._layout.compose(size.columns, size.rows)
        if self._layout.height != height:
            self._app.inline_renderer.erase_moved()
        is_asking = self._forms.state is not None or self._status.questions > 0
        state = "asks" if is_asking else "works" if is_working(self._live) else "rests"
        self._title_and_bell.update(state, self._status.directory)
        self._last_frame = time.monotonic()
        if is_working(self._live):
            self._draw_soon(FRAME_SECONDS)

    def _draw_soon(self, seconds: float = 0.0) -> None:
        """Schedules a frame, with a limited frame rate; later changes are included in it."""
        if self._has_ended or not self._app.is_running:
            return
        loop = asyncio.get_running_loop()
        interval = min(max(_FRAME_INTERVAL, self._frame_cost * _DRAW_SHARE), _MAX_FRAME_INTERVAL)
        due = loop.time() + max(seconds, self._last_frame + interval - time.monotonic(), 0.0)
        if self._next_frame is not None:
            if self._next_frame.when() <= due:
                return
            self._next_frame.cancel()
        self._next_frame = loop.call_at(due, self._draw_now)

    def _draw_now(self) -> None:
        self._next_frame = None
        if self._has_ended:
            return
        if self._app.inline_renderer.reflow.is_tmux and self._app.can_draw:
            if not self._queries.is_asking_size:
                self._app.reported_size.record_query()
            self._queries.ask_size(self._draw_frame)
        else:
            self._draw_frame()

    def _draw_frame(self) -> None:
        if self._has_ended:
            return
        if self._app.reported_size.is_ahead:
            self._draw_soon(_SIZE_SECONDS)
        began = time.monotonic()
        self._app.draw_now()
        self._frame_cost = time.monotonic() - began

    def _changed(self) -> None:
        if self._forms.state is not None:
            self._app.vi_state.input_mode = InputMode.INSERT
        self._layout.focus()
        self._app.invalidate()

    def _show_hint(self, text: str, seconds: float) -> None:
        self._hint = (text, self._clock() + seconds)
        if self._running is not None:
            asyncio.get_running_loop().call_later(seconds + 0.05, self._draw_soon)

    # User actions

    async def next(self) -> UserAction:
        self._start()
        if self._actions.empty() and self._exit is not None:
            return self._exit
        return await self._actions.get()

    async def ask(self, form: Form) -> FormAnswer | None:
        self._start()
        return await self._forms.ask(form)

    async def open(self, panel: Panel) -> bool:
        self._start()
        await self._panels.open(panel)
        return True

    def _emit(self, action: UserAction) -> None:
        if isinstance(action, ExitRequested):
            self._exit = action
        if isinstance(action, Submitted):
            self._layout.shows_welcome = False
            self._app.vi_state.input_mode = InputMode.INSERT
        self._actions.put_nowait(action)

    def _key_pressed(self, _: object) -> None:
        self._title_and_bell.record_key()
        if self._layout.shows_line():
            self._forms.typing_pause.record_key()

    def _enable_extended_keys(self) -> None:
        if not self._app.inline_renderer.has_extended_keys:
            register_extended_keys()
            self._app.inline_renderer.has_extended_keys = True
            renderer = self._app.inline_renderer
            if not renderer.reflow.rewraps:  # every terminal with extended keys rewraps lines
                renderer.reflow = Reflow(rewraps=True)

    def _on_background(self, color: str) -> None:
        self._theme.set_background(color)
        self._app.style_transformation = self._theme.style_transformation
        self._app.invalidate()

    def _on_size(self, rows: int, columns: int, cursor_row: int) -> None:
        self._app.reported_size.set(Size(rows=rows, columns=columns))
        self._layout.rows_above = max(cursor_row - self._app.inline_renderer.cursor_row, 0)

    def _on_terminal_name(self, name: str) -> None:
        renderer = self._app.inline_renderer
        renderer.reflow = reflow_of(name, renderer.reflow)

    def _redraw_screen(self) -> None:
        self._clears_screen = True
        self._app.invalidate()

    def _show_key_error(self, error: Exception) -> None:
        problem = error.problem if isinstance(error, KitbagError) else f"{type(error).__name__}: {error}"
        self.show(NoticeBlock("error", f"can't handle key press: {problem}"))

    def _suspend(self) -> None:
        self._app.create_background_task(self._suspend_when_settled())

    async def _suspend_when_settled(self) -> None:
        await self._queries.pause()
        self._suspended = True
        self._app.suspend_to_background()
        asyncio.get_running_loop().call_later(0.5, self._clear_suspended)

    def _clear_suspended(self) -> None:
        self._suspended = False
        self._queries.resume()

    def _edit(self) -> None:
        self._app.create_background_task(self._edit_when_settled())

    async def _edit_when_settled(self) -> None:
        await self._queries.pause()
        try:
            await self._line.buffer.open_in_editor()
        finally:
            self._queries.resume()

    # Start and end

    @property
    def _has_ended(self) -> bool:
        return self._is_closed or (self._running is not None and self._running.done())

    def _start(self) -> None:
        """Without an event loop, output waits for one."""
        if self._running is None and not self._is_closed and _is_in_loop():
            self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
            self._running = self._loop.create_task(self._run())

    async def _run(self) -> None:
        problem: Block | None = None
        handlers: dict[int, Callable[[], object]] = {
            signal.SIGTERM: lambda: self._request_exit(_EXIT_SIGTERM),
            signal.SIGHUP: lambda: self._request_exit(_EXIT_HANGUP),
            signal.SIGCONT: self._on_continue,
        }
        with signal_handlers(handlers, terminal_restorer(self._app.input)):
            try:
                await self._app.run_async(pre_run=self._on_keys_start, set_exception_handler=False)
            except EOFError:
                self._request_exit(_EXIT_HANGUP)
            except Exception as error:  # noqa: BLE001 - shown once the terminal is restored
                problem = NoticeBlock("error", f"can't draw to the terminal: {type(error).__name__}: {error}")
                self._request_exit(1)
            finally:
                self._end()
        if problem is not None:
            self._unprinted.append(problem)
        self._print_pending()

    def _on_keys_start(self) -> None:
        """Keys arrive from now on. The first ones were typed during start-up and not meant for a form."""
        self._forms.typing_pause.record_key()
        self._app.output.write_raw(QUERY_KEYBOARD)
        self._queries.ask()

    def _end(self) -> None:
        if self._next_frame is not None:
            self._next_frame.cancel()
            self._next_frame = None
        self._forms.close()
        self._panels.close()
        with contextlib.suppress(OSError):
            self._title_and_bell.restore()
            self._app.output.flush()

    def _request_exit(self, code: int) -> None:
        if self._exit is None:
            self._emit(ExitRequested(immediately=True, exit_code=code))
        self._forms.close()
        self._panels.close()

    def _on_continue(self) -> None:
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
                await self._queries.close()
            if self._app.future is not None and not self._app.future.done():
                self._app.exit()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(running)
        self._end()
        self._print_pending()
