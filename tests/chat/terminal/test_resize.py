"""Whatever the size becomes, and whatever the terminal does with lines that no longer fit: one picture, nothing twice,
nothing erased."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pyte
import pytest
from prompt_toolkit.data_structures import Size
from prompt_toolkit.output import DummyOutput

from chat.seen_terminal import ENTER, Seen, seen, started
from kitbag.chat.terminal.inline_screen import ReportedSize
from kitbag.chat.ui import ChatStatus, LiveState, RunningCall, Submitted
from kitbag.views.blocks import ReplyBlock, VerbatimBlock, text_block
from support.matrix import sample
from support.waiting import TEST_TIMEOUT


def at_terminal(scene: Callable[[Seen], Awaitable[None]], columns: int = 80, rows: int = 24, **given: Any) -> None:
    async def play() -> None:
        async with seen(columns, rows, **given) as shown:
            await started(shown)
            await asyncio.wait_for(scene(shown), TEST_TIMEOUT)

    asyncio.run(play())


@pytest.mark.parametrize(("columns", "rows"), [(20, 5), (40, 8), (10, 3), (8, 2), (5, 1), (200, 60)])
def test_any_size_is_drawn_and_typed_into(columns: int, rows: int) -> None:
    async def scene(shown: Seen) -> None:
        live = LiveState(
            activity="working",
            started_at=1.0,
            tokens=5,
            tail="tail " * 50,
            running=(RunningCall(name="Bash", title="x" * 90),) * 9,
            queued=("q " * 99,) * 9,
            todos=(("", "t"),) * 9,
        )
        shown.terminal.draw(
            live,
            ChatStatus(
                model="model-x",
                mode="default",
                persona="p",
                used=5,
                window=10,
                cost=0.5,
                tasks=2,
                questions=2,
                directory="/a/b/c",
            ),
        )
        await shown.resize(columns, rows)
        shown.type("hey")
        await shown.until(lambda: "hey" in shown.text() or "ey" in shown.text())
        shown.terminal.show(text_block("said"))
        shown.type(ENTER)
        assert await shown.next() == Submitted(text="hey")
        await shown.resize(80, 24)
        await shown.until_seen("model-x", "working")

    at_terminal(scene)


def test_a_resize_leaves_one_picture() -> None:
    async def scene(shown: Seen) -> None:
        shown.terminal.show(VerbatimBlock("kept"))
        shown.terminal.draw(LiveState(activity="working", queued=("later",)), ChatStatus(model="model-x"))
        shown.type("some text")
        await shown.until_seen("> some text", "queued")
        for columns in (60, 45, 90, 50, 80):
            await shown.resize(columns, 24)
        await shown.until(lambda: shown.text().count("model-x") == 1)
        text = shown.text()
        assert [text.count(one) for one in ("kept", "working", "queued: later", "> some text", "─")] == [1, 1, 1, 1, 40]

    at_terminal(scene)


_USED = -1
"""The key of a row's width among its cells."""
_CONTINUES = -2
"""The key of whether a row continues in the next one."""


class RewrappingScreen(pyte.HistoryScreen):
    """Rewraps rows when it becomes narrower. `keeps_erased`: a row is as wide as what it held since it was empty, as in
    tmux; otherwise erased cells don't count, as in VTE, kitty and others. Rows that no longer fit scroll away."""

    def __init__(self, columns: int, lines: int, *, keeps_erased: bool) -> None:
        self._keeps_erased = keeps_erased
        super().__init__(columns, lines, history=5000, ratio=0.5)

    def _used(self, row: int) -> int:
        found: Any = self.buffer[row].get(_USED, 0)
        return found if isinstance(found, int) else 0

    def _use(self, row: int, width: int) -> None:
        cells: Any = self.buffer[row]
        cells[_USED] = width
        if not width:
            cells[_CONTINUES] = False

    def draw(self, data: str) -> None:
        for char in data:  # one may wrap or scroll
            super().draw(char)
            self._use(self.cursor.y, max(self._used(self.cursor.y), self.cursor.x))

    def erase_in_line(self, how: int = 0, private: bool = False) -> None:
        used = self._used(self.cursor.y)
        super().erase_in_line(how, private)
        keeps = self._keeps_erased and self.cursor.x > 0
        self._use(self.cursor.y, used if keeps or how else min(used, self.cursor.x))

    def erase_in_display(self, how: int = 0, *rest: Any, **private: Any) -> None:
        used = self._used(self.cursor.y)
        super().erase_in_display(how, *rest, **private)
        for row in range(self.cursor.y + 1, self.lines):
            self._use(row, 0)
        self._use(self.cursor.y, used)
        self.erase_in_line(0)

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        assert lines == self.lines
        assert columns is not None
        pieces: list[dict[int, Any]] = []
        cursor, at_column = 0, self.cursor.x
        cells: list[Any] = []
        for row in range(self.lines):
            if row == self.cursor.y:
                cursor, at_column = (
                    len(pieces) + (len(cells) + at_column) // columns,
                    (len(cells) + at_column) % columns,
                )
            cells += [self.buffer[row][at] for at in range(self._used(row))]
            if self.buffer[row].get(_CONTINUES) is True:
                continue
            starts = range(0, max(len(cells), 1), columns)
            for start in starts:
                piece = cells[start : start + columns]
                pieces.append({**dict(enumerate(piece)), _USED: len(piece), _CONTINUES: start != starts[-1]})
            cells = []
        # tmux moves rows to its scrollback even above blank ones.
        while not self._keeps_erased and len(pieces) > max(self.lines, cursor + 1) and not pieces[-1][_USED]:
            pieces.pop()
        super().resize(lines, columns)
        gone = max(len(pieces) - self.lines, 0)
        for cells in pieces[:gone]:
            self.history.top.append(self._line(cells))
        for row in range(self.lines):
            self.buffer[row] = self._line(pieces[gone + row] if gone + row < len(pieces) else {})
        self.cursor.y, self.cursor.x = max(cursor - gone, 0), at_column

    def _line(self, cells: dict[int, Any]) -> Any:
        line: Any = type(self.buffer[0])(self.default_char)
        line.update(cells)
        return line


TRUNCATING, REWRAPPING, TMUX = "truncating", "rewrapping", "tmux"
TERMINALS = {
    "unknown": (TRUNCATING, {}, ""),
    "xterm that was started from another terminal": (TRUNCATING, {"VTE_VERSION": "7600"}, "XTerm(390)"),
    "screen in another terminal": (TRUNCATING, {"STY": "1.x", "TERM": "screen", "VTE_VERSION": "7600"}, ""),
    "VTE": (REWRAPPING, {"VTE_VERSION": "7600"}, ""),
    "VTE through SSH": (REWRAPPING, {}, "VTE(7600)"),
    "kitty through SSH": (REWRAPPING, {}, "kitty(0.35.2)"),
    "tmux": (TMUX, {"TMUX": "x", "TERM": "screen-256color"}, ""),
    "tmux through SSH": (TMUX, {"TERM": "screen-256color"}, "tmux 3.4"),
    "tmux in screen": (TMUX, {"TMUX": "x", "STY": "1.x", "TERM": "screen-256color"}, "tmux 3.4"),
}


@pytest.mark.parametrize("above", [1, 30], ids=["top", "bottom"])  # tmux moves the uppermost rows to its scrollback
@pytest.mark.parametrize("terminal", sample(TERMINALS, 4))
def test_a_terminal_that_narrows_while_text_streams_shows_nothing_twice(terminal: str, above: int) -> None:
    kind, environment, name = TERMINALS[terminal]
    kept = [f"kept {at}" for at in range(above)]

    async def scene(shown: Seen) -> None:
        if kind != TRUNCATING:
            shown.screen = RewrappingScreen(100, 40, keeps_erased=kind == TMUX)
            shown.use_screen_anew()
        if kind == TMUX:
            shown.screen.write_process_input = lambda data: shown.type(data)  # noqa: PLW0108 - a parameter by name
        if name:
            await shown.press(f"\x1bP>|{name}\x1b\\")
        words = [f"w{at:03}" for at in range(64)]
        shown.terminal.show(VerbatimBlock("\n".join(kept)))
        for count in range(10, len(words), 6):  # the rule moves down, row by row
            live = LiveState(activity="writing", tail=" ".join(words[:count]))
            shown.terminal.draw(live, ChatStatus(model="model-x"))
            await shown.until_seen(words[count - 1])
        await shown.resize(70, 40)
        shown.terminal.draw(LiveState(activity="writing", tail=" ".join(words)), ChatStatus(model="model-y"))
        await shown.until_seen("model-y", words[-1])
        counts = [shown.all().count(one) for one in ("w063", "writing", "model-")]
        shown.terminal.show(ReplyBlock(" ".join(words)))
        shown.terminal.draw(LiveState(), ChatStatus(model="model-z"))
        await shown.until_seen("model-z")
        text = shown.all()
        assert re.findall("kept [0-9]+", text) == kept
        assert re.findall("w[0-9]{3}", text) == words
        assert (counts, text.count("model-")) == ([1] * 3, 1)

    at_terminal(scene, columns=100, rows=40, environment=environment)


@pytest.mark.parametrize(("wide", "narrow", "rows"), [(80, 35, 24), (200, 60, 50)])
def test_tmux_that_narrows_to_less_than_half_shows_nothing_twice(wide: int, narrow: int, rows: int) -> None:
    kept = [f"kept {at}" for at in range(rows)]

    async def scene(shown: Seen) -> None:
        shown.screen = RewrappingScreen(wide, rows, keeps_erased=True)
        shown.screen.write_process_input = lambda data: shown.type(data)  # noqa: PLW0108 - a parameter by name
        shown.use_screen_anew()
        words = [f"w{at:03}" for at in range(wide * 4)]
        shown.terminal.show(VerbatimBlock("\n".join(kept)))
        live = LiveState()
        for count in range(wide // 4, len(words), wide // 4):
            live = LiveState(activity="writing", tail=" ".join(words[:count]))
            shown.terminal.draw(live, ChatStatus(model="model-x", mode="m" * (wide // 2)))
            await shown.until_seen(words[count - 1])
        await shown.resize(narrow, rows)
        shown.terminal.draw(live, ChatStatus(model="model-y"))
        await shown.until_seen("model-y")
        shown.terminal.show(ReplyBlock(" ".join(words)))
        shown.terminal.draw(LiveState(), ChatStatus(model="model-z"))
        await shown.until_seen("model-z")
        text = shown.all()
        assert re.findall("kept [0-9]+", text) == kept
        assert re.findall("w[0-9]{3}", text) == words
        assert text.count("model-") == 1

    at_terminal(scene, columns=wide, rows=rows, environment={"TMUX": "x"})


def test_a_size_that_tmux_passes_on_late_is_known_from_the_terminal_itself() -> None:
    kept = [f"kept {at}" for at in range(30)]

    async def scene(shown: Seen) -> None:
        shown.screen = RewrappingScreen(100, 40, keeps_erased=True)
        shown.screen.write_process_input = lambda data: shown.type(data)  # noqa: PLW0108 - a parameter by name
        shown.use_screen_anew()
        words = [f"w{at:03}" for at in range(64)]
        shown.terminal.show(VerbatimBlock("\n".join(kept)))
        live = LiveState()
        for count in range(10, len(words), 6):
            live = LiveState(activity="writing", tail=" ".join(words[:count]))
            shown.terminal.draw(live, ChatStatus(model="model-x"))
            await shown.until_seen(words[count - 1])
            if count == 28:
                shown.screen.resize(40, 70)
        await shown.resize(70, 40)
        shown.terminal.draw(live, ChatStatus(model="model-y"))
        await shown.until_seen("model-y")
        text = shown.all()
        assert re.findall("kept [0-9]+", text) == kept
        assert [text.count(one) for one in ("w000", "w050", "writing", "model-")] == [1] * 4

    at_terminal(scene, columns=100, rows=40, environment={"TMUX": "x"})


def test_a_drag_to_a_narrower_size_in_tmux_shows_nothing_twice() -> None:
    async def scene(shown: Seen) -> None:
        shown.screen = RewrappingScreen(100, 40, keeps_erased=True)
        shown.use_screen_anew()
        words = [f"w{at:03}" for at in range(64)]
        shown.terminal.show(VerbatimBlock("kept"))
        shown.terminal.draw(LiveState(activity="writing", tail=" ".join(words[:30])), ChatStatus(model="model-x"))
        await shown.until_seen(words[29])
        for at, columns in enumerate(range(98, 58, -2)):
            await shown.resize(columns, 40)
            live = LiveState(activity="writing", tail=" ".join(words[: 31 + at]))
            shown.terminal.draw(live, ChatStatus(model="model-x"))
        shown.terminal.draw(LiveState(activity="writing", tail=" ".join(words)), ChatStatus(model="model-y"))
        await shown.until_seen("model-y")
        text = shown.all()
        assert [text.count(one) for one in ("kept", "w000", "w020", "w063", "writing", "model-")] == [1] * 6

    at_terminal(scene, columns=100, rows=40, environment={"TMUX": "x"})


def test_a_drag_that_goes_on_unknown_to_the_kernel_leaves_no_rows_behind() -> None:
    kept = [f"kept {at}" for at in range(8)]

    async def scene(shown: Seen) -> None:
        shown.screen = RewrappingScreen(100, 40, keeps_erased=True)
        shown.screen.write_process_input = lambda data: shown.type(data)  # noqa: PLW0108 - a parameter by name
        shown.use_screen_anew()
        shown.terminal.show(VerbatimBlock("\n".join(kept)))
        shown.terminal.draw(LiveState(), ChatStatus(model="model-x"))  # idle: nothing but the resize draws a frame
        await shown.until(lambda: "model-x" in shown.text() and not shown.terminal._queries.is_asking_size)
        await shown.resize(90, 40)
        shown.screen.resize(40, 60)  # the signal follows later
        drawn = len(shown.raw)
        await shown.until(lambda: shown.take_in() or b"model-x" in shown.raw[drawn:])
        await shown.resize(60, 40)
        shown.terminal.draw(LiveState(), ChatStatus(model="model-y"))
        await shown.until_seen("model-y")
        found = re.findall("kept [0-9]|─+|model-", shown.all())
        assert found == [*kept, "─" * 60, "model-"]

    at_terminal(scene, columns=100, rows=40, environment={"TMUX": "x"})


def test_a_size_that_the_terminal_reported_before_the_kernel_knew_a_later_one_is_ignored() -> None:
    output = DummyOutput()
    known = Size(rows=40, columns=100)
    output.get_size = lambda: known
    reported = ReportedSize(output)
    reported.record_query()
    reported.set(Size(rows=40, columns=90))
    assert output.get_size().columns == 90
    reported.record_query()
    known = Size(rows=40, columns=70)
    reported.set(Size(rows=40, columns=90))
    assert (output.get_size().columns, reported.is_ahead) == (70, False)
