"""What a workspace would run or allow, in words and in the order in which a person should read it: the most dangerous
first, and nothing left out.

Used by `kitbag trust` and by the question at the first start in a folder; each shows it in its own way. Texts here may
hold any character.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kitbag.permissions.trust.capabilities import ACT_KINDS, ActKind
from kitbag.permissions.trust.workspace_items import Item
from kitbag.permissions.trust.workspace_trust import Change, State, Trust
from kitbag.text.hidden_characters import for_terminal
from kitbag.text.human_format import count

STATES: Final[dict[State, str]] = {
    "nothing": "brings nothing, so it needs no trust",
    "trusted": "is trusted",
    "untrusted": "is not trusted",
    "changed": "was trusted, and has changed since",
}
CHANGED: Final = "Changed since you trusted it"
UNREADABLE: Final = "Could not be read"
NOT_WHOLE: Final = "Not all of it could be looked at, so it can't be trusted:"
ONLY_TEXT: Final = "Nothing in it runs or allows anything: it is text for a model."
_HEADINGS: Final[dict[ActKind, str]] = {
    "command": "Commands that its texts run",
    "server": "Servers",
    "hook": "Hooks, and what else other tools run",
    "script": "Scripts",
    "link": "Symbolic links",
    "mode": "Permission modes",
    "tools": "Tools that its skills and agents ask for",
    "setting": "Settings",
    "environment": "Environment variables that its texts read",
}
_NOUNS: Final = {
    "memory": ("memory file", "memory files"),
    "settings": ("settings file", "settings"),
    "configuration": ("file of another tool's settings", "files of other tools' settings"),
}
_CHANGES: Final = {"+": "new", "~": "changed", "-": "gone"}
_SHORT_HASH: Final = 12


class Entry(NamedTuple):
    place: str
    """The file and the line."""
    note: str
    text: str


class Group(NamedTuple):
    heading: str
    entries: tuple[Entry, ...]


def contents(items: Iterable[Item]) -> str:
    """`2 skills, 1 agent, 3 memory files`"""
    counts: dict[str, int] = {}
    for item in items:
        counts[item.kind] = counts.get(item.kind, 0) + 1
    return ", ".join(
        f"{number:,} {_NOUNS[kind][number > 1]}" if kind in _NOUNS else count(number, kind)
        for kind, number in counts.items()
    )


def groups(trust: Trust) -> Iterator[Group]:
    """Everything that can act, by what it is."""
    for kind in ACT_KINDS:
        entries = tuple(
            Entry(
                f"{item.path}:{act.line}" if act.line else item.path,
                act.note,
                f"{act.text}  sha256 {act.digest[:_SHORT_HASH]}" if act.digest else act.text,
            )
            for item in trust.items
            for act in item.acts
            if act.kind == kind
        )
        if entries:
            yield Group(_HEADINGS[kind], entries)


def change_in_words(change: Change) -> tuple[str, str]:
    """(the place, what has become of it)"""
    place = f"{change.path}:{change.line}" if change.line else change.path
    return place, f"{change.kind}, {_CHANGES[change.mark]}"


def lines_of(text: str) -> list[str]:
    """Safe to show. Nothing hides: no control or hidden character, no tab, no line that is cut."""
    return [for_terminal(line).replace("\t", "\\t") for line in text.split("\n")]
