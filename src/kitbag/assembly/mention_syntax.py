"""How `@file` is written in what a person says: found in a text, taken apart, and written so that it is found again.

Used by mentions, which puts what is named before the model, and by the chat's completion, which writes it. Looks at
no file: which of the possible meanings is meant depends on what exists.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from kitbag.text.hidden_characters import find_hidden

AGENT: Final = "agent-"
"""`@agent-NAME` is an agent."""
MOST_FOUND: Final = 500
_MOST_TRIMMED = 6
# Not inside a word, an address, a path or code: `me@x.org`, `node_modules/@types`, `` `@click` ``.
BEFORE: Final = r"(?<![A-Za-z0-9_.%+\-@/\\`])"
_RANGE = r":(?P<{0}1>\d{{1,9}})(?:-(?P<{0}2>\d{{1,9}}))?|#L(?P<{0}3>\d{{1,9}})(?:-L?(?P<{0}4>\d{{1,9}}))?"
_MENTION = re.compile(
    rf"""{BEFORE}@(?:"(?P<double>[^"\n]{{1,4096}})(?:"|(?=\n|\Z))|'(?P<single>[^'\n]{{1,4096}})(?:'|(?=\n|\Z))"""
    r"""|(?P<bare>(?:\\\ |[^\s"'`<>|\\])(?:\\\ |[^\s"'`<>|]){0,4095}))"""
    rf"""(?P<range>(?:{_RANGE.format("q")})(?![\w-]))?"""
)
_ENDING = re.compile(rf"(?P<path>.+?)(?:{_RANGE.format('r')})")
_PUNCTUATION = frozenset(".,;:!?)]}>*…。、，！？；：）】」』》’”")
_PLACES = frozenset(("./", "../", "~/"))
_PIPED = "\n\n<standard-input>\n"


class Mention(NamedTuple):
    word: str
    """What stands behind the `@`, without quotes."""
    is_quoted: bool
    first: int = 0
    last: int = 0
    """The lines that stand behind the quotes; 0: none do."""


class Named(NamedTuple):
    """One meaning of a mention."""

    path: str
    first: int = 0
    """0: from the first line on."""
    last: int = 0
    """0: to the end."""


def find_mentions(text: str) -> list[Mention]:
    """In the words of the person: what was piped in beside them is no mention, whatever stands in it."""
    if "@" not in text:
        return []
    said = text.partition(_PIPED)[0] if text.rstrip().endswith("</standard-input>") else text
    found: list[Mention] = []
    for match in _MENTION.finditer(said):
        quoted = match["double"] or match["single"]
        if quoted is not None:
            found.append(Mention(quoted, True, *_lines(match, "q")))
        elif _says_something(match["bare"]):
            found.append(Mention(match["bare"] + (match["range"] or ""), False))
        if len(found) == MOST_FOUND:
            break
    return found


def _says_something(word: str) -> bool:
    return word in _PLACES or any(char.isalnum() for char in word)


def meanings(mention: Mention) -> Iterator[Named]:
    """The likeliest first: as it stands, with the lines it ends in, without the marks of the sentence around it."""
    if mention.is_quoted:
        yield Named(mention.word, mention.first, mention.last)
        if not mention.first:
            yield from _with_lines(mention.word)
        return
    for word in _trimmed(mention.word):
        for form in dict.fromkeys((word, word.replace("\\ ", " "))):
            yield Named(form)
            yield from _with_lines(form)


def _trimmed(word: str) -> Iterator[str]:
    for _ in range(_MOST_TRIMMED):
        yield word
        if len(word) < 2 or word[-1] not in _PUNCTUATION:
            return
        word = word[:-1]


def bare_word(mention: Mention) -> str:
    """Without marks and lines at its end, as one reads it."""
    if mention.is_quoted:
        return mention.word
    *_, word = _trimmed(mention.word)
    return next(_with_lines(word), Named(word)).path


def _with_lines(word: str) -> Iterator[Named]:
    match = _ENDING.fullmatch(word)
    if match is not None:
        yield Named(match["path"], *_lines(match, "r"))


def _lines(match: re.Match[str], group: str) -> tuple[int, int]:
    """(0, 0) where none are named. One number is one line; the smaller one is the first."""
    first = match[f"{group}1"] or match[f"{group}3"]
    if first is None:
        return 0, 0
    last = match[f"{group}2"] or match[f"{group}4"] or first
    low, high = sorted((max(1, int(first)), max(1, int(last))))
    return low, high


def written(path: str) -> str:
    """The mention of a path, which `find_mentions` and `meanings` read as this very path. Empty where there is none:
    for a name with line breaks, control characters, hidden ones, or both kinds of quotes."""
    if not path or "\n" in path or "\t" in path or len(path) > 4_000 or find_hidden(path):
        return ""
    if find_mentions(f"@{path}") == [Mention(path, False)] and not _is_doubtful(path):
        return f"@{path}"
    quote = next((mark for mark in "\"'" if mark not in path), "")
    return f"@{quote}{path}{quote}" if quote else ""


def _is_doubtful(path: str) -> bool:
    """Whether it could be read as something else where it stands without quotes."""
    return path.startswith(AGENT) or path[-1] in _PUNCTUATION or "\\" in path or _ENDING.fullmatch(path) is not None
