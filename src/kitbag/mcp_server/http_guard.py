"""Rejects HTTP requests before any route sees them.

Checks the Host header, the browser's origin, the token and the content type, in this order, before reading the body. An
ASGI middleware, used by http.
"""

import asyncio
import time
from typing import Final

from kitbag.mcp_server.client_sessions import ConnectedClients
from kitbag.mcp_server.response_format import choose_response_format
from kitbag.mcp_server.tool_calls import DISCONNECTED_KEY
from kitbag.net.local_server import Application, Message, Receive, Scope, Send
from kitbag.net.request_checks import Headers, Rejection, RequestChecks, group_headers, is_json, rejection_messages

MCP_PATH: Final = "/mcp"
BODY_TIMEOUT: Final = 30.0
"""For the whole body of a request."""


class HttpGuard:
    def __init__(self, inner: Application, hosts: frozenset[str], token: str, clients: ConnectedClients) -> None:
        """`hosts`: values of the Host header, in lower case."""
        self._inner = inner
        self._checks = RequestChecks(hosts, token)
        self._clients = clients

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = group_headers(scope["headers"])
        rejection = self._find_rejection(scope, headers)
        if rejection is not None:
            for message in rejection_messages(rejection):
                await send(message)
            return
        await self._serve(scope, receive, send, headers)

    def _find_rejection(self, scope: Scope, headers: Headers) -> Rejection | None:
        rejection = self._checks.find_foreign(headers) or self._checks.find_unauthorized(headers)
        if rejection is not None:
            return rejection
        if scope["path"] != MCP_PATH:
            return Rejection(404, f"not found; the only path is {MCP_PATH}")
        if scope["method"] not in ("GET", "POST", "DELETE"):
            return Rejection(405, "method not allowed")
        if scope["method"] == "POST" and not is_json(headers):
            return Rejection(403, "Content-Type must be application/json")
        return None

    async def _serve(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
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
