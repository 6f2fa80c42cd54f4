"""The protocol of an HTTP transport that sends a POST request and streams the response, and its error.

Used by adapters.wire; implemented by direct and proxied.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

TransportFailure = Literal["address", "no-answer", "unreachable", "certificate", "broken"]


class TransportError(Exception):
    def __init__(self, kind: TransportFailure, reason: str) -> None:
        super().__init__(kind, reason)
        self.kind: TransportFailure = kind
        self.reason = reason
        """Details, if there is more to say than the kind."""


class HttpResponse(Protocol):
    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Lowercase names."""
        ...

    def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives. Raises TransportError."""
        ...


class HttpTransport(Protocol):
    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> AbstractAsyncContextManager[HttpResponse]:
        """Raises TransportError. Follows no redirects, decodes nothing. Leaving the block ends the request."""
        ...

    async def close(self) -> None: ...


def has_proxy(environment: Mapping[str, str]) -> bool:
    """Whether the environment names a proxy for any protocol."""
    return any(
        value and name.lower() in ("http_proxy", "https_proxy", "all_proxy") for name, value in environment.items()
    )
