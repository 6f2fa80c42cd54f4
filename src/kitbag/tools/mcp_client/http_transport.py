"""The HTTP transport: the SDK's, with our own limits.

Used by servers. The SDK follows redirects only within the URL's origin. Bodies are bounded here, because the SDK reads
a whole response into memory.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client

from kitbag.tools.mcp_client.stdio_transport import MAX_MESSAGE_BYTES

CONNECT_TIMEOUT_SECONDS: Final = 10.0


class HttpState:
    """What can be observed of requests from outside the SDK."""

    def __init__(self) -> None:
        self.session_lost = False
        """The server does not know our session any more, so it has done nothing."""
        self.status = 0
        """Of the last error response."""


@asynccontextmanager
async def connect_http(
    url: str, headers: dict[str, str], read_timeout_seconds: float, state: HttpState
) -> AsyncGenerator[Any, None]:
    """The streams that the SDK expects. `read_timeout_seconds`: how long a server may be silent."""

    async def check_response(response: httpx2.Response) -> None:
        if response.status_code >= 400:
            state.status = response.status_code
        if response.status_code == 404 and "mcp-session-id" in response.request.headers:
            state.session_lost = True
        is_compressed = response.headers.get("content-encoding", "identity").lower() != "identity"
        if is_compressed or not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            # Compressed data can expand without limit, and was not requested.
            response.stream = _BoundedStream(response.stream, 0 if is_compressed else MAX_MESSAGE_BYTES)

    timeout = httpx2.Timeout(CONNECT_TIMEOUT_SECONDS, read=read_timeout_seconds)
    headers = {"accept-encoding": "identity", **headers}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, event_hooks={"response": [check_response]}) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: Any, max_bytes: int) -> None:
        self._inner = inner
        self._most = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > self._most:
                what = f"response larger than {self._most:,} bytes" if self._most else "response is compressed"
                raise httpx2.StreamError(what)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
