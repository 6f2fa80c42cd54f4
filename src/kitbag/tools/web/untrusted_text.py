"""What comes from the web or a server, as a model is shown it: hidden characters visible, in a block it can't leave.

Used by WebFetch, WebSearch and the tools of servers. Nothing in such a block may begin or end a block of ours.
"""

import re

from kitbag.text.hidden_characters import one_line, reveal_hidden

_OUR_TAGS = re.compile(
    r"<(?=\s*/?\s*(?:web-page|search-results|server-output|available-(?:skills|agents)|suggested-skills|skill-invocation"
    r"|library-changes|conversation-summary|task-notification|standard-input|system-reminder"
    r"|session-changes|mentioned-(?:file|folder|agent|command)))",
    re.IGNORECASE,
)


def block(tag: str, attributes: dict[str, str], text: str) -> str:
    """Empty attributes are left out."""
    given = "".join(f' {name}="{_attribute(value)}"' for name, value in attributes.items() if value)
    return f"<{tag}{given}>\n{_OUR_TAGS.sub('&lt;', reveal_hidden(text))}\n</{tag}>"


def harmless(text: str) -> str:
    """Text of others that stands outside of a block."""
    return _OUR_TAGS.sub("&lt;", text)


def line(text: str, most: int) -> str:
    """Something short of the web, in a line of ours."""
    text = _OUR_TAGS.sub("&lt;", one_line(reveal_hidden(text[: 2 * most])))
    return text if len(text) <= most else f"{text[:most]}…"


def _attribute(text: str) -> str:
    text = one_line(reveal_hidden(text))
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
