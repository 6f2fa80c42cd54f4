"""The MCP server over streamable HTTP: on loopback by default, and always with a token.

Used by cli/mcp; uses http_guard, and Starlette and uvicorn, which come with the SDK.
"""

import asyncio
import contextlib
import ipaddress
import os
import resource
import secrets
import socket
import stat
from collections.abc import Callable, Generator
from typing import Any, Final, cast

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings

from kitbag.errors import InvalidError, UsageError
from kitbag.mcp_server.client_sessions import IDLE_SECONDS, ConnectedClients
from kitbag.mcp_server.http_guard import MCP_PATH, Application, HttpGuard
from kitbag.mcp_server.response_format import JsonIfPossible
from kitbag.mcp_server.server import KitbagServer
from kitbag.mcp_server.server_state import HttpOptions, ServerState
from kitbag.store import private_files

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
MAX_SESSIONS: Final = 1_000
MAX_CONNECTIONS: Final = 3 * MAX_SESSIONS
"""A client has one for notifications, one for its requests, and often another."""
OTHER_DESCRIPTORS: Final = 256
"""What files and child processes need besides connections."""
MIN_TOKEN_LENGTH: Final = 32
SHUTDOWN_SECONDS: Final = 1


async def serve_http(state: ServerState, options: HttpOptions, notify: Callable[[str], None]) -> None:
    """Runs until cancelled. Raises UsageError for an address that needs a token file, InvalidError for one in use."""
    _check_address(options)
    user_token = (_read_token_file(options.token_file), options.token_file) if options.token_file else None
    with _bind_socket(options) as listener:
        port = listener.getsockname()[1]
        home = state.served.environment.places.kitbag_home
        with _store_token(home, port, user_token) as (token, token_path):
            application = create_application(KitbagServer(state), state.clients, options, port, token)
            notify(f"at http://{_format_host(options.host)}:{port}{MCP_PATH}; the token is in {token_path}")
            await run_application(application, listener)


def create_application(
    server: KitbagServer, clients: ConnectedClients, options: HttpOptions, port: int, token: str
) -> HttpGuard:
    """The server behind its guard."""
    hosts = _allowed_hosts(options, port)
    # Defense in depth: the guard checks the same first.
    security = TransportSecuritySettings(
        allowed_hosts=sorted(hosts), allowed_origins=sorted(f"http://{host}" for host in hosts)
    )
    inner = server.streamable_http_app(
        streamable_http_path=MCP_PATH,
        json_response=cast("bool", JsonIfPossible()),
        max_request_body_size=MAX_BODY_BYTES,
        session_idle_timeout=IDLE_SECONDS,
        max_sessions=MAX_SESSIONS,
        transport_security=security,
        host=options.host,
    )
    return HttpGuard(cast("Application", inner), hosts, token, clients)


async def run_application(application: Application, listener: socket.socket) -> None:
    """Runs until cancelled."""
    config = uvicorn.Config(
        cast("Any", application),
        log_config=None,
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="on",
        limit_concurrency=_raise_connection_limit(),
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


def _raise_connection_limit() -> int:
    """The number of connections that this process may have descriptors for, after raising the soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + OTHER_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(soft // 2, min(MAX_CONNECTIONS, soft - OTHER_DESCRIPTORS))


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """The command handles signals."""
        yield


# Address


def _check_address(options: HttpOptions) -> None:
    if _is_loopback(options.host) or options.token_file:
        return
    problem = f"{options.host} is reachable from other machines"
    fix = "set an access token with --token-file, or omit --host"
    raise UsageError(problem, fix)


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@contextlib.contextmanager
def _bind_socket(options: HttpOptions) -> Generator[socket.socket, None, None]:
    host = "127.0.0.1" if options.host.lower() == "localhost" else options.host.strip("[]")
    try:
        infos = socket.getaddrinfo(host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = infos[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"--host {options.host}: {error}", "use an address of this machine") from error
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen()  # before its address is announced
        except OSError as error:
            problem = f"cannot listen on {options.host}:{options.port}: {error.strerror or error}"
            raise InvalidError(problem, "choose another port") from error
        yield listener


def _allowed_hosts(options: HttpOptions, port: int) -> frozenset[str]:
    """Values of the Host header that are accepted."""
    names = {_format_host(name) for name in (options.host, *options.names)}
    if options.host.lower() in ("127.0.0.1", "localhost"):
        names |= {"127.0.0.1", "localhost"}
    hosts = {name if _has_port(name) else f"{name}:{port}" for name in names}
    if port == 80:  # clients omit the default port
        hosts |= names
    return frozenset(host.lower() for host in hosts)


def _has_port(name: str) -> bool:
    return name.rpartition(":")[2].isdigit() and not name.endswith("]") and ":" in name


def _format_host(host: str) -> str:
    bare = host.strip("[]")
    with contextlib.suppress(ValueError):
        return f"[{bare}]" if ipaddress.ip_address(bare).version == 6 else bare
    return host


# Token


@contextlib.contextmanager
def _store_token(home: str, port: int, user_token: tuple[str, str] | None) -> Generator[tuple[str, str], None, None]:
    """Yields the token and its path. A new token is stored in a private file that is deleted on exit, unless the user
    brings their own."""
    if user_token is not None:
        yield user_token
        return
    token = secrets.token_urlsafe(32)
    path = f"mcp/{port}.token"
    private_files.write(home, path, token.encode())
    full_path = os.path.join(home, path)
    try:
        yield token, full_path
    finally:
        with contextlib.suppress(OSError):
            os.unlink(full_path)


def _read_token_file(path: str) -> str:
    """Raises UsageError for a file that others can read, or a weak token."""
    try:
        with open(path, encoding="ascii") as file:
            status = os.fstat(file.fileno())
            token = file.read(4_096).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--token-file {path}: {error}", "use a file with one line of ASCII text") from error
    if not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) & 0o077:
        raise UsageError(f"--token-file {path}: readable by other users", f"chmod 600 {path}")
    if len(token) < MIN_TOKEN_LENGTH or not token.isprintable() or " " in token:
        fix = "generate one with: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
        raise UsageError(
            f"--token-file {path}: a token needs at least {MIN_TOKEN_LENGTH} characters and no spaces", fix
        )
    return token
