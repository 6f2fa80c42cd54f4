"""Paginates long lists. A cursor names the last item of a page, so the list may change between pages.

Used by resources.
"""

import base64
import binascii
from bisect import bisect_right
from typing import TypeVar

from mcp import MCPError
from mcp_types import INVALID_PARAMS

T = TypeVar("T")


def paginate(items: list[tuple[str, T]], cursor: str | None, size: int) -> tuple[list[tuple[str, T]], str | None]:
    """`items`: sorted by name. Raises MCPError for an invalid cursor."""
    start = bisect_right([name for name, _ in items], _decode_cursor(cursor)) if cursor is not None else 0
    shown = items[start : start + size]
    more = start + size < len(items)
    return shown, base64.urlsafe_b64encode(shown[-1][0].encode()).decode() if more else None


def _decode_cursor(cursor: str) -> str:
    try:
        return base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise MCPError(
            INVALID_PARAMS, "this cursor is not one that the server gave; start from the first page"
        ) from None
