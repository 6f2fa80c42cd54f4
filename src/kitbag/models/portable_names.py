"""Tool-call ids and tool names that every provider accepts, so that a session can continue with any of them.

Providers refuse a request for one bad id or name, even in an old message. A replacement depends on the original only:
a call and its result stay together, and a resumed session sends the same bytes. Used by adapters and reply_checks.
"""

import hashlib
import re
from typing import Final

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""Anthropic allows these characters, OpenAI's chat API this length."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
INVALID_TOOL_NAME: Final = "invalid_tool_name"


def portable_id(call_id: str) -> str:
    """The id itself, if every provider accepts it. Never empty."""
    return call_id if _ID.fullmatch(call_id) else f"call_{_digest(call_id)}"


def portable_name(name: str) -> str:
    return name if is_portable_name(name) else INVALID_TOOL_NAME


def is_portable_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:32]
