"""The HTTP transport for environments with a proxy, through httpx2. Used by adapters.wire; implements post."""

import contextlib
from collections.abc import AsyncGenerator, Generator, Mapping

import httpx2

from kitbag.models.http.post import HttpResponse, TransportError


class ProxiedTransport:
    def __init__(self, connect_timeout: float) -> None:
        timeout = httpx2.Timeout(None, connect=connect_timeout, pool=connect_timeout)
        self._client = httpx2.AsyncClient(timeout=timeout, follow_redirects=False)

    async def close(self) -> None:
        await self._client.aclose()

    @contextlib.asynccontextmanager
    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> AsyncGenerator[HttpResponse, None]:
        with _map_errors():
            async with self._client.stream("POST", url, headers=headers, content=body) as response:
                yield _Response(response)


class _Response:
    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.headers = {name.lower(): value for name, value in response.headers.items()}
        self._response = response

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        with _map_errors():
            async for chunk in self._response.aiter_raw():
                yield chunk


@contextlib.contextmanager
def _map_errors() -> Generator[None, None, None]:
    try:
        yield
    except (httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
        raise TransportError("no-answer", "") from error
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise TransportError("address", "") from error
    except httpx2.HTTPError as error:
        reason = str(error) or type(error).__name__
        kind = "certificate" if "CERTIFICATE" in reason.upper() else "broken"
        raise TransportError(
            "unreachable" if isinstance(error, httpx2.ConnectError) and kind == "broken" else kind, reason
        ) from error
