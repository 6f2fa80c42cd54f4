"""Formats counts, paths, costs and durations for people. Used by the commands and the chat."""

import os
from collections.abc import Iterable

_PACKAGE = os.path.dirname(os.path.dirname(__file__))


def format_count(number: int, noun: str) -> str:
    """`1 skill`, `2,000 skills`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_thousands(number: int) -> str:
    """`999`, `1.2k`, `340k`."""
    if number < 1000:
        return str(number)
    return f"{number / 1000:.1f}k" if number < 100_000 else f"{number // 1000}k"


def shorten_path(path: str) -> str:
    """Relative to the current directory or to `~`, if inside one of them."""
    try:
        here = os.getcwd()
    except FileNotFoundError:  # it was deleted
        here = "/"
    for base, prefix in ((_PACKAGE, "kitbag:"), (here, ""), (os.path.expanduser("~"), "~/")):
        if base != "/" and path.startswith(base + "/"):
            return prefix + path[len(base) + 1 :]
    return path


def shorten_home(text: str) -> str:
    """Replaces the home directory in a sentence with `~`."""
    home = os.path.expanduser("~")
    return text.replace(f"{home}/", "~/") if home not in ("/", "~") else text


def format_cost(cost: float | None) -> str:
    """US dollars; None if unknown."""
    return "?" if cost is None else f"${cost:.4f}"


def format_bytes(size: int) -> str:
    """Decimal units: 999 bytes, 1.2 kB, 34.0 MB."""
    if size < 1000:
        return format_count(size, "byte")
    value, unit = size / 1000, "kB"
    for larger in ("MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:,.1f} {unit}"


def format_duration(seconds: float) -> str:
    """`3.2s`, `45s`, `2m 5s`, `3h 20m`."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    if hours:
        return f"{hours:,}h {minutes_left}m"
    return f"{minutes}m {rest}s" if minutes else f"{rest}s"


def format_age(seconds: float) -> str:
    """`just now`, `5 minutes ago`, `3 days ago`."""
    for size, noun in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            return f"{format_count(int(seconds // size), noun)} ago"
    return "just now"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean env, exit?`, or a list of all known names if none is close."""
    import difflib

    names = {name.casefold(): name for name in known}
    close = difflib.get_close_matches(word.casefold().strip(), names, n=3, cutoff=0.6)
    close += [name for name in names if len(word) > 2 and word.casefold() in name and name not in close][:3]
    if close:
        return f"did you mean {', '.join(names[name] for name in close)}?"
    return f"available: {', '.join(names.values())}"
