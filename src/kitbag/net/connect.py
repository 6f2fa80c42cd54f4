"""Connections that can only reach checked addresses. Imported by `fetch` when something is fetched.

We resolve a name once per connection; if any of its addresses is not public, none is used. We connect to a checked
address and check the peer again. TLS and the Host header keep the name. Every byte read is counted. Implemented as a
network backend of httpcore2.
"""

import asyncio
import contextlib
import itertools
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, cast

import anyio
import httpcore2

from kitbag.net.addresses import IPAddress, parse_address
from kitbag.net.errors import FetchError
from kitbag.net.hosts import display_host
from kitbag.net.policy import HostPolicy, not_public_error
from kitbag.net.urls import FetchTarget

Resolver = Callable[[str], Awaitable[Sequence[str]]]
"""From a host name to its addresses, as text. Raises OSError if there are none."""
MAX_ATTEMPTS: Final = 4
"""How many addresses of one name are tried."""


async def resolve_host(host: str) -> Sequence[str]:
    """Resolves with the system resolver, in a daemon thread, since a lookup can't be canceled."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[str]] = loop.create_future()

    def deliver(addresses: Sequence[str], problem: OSError | None) -> None:
        if answer.done():
            return
        if problem is None:
            answer.set_result(addresses)
        else:
            answer.set_exception(problem)

    def work() -> None:
        addresses: list[str] = []
        problem: OSError | None = None
        try:
            addresses = [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
        except OSError as error:
            problem = error
        except UnicodeError as error:
            problem = OSError(str(error))
        with contextlib.suppress(RuntimeError):  # the loop may be closed when the answer arrives
            loop.call_soon_threadsafe(deliver, addresses, problem)

    threading.Thread(target=work, name="kitbag-look-up", daemon=True).start()
    return await answer


class OverLimitError(Exception):
    """More was sent than allowed. The caller, which knows what was read, turns it into a message."""


class ByteMeter:
    """Counts bytes read, and limits how many more may be read."""

    __slots__ = ("count", "limit")

    def __init__(self, limit: int) -> None:
        self.count = 0
        self.limit = limit

    def allow(self, more: int) -> None:
        self.limit = self.count + more

    @property
    def remaining(self) -> int:
        """One more than the limit, because only the byte after it proves that there is too much."""
        return self.limit + 1 - self.count


class MeteredStream(httpcore2.AsyncNetworkStream):
    def __init__(self, stream: httpcore2.AsyncNetworkStream, meter: ByteMeter) -> None:
        self._stream = stream
        self._meter = meter

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._meter.remaining <= 0:
            raise OverLimitError
        data = await self._stream.read(min(max_bytes, self._meter.remaining), timeout)
        self._meter.count += len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        return MeteredStream(await self._stream.start_tls(ssl_context, server_hostname, timeout), self._meter)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class GuardedNetwork(httpcore2.AsyncNetworkBackend):
    """The network as one request may use it: one host and port, and only allowed addresses."""

    def __init__(
        self,
        target: FetchTarget,
        policy: HostPolicy | None,
        meter: ByteMeter,
        resolver: Resolver | None,
        network: httpcore2.AsyncNetworkBackend | None,
    ) -> None:
        """Without a policy any address is allowed: for a proxy that the user configured."""
        self._target = target
        self._policy = policy
        self._meter = meter
        self._resolver = resolver or resolve_host
        self._network = network or cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())
        self._stream: httpcore2.AsyncNetworkStream | None = None
        self.peer = ""
        """The address of the peer."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        if (host, port) != (self._target.host, self._target.port):
            raise FetchError(
                "Refused to connect to a host other than the requested one.",
                "This is a bug in Kitbag; please report it.",
                "address",
            )
        try:
            with anyio.fail_after(timeout):
                addresses = await self._checked_addresses()
                stream = await self._connect(addresses, port, timeout)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout from error
        return MeteredStream(stream, self._meter)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore2.AsyncNetworkStream:
        raise FetchError(
            "Refused to connect to a local socket.", "This is a bug in Kitbag; please report it.", "address"
        )

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    async def _checked_addresses(self) -> list[IPAddress]:
        literal = parse_address(self._target.host)
        try:
            answer = await self._resolver(self._target.host) if literal is None else [self._target.host]
        except OSError as error:
            raise self._unresolved_error() from error
        checked: dict[IPAddress, None] = {}
        for address in map(parse_address, answer):
            if address is None:
                raise not_public_error(self._target, "it resolves to a link-local address")
            if self._policy is not None:
                self._policy.check_address(self._target, address)
            checked[address] = None
        if not checked:
            raise self._unresolved_error()
        return _interleave_families(list(checked))

    def _unresolved_error(self) -> FetchError:
        return FetchError(
            f"Cannot resolve {display_host(self._target.host)}.",
            "Check the host name and the network connection.",
            "network",
        )

    async def _connect(
        self, addresses: Sequence[IPAddress], port: int, timeout: float | None
    ) -> httpcore2.AsyncNetworkStream:
        tried = addresses[:MAX_ATTEMPTS]
        attempt_timeout = None if timeout is None else timeout / len(tried)
        problem: Exception = httpcore2.ConnectError()
        for address in tried:
            try:
                stream = await self._network.connect_tcp(str(address), port, attempt_timeout)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                problem = error
                continue
            self._stream = stream
            self._check_endpoints(stream, address, port)
            self.peer = str(address)
            return stream
        raise problem

    def _check_endpoints(self, stream: httpcore2.AsyncNetworkStream, address: IPAddress, port: int) -> None:
        peer: tuple[str, int] | None = stream.get_extra_info("server_addr")
        if not peer or (parse_address(peer[0]), peer[1]) != (address, port):
            raise not_public_error(self._target, "the connection was made to a different address")
        here: tuple[str, int] | None = stream.get_extra_info("client_addr")
        if self._policy is None or self._policy.allows_private(self._target) or not here:
            return
        if parse_address(here[0]) == address:
            raise not_public_error(self._target, "it is this machine's own public address")

    async def close(self) -> None:
        """Closes the connection even if the request failed: httpcore2 forgets a canceled TLS handshake."""
        if self._stream is not None:
            with anyio.CancelScope(shield=True):
                await self._stream.aclose()


def _interleave_families(addresses: Sequence[IPAddress]) -> list[IPAddress]:
    """Alternates address families, starting with the first one's, so that a network without IPv6 costs one attempt."""
    first = [address for address in addresses if address.version == addresses[0].version]
    other = [address for address in addresses if address.version != addresses[0].version]
    pairs = itertools.zip_longest(first, other)
    return [address for pair in pairs for address in pair if address is not None]
