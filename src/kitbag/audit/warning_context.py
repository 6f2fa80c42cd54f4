"""Whether a text warns about something or instructs to do it: a security guide quotes what it forbids.

Only ever lowers a severity, and never for code that runs on its own. Used by severity, examine_item, exfiltration.
"""

import re
from typing import Final

from kitbag.audit.expressions import load_expression
from kitbag.audit.regions import RUNNING_ROLES, TextContext

# `Never skip this step` and `do not ask` are orders, not warnings.
ORDERS = load_expression("warning_context.orders")
# Within three words: `do not close the window and run this` is an order.
_FORBIDS = load_expression("warning_context.forbids")
_SPEAKS_OF = load_expression("warning_context.speaks_of")
_TOPICS = load_expression("warning_context.topics")
"""The same for a heading: `Severity` and `Detect` say nothing about what stands below."""
_TELLS = load_expression("warning_context.tells")
_COMMANDS = load_expression("warning_context.commands")
"""A sentence that begins with what to do does not describe it, whatever adjectives it has."""
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+(?=\S)")


def is_warned_about(context: TextContext, column: int) -> bool:
    """Whether the text presents it as something bad. Never true for code that runs on its own, or for hidden text."""
    if context.role in RUNNING_ROLES or context.role in ("comment", "config", "frontmatter"):
        return False
    if context.role == "script-comment":
        return True
    if context.role in ("shell", "code"):
        comment = context.line_text.split("#", 1)[1] if "#" in context.line_text else ""
        return _warns(comment) or _warns(_last_sentence(context.introduction)) or _heading_warns(context)
    return (
        _warns(_sentence_at(context.line_text, column))
        or _warns(_last_sentence(context.introduction))
        or _heading_warns(context)
    )


def instructs_to_act(context: TextContext) -> bool:
    """Whether the surrounding text asks for it to be done."""
    surroundings = (
        f"{_outside(context.line_text) if context.role not in ('shell', 'code') else ''}"
        f" {_last_sentence(context.introduction)} {context.heading}"
    )
    return _TELLS.search(surroundings) is not None


def _heading_warns(context: TextContext) -> bool:
    lead = _last_sentence(context.introduction)
    return _warns(context.heading, _TOPICS) and not (_TELLS.search(lead) and not _warns(lead))


def _warns(text: str, speaks_of: "re.Pattern[str]" = _SPEAKS_OF) -> bool:
    if not text:
        return False
    plain = ORDERS.sub(" ", text)
    if _FORBIDS.search(plain):
        return True
    return speaks_of.search(plain) is not None and not (_TELLS.search(plain) or _COMMANDS.match(plain))


def _last_sentence(text: str) -> str:
    parts = [part for part in _SENTENCE_END.split(text[-600:].strip()) if part.strip()]
    return parts[-1] if parts else ""


def _sentence_at(row: str, column: int) -> str:
    """The sentence around a column, with the content of code spans removed."""
    start = 0
    for end in _SENTENCE_END.finditer(row):
        if end.start() > column:
            return _outside(row[start : end.start()])
        start = end.end()
    return _outside(row[start:])


def _outside(text: str) -> str:
    return re.sub(r"`[^`]*`", "`…`", text)
