"""Lays out the terminal UI: live region, input line, a form or a panel in its place, completion menu, status line.

Used by terminal_ui. Assigns heights before each frame, so that it fits any terminal size.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final

import msgspec
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completion
from prompt_toolkit.filters import Condition, vi_navigation_mode
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    Dimension,
    FormattedTextControl,
    HSplit,
    Layout,
    SearchBufferControl,
    VerticalAlign,
    Window,
)
from prompt_toolkit.layout.processors import (
    AfterInput,
    ConditionalProcessor,
    PasswordProcessor,
    Processor,
    TabsProcessor,
    Transformation,
    TransformationInput,
)

from kitbag.chat.terminal.form_queue import FormQueue
from kitbag.chat.terminal.forms import FormState
from kitbag.chat.terminal.input_line import InputLine
from kitbag.chat.terminal.live_region import RenderTail, live_lines
from kitbag.chat.terminal.panels import PanelRunner
from kitbag.chat.terminal.reflow import RewrapRoom, added_rows
from kitbag.chat.terminal.static_rows import StaticRows
from kitbag.chat.terminal.status_line import hint_line, status_line
from kitbag.chat.terminal.text_fragments import STYLES, FragmentLine, as_formatted_text, join_lines, visible_range
from kitbag.chat.ui import ChatStatus, LiveState, Submitted
from kitbag.text.hidden_characters import find_hidden
from kitbag.text.terminal_width import text_width, truncate_to_width
from kitbag.views.blocks import Block

PROMPT: Final = "> "
_MAX_COMPLETIONS: Final = 8
_SHORT_RULE: Final = 40
_NARROW_SHARE: Final = 0.3
_MIN_NARROW: Final = 35
"""Columns to which a terminal can shrink with nothing left behind."""
_STATIC_PARTS: Final = ("rule", "request", "form", "panel", "menu", "status")
_ROWS_TO_REWRAP: Final = 5
"""As many as the least live region, the rule and the status line add if the terminal becomes half as wide."""
_WELCOME_HINT: Final = "ask anything · / for commands · @ for files · ! for shell"
_SHELL_HINT: Final = "press Enter to run this in your shell; the model sees it with your next message"


class FrameState(msgspec.Struct, frozen=True, kw_only=True):
    """What a frame shows, apart from user input."""

    live: LiveState
    status: ChatStatus
    hint: str
    now: float


class TextCleaners(msgspec.Struct, frozen=True, kw_only=True):
    """Sanitizers; all text on the screen passes through one of them."""

    text: Callable[[str], str]
    line: Callable[[str], str]
    """For a single line."""
    tail: RenderTail
    blocks: Callable[[tuple[Block, ...], int], list[FragmentLine]]
    """Renders blocks for a width."""


class _ShowHidden(Processor):
    """Shows hidden and bidirectional characters as replacement characters."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        fragments = transformation_input.fragments
        if all(piece[1].isascii() for piece in fragments):
            return Transformation(fragments)
        # Fragments are single characters; whether one hides something depends on its neighbors.
        shown = iter(_replace_hidden("".join(piece[1] for piece in fragments)))
        return Transformation([(piece[0], "".join(islice(shown, len(piece[1])))) for piece in fragments])


def _replace_hidden(text: str) -> str:
    chars = list(text)
    for at, _ in find_hidden(text):
        if chars[at] not in "\n\t":
            chars[at] = "\ufffd"
    return "".join(chars)


class ChatLayout:
    def __init__(
        self,
        line: InputLine,
        forms: FormQueue,
        panels: PanelRunner,
        get_frame: Callable[[], FrameState],
        cleaners: TextCleaners,
        rewraps: Callable[[], bool],
    ) -> None:
        """`rewraps`: the terminal rewraps lines when it becomes narrower."""
        self._line = line
        self._forms = forms
        self._panels = panels
        self._get_frame = get_frame
        self._cleaners = cleaners
        self._rewraps = rewraps
        self._lines: dict[str, list[FragmentLine]] = {}
        self._rendered_request: tuple[tuple[int, int], list[FragmentLine]] = ((0, 0), [])
        self._line_height = 1
        self._columns = 80
        self.height = 0
        """Of the last frame."""
        self.rows_above: int | None = None
        """Rows of the screen above the last frame, if known."""
        self.shows_welcome = True
        """Nothing was submitted yet: the input line shows a hint."""
        self._make_windows()
        self.layout = Layout(self._root(), focused_element=self.line_window)

    # Windows

    def _make_windows(self) -> None:
        self.search = SearchBufferControl(buffer=Buffer(name="search", multiline=False))
        welcome = AfterInput(lambda: truncate_to_width(_WELCOME_HINT, self._columns - len(PROMPT) - 1), style="dim")
        self._line_control = BufferControl(
            self._line.buffer,
            input_processors=[
                TabsProcessor(tabstop=4, char1=" ", char2=" "),
                _ShowHidden(),
                ConditionalProcessor(welcome, Condition(lambda: self.shows_welcome and not self._line.buffer.text)),
            ],
            search_buffer_control=self.search,
            preview_search=True,
        )
        self.line_window = Window(
            self._line_control,
            height=lambda: Dimension.exact(self._line_height),
            wrap_lines=True,
            get_line_prefix=_prefix,
        )
        is_secret = Condition(lambda: self._forms.state is not None and self._forms.state.form.secret)
        self.text_window = Window(
            BufferControl(
                self._forms.text_buffer,
                input_processors=[ConditionalProcessor(PasswordProcessor("•"), is_secret), _ShowHidden()],
            ),
            height=1,
            get_line_prefix=_prefix,
        )
        self.form_window = self._lines_window("form")
        self.panel_window = self._lines_window("panel")

    def _rows(self, name: str) -> StaticRows:
        return StaticRows(lambda: self._lines.get(name, []))

    def _lines_window(self, name: str) -> Window:
        control = FormattedTextControl(lambda: join_lines(self._lines.get(name, [])), focusable=True, show_cursor=False)
        return Window(control, height=lambda: Dimension.exact(len(self._lines.get(name, []))))

    def _root(self) -> HSplit:
        is_searching = Condition(lambda: self.layout.is_searching)
        search_window = Window(self.search, height=1, get_line_prefix=_search_prefix)
        parts = [
            self._rows("live"),
            self._rows("rule"),
            self._rows("request"),
            ConditionalContainer(self.form_window, Condition(lambda: self._forms.state is not None)),
            ConditionalContainer(self.text_window, Condition(self._shows_text_input)),
            ConditionalContainer(self.panel_window, Condition(self._shows_panel)),
            ConditionalContainer(self.line_window, Condition(self.shows_line)),
            ConditionalContainer(search_window, is_searching),
            self._rows("menu"),
            self._rows("status"),
        ]
        return HSplit(parts, align=VerticalAlign.TOP)

    def shows_line(self) -> bool:
        return not self._forms.has_keys and (self._panels.state is None or self._forms.state is not None)

    def _shows_text_input(self) -> bool:
        return self._forms.state is not None and self._forms.has_keys and self._forms.state.is_writing

    def _shows_panel(self) -> bool:
        return self._panels.state is not None and self._forms.state is None

    def focus(self) -> None:
        """Focuses what gets the keys now."""
        if self._forms.state is not None and self._forms.has_keys:
            target = self.text_window if self._forms.state.is_writing else self.form_window
        elif self._shows_panel():
            target = self.panel_window
        elif self.layout.is_searching:
            return
        else:
            target = self.line_window
        if self.layout.is_searching:
            self.layout.search_links.clear()
            self.search.buffer.reset()
        if self.layout.current_window is not target:
            self.layout.focus(target)

    # Heights

    def compose(self, columns: int, rows: int) -> None:
        """Called before each frame."""
        self._columns = columns
        frame = self._get_frame()
        has_status = rows >= 3
        left = rows - has_status
        if self.layout.is_searching:
            left -= 1
        self._line_height = self._input_height(columns, rows, left) if self.shows_line() else 0
        left -= self._line_height + self._shows_text_input()
        self._lines["menu"] = self._menu(columns, min(_MAX_COMPLETIONS, left, max(rows // 3, 1)))
        left -= len(self._lines["menu"])
        form, panel = self._forms.state, self._panels.state
        request = self._request(form, columns) if form else []
        # Some of what is to be approved is always visible, even if not all options fit then.
        kept = min(len(request) + 1, max(left // 3, min(left // 2, 4))) if request else 0
        self._lines["form"] = form.lines(columns, left - kept, self._cleaners.text) if form and left > 0 else []
        left -= len(self._lines["form"])
        self._lines["request"] = form.request_lines(request, max(left - 1, 0)) if form and request else []
        left -= len(self._lines["request"])
        room = min(left, max(rows * 2 // 3, 6))  # keep some scrollback visible
        shows_panel = panel is not None and self._shows_panel() and room > 0
        self._lines["panel"] = panel.lines(columns, room, self._cleaners.line) if panel and shows_panel else []
        left -= len(self._lines["panel"])
        has_rule = left >= 4 or (left >= 2 and rows >= 8)
        left -= has_rule + (rows > 10)  # keep a row of scrollback visible
        length = columns if self._rewraps() and not self._is_near_top else min(columns, _SHORT_RULE)
        self._lines["rule"] = [[("dim", "─" * length)]] if has_rule else []
        can_stop = self.shows_line()
        clean = self._cleaners
        # While a form is open, the turn waits for the user only.
        live = _without_user_wait(frame.live) if self._forms.has_keys else frame.live
        self._lines["status"] = [self._status(frame, columns)] if has_status else []
        rewrap_room = self._rewrap_room(columns, rows) if self._rewraps() else None
        left = min(left, max(rows // 2 - 3, 3)) if rewrap_room else left
        self._lines["live"] = live_lines(
            live, columns, left, frame.now, clean.line, clean.tail, can_stop=can_stop, room=rewrap_room
        )
        self.height = sum(map(len, self._lines.values())) + self._line_height + self._shows_text_input()

    def count_printed(self, rows: int, *, is_cleared: bool = False) -> None:
        """More rows are above the next frame than above the last one."""
        if self.rows_above is not None:
            self.rows_above = rows if is_cleared else self.rows_above + rows

    def _rewrap_room(self, columns: int, rows: int) -> RewrapRoom:
        """For the live region, besides all else."""
        narrow = columns // 2 if self._is_near_top else max(int(columns * _NARROW_SHARE), _MIN_NARROW)
        others = [line for name in _STATIC_PARTS for line in self._lines[name]]
        typed = self._line.buffer.text or (_WELCOME_HINT if self.shows_welcome else "")
        added = added_rows(others, narrow) + self._line_height * ((min(len(PROMPT + typed), columns) - 1) // narrow)
        above = rows if self.rows_above is None else self.rows_above
        used = len(others) + self._line_height + self._shows_text_input()
        return RewrapRoom(columns=narrow, added=max(above - added, 0), rows=max(rows - used - added, 0))

    @property
    def _is_near_top(self) -> bool:
        """The rule and the status line must not take two rows each if the terminal becomes half as wide."""
        return self.rows_above is not None and self.rows_above < _ROWS_TO_REWRAP

    def _request(self, form: FormState, columns: int) -> list[FragmentLine]:
        """The blocks above a form that are not printed."""
        if not form.form.summary:
            return []
        key = (id(form), columns)
        if self._rendered_request[0] != key:
            self._rendered_request = (key, self._cleaners.blocks(form.form.above, columns))
        return self._rendered_request[1]

    def _input_height(self, columns: int, rows: int, left: int) -> int:
        preferred = self._line_control.preferred_height(columns, rows, True, _prefix) or 1
        return max(min(preferred, max(rows // 3, 1), left), 1)

    def _status(self, frame: FrameState, columns: int) -> FragmentLine:
        shell_command = self.shows_line() and Submitted(text=self._line.buffer.text).shell_command
        if frame.hint or shell_command:
            return hint_line(frame.hint or _SHELL_HINT, columns)
        width = columns // 2 if self._is_near_top else columns - 1
        editing = "NORMAL" if self.shows_line() and vi_navigation_mode() else ""
        return status_line(frame.status, width, self._cleaners.line, editing)

    def _menu(self, columns: int, height: int) -> list[FragmentLine]:
        state = self._line.buffer.complete_state
        if state is None or not state.completions or height <= 0 or not self.shows_line():
            return []
        selected = state.complete_index if state.complete_index is not None else -1
        shown = visible_range(len(state.completions), max(selected, 0), height)
        names = [self._cleaners.line(state.completions[at].display_text) for at in shown]
        width = min(max(text_width(name) for name in names), max(columns // 2, 10))
        return [
            self._completion(state.completions[at], name, width, columns, is_selected=at == selected)
            for at, name in zip(shown, names, strict=True)
        ]

    def _completion(
        self, completion: Completion, name: str, width: int, columns: int, *, is_selected: bool
    ) -> FragmentLine:
        style = f"bold {STYLES['accent']}" if is_selected else ""
        name = truncate_to_width(name, min(width, columns - 3))
        note = self._cleaners.line(completion.display_meta_text)
        line: FragmentLine = [(style, f"{'›' if is_selected else ' '} {name}")]
        room = columns - width - 5
        if note and room > 5:
            line.append(("dim", " " * (width - text_width(name) + 2) + truncate_to_width(note, room)))
        return line


def _without_user_wait(live: LiveState) -> LiveState:
    """Keeps only other calls, which continue while a form is open."""
    return msgspec.structs.replace(
        live, activity="", running=tuple(call for call in live.running if call.name != "AskUser")
    )


def _prefix(line: int, wrapped: int) -> StyleAndTextTuples:
    return as_formatted_text([(STYLES["accent"], PROMPT)] if line == 0 and wrapped == 0 else [("", " " * len(PROMPT))])


def _search_prefix(line: int, wrapped: int) -> StyleAndTextTuples:
    return as_formatted_text([("dim", "  search history: ")])
