"""The HTTP/1.1 transport for direct connections: POST requests with streamed responses, on asyncio streams.

Used by adapters.wire if there is no proxy; implements post. Strict: anything unexpected in a response is an error.
Kept because httpcore2 costs more at startup. On top of Python with asyncio, ssl and json (minimum CPU of 7 fresh
processes, median peak memory): import 20 ms, 3 MB against 69 ms, 6 MB; with one reply of 500 chunks 24 against 78 ms.
"""

import asyncio
import contextlib
import re
import ssl
import time
from collections.abc import AsyncGenerator, Coroutine, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from kitbag.models.http.post import HttpResponse, TransportError

T = TypeVar("T")

_BUFFER: Final = 1 << 18
"""Bytes; also the limit for a response head."""
_MAX_IDLE_CONNECTIONS = 32
_IDLE_CONNECTION_SECONDS = 15.0
"""An idle connection is not reused after this time: the server may have closed it."""
_DRAIN_SECONDS = 0.1
"""How long to wait for the rest of a response whose remaining data is not needed, to reuse its connection."""
_MAX_INTERIM_RESPONSES = 16
"""Responses with a status of 1xx before the response itself."""
_MAX_TRAILERS = 64
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\r\n]*)?")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")
_HEADER = re.compile(r"[\x20-\x7e\t]*")
_PATH_CHARACTERS = "/%:@!$&'()*+,;=-._~?"


class RequestUrl(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a URL that a request needs."""

    scheme: str
    host: str
    port: int
    target: str
    authorization: str = ""
    """Header value for the user and password in the URL."""

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == {"http": 80, "https": 443}[self.scheme] else f"{host}:{self.port}"


def parse_url(url: str) -> RequestUrl:
    """Raises TransportError for an invalid URL."""
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
        raise TransportError("address", "") from error
    return RequestUrl(
        scheme=parts.scheme,
        host=host,
        port=port,
        target=target,
        authorization=_basic_authorization(parts.username, parts.password),
    )


def _basic_authorization(name: str | None, password: str | None) -> str:
    if not name:
        return ""
    import base64
    from urllib.parse import unquote

    pair = f"{unquote(name)}:{unquote(password or '')}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


class _Connection:
    __slots__ = ("free_since", "reader", "url", "writer")

    def __init__(self, url: RequestUrl, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.url = url
        self.reader = reader
        self.writer = writer
        self.free_since = 0.0

    def can_serve(self, url: RequestUrl) -> bool:
        is_open = not self.reader.at_eof() and not self.writer.is_closing()
        is_fresh = time.monotonic() - self.free_since < _IDLE_CONNECTION_SECONDS
        return is_open and is_fresh and self.url.origin == url.origin

    def abort(self) -> None:
        self.writer.transport.abort()


class DirectTransport:
    """Keeps connections alive for further requests. Supports concurrent requests."""

    def __init__(self, connect_timeout: float) -> None:
        self._connect_timeout = connect_timeout
        self._idle_connections: list[_Connection] = []
        self._ssl_context: ssl.SSLContext | None = None

    async def close(self) -> None:
        if self._idle_connections:
            for connection in self._idle_connections:
                connection.abort()
            self._idle_connections = []
            await asyncio.sleep(0)  # the event loop closes the sockets in its next iteration

    @contextlib.asynccontextmanager
    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> AsyncGenerator[HttpResponse, None]:
        """Raises TransportError, also while the response is read."""
        url_parts = parse_url(url)
        head = _encode_head(url_parts, headers, len(body))
        connection = await self._acquire(url_parts)
        reusable = can_drain = False
        try:
            connection.writer.write(head + body)
            # A server that stops reading the request may have sent an error response.
            with contextlib.suppress(ConnectionError):
                await self._mapped(connection.writer.drain())
            response = await self._read_response(connection.reader)
            try:
                yield response
                can_drain = True
            except GeneratorExit:
                can_drain = True
                raise
            finally:
                reusable = response.reusable or (can_drain and await _drain(response))
        finally:
            if reusable and len(self._idle_connections) < _MAX_IDLE_CONNECTIONS:
                connection.free_since = time.monotonic()
                self._idle_connections.append(connection)
            else:
                connection.abort()

    async def _acquire(self, url: RequestUrl) -> _Connection:
        while self._idle_connections:
            connection = self._idle_connections.pop()
            if connection.can_serve(url):
                return connection
            connection.abort()
        is_secure = url.scheme == "https"
        try:
            async with asyncio.timeout(self._connect_timeout):
                reader, writer = await asyncio.open_connection(
                    url.host,
                    url.port,
                    limit=_BUFFER,
                    ssl=self._load_ssl_context() if is_secure else None,
                    happy_eyeballs_delay=0.25,
                )
        except TimeoutError as error:
            raise TransportError("no-answer", "") from error
        except ssl.SSLCertVerificationError as error:
            raise TransportError("certificate", error.verify_message) from error
        except OSError as error:
            raise TransportError("unreachable", error.strerror or str(error)) from error
        return _Connection(url, reader, writer)

    def _load_ssl_context(self) -> ssl.SSLContext:
        """The system's certificates; if Python finds none, those of httpcore2, which searches more places."""
        if self._ssl_context is None:
            context = ssl.create_default_context()
            if not context.cert_store_stats()["x509_ca"]:
                import httpcore2

                context = httpcore2.default_ssl_context()
            self._ssl_context = context
        return self._ssl_context

    async def _mapped(self, operation: Coroutine[Any, Any, T]) -> T:
        """Maps errors to TransportError."""
        try:
            return await operation
        except asyncio.LimitOverrunError as error:
            raise TransportError("broken", "the response headers are too long") from error
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError) as error:
            raise TransportError("broken", "the response ended early") from error
        except OSError as error:
            raise TransportError("broken", error.strerror or str(error)) from error

    async def _read_response(self, reader: asyncio.StreamReader) -> "_Response":
        for _ in range(_MAX_INTERIM_RESPONSES):
            lines = (await self._mapped(reader.readuntil(b"\r\n\r\n")))[:-4].split(b"\r\n")
            status = _STATUS.fullmatch(lines[0])
            if status is None:
                raise TransportError("broken", "invalid HTTP response")
            if not status[2].startswith(b"1"):
                return _Response(self, reader, int(status[2]), _parse_headers(lines[1:]), status[1] == b"1")
        raise TransportError("broken", "too many interim responses")

    async def read_body(self, reader: asyncio.StreamReader, framing: "_Framing") -> AsyncGenerator[bytes, None]:
        """The body without its framing. Raises TransportError if it ends early."""
        if framing.kind == "open":
            while data := await self._mapped(reader.read(_BUFFER)):
                yield data
        elif framing.kind == "length":
            async for data in self._exactly(reader, framing.length):
                yield data
        else:
            while size := await self._chunk_size(reader):
                async for data in self._exactly(reader, size):
                    yield data
                if await self._mapped(reader.readexactly(2)) != b"\r\n":
                    raise TransportError("broken", "invalid chunked encoding")
            for _ in range(_MAX_TRAILERS):  # trailers are ignored
                if await self._mapped(reader.readuntil(b"\r\n")) == b"\r\n":
                    return
            raise TransportError("broken", "too many trailers")

    async def _exactly(self, reader: asyncio.StreamReader, size: int) -> AsyncGenerator[bytes, None]:
        while size:
            data = await self._mapped(reader.read(min(size, _BUFFER)))
            if not data:
                raise TransportError("broken", "the response ended early")
            size -= len(data)
            yield data

    async def _chunk_size(self, reader: asyncio.StreamReader) -> int:
        line = _CHUNK.fullmatch(await self._mapped(reader.readuntil(b"\r\n")))
        if line is None:
            raise TransportError("broken", "invalid chunked encoding")
        return int(line[1], 16)


class _Framing(NamedTuple):
    """How the end of a body is determined."""

    kind: Literal["chunked", "length", "open"]
    length: int = 0


class _Response:
    def __init__(
        self, post: DirectTransport, reader: asyncio.StreamReader, status: int, headers: dict[str, str], lasting: bool
    ) -> None:
        self.status = status
        self.headers = headers
        self._keep_alive = lasting and "close" not in headers.get("connection", "").lower()
        self._framing = _body_framing(status, headers)
        self._chunks = post.read_body(reader, self._framing)
        self._is_complete = False

    @property
    def reusable(self) -> bool:
        """Whether the connection can take another request."""
        return self._is_complete and self._keep_alive

    @property
    def can_drain(self) -> bool:
        return self._keep_alive and self._framing.kind != "open"

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        async for chunk in self._chunks:
            yield chunk
        self._is_complete = True


async def _drain(response: _Response) -> bool:
    if not response.can_drain:
        return False
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in response.chunks():
                pass
    except (TimeoutError, TransportError, RuntimeError):  # RuntimeError: the body is being read elsewhere
        return False
    return response.reusable


def _body_framing(status: int, headers: Mapping[str, str]) -> _Framing:
    encoding, length = headers.get("transfer-encoding", "").lower(), headers.get("content-length", "")
    if status in (204, 304):
        return _Framing("length")
    if encoding:
        if encoding != "chunked":
            raise TransportError("broken", "unknown transfer encoding")
        return _Framing("chunked")
    if length:
        if not length.isascii() or not length.isdigit() or len(length) > 15:
            raise TransportError("broken", "invalid Content-Length")
        return _Framing("length", int(length))
    return _Framing("open")


def _parse_headers(lines: list[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.decode("latin-1").partition(":")
        name = name.lower()
        if not colon or not name or name != name.strip():
            raise TransportError("broken", "invalid response header")
        value = value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _encode_head(url: RequestUrl, headers: Mapping[str, str], length: int) -> bytes:
    all_headers = {
        "host": url.host_header,
        "user-agent": "kitbag",
        "content-length": str(length),
        **({"authorization": url.authorization} if url.authorization else {}),
        **{name.lower(): value for name, value in headers.items()},
    }
    lines = [f"POST {url.target} HTTP/1.1", *(f"{name}: {value}" for name, value in all_headers.items())]
    if not all(_HEADER.fullmatch(line) for line in lines):
        raise TransportError("address", "")
    return "\r\n".join([*lines, "", ""]).encode("ascii")
