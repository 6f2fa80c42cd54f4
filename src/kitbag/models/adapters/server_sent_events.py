"""Parses server-sent events incrementally: chunks may be split anywhere, lines may end with LF, CR or CRLF.

Bounded: an event that is too long is an error instead of filling memory. Used by wire.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from typing import Final

MAX_EVENT_BYTES: Final = 16 << 20


class EventTooLongError(Exception):
    pass


class EventParser:
    """Parser state between two chunks."""

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._longest = max_bytes
        self._line: list[bytes] = []
        """Start of an incomplete line."""
        self._data: list[bytes] = []
        self._size = 0
        """Bytes of the current event."""
        self._after_return = False
        self._first = True

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The data of each event that this chunk completes."""
        if self._after_return and chunk.startswith(b"\n"):  # `\r\n` was split between chunks
            chunk = chunk[1:]
        if not chunk:
            return
        self._after_return = chunk.endswith(b"\r")
        lines = chunk.splitlines(keepends=True)
        incomplete = b"" if lines[-1].endswith((b"\n", b"\r")) else lines.pop()
        for line in lines:
            self._line.append(line.rstrip(b"\r\n"))
            self._grow(len(line))
            data = self._take(b"".join(self._line))
            self._line = []
            if data is not None:
                yield data
        if incomplete:
            self._line.append(incomplete)
            self._grow(len(incomplete))

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > self._longest:
            raise EventTooLongError(f"event larger than {self._longest >> 20} MB")

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


async def event_data(chunks: AsyncIterable[bytes]) -> AsyncGenerator[str, None]:
    """Raises EventTooLongError. An incomplete event at the end is dropped."""
    parser = EventParser()
    async for chunk in chunks:
        for data in parser.feed(chunk):
            yield data
