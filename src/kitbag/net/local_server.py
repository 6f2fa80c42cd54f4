"""Runs an ASGI application on a socket of this machine, with uvicorn.

Used by mcp_server/http and web/serve. The caller handles signals and cancels `run_application`.
"""

import asyncio
import contextlib
import ipaddress
import resource
import socket
from collections.abc import Awaitable, Callable, Generator, MutableMapping
from typing import Any, Final, cast

import uvicorn

from kitbag.errors import InvalidError, UsageError

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

OTHER_DESCRIPTORS: Final = 256
"""What files and child processes need besides connections."""
SHUTDOWN_SECONDS: Final = 1


@contextlib.contextmanager
def bind_socket(host: str, port: int) -> Generator[socket.socket, None, None]:
    """Listens already when it yields. Raises UsageError for an address of another machine, InvalidError for one in
    use."""
    address_text = "127.0.0.1" if host.lower() == "localhost" else host.strip("[]")
    try:
        infos = socket.getaddrinfo(address_text, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = infos[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"--host {host}: {error}", "use an address of this machine") from error
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen()  # before its address is announced
        except OSError as error:
            problem = f"cannot listen on {host}:{port}: {error.strerror or error}"
            raise InvalidError(problem, "choose another port") from error
        yield listener


async def run_application(application: Application, listener: socket.socket, max_connections: int) -> None:
    """Runs until cancelled."""
    config = uvicorn.Config(
        cast("Any", application),
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="on",
        limit_concurrency=_raise_connection_limit(max_connections),
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        h11_max_incomplete_event_size=64 * 1024,
    )
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await asyncio.wait([serving], timeout=SHUTDOWN_SECONDS + 0.5)
        raise


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def format_host(host: str) -> str:
    bare = host.strip("[]")
    with contextlib.suppress(ValueError):
        return f"[{bare}]" if ipaddress.ip_address(bare).version == 6 else bare
    return host


def _raise_connection_limit(most: int) -> int:
    """The number of connections that this process may have descriptors for, after raising the soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + OTHER_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return most
    return max(soft // 2, min(most, soft - OTHER_DESCRIPTORS))


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """The command handles signals."""
        yield
