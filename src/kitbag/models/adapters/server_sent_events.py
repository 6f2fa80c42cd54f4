"""The data of server-sent events, out of bytes as they come: cut anywhere, with any of the three line ends.

Used by wire. Bounded: a line or an event that does not end is an error, not a full memory.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from typing import Final

MAX_EVENT_BYTES: Final = 16 << 20
"""Bytes."""


class EventTooLongError(Exception):
    pass


class EventParser:
    """The state between two pieces."""

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._longest = max_bytes
        self._line: list[bytes] = []
        """The beginning of a line whose end has not come."""
        self._data: list[bytes] = []
        self._size = 0
        """Of the event so far."""
        self._after_return = False
        self._first = True

    def feed(self, piece: bytes) -> Iterator[str]:
        """The data of each event that is whole now."""
        if self._after_return and piece.startswith(b"\n"):  # `\r\n` came in two pieces
            piece = piece[1:]
        if not piece:
            return
        self._after_return = piece.endswith(b"\r")
        lines = piece.splitlines(keepends=True)
        rest = b"" if lines[-1].endswith((b"\n", b"\r")) else lines.pop()
        for line in lines:
            self._line.append(line.rstrip(b"\r\n"))
            self._grow(len(line))
            data = self._take(b"".join(self._line))
            self._line = []
            if data is not None:
                yield data
        if rest:
            self._line.append(rest)
            self._grow(len(rest))

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._longest:
            raise EventTooLongError(f"an event is longer than {self._longest >> 20} MB")

    def _take(self, line: bytes) -> str | None:
        if self._first:
            line, self._first = line.removeprefix(b"\xef\xbb\xbf"), False
        if not line:
            data, self._data, self._size = self._data, [], 0
            return b"\n".join(data).decode("utf-8", "replace") if data else None
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        return None


async def event_data(pieces: AsyncIterable[bytes]) -> AsyncGenerator[str, None]:
    """Raises EventTooLongError. An event that was cut off is no event."""
    reader = EventParser()
    async for piece in pieces:
        for data in reader.feed(piece):
            yield data
