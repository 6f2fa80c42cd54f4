"""Parses server-sent events incrementally: chunks may be split anywhere, lines may end with LF, CR or CRLF.

Bounded: an event that is too long is an error instead of filling memory. Used by wire.
"""

from collections.abc import Iterator
from typing import Final

MAX_EVENT_BYTES: Final = 8 << 20


class EventTooLongError(Exception):
    pass


class EventParser:
    """Parser state between two chunks."""

    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._line: list[bytes] = []
        """Start of an incomplete line."""
        self._data: list[bytes] = []
        self._line_size = self._data_size = 0
        """Bytes of the incomplete line and of the data of the current event; comments are not kept."""
        self._after_return = False
        self._first = True

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The data of each event that this chunk completes. Raises EventTooLongError."""
        if self._after_return and chunk.startswith(b"\n"):  # `\r\n` was split between chunks
            chunk = chunk[1:]
        if not chunk:
            return
        self._after_return = chunk.endswith(b"\r")
        lines = chunk.splitlines(keepends=True)
        incomplete = b"" if lines[-1].endswith((b"\n", b"\r")) else lines.pop()
        for line in lines:
            self._extend_line(line.rstrip(b"\r\n"))
            data = self._take(b"".join(self._line))
            self._line, self._line_size = [], 0
            if data is not None:
                yield data
        if incomplete:
            self._extend_line(incomplete)

    def _extend_line(self, piece: bytes) -> None:
        self._line.append(piece)
        self._line_size += len(piece)
        if self._data_size + self._line_size > self._max_bytes:
            raise EventTooLongError(f"event larger than {self._max_bytes >> 20} MB")

    def _take(self, line: bytes) -> str | None:
        if self._first:
            line, self._first = line.removeprefix(b"\xef\xbb\xbf"), False
        if not line:
            data, self._data, self._data_size = self._data, [], 0
            return b"\n".join(data).decode("utf-8", "replace") if data else None
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._data_size += len(line) + 1
        return None
