"""Finds, names, removes or reveals characters that a reader can't see.

Everything shown to a model or a terminal passes through here. Letters of every script, accents, emoji with joiners
and variation selectors, and right-to-left text with its direction marks stay unchanged.
"""

import re

# Patterns are compiled on first use: most text is plain and needs none of them.
_SUSPECT = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\ud800-\udfff]"
)
_VIRAMA = 9
"""The combining class of a virama, the sign that removes a letter's vowel."""
_REMNANTS = frozenset((0xFE0E, 0xFE0F, 0x200D))
_MAX_REMNANT = 3
_MAX_JOINERS = 12
_FLAG_TAGS = "\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f"
_RIGHT_TO_LEFT = "[\u0590-\u061b\u061d-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
# Scripts with joining letters, and emoji that combine into one: only these need a joiner.
_JOINING_SCRIPTS = "[\u0600-\u1cff\u20e3\u2190-\u2bff\ua800-\uabff\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U0001ffff]"
# Letters that have an emoji or variant form: the information sign, Myanmar.
_VARIANT_LETTERS = "[\u1000-\u109f\u2139\u24c2]"
_DIRECTION_MARK = "[\u200e\u200f\u061c]"
_CONTROL = "[\x00-\x08\x0b-\x1f\x7f-\x9f]"
# Combining marks: no script stacks more than a few on one letter, and a tall stack covers other lines.
_COMBINING_MARK = (
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"
    "\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
)
_STACKED_MARKS = f"({_COMBINING_MARK}{{6}})({_COMBINING_MARK}+)"


def find_hidden(text: str) -> list[tuple[int, int]]:
    """(offset, code point) of each character that hides or disguises text."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return []
    allowed: set[int] = set()
    if "\U0001f3f4" in text:
        for flag in re.finditer(_FLAG_TAGS, text):
            allowed.update(range(flag.start(), flag.end()))
    if re.search(_DIRECTION_MARK, text) and re.search(
        _RIGHT_TO_LEFT, text
    ):  # checked once, since it scans the whole text
        allowed.update(match.start() for match in re.finditer(_DIRECTION_MARK, text))
    return [
        (match.start(), ord(match[0]))
        for match in re.finditer(_SUSPECT, text)
        if match.start() not in allowed and not _is_legitimate(text, match.start())
    ]


def find_disguises(text: str) -> list[tuple[int, int]]:
    """Like find_hidden, without the selectors and joiners left behind where emoji were removed: they hide nothing."""
    found = find_hidden(text)
    left = {at: point for at, point in found if point in _REMNANTS and _is_emoji_remnant(text, at)}
    # Few emoji have a joiner: many left behind could be a code.
    if sum(point != 0xFE0F for point in left.values()) > _MAX_JOINERS:
        return found
    return [(at, point) for at, point in found if at not in left]


def _is_emoji_remnant(text: str, at: int) -> bool:
    """Not in a long run or beside another hidden character, which could be a code, and not inside a word, which could
    be a disguise."""
    start, end = at, at + 1
    while start and at - start < _MAX_REMNANT and ord(text[start - 1]) in _REMNANTS:
        start -= 1
    while end < len(text) and end - at <= _MAX_REMNANT and ord(text[end]) in _REMNANTS:
        end += 1
    before, after = text[max(start - 1, 0) : start], text[end : end + 1]
    is_inside_word = before.isalnum() and after.isalnum()
    is_alone = not re.match(_SUSPECT, before) and not re.match(_SUSPECT, after)
    return end - start <= _MAX_REMNANT and is_alone and not is_inside_word


def _is_legitimate(text: str, at: int) -> bool:
    """Whether the neighbors justify a joiner, selector, filler or direction mark."""
    char = text[at]
    before = text[at - 1] if at else ""
    after = text[at + 1 : at + 2]
    if char in "\u200c\u200d":
        return _is_legitimate_joiner(text, at, before, after)
    if char in "\u115f\u1160":  # fillers for a missing part of a Korean syllable
        return "\u1100" <= before < "\u115f" or "\u1160" < after <= "\u11ff"
    if not before or re.match(_SUSPECT, before):
        return False
    if "\ufe00" <= char <= "\ufe0f":
        letter = before.isalpha() and before <= "\u2e7f" and not re.match(_VARIANT_LETTERS, before)
        return not letter and not before.isspace()
    if "\U000e0100" <= char <= "\U000e01ef":
        return "\u3400" <= before <= "\U0003ffff"
    return "\u180b" <= char <= "\u180f" and "\u1800" <= before <= "\u18af"


def _is_legitimate_joiner(text: str, at: int, before: str, after: str) -> bool:
    if before == "\ufe0f":
        return _is_legitimate(text, at - 1) and _is_joinable(after)
    # At the end of a word, a joiner still shapes an Arabic letter or one with a virama.
    ends_word = "\u0600" <= before <= "\u06ff" or _combining_class(before or " ") == _VIRAMA
    return _is_joinable(before) and (_is_joinable(after) or (ends_word and not re.match(_SUSPECT, after)))


def _combining_class(char: str) -> int:
    import unicodedata

    return unicodedata.combining(char)


def _is_joinable(char: str) -> bool:
    return re.match(_JOINING_SCRIPTS, char) is not None and not re.match(_SUSPECT, char)


def format_code_points(found: list[tuple[int, int]], limit: int = 6) -> str:
    """`U+200B, U+202E (3 times)`, for a diagnostic."""
    counts: dict[int, int] = {}
    for _, point in found:
        counts[point] = counts.get(point, 0) + 1
    names = [f"U+{point:04X}" + (f" ({n} times)" if n > 1 else "") for point, n in counts.items()]
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more} more" if more > 0 else "")


def remove_hidden(text: str) -> str:
    found = find_hidden(text)
    if not found:
        return text
    offsets = {at for at, _ in found}
    return "".join(char for at, char in enumerate(text) if at not in offsets)


def reveal_hidden(text: str) -> str:
    """Replaces each hidden character with `[U+200B]`."""
    found = dict(find_hidden(text))
    if not found:
        return text
    return "".join(f"[U+{found[at]:04X}]" if at in found else char for at, char in enumerate(text))


def escape_for_terminal(text: str) -> str:
    """Makes text safe to print: control characters become `\\x1b`, hidden ones `[U+200B]`; stacked combining marks are
    truncated. Tabs and newlines stay."""
    if text.isascii() and text.isprintable():
        return text
    visible = re.sub(_CONTROL, lambda match: f"\\x{ord(match[0]):02x}", text)
    if not visible.isascii():
        visible = re.sub(_STACKED_MARKS, lambda match: f"{match[1]}[{len(match[2]):,} more combining marks]", visible)
    return reveal_hidden(visible).encode("utf-8", "backslashreplace").decode()


def collapse_whitespace(text: str) -> str:
    """Replaces each run of white space with one space."""
    return " ".join(text.split())
