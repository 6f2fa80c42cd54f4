"""One request and its response over its own guarded connection. Imported by `fetch` when something is fetched.

Maps the errors of httpcore2 to FetchErrors; no caller sees them. If the caller names a proxy, the proxy resolves
names: then only the host name is checked, not its address.
"""

import contextlib
import functools
import ssl
from collections.abc import AsyncGenerator, Generator
from typing import NamedTuple

import httpcore2
import msgspec

from kitbag.net.body import ACCEPTED_CODINGS, ResponseBody
from kitbag.net.connect import ByteMeter, GuardedNetwork, OverLimitError, Resolver
from kitbag.net.errors import FetchError
from kitbag.net.hosts import display_host
from kitbag.net.policy import FetchLimits, HostPolicy
from kitbag.net.urls import FetchTarget, parse_url
from kitbag.version import __version__

_ACCEPTED_TYPES = "text/markdown, text/plain;q=0.9, text/html;q=0.8, application/json;q=0.8, */*;q=0.5"
_RETRY_FIX = "Try again later, or fetch the page from another host."


class NetworkRoute(msgspec.Struct, frozen=True, kw_only=True):
    """Overrides for how a request reaches the network; by default the system's."""

    resolver: Resolver | None = None
    network: httpcore2.AsyncNetworkBackend | None = None
    """Connects to an address, below all checks."""
    tls: ssl.SSLContext | None = None
    """Which certificates are trusted. It must verify certificates."""
    proxy: str = ""
    """`http://host:port` of an HTTP proxy."""


class RequestPayload(NamedTuple):
    """Headers and body for an API that the user configured; empty for a page."""

    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


class HttpExchange:
    """A response whose headers have arrived."""

    __slots__ = ("_limits", "_meter", "_response", "headers", "peer", "status")

    def __init__(self, response: httpcore2.Response, meter: ByteMeter, limits: FetchLimits, peer: str) -> None:
        self.status = response.status
        self.headers = [(name.decode("ascii").lower(), value) for name, value in response.headers]
        self.peer = peer
        self._response = response
        self._meter = meter
        self._limits = limits

    def values(self, name: str) -> list[bytes]:
        return [value for header_name, value in self.headers if header_name == name]

    async def read_into(self, body: ResponseBody) -> str:
        """Reads to the end or a limit. Returns why the body is incomplete, to follow "its body"; else empty."""
        self._meter.allow(self._limits.wire_bytes)
        try:
            async with contextlib.aclosing(self._response.aiter_stream()) as chunks:
                async for chunk in chunks:
                    if not body.feed(chunk):
                        return f"exceeds {self._limits.body_bytes:,} bytes"
        except OverLimitError:
            return f"exceeds {self._limits.wire_bytes:,} bytes on the wire"
        except httpcore2.TimeoutException:
            return f"stalled for {self._limits.idle_timeout:g} seconds"
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError):
            return "ended early"
        return "ended early" if body.is_incomplete else ""


@contextlib.asynccontextmanager
async def open_exchange(
    target: FetchTarget,
    method: str,
    policy: HostPolicy,
    limits: FetchLimits,
    route: NetworkRoute,
    payload: RequestPayload,
) -> AsyncGenerator[HttpExchange]:
    meter = ByteMeter(limits.header_bytes)
    proxy = _proxy_target(route.proxy, target) if route.proxy else None
    guard = GuardedNetwork(proxy or target, None if proxy else policy, meter, route.resolver, route.network)
    pool = httpcore2.AsyncConnectionPool(
        ssl_context=_require_verification(route.tls or _system_tls_context()) if target.scheme == "https" else None,
        proxy=httpcore2.Proxy(_wire_url(proxy)) if proxy else None,
        max_connections=1,
        max_keepalive_connections=0,
        network_backend=guard,
    )
    try:
        with _map_errors(target, limits):
            response = await pool.handle_async_request(_build_request(target, method, limits, payload))
        if len(response.headers) > limits.headers:
            raise _limit_error(target, f"more than {limits.headers} headers")
        yield HttpExchange(response, meter, limits, guard.peer)
    finally:
        await pool.aclose()
        await guard.close()


def _build_request(target: FetchTarget, method: str, limits: FetchLimits, payload: RequestPayload) -> httpcore2.Request:
    defaults = {"Host": target.authority, "User-Agent": user_agent(), "Accept": _ACCEPTED_TYPES}
    length = {} if payload.body is None else {"Content-Length": str(len(payload.body))}
    framing = {"Accept-Encoding": ACCEPTED_CODINGS, "Connection": "close", **length}
    headers = list({**defaults, **dict(payload.headers), **framing}.items())
    timeouts = {"connect": limits.connect_timeout, "read": limits.idle_timeout, "write": limits.idle_timeout}
    content, extensions = payload.body or b"", {"timeout": timeouts}
    return httpcore2.Request(method, _wire_url(target), headers=headers, content=content, extensions=extensions)


def _wire_url(target: FetchTarget) -> httpcore2.URL:
    """Built from parts, so that the URL is not parsed a second time, differently."""
    return httpcore2.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)


def user_agent() -> str:
    return f"kitbag/{__version__}"


@functools.cache
def _system_tls_context() -> ssl.SSLContext:
    return httpcore2.default_ssl_context()


def _require_verification(context: ssl.SSLContext) -> ssl.SSLContext:
    if not context.check_hostname or context.verify_mode != ssl.CERT_REQUIRED:
        raise ValueError("the TLS context must verify certificates")
    return context


def _proxy_target(url: str, target: FetchTarget) -> FetchTarget:
    if ":" in target.host:
        raise FetchError(
            "Cannot fetch from an IPv6 address through a proxy.", "Use a host name, or fetch without a proxy.", "url"
        )
    return parse_url(url)


@contextlib.contextmanager
def _map_errors(target: FetchTarget, limits: FetchLimits) -> Generator[None]:
    """Maps errors before the headers arrive. Discards library messages, which may quote what a server sent."""
    host = display_host(target.host)
    try:
        yield
    except OverLimitError as error:
        raise _limit_error(target, f"more than {limits.header_bytes:,} bytes of headers") from error
    except httpcore2.ConnectTimeout as error:
        problem = f"Connecting to {host} timed out after {limits.connect_timeout:g} seconds."
        raise FetchError(problem, _RETRY_FIX, "time") from error
    except httpcore2.TimeoutException as error:
        raise FetchError(f"{host} sent no data for {limits.idle_timeout:g} seconds.", _RETRY_FIX, "time") from error
    except httpcore2.ConnectError as error:
        raise _connect_error(host, error) from error
    except httpcore2.ProxyError as error:
        raise FetchError(
            f"The proxy refused to connect to {host}.", "Check the proxy's configuration.", "network"
        ) from error
    except httpcore2.ProtocolError as error:
        problem = f"{host} sent an invalid HTTP response."
        raise FetchError(problem, _RETRY_FIX, "response") from error
    except (httpcore2.NetworkError, OSError) as error:
        raise FetchError(f"The connection to {host} was lost.", _RETRY_FIX, "network") from error


def _connect_error(host: str, error: httpcore2.ConnectError) -> FetchError:
    cause = error.args[0] if error.args else None
    if isinstance(cause, ssl.SSLCertVerificationError):
        return FetchError(
            f"The TLS certificate of {host} is not valid: {cause.verify_message}.",
            "Check the host name, and this machine's CA certificates and clock.",
            "certificate",
        )
    if isinstance(cause, ssl.SSLError):
        return FetchError(f"The TLS handshake with {host} failed.", "Check the scheme and the port.", "network")
    return FetchError(f"Cannot connect to {host}.", "Check the host, the port and the network connection.", "network")


def _limit_error(target: FetchTarget, what: str) -> FetchError:
    return FetchError(f"{display_host(target.host)} sent {what}.", _RETRY_FIX, "limit")
