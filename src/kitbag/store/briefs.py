"""Briefs: what every machine gets of a large record, while only those that open its stream fetch the whole.

The module that writes a stream registers how its bodies are shortened: to the fields that listings and derived tables
need. Used where several machines share a journal (postgres, journal_mirror).
"""

import json
from collections.abc import Callable
from typing import Any, Final

MIN_LENGTH: Final = 600
"""Shorter bodies are sent whole."""
STUB_CHECKSUM: Final = -1
"""Marks a row of a mirror whose body is the brief."""
ShortenBody = Callable[[str, dict[str, Any]], dict[str, Any] | None]
_shorten: dict[str, ShortenBody] = {}


def register_briefs(prefix: str, shorten: ShortenBody) -> None:
    """`shorten`: given the kind and the body; None if all machines need all of it."""
    _shorten[prefix] = shorten


def has_briefs(stream: str) -> bool:
    return any(stream.startswith(prefix) for prefix in _shorten)


def make_brief(stream: str, kind: str, body: str) -> str | None:
    """None: the record is sent whole."""
    if len(body) < MIN_LENGTH:
        return None
    shorten = next((one for prefix, one in _shorten.items() if stream.startswith(prefix)), None)
    try:
        value = json.loads(body) if shorten is not None else None
    except RecursionError:
        return None
    brief = shorten(kind, value) if shorten is not None and isinstance(value, dict) else None  # pyright: ignore[reportUnknownArgumentType]
    text = json.dumps(brief, separators=(",", ":")) if brief is not None else body
    return text if len(text) < len(body) // 2 else None
