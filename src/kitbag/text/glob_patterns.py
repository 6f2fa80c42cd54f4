"""Translates path patterns such as `src/**/*.{ts,tsx}` into regular expressions that match in linear time.

Used by Glob, Grep's file_filter, library/path_patterns and, for .gitignore, walk. Imports nothing of Kitbag. `*`
matches within one part of a path; a name that starts with a dot needs a part that does, unless `hidden` is set.
"""

import re
from itertools import pairwise
from typing import Final

MAX_ALTERNATIVES: Final = 200
MAX_PATTERN_CHARS: Final = 2_000
_WILDCARD = re.compile(r"[*?\[{]")


class GlobError(ValueError):
    """The pattern is invalid; says why."""


def has_wildcard(part: str) -> bool:
    return _WILDCARD.search(part) is not None


def split_fixed_prefix(pattern: str) -> tuple[str, str]:
    """The folders before the first wildcard, and the rest. Without wildcards, the rest is the last part."""
    parts = pattern.split("/")
    at = next((number for number, part in enumerate(parts) if has_wildcard(part)), len(parts) - 1)
    fixed = "/".join(parts[:at])
    return (fixed or "/" if at and pattern.startswith("/") else fixed), "/".join(parts[at:])


def expand_braces(pattern: str) -> list[str]:
    """Expand `{a,b}`. Raises GlobError if that makes too many patterns."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise GlobError(f"the pattern is longer than {MAX_PATTERN_CHARS:,} characters")
    done: list[str] = []
    pending = [pattern]
    while pending:
        text = pending.pop()
        group = _first_brace_group(text)
        if group is None:
            done.append(text)
        else:
            start, end, choices = group
            pending.extend(text[:start] + choice + text[end:] for choice in reversed(choices))
        if len(done) + len(pending) > MAX_ALTERNATIVES:
            raise GlobError(f"its braces expand to more than {MAX_ALTERNATIVES} patterns")
    return list(dict.fromkeys(done))


def _first_brace_group(text: str) -> tuple[int, int, list[str]] | None:
    """Start and end of the first closed brace group, and its alternatives."""
    start = text.find("{")
    while start >= 0:
        depth, at, choices = 0, start, [start]
        while at < len(text):
            char = text[at]
            if char == "\\":
                at += 1
            elif char == "{":
                depth += 1
            elif char == "}":
                depth -= 1
                if not depth:
                    separators = [*choices, at]
                    return start, at + 1, [text[a + 1 : b] for a, b in pairwise(separators)]
            elif char == "," and depth == 1:
                choices.append(at)
            at += 1
        start = text.find("{", start + 1)
    return None


def matches_hidden(pattern: str) -> bool:
    return any(part.startswith((".", "\\.")) for one in expand_braces(pattern) for part in one.split("/"))


def max_depth(pattern: str) -> int:
    """The most parts a matching path can have; 0 if unlimited."""
    every = [one.split("/") for one in expand_braces(pattern)]
    return 0 if any("**" in parts for parts in every) else max(len(parts) for parts in every)


def glob_regex(pattern: str, *, hidden: bool = False) -> str:
    """For `re.fullmatch` on a relative path. Raises GlobError."""
    return "|".join(f"(?:{path_regex(one.split('/'), hidden=hidden)})" for one in expand_braces(pattern))


def path_regex(parts: list[str], *, hidden: bool) -> str:
    """Of one pattern without braces, split at slashes. `**` matches any number of folders.

    Between two `**` the first match is as good as any, so it is never retried (`(?>`).
    """
    any_part = "[^/]+" if hidden else r"(?!\.)[^/]+"
    blocks: list[list[str]] = [[]]
    for part in parts:
        if part == "**":
            if blocks[-1] or len(blocks) == 1:
                blocks.append([])
        elif part not in ("", "."):
            blocks[-1].append(part_regex(part, hidden=hidden))
    first, *rest = ["/".join(block) for block in blocks]
    if not rest:
        return first
    *middle, last = rest
    regex = f"{first}/" if first else ""
    regex += "".join(f"(?>(?:{any_part}/)*?{block}/)" for block in middle)
    return f"{regex}(?:{any_part}/)*{last or any_part}"


def part_regex(part: str, *, hidden: bool) -> str:
    """One part of a path. The text between two stars has a fixed length, so its first match is as good as any."""
    pieces: list[str] = [""]
    at = 0
    while at < len(part):
        char = part[at]
        at += 1
        if char == "*":
            pieces.append("")
        elif char == "?":
            pieces[-1] += "[^/]"
        elif char == "[" and (end := _character_class_end(part, at)):
            pieces[-1] += _character_class_regex(part[at:end])
            at = end + 1
        elif char == "\\" and at < len(part):
            pieces[-1] += re.escape(part[at])
            at += 1
        else:
            pieces[-1] += re.escape(char)
    guard = "" if hidden or part.startswith((".", "\\.")) else r"(?!\.)"
    first, *rest = pieces
    if not rest:
        return guard + first
    *middle, last = rest
    regex = "".join(f"(?>[^/]*?{piece})" for piece in middle if piece)
    return f"{guard}{first}{regex}[^/]*{last}" if last else f"{guard}{first}{regex}[^/]*"


def _character_class_end(part: str, at: int) -> int:
    """The index of the `]` that closes the class starting at `at`; 0 if none does."""
    start = at + 1 if part[at : at + 1] in ("!", "^") else at
    end = part.find("]", start + 1)
    return max(end, 0)


def _character_class_regex(text: str) -> str:
    negated = text.startswith(("!", "^"))
    chars = text[1:] if negated else text
    items: list[str] = []
    at = 0
    while at < len(chars):
        if chars[at] == "\\" and at + 1 < len(chars):
            at += 1
        if chars[at + 1 : at + 2] == "-" and at + 2 < len(chars):
            low, high = chars[at], chars[at + 2]
            if low > high:
                raise GlobError(f"`[{text}]` is not a valid character set: {low}-{high} is a reversed range")
            items.append(f"{re.escape(low)}-{re.escape(high)}")
            at += 3
        else:
            items.append(re.escape(chars[at]))
            at += 1
    return f"(?!/)[{'^' if negated else ''}{''.join(items)}]"
