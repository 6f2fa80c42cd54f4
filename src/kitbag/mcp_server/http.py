"""The MCP server over streamable HTTP: on loopback by default, and always with a token.

Used by cli/mcp; uses http_guard and net/local_server. Starlette and uvicorn come with the SDK.
"""

import contextlib
import os
import secrets
import stat
from collections.abc import Callable, Generator
from typing import Final, cast

from mcp.server.transport_security import TransportSecuritySettings

from kitbag.errors import UsageError
from kitbag.mcp_server.client_sessions import IDLE_SECONDS, ConnectedClients
from kitbag.mcp_server.http_guard import MCP_PATH, HttpGuard
from kitbag.mcp_server.response_format import JsonIfPossible
from kitbag.mcp_server.server import KitbagServer
from kitbag.mcp_server.server_state import HttpOptions, ServerState
from kitbag.net.local_server import Application, bind_socket, format_host, is_loopback, run_application
from kitbag.store import private_files

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
MAX_SESSIONS: Final = 1_000
MAX_CONNECTIONS: Final = 3 * MAX_SESSIONS
"""A client has one for notifications, one for its requests, and often another."""
MIN_TOKEN_LENGTH: Final = 32


async def serve_http(state: ServerState, options: HttpOptions, notify: Callable[[str], None]) -> None:
    """Runs until cancelled. Raises UsageError for an address that needs a token file, InvalidError for one in use."""
    _check_address(options)
    user_token = (_read_token_file(options.token_file), options.token_file) if options.token_file else None
    with bind_socket(options.host, options.port) as listener:
        port = listener.getsockname()[1]
        home = state.served.environment.places.kitbag_home
        with _store_token(home, port, user_token) as (token, token_path):
            application = create_application(KitbagServer(state), state.clients, options, port, token)
            notify(f"at http://{format_host(options.host)}:{port}{MCP_PATH}; the token is in {token_path}")
            await run_application(application, listener, MAX_CONNECTIONS)


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


# Address


def _check_address(options: HttpOptions) -> None:
    if is_loopback(options.host) or options.token_file:
        return
    problem = f"{options.host} is reachable from other machines"
    fix = "set an access token with --token-file, or omit --host"
    raise UsageError(problem, fix)


def _allowed_hosts(options: HttpOptions, port: int) -> frozenset[str]:
    """Values of the Host header that are accepted."""
    names = {format_host(name) for name in (options.host, *options.names)}
    if options.host.lower() in ("127.0.0.1", "localhost"):
        names |= {"127.0.0.1", "localhost"}
    hosts = {name if _has_port(name) else f"{name}:{port}" for name in names}
    if port == 80:  # clients omit the default port
        hosts |= names
    return frozenset(host.lower() for host in hosts)


def _has_port(name: str) -> bool:
    return name.rpartition(":")[2].isdigit() and not name.endswith("]") and ":" in name


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
