"""What comes from the web or a server, as a model is shown it: hidden characters visible, in a block it can't leave.

Used by WebFetch, WebSearch and the tools of servers. Nothing in such a block may begin or end a block of ours.
"""

import re

from kitbag.text.hidden_characters import collapse_whitespace, reveal_hidden

_RESERVED_TAGS = re.compile(
    r"<(?=\s*/?\s*(?:web-page|search-results|server-output|available-(?:skills|agents)|suggested-skills|skill-invocation"
    r"|library-changes|conversation-summary|task-notification|standard-input|system-reminder"
    r"|session-changes|mentioned-(?:file|folder|agent|command)))",
    re.IGNORECASE,
)


def untrusted_block(tag: str, attributes: dict[str, str], text: str) -> str:
    """Empty attributes are left out."""
    given = "".join(f' {name}="{_attribute(value)}"' for name, value in attributes.items() if value)
    return f"<{tag}{given}>\n{_RESERVED_TAGS.sub('&lt;', reveal_hidden(text))}\n</{tag}>"


def escape_reserved_tags(text: str) -> str:
    """Text of others that stands outside of a block."""
    return _RESERVED_TAGS.sub("&lt;", text)


def untrusted_line(text: str, max_chars: int) -> str:
    """Something short of the web, in a line of ours."""
    text = _RESERVED_TAGS.sub("&lt;", collapse_whitespace(reveal_hidden(text[: 2 * max_chars])))
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"


def _attribute(text: str) -> str:
    text = collapse_whitespace(reveal_hidden(text))
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
