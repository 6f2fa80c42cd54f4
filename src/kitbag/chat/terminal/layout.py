"""Lays out the terminal UI: live region, input line, a form or a panel in its place, completion menu, status line.

Used by terminal_ui. Assigns heights before each frame, so that it fits any terminal size.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completion
from prompt_toolkit.filters import Condition
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
from kitbag.chat.terminal.input_line import InputLine
from kitbag.chat.terminal.live_region import RenderTail, live_lines
from kitbag.chat.terminal.panel_runner import PanelRunner
from kitbag.chat.terminal.static_rows import StaticRows
from kitbag.chat.terminal.status_line import hint_line, status_line
from kitbag.chat.terminal.text_fragments import STYLES, FragmentLine, as_formatted_text, join_lines, visible_range
from kitbag.chat.ui import ChatStatus, LiveState, Submitted
from kitbag.text.hidden_characters import find_hidden
from kitbag.text.terminal_width import text_width, truncate_to_width

PROMPT: Final = "> "
_MOST_COMPLETIONS: Final = 8
_SHORT_RULE: Final = 40
_WELCOME: Final = "ask anything · / for commands · @ for files · ! for your shell"
_OWN_COMMAND: Final = "Enter runs it in your own shell; the model sees it with your next message"


class FrameState(NamedTuple):
    """What a frame shows, apart from user input."""

    live: LiveState
    status: ChatStatus
    hint: str
    now: float


class TextCleaners(NamedTuple):
    """Sanitizers; all text on the screen passes through one of them."""

    text: Callable[[str], str]
    line: Callable[[str], str]
    """For a single line."""
    tail: RenderTail


class _Visible(Processor):
    """Shows hidden and bidirectional characters as replacement characters."""

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        fragments = transformation_input.fragments
        if all(piece[1].isascii() for piece in fragments):
            return Transformation(fragments)
        return Transformation([(piece[0], _with_marks(piece[1])) for piece in fragments])


def _with_marks(text: str) -> str:
    chars = list(text)
    for at, _ in find_hidden(text):
        if chars[at] not in "\n\t":
            chars[at] = "\ufffd"
    return "".join(chars)


class ChatLayout:
    def __init__(
        self,
        line: InputLine,
        asking: FormQueue,
        opening: PanelRunner,
        look: Callable[[], FrameState],
        cleaning: TextCleaners,
        rule_is_short: Callable[[], bool],
    ) -> None:
        self._line = line
        self._asking = asking
        self._opening = opening
        self._look = look
        self._clean = cleaning
        self._rule_is_short = rule_is_short
        self._lines: dict[str, list[FragmentLine]] = {}
        self._line_height = 1
        self._columns = 80
        self.shows_welcome = True
        """Nothing was submitted yet: the input line shows a hint."""
        self._make_windows()
        self.layout = Layout(self._root(), focused_element=self.line_window)

    # Windows

    def _make_windows(self) -> None:
        self.search = SearchBufferControl(buffer=Buffer(name="search", multiline=False))
        welcome = AfterInput(lambda: truncate_to_width(_WELCOME, self._columns - len(PROMPT) - 1), style="dim")
        self._line_control = BufferControl(
            self._line.buffer,
            input_processors=[
                TabsProcessor(tabstop=4, char1=" ", char2=" "),
                _Visible(),
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
        is_secret = Condition(lambda: self._asking.state is not None and self._asking.state.form.secret)
        self.text_window = Window(
            BufferControl(
                self._asking.text_buffer,
                input_processors=[ConditionalProcessor(PasswordProcessor("•"), is_secret), _Visible()],
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
            ConditionalContainer(self.form_window, Condition(lambda: self._asking.state is not None)),
            ConditionalContainer(self.text_window, Condition(self._shows_words)),
            ConditionalContainer(self.panel_window, Condition(self._shows_panel)),
            ConditionalContainer(self.line_window, Condition(self.shows_line)),
            ConditionalContainer(search_window, is_searching),
            self._rows("menu"),
            self._rows("status"),
        ]
        return HSplit(parts, align=VerticalAlign.TOP)

    def shows_line(self) -> bool:
        return not self._asking.has_keys and (self._opening.state is None or self._asking.state is not None)

    def _shows_words(self) -> bool:
        return self._asking.state is not None and self._asking.has_keys and self._asking.state.is_writing

    def _shows_panel(self) -> bool:
        return self._opening.state is not None and self._asking.state is None

    def focus(self) -> None:
        """Focuses what gets the keys now."""
        if self._asking.state is not None and self._asking.has_keys:
            target = self.text_window if self._asking.state.is_writing else self.form_window
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
        look = self._look()
        has_status = rows >= 3
        left = rows - has_status
        if self.layout.is_searching:
            left -= 1
        self._line_height = self._wanted_line(columns, rows, left) if self.shows_line() else 0
        left -= self._line_height + self._shows_words()
        self._lines["menu"] = self._menu(columns, min(_MOST_COMPLETIONS, left, max(rows // 3, 1)))
        left -= len(self._lines["menu"])
        form, panel = self._asking.state, self._opening.state
        self._lines["form"] = form.lines(columns, left, self._clean.text) if form and left > 0 else []
        left -= len(self._lines["form"])
        room = min(left, max(rows * 2 // 3, 6))  # keep some scrollback visible
        shows_panel = panel is not None and self._shows_panel() and room > 0
        self._lines["panel"] = panel.lines(columns, room, self._clean.line) if panel and shows_panel else []
        left -= len(self._lines["panel"])
        has_rule = left >= 4 or (left >= 2 and rows >= 8)
        left -= has_rule + (rows > 10)  # keep a row of scrollback visible
        length = min(columns, _SHORT_RULE) if self._rule_is_short() else columns
        self._lines["rule"] = [[("dim", "─" * length)]] if has_rule else []
        can_stop = self.shows_line()
        clean = self._clean
        # While a form is open, the turn waits for the user only.
        live = _without_waiting(look.live) if self._asking.has_keys else look.live
        self._lines["live"] = live_lines(live, columns, left, look.now, clean.line, clean.tail, can_stop=can_stop)
        self._lines["status"] = [self._status(look, columns)] if has_status else []

    def _wanted_line(self, columns: int, rows: int, left: int) -> int:
        wanted = self._line_control.preferred_height(columns, rows, True, _prefix) or 1
        return max(min(wanted, max(rows // 3, 1), left), 1)

    def _status(self, look: FrameState, columns: int) -> FragmentLine:
        own = self.shows_line() and Submitted(self._line.buffer.text).shell_command
        if look.hint or own:
            return hint_line(look.hint or _OWN_COMMAND, columns)
        return status_line(look.status, columns - 1, self._clean.line)

    def _menu(self, columns: int, height: int) -> list[FragmentLine]:
        state = self._line.buffer.complete_state
        if state is None or not state.completions or height <= 0 or not self.shows_line():
            return []
        marked = state.complete_index if state.complete_index is not None else -1
        shown = visible_range(len(state.completions), max(marked, 0), height)
        names = [self._clean.line(state.completions[at].display_text) for at in shown]
        width = min(max(text_width(name) for name in names), max(columns // 2, 10))
        return [
            self._completion(state.completions[at], name, width, columns, is_marked=at == marked)
            for at, name in zip(shown, names, strict=True)
        ]

    def _completion(
        self, completion: Completion, name: str, width: int, columns: int, *, is_marked: bool
    ) -> FragmentLine:
        style = f"bold {STYLES['accent']}" if is_marked else ""
        name = truncate_to_width(name, min(width, columns - 3))
        note = self._clean.line(completion.display_meta_text)
        line: FragmentLine = [(style, f"{'›' if is_marked else ' '} {name}")]
        room = columns - width - 5
        if note and room > 5:
            line.append(("dim", " " * (width - text_width(name) + 2) + truncate_to_width(note, room)))
        return line


def _without_waiting(live: LiveState) -> LiveState:
    """Keeps only other calls, which continue while a form is open."""
    return live._replace(activity="", running=tuple(call for call in live.running if call.name != "AskUser"))


def _prefix(line: int, wrapped: int) -> StyleAndTextTuples:
    return as_formatted_text([(STYLES["accent"], PROMPT)] if line == 0 and wrapped == 0 else [("", " " * len(PROMPT))])


def _search_prefix(line: int, wrapped: int) -> StyleAndTextTuples:
    return as_formatted_text([("dim", "  search history: ")])
