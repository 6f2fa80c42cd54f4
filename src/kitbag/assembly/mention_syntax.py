"""The syntax of `@file` mentions in user messages: finds, parses and formats them.

Used by mentions, which reads the files, and by the chat's completion, which writes mentions. Reads no files: which
target is meant depends on what exists.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from kitbag.text.hidden_characters import find_hidden

AGENT_PREFIX: Final = "agent-"
"""`@agent-NAME` mentions an agent."""
MAX_FOUND: Final = 500
_MAX_TRIMMED = 6
# Not inside a word, an address, a path or code: `me@x.org`, `node_modules/@types`, `` `@click` ``.
NOT_INSIDE_WORD: Final = r"(?<![A-Za-z0-9_.%+\-@/\\`])"
_RANGE = r":(?P<{0}1>\d{{1,9}})(?:-(?P<{0}2>\d{{1,9}}))?|#L(?P<{0}3>\d{{1,9}})(?:-L?(?P<{0}4>\d{{1,9}}))?"
_MENTION = (
    rf"""{NOT_INSIDE_WORD}@(?:"(?P<double>[^"\n]{{1,4096}})(?:"|(?=\n|\Z))|'(?P<single>[^'\n]{{1,4096}})(?:'|(?=\n|\Z))"""
    r"""|(?P<bare>(?:\\\ |[^\s"'`<>|\\])(?:\\\ |[^\s"'`<>|]){0,4095}))"""
    rf"""(?P<range>(?:{_RANGE.format("q")})(?![\w-]))?"""
)
_WITH_LINE_RANGE = rf"(?P<path>.+?)(?:{_RANGE.format('r')})"
_PUNCTUATION = frozenset(".,;:!?)]}>*…。、，！？；：）】」』》’”")
_RELATIVE_PREFIXES = frozenset(("./", "../", "~/"))
_STDIN_START = "\n\n<standard-input>\n"


class Mention(msgspec.Struct, frozen=True, kw_only=True):
    word: str
    """The text after `@`, without quotes."""
    is_quoted: bool
    first_line: int = 0
    last_line: int = 0
    """The line range after the closing quote; 0: none."""


class MentionTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One possible reading of a mention."""

    path: str
    first_line: int = 0
    """0: from the start."""
    last_line: int = 0
    """0: to the end."""


def find_mentions(text: str) -> list[Mention]:
    """Only in the user's own text: piped input is not searched."""
    if "@" not in text:
        return []
    typed = text.partition(_STDIN_START)[0] if text.rstrip().endswith("</standard-input>") else text
    mentions: list[Mention] = []
    for match in re.finditer(_MENTION, typed):
        quoted = match["double"] or match["single"]
        if quoted is not None:
            first_line, last_line = _parse_line_range(match, "q")
            mentions.append(Mention(word=quoted, is_quoted=True, first_line=first_line, last_line=last_line))
        elif _is_meaningful(match["bare"]):
            mentions.append(Mention(word=match["bare"] + (match["range"] or ""), is_quoted=False))
        if len(mentions) == MAX_FOUND:
            break
    return mentions


def _is_meaningful(word: str) -> bool:
    return word in _RELATIVE_PREFIXES or any(char.isalnum() for char in word)


def list_targets(mention: Mention) -> Iterator[MentionTarget]:
    """Most likely first: as written, then without a trailing line range or punctuation."""
    if mention.is_quoted:
        yield MentionTarget(path=mention.word, first_line=mention.first_line, last_line=mention.last_line)
        if not mention.first_line:
            yield from _split_line_range(mention.word)
        return
    for word in _trim_punctuation(mention.word):
        for form in dict.fromkeys((word, word.replace("\\ ", " "))):
            yield MentionTarget(path=form)
            yield from _split_line_range(form)


def _trim_punctuation(word: str) -> Iterator[str]:
    for _ in range(_MAX_TRIMMED):
        yield word
        if len(word) < 2 or word[-1] not in _PUNCTUATION:
            return
        word = word[:-1]


def bare_word(mention: Mention) -> str:
    """Without trailing punctuation and line range."""
    if mention.is_quoted:
        return mention.word
    *_, word = _trim_punctuation(mention.word)
    return next(_split_line_range(word), MentionTarget(path=word)).path


def _split_line_range(word: str) -> Iterator[MentionTarget]:
    match = re.fullmatch(_WITH_LINE_RANGE, word)
    if match is not None:
        first, last = _parse_line_range(match, "r")
        yield MentionTarget(path=match["path"], first_line=first, last_line=last)


def _parse_line_range(match: re.Match[str], group: str) -> tuple[int, int]:
    """(0, 0) without a range. One number is one line; the smaller one comes first."""
    first = match[f"{group}1"] or match[f"{group}3"]
    if first is None:
        return 0, 0
    last = match[f"{group}2"] or match[f"{group}4"] or first
    low, high = sorted((max(1, int(first)), max(1, int(last))))
    return low, high


def format_mention(path: str) -> str:
    """A mention that `find_mentions` and `list_targets` read as exactly this path. Empty if impossible: for line
    breaks, control or hidden characters, or both kinds of quotes."""
    if not path or "\n" in path or "\t" in path or len(path) > 4_000 or find_hidden(path):
        return ""
    if find_mentions(f"@{path}") == [Mention(word=path, is_quoted=False)] and not _is_ambiguous(path):
        return f"@{path}"
    quote = next((mark for mark in "\"'" if mark not in path), "")
    return f"@{quote}{path}{quote}" if quote else ""


def _is_ambiguous(path: str) -> bool:
    """Whether it could be misread without quotes."""
    return (
        path.startswith(AGENT_PREFIX)
        or path[-1] in _PUNCTUATION
        or "\\" in path
        or re.fullmatch(_WITH_LINE_RANGE, path) is not None
    )
