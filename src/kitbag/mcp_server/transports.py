"""The way a server is reached: standard input and output, or HTTP.

Used by cli/mcp, which needs nothing of the rest; each way is imported when it is taken.
"""

from collections.abc import Callable

from kitbag.mcp_server.server_state import HttpOptions, ServerState


async def serve(state: ServerState, listening: HttpOptions | None, notify: Callable[[str], None]) -> None:
    """Until the client leaves (stdio), or until it is cancelled. `tell` says to the person where it is."""
    if listening is None:
        from kitbag.mcp_server.stdio import serve_stdio

        await serve_stdio(state)
    else:
        from kitbag.mcp_server.http import serve_http

        await serve_http(state, listening, notify)
