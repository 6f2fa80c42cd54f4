"""One POST after another to one server over HTTP/1.1, each answered by a stream of bytes.

Used by wire where no proxy stands between. Made of asyncio's own streams, since importing a client of all of HTTP
takes as long as everything else before the first request. As strict as it can be: what it does not know is an error.
"""

import asyncio
import contextlib
import re
import ssl
import time
from collections.abc import AsyncGenerator, Coroutine, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

from kitbag.models.http.post import Answer, PostError

T = TypeVar("T")

_BUFFER: Final = 1 << 18
"""Bytes; also the longest head of an answer."""
_MOST_KEPT = 32
_KEPT_SECONDS = 15.0
"""A connection that was not used for longer may be gone without our knowing."""
_REST_SECONDS = 0.1
"""So long the end of an answer is waited for, of which all that counts has come, to use its connection again."""
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\r\n]*)?")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")
_HEADER = re.compile(r"[\x20-\x7e\t]*")
_PATH_CHARACTERS = "/%:@!$&'()*+,;=-._~?"


class Place(NamedTuple):
    """Where a URL leads."""

    scheme: str
    host: str
    port: int
    target: str
    authorization: str = ""
    """What a name and password in the URL stand for."""

    @property
    def shown(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == {"http": 80, "https": 443}[self.scheme] else f"{host}:{self.port}"


def place_of(url: str) -> Place:
    """Raises PostError for what is no address."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna" if not (parts.hostname or "").isascii() else "ascii").decode()
        if parts.scheme not in ("http", "https") or not host or not host.isprintable() or " " in host:
            raise ValueError(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        target = quote(parts.path or "/", safe=_PATH_CHARACTERS) + (
            f"?{quote(parts.query, safe=_PATH_CHARACTERS)}" if parts.query else ""
        )
    except ValueError as error:
        raise PostError("address", "") from error
    return Place(parts.scheme, host, port, target, _basic(parts.username, parts.password))


def _basic(name: str | None, password: str | None) -> str:
    if not name:
        return ""
    import base64
    from urllib.parse import unquote

    pair = f"{unquote(name)}:{unquote(password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


class _Connection:
    __slots__ = ("free_since", "place", "reader", "writer")

    def __init__(self, place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.place = place
        self.reader = reader
        self.writer = writer
        self.free_since = 0.0

    def leads_to(self, place: Place) -> bool:
        alive = not self.reader.at_eof() and not self.writer.is_closing()
        fresh = time.monotonic() - self.free_since < _KEPT_SECONDS
        return alive and fresh and self.place[:3] == place[:3]

    def drop(self) -> None:
        self.writer.transport.abort()


class DirectPost:
    """Keeps its connections for further requests, where the server does. Several may run at once."""

    def __init__(self, idle_seconds: float, connect_seconds: float) -> None:
        self._idle = idle_seconds
        self._connect_seconds = connect_seconds
        self._free: list[_Connection] = []
        self._trusted: ssl.SSLContext | None = None

    async def close(self) -> None:
        if self._free:
            for connection in self._free:
                connection.drop()
            self._free = []
            await asyncio.sleep(0)  # the event loop closes the socket in its next round

    @contextlib.asynccontextmanager
    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> AsyncGenerator[Answer, None]:
        """Raises PostError, here and while the answer is read."""
        place = place_of(url)
        head = _head(place, headers, len(body))
        connection = await self._connection(place)
        reusable = at_ease = False
        try:
            connection.writer.write(head + body)
            # One that will not take all of it may have said why.
            with contextlib.suppress(ConnectionError):
                await self._patiently(connection.writer.drain())
            answer = await self._answer(connection.reader)
            try:
                yield answer
                at_ease = True
            except GeneratorExit:
                at_ease = True
                raise
            finally:
                reusable = answer.reusable or (at_ease and await _rest_comes(answer))
        finally:
            if reusable and len(self._free) < _MOST_KEPT:
                connection.free_since = time.monotonic()
                self._free.append(connection)
            else:
                connection.drop()

    async def _connection(self, place: Place) -> _Connection:
        while self._free:
            kept = self._free.pop()
            if kept.leads_to(place):
                return kept
            kept.drop()
        secure = place.scheme == "https"
        try:
            async with asyncio.timeout(self._connect_seconds):
                reader, writer = await asyncio.open_connection(
                    place.host,
                    place.port,
                    limit=_BUFFER,
                    ssl=self._certificates() if secure else None,
                    happy_eyeballs_delay=0.25,
                )
        except TimeoutError as error:
            raise PostError("no-answer", "") from error
        except ssl.SSLCertVerificationError as error:
            raise PostError("certificate", error.verify_message) from error
        except OSError as error:
            raise PostError("unreachable", error.strerror or str(error)) from error
        return _Connection(place, reader, writer)

    def _certificates(self) -> ssl.SSLContext:
        """Those that this machine trusts. Where Python does not find any, a library that looks further does."""
        if self._trusted is None:
            context = ssl.create_default_context()
            if not context.cert_store_stats()["x509_ca"]:
                import httpcore2

                context = httpcore2.default_ssl_context()
            self._trusted = context
        return self._trusted

    async def _patiently(self, work: Coroutine[Any, Any, T]) -> T:
        """What the server does, as long as it does something."""
        try:
            async with asyncio.timeout(self._idle):
                return await work
        except TimeoutError as error:
            raise PostError("silent", "") from error
        except asyncio.LimitOverrunError as error:
            raise PostError("broken", "the head of its answer is too long") from error
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError) as error:
            raise PostError("broken", "it ended before it was whole") from error
        except OSError as error:
            raise PostError("broken", error.strerror or str(error)) from error

    async def _answer(self, reader: asyncio.StreamReader) -> "_Answer":
        while True:
            lines = (await self._patiently(reader.readuntil(b"\r\n\r\n")))[:-4].split(b"\r\n")
            status = _STATUS.fullmatch(lines[0])
            if status is None:
                raise PostError("broken", "its answer is no HTTP")
            if not status[2].startswith(b"1"):
                return _Answer(self, reader, int(status[2]), _headers(lines[1:]), status[1] == b"1")

    async def chunks(self, reader: asyncio.StreamReader, framing: "_Framing") -> AsyncGenerator[bytes, None]:
        """The body, taken out of its frame. Raises PostError where it ends too early."""
        if framing.kind == "open":
            while data := await self._patiently(reader.read(_BUFFER)):
                yield data
        elif framing.kind == "length":
            async for data in self._exactly(reader, framing.length):
                yield data
        else:
            while size := await self._chunk_size(reader):
                async for data in self._exactly(reader, size):
                    yield data
                if await self._patiently(reader.readexactly(2)) != b"\r\n":
                    raise PostError("broken", "its answer is cut into wrong pieces")
            while await self._patiently(reader.readuntil(b"\r\n")) != b"\r\n":
                pass  # headers behind the body say nothing that is needed

    async def _exactly(self, reader: asyncio.StreamReader, size: int) -> AsyncGenerator[bytes, None]:
        while size:
            data = await self._patiently(reader.read(min(size, _BUFFER)))
            if not data:
                raise PostError("broken", "it ended before it was whole")
            size -= len(data)
            yield data

    async def _chunk_size(self, reader: asyncio.StreamReader) -> int:
        line = _CHUNK.fullmatch(await self._patiently(reader.readuntil(b"\r\n")))
        if line is None:
            raise PostError("broken", "its answer is cut into wrong pieces")
        return int(line[1], 16)


class _Framing(NamedTuple):
    """How it is known where a body ends."""

    kind: Literal["chunked", "length", "open"]
    length: int = 0


class _Answer:
    def __init__(
        self, post: DirectPost, reader: asyncio.StreamReader, status: int, headers: dict[str, str], lasting: bool
    ) -> None:
        self.status = status
        self.headers = headers
        self._lasting = lasting and "close" not in headers.get("connection", "").lower()
        self._framing = _framing(status, headers)
        self._chunks = post.chunks(reader, self._framing)
        self._whole = False

    @property
    def reusable(self) -> bool:
        """Whether another request may follow on its connection."""
        return self._whole and self._lasting

    @property
    def may_end(self) -> bool:
        return self._lasting and self._framing.kind != "open"

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        async for chunk in self._chunks:
            yield chunk
        self._whole = True


async def _rest_comes(answer: _Answer) -> bool:
    if not answer.may_end:
        return False
    try:
        async with asyncio.timeout(_REST_SECONDS):
            async for _ in answer.chunks():
                pass
    except (TimeoutError, PostError, RuntimeError):  # the last one: it is being read elsewhere
        return False
    return answer.reusable


def _framing(status: int, headers: Mapping[str, str]) -> _Framing:
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise PostError("broken", "its answer is compressed, which was not asked for")
    coding, length = headers.get("transfer-encoding", "").lower(), headers.get("content-length", "")
    if status in (204, 304):
        return _Framing("length")
    if coding:
        if coding != "chunked":
            raise PostError("broken", "its answer has an unknown coding")
        return _Framing("chunked")
    if length:
        if not length.isascii() or not length.isdigit() or len(length) > 15:
            raise PostError("broken", "its answer has a wrong length")
        return _Framing("length", int(length))
    return _Framing("open")


def _headers(lines: list[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.decode("latin-1").partition(":")
        name = name.lower()
        if not colon or not name or name != name.strip():
            raise PostError("broken", "its answer has a wrong head")
        value = value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _head(place: Place, headers: Mapping[str, str], length: int) -> bytes:
    given = {
        "host": place.shown,
        "user-agent": "kitbag",
        "accept-encoding": "identity",
        "content-length": str(length),
        **({"authorization": place.authorization} if place.authorization else {}),
        **{name.lower(): value for name, value in headers.items()},
    }
    lines = [f"POST {place.target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    if not all(_HEADER.fullmatch(line) for line in lines):
        raise PostError("address", "")
    return "\r\n".join([*lines, "", ""]).encode("ascii")
