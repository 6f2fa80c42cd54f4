"""A response body, decompressed while it arrives and limited in size. Used by `fetch`; uses zlib.

Supports only what the request accepts: one layer of gzip or deflate. A decompression bomb is cut at the limit after
a few more kilobytes.
"""

import zlib
from collections.abc import Iterator
from typing import Final

from kitbag.net.errors import FetchError

ACCEPTED_CODINGS: Final = "gzip, deflate"
_MAX_OUTPUT = 64 * 1024
_MAX_INPUT = 4 * 1024
"""How much zlib gets at once; small, because data after the end of a member is copied each time."""


class ResponseBody:
    """Call `feed` with each chunk until it returns False; then check `is_incomplete`."""

    __slots__ = ("_coding", "_inflater", "content", "exceeded_limit", "limit")

    def __init__(self, codings: str, limit: int) -> None:
        self.content = bytearray()
        self.limit = limit
        self.exceeded_limit = False
        """Whether the body was larger than the limit."""
        self._coding = _single_coding(codings)
        self._inflater = _Inflater(self._coding) if self._coding in ("gzip", "deflate") else None

    def feed(self, data: bytes) -> bool:
        if data and self._inflater is None and self._coding:
            raise FetchError(
                "The server sent a response with an unsupported content encoding.",
                "Fetch the page from another host. Supported: gzip or deflate, applied once.",
                "response",
            )
        for piece in (data,) if self._inflater is None else self._inflater.pieces(data):
            remaining = self.limit - len(self.content)
            self.content += piece[:remaining]
            if len(piece) > remaining:
                self.exceeded_limit = True
                return False
        return True

    @property
    def is_incomplete(self) -> bool:
        return self._inflater is not None and self._inflater.is_open


def _single_coding(codings: str) -> str:
    """The content coding, empty if none; several codings are joined into an unknown one."""
    codings_found = [coding.strip().lower() for coding in codings.split(",")]
    named = [coding.removeprefix("x-") for coding in codings_found if coding not in ("", "identity")]
    return named[0] if len(named) == 1 else "+".join(named)


class _Inflater:
    __slots__ = ("_coding", "_ended", "_engine", "_start")

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._engine: zlib._Decompress | None = None  # pyright: ignore[reportPrivateUsage]
        self._start = b""
        self._ended = False

    @property
    def is_open(self) -> bool:
        """Whether a member has started and not ended."""
        return bool(self._start) or (self._engine is not None and not self._engine.eof)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        try:
            for start in range(0, len(data), _MAX_INPUT):
                yield from self._inflate(data[start : start + _MAX_INPUT])
        except zlib.error as error:
            raise FetchError(
                "The response is corrupt: it cannot be decompressed.",
                "Try again, or fetch the page from another host.",
                "response",
            ) from error

    def _inflate(self, data: bytes) -> Iterator[bytes]:
        more = False
        while (data or more) and not self._ended:
            if self._engine is None:
                data, self._start = self._start + data, b""
                if len(data) < 2:
                    self._start = data
                    return
                self._engine = zlib.decompressobj(self._window(data))
            elif self._engine.eof:
                # gzip members may be concatenated; anything else after the end is padding.
                if self._coding != "gzip" or data[:1] != b"\x1f":
                    self._ended = True
                    return
                self._engine = None
                continue
            piece = self._engine.decompress(data, _MAX_OUTPUT)
            more = len(piece) == _MAX_OUTPUT and not self._engine.eof
            data = self._engine.unused_data if self._engine.eof else self._engine.unconsumed_tail
            if piece:
                yield piece

    def _window(self, start: bytes) -> int:
        if self._coding == "gzip":
            return zlib.MAX_WBITS | 16
        # Deflate should have a zlib wrapper, but is often sent without.
        wrapped = start[0] & 0x0F == 8 and int.from_bytes(start[:2], "big") % 31 == 0
        return zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS
