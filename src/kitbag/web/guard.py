"""Checks every request before any route sees it, adds security headers to every response, and logs both.

An ASGI middleware, used by application. Files of the page need no token, because they contain nothing of the user's;
everything below /api does.
"""

import time
from typing import Final

from kitbag.net.local_server import Application, Message, Receive, Scope, Send
from kitbag.net.request_checks import Headers, Rejection, RequestChecks, group_headers, is_json, rejection_messages
from kitbag.web.access_log import AccessLog

API_PREFIX: Final = "/api/"
_SECURITY_HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        b"worker-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
        b"require-trusted-types-for 'script'; trusted-types kitbag",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


class WebGuard:
    def __init__(self, inner: Application, checks: RequestChecks, log: AccessLog) -> None:
        self._inner = inner
        self._checks = checks
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        started_at = time.monotonic()
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], *_SECURITY_HEADERS]}
            await send(message)

        rejection = self._find_rejection(scope, group_headers(scope["headers"]))
        try:
            if rejection is None:
                await self._inner(scope, receive, watched)
            else:
                for message in rejection_messages(rejection):
                    await watched(message)
        finally:
            self._log.add(scope["method"], scope["path"], status, time.monotonic() - started_at)

    def _find_rejection(self, scope: Scope, headers: Headers) -> Rejection | None:
        foreign = self._checks.find_foreign(headers)
        if foreign is not None:
            return foreign
        if scope["method"] not in ("GET", "POST"):
            return Rejection(405, "method not allowed")
        if not scope["path"].startswith(API_PREFIX):
            return None if scope["method"] == "GET" else Rejection(405, "method not allowed")
        unauthorized = self._checks.find_unauthorized(headers)
        if unauthorized is not None:
            return unauthorized
        if scope["method"] == "POST" and not is_json(headers):
            return Rejection(415, "Content-Type must be application/json")
        return None
