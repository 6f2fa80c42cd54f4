"""What requests for resources and prompts share: reading the library off the event loop, and pages.

Used by resources, prompts and completions.
"""

import asyncio
import base64
import binascii
from bisect import bisect_right
from collections.abc import Callable
from typing import TypeVar

from mcp import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from kitbag.errors import InvalidError, KitbagError, NotFoundError
from kitbag.mcp_server.server_state import MIN_REFRESH_SECONDS, ServerState

T = TypeVar("T")


async def read_library(state: ServerState, read: Callable[[], T], uri: str = "") -> T:
    """Runs `read` in a thread, with a recent library; an unknown or unusable item is the request's fault. `uri`: the
    resource of the request, for clients that match errors with requests."""
    await state.refreshed(MIN_REFRESH_SECONDS)
    try:
        return await asyncio.to_thread(read)
    except (KitbagError, OSError) as error:
        raise to_mcp_error(error, uri) from None


def to_mcp_error(error: KitbagError | OSError, uri: str = "") -> MCPError:
    data = {"uri": uri} if uri else None
    if isinstance(error, NotFoundError | InvalidError):
        return MCPError(INVALID_PARAMS, f"{error.problem}. {error.fix}".rstrip(". "), data)
    return MCPError(INTERNAL_ERROR, f"cannot read the library: {error}", data)


def paginate(items: list[tuple[str, T]], cursor: str | None, size: int) -> tuple[list[tuple[str, T]], str | None]:
    """One page and the cursor of the next. `items`: sorted by name. A cursor names the last item of a page, so the list
    may change between pages. Raises MCPError for an invalid cursor."""
    start = bisect_right([name for name, _ in items], _decode_cursor(cursor)) if cursor is not None else 0
    shown = items[start : start + size]
    more = start + size < len(items)
    return shown, base64.urlsafe_b64encode(shown[-1][0].encode()).decode() if more else None


def _decode_cursor(cursor: str) -> str:
    try:
        return base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise MCPError(INVALID_PARAMS, "invalid cursor; start from the first page") from None
