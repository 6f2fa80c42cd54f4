"""What sends a request and gives its answer as a stream: the same for a direct connection and for one through a proxy.

Used by wire; direct_post and proxied_post satisfy it.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

TransportFailure = Literal["address", "no-answer", "unreachable", "certificate", "silent", "broken"]


class TransportError(Exception):
    def __init__(self, kind: TransportFailure, reason: str) -> None:
        super().__init__(kind, reason)
        self.kind: TransportFailure = kind
        self.reason = reason
        """In words, where there is more to say than the kind does."""


class HttpResponse(Protocol):
    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case."""
        ...

    def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes. Raises PostError."""
        ...


class HttpTransport(Protocol):
    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> AbstractAsyncContextManager[HttpResponse]:
        """Raises PostError. Follows no redirect. Leaving the block ends the request."""
        ...

    async def close(self) -> None: ...


def has_proxy(environment: Mapping[str, str]) -> bool:
    """Whether the environment names a proxy, for whatever."""
    return any(
        value and name.lower() in ("http_proxy", "https_proxy", "all_proxy") for name, value in environment.items()
    )
