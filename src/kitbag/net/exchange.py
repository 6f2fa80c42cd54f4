"""One request and its response over a guarded connection of its own. Imported by `fetch` when it fetches.

Here the errors of httpcore2 become sentences; nothing above sees them. A proxy, where the caller names one, does
the looking up: then only the host's name is checked, not where it leads.
"""

import contextlib
import functools
import ssl
from collections.abc import AsyncGenerator, Generator
from typing import NamedTuple

import httpcore2

from kitbag.net.body import ACCEPTED_CODINGS, Body
from kitbag.net.connect import Guard, Meter, OverLimitError, Resolver
from kitbag.net.errors import FetchError
from kitbag.net.hosts import shown_host
from kitbag.net.policy import HostPolicy, Limits
from kitbag.net.urls import Target, parse_target

_ACCEPTED = "text/markdown, text/plain;q=0.9, text/html;q=0.8, application/json;q=0.8, */*;q=0.5"
_AGAIN = "Try again later, or fetch the page from another place."


class Route(NamedTuple):
    """What a fetch goes through, where that is not the system's own."""

    resolver: Resolver | None = None
    network: httpcore2.AsyncNetworkBackend | None = None
    """What connects to an address, below all checks."""
    tls: ssl.SSLContext | None = None
    """Which certificates are trusted. It must check them."""
    proxy: str = ""
    """`http://host:port` of an HTTP proxy."""


class Sent(NamedTuple):
    """What goes along with a request to an interface that the user named; nothing does with a page."""

    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


class Exchange:
    """A response whose head has come."""

    __slots__ = ("_limits", "_meter", "_response", "headers", "peer", "status")

    def __init__(self, response: httpcore2.Response, meter: Meter, limits: Limits, peer: str) -> None:
        self.status = response.status
        self.headers = [(name.decode("ascii").lower(), value) for name, value in response.headers]
        self.peer = peer
        self._response = response
        self._meter = meter
        self._limits = limits

    def values(self, name: str) -> list[bytes]:
        return [value for found, value in self.headers if found == name]

    async def read_into(self, body: Body) -> str:
        """Until the end or a limit. Why the body is not whole, as words after "its body"; empty when it is."""
        self._meter.allow(self._limits.wire_bytes)
        try:
            async with contextlib.aclosing(self._response.aiter_stream()) as chunks:
                async for chunk in chunks:
                    if not body.feed(chunk):
                        return f"is longer than {self._limits.body_bytes:,} bytes"
        except OverLimitError:
            return f"takes more than {self._limits.wire_bytes:,} bytes to send"
        except httpcore2.TimeoutException:
            return f"stopped coming for {self._limits.idle_seconds:g} seconds"
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError):
            return "ended before it was whole"
        return "ended before it was whole" if body.ends_early else ""


@contextlib.asynccontextmanager
async def exchange(
    target: Target, method: str, policy: HostPolicy, limits: Limits, route: Route, sent: Sent
) -> AsyncGenerator[Exchange]:
    meter = Meter(limits.header_bytes)
    proxy = _proxy_target(route.proxy, target) if route.proxy else None
    guard = Guard(proxy or target, None if proxy else policy, meter, route.resolver, route.network)
    pool = httpcore2.AsyncConnectionPool(
        ssl_context=_checking(route.tls or _trusted_by_system()) if target.scheme == "https" else None,
        proxy=httpcore2.Proxy(_wire_url(proxy)) if proxy else None,
        max_connections=1,
        max_keepalive_connections=0,
        network_backend=guard,
    )
    try:
        with _in_words(target, limits):
            response = await pool.handle_async_request(_request(target, method, limits, sent))
        if len(response.headers) > limits.headers:
            raise _too_much(target, f"more than {limits.headers} headers")
        yield Exchange(response, meter, limits, guard.peer)
    finally:
        await pool.aclose()
        await guard.close()


def _request(target: Target, method: str, limits: Limits, sent: Sent) -> httpcore2.Request:
    usual = {"Host": target.authority, "User-Agent": user_agent(), "Accept": _ACCEPTED}
    length = {} if sent.body is None else {"Content-Length": str(len(sent.body))}
    framing = {"Accept-Encoding": ACCEPTED_CODINGS, "Connection": "close", **length}
    headers = list({**usual, **dict(sent.headers), **framing}.items())
    patience = {"connect": limits.connect_seconds, "read": limits.idle_seconds, "write": limits.idle_seconds}
    content, more = sent.body or b"", {"timeout": patience}
    return httpcore2.Request(method, _wire_url(target), headers=headers, content=content, extensions=more)


def _wire_url(target: Target) -> httpcore2.URL:
    """In parts, so that it is not parsed a second time and differently."""
    return httpcore2.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path)


@functools.cache
def user_agent() -> str:
    from importlib.metadata import version

    return f"kitbag/{version('kitbag')}"


@functools.cache
def _trusted_by_system() -> ssl.SSLContext:
    return httpcore2.default_ssl_context()


def _checking(context: ssl.SSLContext) -> ssl.SSLContext:
    if not context.check_hostname or context.verify_mode != ssl.CERT_REQUIRED:
        raise ValueError("a context that does not check certificates is not used")
    return context


def _proxy_target(url: str, target: Target) -> Target:
    if ":" in target.host:
        raise FetchError(
            "An IPv6 address can't be fetched through a proxy.", "Name the host, or fetch without a proxy.", "url"
        )
    return parse_target(url)


@contextlib.contextmanager
def _in_words(target: Target, limits: Limits) -> Generator[None]:
    """Errors until the head has come. Library texts may quote what a server sent, so none is passed on."""
    host = shown_host(target.host)
    try:
        yield
    except OverLimitError as error:
        raise _too_much(target, f"more than {limits.header_bytes:,} bytes before its body") from error
    except httpcore2.ConnectTimeout as error:
        problem = f"{host} could not be connected to in {limits.connect_seconds:g} seconds."
        raise FetchError(problem, _AGAIN, "time") from error
    except httpcore2.TimeoutException as error:
        raise FetchError(f"{host} sent nothing for {limits.idle_seconds:g} seconds.", _AGAIN, "time") from error
    except httpcore2.ConnectError as error:
        raise _not_connected(host, error) from error
    except httpcore2.ProxyError as error:
        raise FetchError(f"The proxy did not connect to {host}.", "Check what the proxy allows.", "network") from error
    except httpcore2.ProtocolError as error:
        problem = f"The answer of {host} can't be used: it is not the HTTP that was asked for."
        raise FetchError(problem, _AGAIN, "response") from error
    except (httpcore2.NetworkError, OSError) as error:
        raise FetchError(f"The connection to {host} broke.", _AGAIN, "network") from error


def _not_connected(host: str, error: httpcore2.ConnectError) -> FetchError:
    cause = error.args[0] if error.args else None
    if isinstance(cause, ssl.SSLCertVerificationError):
        return FetchError(
            f"{host} could not show that it is {host}: {cause.verify_message}.",
            "Check the host, and that this machine's certificates and clock are right.",
            "certificate",
        )
    if isinstance(cause, ssl.SSLError):
        return FetchError(f"{host} does not speak TLS that can be used.", "Check the port and the scheme.", "network")
    return FetchError(f"{host} can't be connected to.", "Check the host, the port and the network.", "network")


def _too_much(target: Target, what: str) -> FetchError:
    return FetchError(f"{shown_host(target.host)} sent {what}.", _AGAIN, "limit")
