"""Parses JSON from untrusted sources, with bounded depth.

The depth limit of the standard library differs between Python versions (1,000 to 10,000 levels), and code that
recurses into the result fails earlier. Used for arguments of tool calls, providers' events and tasks.
"""

import json
from typing import Any, Final, cast

MAX_DEPTH: Final = 100
_TOO_DEEP: Final = f"nested more than {MAX_DEPTH} levels deep"


def parse_json(text: str, **hooks: Any) -> Any:
    """`hooks` are those of `json.loads`. Raises ValueError for invalid JSON, RecursionError if nested too deeply."""
    try:
        value: Any = json.loads(text, **hooks)
    except RecursionError:
        raise RecursionError(_TOO_DEEP) from None
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_too_deep(value):
        raise RecursionError(_TOO_DEEP)
    return value


def _is_too_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for one in level for inner in _children(one) if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def _children(value: object) -> "list[object]":
    if isinstance(value, dict):
        return [*cast("dict[str, object]", value).values()]
    return cast("list[object]", value) if isinstance(value, list) else []
