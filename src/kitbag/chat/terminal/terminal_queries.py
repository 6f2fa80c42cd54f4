"""Queries to the terminal and its replies: its background color (OSC 11), its name (XTVERSION) and its size.

Used by terminal_ui and inline_screen. Nothing waits for a reply, which may be late, damaged or missing. Replies are
removed from the input before it is parsed as keys; keys pass unchanged and in order.
"""

import asyncio
import re
import select
import time
from collections.abc import Callable, Mapping
from typing import Final

from prompt_toolkit.input import Input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.output import Output

QUERY_BACKGROUND: Final = "\x1b]11;?\x1b\\"
QUERY_NAME: Final = "\x1b[>0q"
QUERY_SIZE: Final = "\x1b[6n\x1b7\x1b[9999;9999H\x1b[6n\x1b8"
"""The positions of the cursor and of the last cell."""
_SILENT_TERMS: Final = ("linux", "dumb", "eterm", "vt")
"""Values of TERM of terminals that answer nothing; some print parts of a query."""
_REMOTE_SECONDS: Final = 0.3
_SIZE_SECONDS: Final = 0.2
_MAX_MISSING: Final = 3
"""Sizes in succession that a terminal did not report in time before it is asked no more."""
_TEXT: Final = r"[^\x00-\x1f]{0,64}"
_REPLY: Final = re.compile(
    rf"\x1b(?:\]11;(?P<color>{_TEXT})(?:\x07|\x1b\\)|P>\|(?P<name>{_TEXT})\x1b\\|\[(?P<position>\d{{1,4}};\d{{1,4}})R)"
)
_START: Final = re.compile(
    rf"\x1b(?:\](?:1(?:1(?:;{_TEXT}\x1b?)?)?)?|P(?:>(?:\|{_TEXT}\x1b?)?)?|\[(?:\d{{1,4}}(?:;\d{{0,4}})?)?)?\Z"
)
"""What may become a reply with more input."""
_DAMAGED: Final = re.compile(rf"\x1b(?:\]11;r?g?b?a?:?[0-9a-fA-F/]*|P>\|{_TEXT})\x1b?")
"""The part of an unfinished reply that is not typed text."""
_SEQUENCE: Final = re.compile(r"\x1b{1,2}(?:\[\[?[0-?]*[ -/]*[@-~]|O[ -~])")
_PASTE: Final = "\x1b[200~"
_PASTE_END: Final = "\x1b[201~"


def is_remote(environment: Mapping[str, str]) -> bool:
    return bool(environment.get("SSH_CONNECTION") or environment.get("SSH_TTY"))


class ReplyFilter:
    """Separates replies from keys. A reply may arrive in pieces."""

    def __init__(self, on_reply: Mapping[str, Callable[[str], None]]) -> None:
        """`on_reply` gets a `color`, a `name` or a `position`."""
        self._on_reply = on_reply
        self.positions = 0
        """How many are expected; others are keys: `ESC [ 1 ; 2 R` is Shift-F3."""
        self._held = ""
        """The start of a possible reply."""
        self._passed = ""
        """The start of a possible reply that nothing followed for a while; the rest may still arrive."""

    def feed(self, data: str) -> str:
        """Returns the keys. Those that could start a reply follow with the next call of `feed` or `flush`."""
        if self._passed:
            late = _REPLY.match(self._passed + data)
            data = data[late.end() - len(self._passed) :] if late else data
            if late:
                self._report(late)
            self._passed = ""
        if not self._held and "\x1b" not in data:
            return data
        data = _REPLY.sub(self._report, self._held + data)
        start = _START.search(data)
        self._held = data[start.start() :] if start else ""
        return _DAMAGED.sub(_keep_keys, data[: start.start()] if start else data)

    def flush(self) -> str:
        """Nothing has followed for a while: returns held keys."""
        self._passed, self._held = self._held, ""
        return _DAMAGED.sub("", self._passed)

    def _report(self, reply: "re.Match[str]") -> str:
        kind = reply.lastgroup or ""
        if kind == "position" and not self.positions:
            return reply[0]
        self.positions -= kind == "position"
        self._on_reply[kind](reply[kind])
        return ""


def _keep_keys(damaged: "re.Match[str]") -> str:
    """The Esc of the next key is no part of a damaged reply."""
    return "\x1b" if damaged[0].endswith("\x1b") else ""


class _FilteringParser(Vt100Parser):
    def __init__(
        self, feed_key_callback: Callable[..., None], replies: ReplyFilter, has_input: Callable[[], bool]
    ) -> None:
        """`has_input`: more is waiting to be read."""
        self._replies = replies
        self._has_input = has_input
        self._is_filtered = False
        self._awaits_end = False
        """An end of the paste was taken for a part of it."""
        self._pasted: list[str] = []
        """What came of a paste whose end has not come."""
        super().__init__(feed_key_callback)

    def feed(self, data: str) -> None:
        if self._is_filtered:  # the parser calls itself at the start and the end of a paste
            self._feed_parser(data)
        else:
            self._feed_filtered(self._replies.feed(data))

    def flush(self) -> None:
        self._feed_filtered(self._replies.flush() + (_PASTE_END if self._awaits_end else ""))
        super().flush()

    def _feed_filtered(self, keys: str) -> None:
        keys = self._join_paste(keys)
        self._is_filtered = True
        try:
            self._feed_parser(keys if self._in_bracketed_paste else self._without_unknown(keys))
        finally:
            self._is_filtered = False

    def _feed_parser(self, keys: str) -> None:
        """A paste is passed on whole: the parser would search all of it again for each chunk."""
        if self._in_bracketed_paste:
            self._pasted += [keys] if keys else []
            if _PASTE_END not in "".join(self._pasted[-len(_PASTE_END) :]):
                return
            keys, self._pasted = "".join(self._pasted), []
        super().feed(keys)

    def _join_paste(self, keys: str) -> str:
        """Pasted text may contain the end of a paste, and tmux passes it on: the rest would be typed, Enter included.
        So a paste ends at the last end, and not while more follows."""
        start = 0 if self._in_bracketed_paste else keys.find(_PASTE)
        pasted, end, typed = keys[max(start, 0) :].rpartition(_PASTE_END)
        if start < 0 or not end:
            return keys
        self._awaits_end = bool(typed) and self._has_input()
        return keys[:start] + pasted.replace(_PASTE_END, "") + ("" if self._awaits_end else end) + typed

    def _without_unknown(self, keys: str) -> str:
        """Without unknown sequences: Esc would interrupt the agent, and the rest would end up in the input line."""
        keys, mark, pasted = keys.partition(_PASTE)
        return _SEQUENCE.sub(self._keep_known, keys) + mark + pasted

    def _keep_known(self, sequence: "re.Match[str]") -> str:
        text = sequence[0]
        known = any(
            self._get_match(text[start:end])
            for start in (0, text.rfind("\x1b"))
            for end in range(start + 3, len(text) + 1)
        )
        return text if known else ""


def _has_input(file: int) -> bool:
    try:
        return bool(select.select([file], [], [], 0)[0])
    except (OSError, ValueError):  # closed
        return False


class TerminalQueries:
    def __init__(
        self,
        input_: Input,
        output: Output,
        environment: Mapping[str, str],
        *,
        on_color: Callable[[str], None] | None,
        on_name: Callable[[str], None],
        on_size: Callable[[int, int, int], None],
    ) -> None:
        """`on_color` gets the background; None: it is not asked for. `on_size` gets rows, columns and the row of the
        cursor, from 0."""
        self._output = output
        self._on_color, self._on_name, self._on_size = on_color, on_name, on_size
        self._is_remote = is_remote(environment)
        self._awaited: set[str] = set()
        self._last_reply: asyncio.Future[None] | None = None
        self._asked_at = 0.0
        self._after_size: Callable[[], None] | None = None
        self._size_waiters: list[asyncio.Future[None]] = []
        self._size_timer: asyncio.TimerHandle | None = None
        self._missing = 0
        self._is_paused = False
        self._cursor_row: int | None = None
        on_reply = {"color": self._color_reported, "name": self._name_reported, "position": self._position_reported}
        self._replies = ReplyFilter(on_reply)
        self._can_ask = isinstance(input_, Vt100Input) and not environment.get("TERM", "").startswith(_SILENT_TERMS)
        if isinstance(input_, Vt100Input):
            callback, file = input_.vt100_parser.feed_key_callback, input_.fileno()
            input_.vt100_parser = _FilteringParser(callback, self._replies, lambda: _has_input(file))

    def ask(self) -> None:
        """Only in raw mode: otherwise the terminal would echo the replies."""
        if not self._can_ask:
            return
        queries = {"name": QUERY_NAME, **({"color": QUERY_BACKGROUND} if self._on_color else {})}
        self._awaited = set(queries)
        self._asked_at = time.monotonic()
        self._output.write_raw("".join(queries.values()))

    @property
    def is_asking_size(self) -> bool:
        return self._after_size is not None

    def ask_size(self, then: Callable[[], None]) -> None:
        """Calls `then` once the terminal has reported its size, or at once if it reports none or is not asked now."""
        if not self._can_ask or self._is_paused or self._missing >= _MAX_MISSING:
            then()
        elif self._after_size is None:
            self._after_size = then
            self._replies.positions += 2
            self._size_timer = asyncio.get_running_loop().call_later(_SIZE_SECONDS, self._size_missing)
            self._output.write_raw(QUERY_SIZE)
            self._output.flush()

    def _size_missing(self) -> None:
        self._missing += 1
        self._continue_after_size()

    def _position_reported(self, position: str) -> None:
        row, column = map(int, position.split(";"))
        if self._cursor_row is None:
            self._cursor_row = row - 1
            return
        self._on_size(row, column, self._cursor_row)
        self._cursor_row, self._missing = None, 0
        self._continue_after_size()

    def _continue_after_size(self) -> None:
        then, self._after_size = self._after_size, None
        if self._size_timer is not None:
            self._size_timer.cancel()
            self._size_timer = None
        if then is not None:
            then()
        for waiter in self._size_waiters:
            waiter.set_result(None)
        self._size_waiters = []

    async def pause(self) -> None:
        """Asks for no size until `resume`, and waits for a reply that is on its way: another program would get it as
        typed text."""
        self._is_paused = True
        if self._after_size is not None:
            waiter = asyncio.get_running_loop().create_future()
            self._size_waiters.append(waiter)
            await asyncio.wait([waiter])

    def resume(self) -> None:
        self._is_paused = False

    async def close(self) -> None:
        """Lets replies that are on their way arrive, so that the shell does not get them as typed text."""
        await self.pause()
        if not self._awaited:
            return
        for _ in range(2):
            await asyncio.sleep(0)  # one that is here already
        left = self._asked_at + _REMOTE_SECONDS - time.monotonic()
        if self._awaited and self._is_remote and left > 0:
            self._last_reply = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._last_reply], timeout=left)

    def _color_reported(self, color: str) -> None:
        if self._on_color is not None:
            self._on_color(color)
        self._received("color")

    def _name_reported(self, name: str) -> None:
        self._on_name(name)
        self._received("name")

    def _received(self, query: str) -> None:
        self._awaited.discard(query)
        if not self._awaited and self._last_reply is not None and not self._last_reply.done():
            self._last_reply.set_result(None)
