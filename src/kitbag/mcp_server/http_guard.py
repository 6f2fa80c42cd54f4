"""Rejects HTTP requests before any route sees them.

Checks the Host header, the browser's origin, the token and the content type, in this order, before reading the body. An
ASGI middleware, used by http.
"""

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from kitbag.mcp_server.client_sessions import ConnectedClients
from kitbag.mcp_server.response_format import choose_response_format
from kitbag.mcp_server.tool_calls import DISCONNECTED_KEY

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

MCP_PATH: Final = "/mcp"
BODY_TIMEOUT: Final = 30.0
"""For the whole body of a request."""


class HttpGuard:
    def __init__(self, inner: Application, hosts: frozenset[str], token: str, clients: ConnectedClients) -> None:
        """`hosts`: values of the Host header, in lower case."""
        self._inner = inner
        self._hosts = hosts
        self._origins = frozenset(f"http://{host}" for host in hosts)
        self._token = token.encode()
        self._clients = clients

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        rejection = self._find_rejection(scope, headers)
        if rejection is not None:
            await _send_rejection(send, *rejection)
            return
        await self._serve(scope, receive, send, headers)

    def _find_rejection(self, scope: Scope, headers: dict[bytes, list[bytes]]) -> tuple[int, str] | None:
        """Status and reason if the request is rejected."""
        hosts = headers.get(b"host", [])
        if len(hosts) != 1 or hosts[0].decode("latin-1").lower() not in self._hosts:
            return 421, "unknown host name"
        origins = headers.get(b"origin", [])
        if any(origin.decode("latin-1").lower() not in self._origins for origin in origins):
            return 403, "cross-site requests are not allowed"
        if any(site not in (b"same-origin", b"none") for site in headers.get(b"sec-fetch-site", [])):
            return 403, "cross-site requests are not allowed"
        if not self._has_valid_token(headers.get(b"authorization", [])):
            return 401, "missing or invalid token"
        if scope["path"] != MCP_PATH:
            return 404, f"not found; the only path is {MCP_PATH}"
        if scope["method"] not in ("GET", "POST", "DELETE"):
            return 405, "method not allowed"
        kind = headers.get(b"content-type", [b""])[0].split(b";")[0].strip().lower()
        if scope["method"] == "POST" and kind != b"application/json":
            return 403, "Content-Type must be application/json"
        return None

    def _has_valid_token(self, authorization: list[bytes]) -> bool:
        """Compares in constant time."""
        scheme, _, token = authorization[0].partition(b" ") if len(authorization) == 1 else (b"", b"", b"")
        same = hmac.compare_digest(token.strip(), self._token)
        return same and scheme.lower() == b"bearer"

    async def _serve(self, scope: Scope, receive: Receive, send: Send, headers: dict[bytes, list[bytes]]) -> None:
        disconnected = scope[DISCONNECTED_KEY] = asyncio.Event()
        session_id = headers.get(b"mcp-session-id", [b""])[0].decode("latin-1")
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], (b"x-content-type-options", b"nosniff")]}
            await send(message)

        with self._clients.track_request(session_id):
            receive = _with_body_timeout(receive, disconnected)
            if scope["method"] == "POST":
                receive = await _peek(receive)
            await self._inner(scope, receive, watched)
        if scope["method"] == "DELETE" and status < 400:
            self._clients.remove(session_id)


def _with_body_timeout(receive: Receive, disconnected: asyncio.Event) -> Receive:
    """Limits the time for the body, and sets `disconnected` when the client has gone."""
    end = time.monotonic() + BODY_TIMEOUT
    has_all = False

    async def inner() -> Message:
        nonlocal has_all
        try:
            async with asyncio.timeout(None if has_all else max(0.0, end - time.monotonic())):
                message = await receive()
        except TimeoutError:
            message = {"type": "http.disconnect"}
        if message["type"] == "http.disconnect":
            disconnected.set()
        has_all = has_all or not message.get("more_body", False)
        return message

    return inner


async def _peek(receive: Receive) -> Receive:
    """Reads the first part of the body, chooses how to answer if that is all, and gives it back."""
    first: Message | None = await receive()
    assert first is not None
    if first["type"] == "http.request" and not first.get("more_body", False):
        choose_response_format(first.get("body", b""))

    async def again() -> Message:
        nonlocal first
        message, first = first, None
        return message if message is not None else await receive()

    return again


async def _send_rejection(send: Send, status: int, reason: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"x-content-type-options", b"nosniff")]
    if status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="kitbag"'))
    body = f"{reason}\n".encode()
    headers += [(b"content-length", str(len(body)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
