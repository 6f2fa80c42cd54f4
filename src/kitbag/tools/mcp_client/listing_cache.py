"""A cache of server listings, so that the next run need not connect before it starts.

One file per server definition, in the user's state. An unreadable file counts as missing. Used by servers.
"""

import contextlib
import time
from typing import Final

import msgspec

from kitbag.store import private_files
from kitbag.store.private_files import StoreError
from kitbag.text.hidden_characters import escape_for_terminal
from kitbag.tools.mcp_client.server_config import ServerConfig
from kitbag.tools.mcp_client.server_listing import ServerListing

FOLDER: Final = "state/servers"
FRESH_SECONDS: Final = 24 * 3600.0
"""An older listing is used too, and refreshed meanwhile."""
_VERSION = 1
_MAX_BYTES = 8 << 20


class _CachedListing(msgspec.Struct, frozen=True):
    version: int
    at: float
    listing: ServerListing


def load_listing(home: str, server: ServerConfig) -> tuple[ServerListing | None, bool]:
    """And whether it is fresh."""
    try:
        data = private_files.read(home, _path(server))
        cached = msgspec.json.decode(data, type=_CachedListing) if data else None
    except (StoreError, msgspec.DecodeError, msgspec.ValidationError, RecursionError, OSError, ValueError):
        return None, False
    if cached is None or cached.version != _VERSION:
        return None, False
    return cached.listing, 0 <= time.time() - cached.at < FRESH_SECONDS


def save_listing(home: str, server: ServerConfig, listing: ServerListing) -> None:
    """If it can't be written, the next run asks again."""
    data = msgspec.json.encode(_CachedListing(_VERSION, time.time(), listing))
    if len(data) <= _MAX_BYTES:
        with contextlib.suppress(StoreError):
            private_files.write(home, _path(server), data)


def write_log(home: str, server: ServerConfig, text: str) -> None:
    """The standard error output of a program, redacted by the caller. Escaped: people read it in a terminal."""
    text = "\n".join(map(escape_for_terminal, text.split("\n")))
    with contextlib.suppress(StoreError):
        private_files.write(home, f"{FOLDER}/{server.label}.log", text.encode("utf-8", "replace"))


def _path(server: ServerConfig) -> str:
    return f"{FOLDER}/{server.digest[:32]}.json"
