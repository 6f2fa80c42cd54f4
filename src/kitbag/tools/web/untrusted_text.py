"""Renders text from the web or from MCP servers for the model: hidden characters made visible, in a block that the text
can't close.

Used by WebFetch, WebSearch and the MCP client. Untrusted text can't start or end a block of Kitbag.
"""

import re

from kitbag.text.hidden_characters import collapse_whitespace, reveal_hidden

_RESERVED_TAGS = (
    r"(?i)<(?=\s*/?\s*(?:web-page|search-results|server-output|available-(?:skills|agents)|suggested-skills|skill-invocation"
    r"|library-changes|conversation-summary|task-notification|standard-input|system-reminder"
    r"|session-changes|mentioned-(?:file|folder|agent|command)))"
)


def untrusted_block(tag: str, attributes: dict[str, str], text: str) -> str:
    """Omits empty attributes."""
    rendered = "".join(f' {name}="{_attribute(value)}"' for name, value in attributes.items() if value)
    return f"<{tag}{rendered}>\n{re.sub(_RESERVED_TAGS, '&lt;', reveal_hidden(text))}\n</{tag}>"


def escape_reserved_tags(text: str) -> str:
    """For untrusted text outside of a block."""
    return re.sub(_RESERVED_TAGS, "&lt;", text)


def untrusted_line(text: str, max_chars: int) -> str:
    """Short untrusted text for one line."""
    text = re.sub(_RESERVED_TAGS, "&lt;", collapse_whitespace(reveal_hidden(text[: 2 * max_chars])))
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"


def _attribute(text: str) -> str:
    text = collapse_whitespace(reveal_hidden(text))
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
