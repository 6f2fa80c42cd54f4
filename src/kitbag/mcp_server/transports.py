"""Runs the server over a transport: stdio or HTTP.

Used by cli/mcp; imports a transport when it is used.
"""

from collections.abc import Callable

from kitbag.mcp_server.server_state import HttpOptions, ServerState


async def serve(state: ServerState, http_options: HttpOptions | None, notify: Callable[[str], None]) -> None:
    """Runs until the client disconnects (stdio) or until cancelled. `notify` tells the user the address."""
    if http_options is None:
        from kitbag.mcp_server.stdio import serve_stdio

        await serve_stdio(state)
    else:
        from kitbag.mcp_server.http import serve_http

        await serve_http(state, http_options, notify)
