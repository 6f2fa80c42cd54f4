"""What a workspace would run or allow, in the order in which a user should read it: most dangerous first, complete.

Used by `kitbag trust` and by the chat's trust question; each has its own layout. Texts may contain any character.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from kitbag.permissions.trust.capabilities import CAPABILITY_KINDS, CapabilityKind
from kitbag.permissions.trust.workspace_trust import TrustChange, TrustState, WorkspaceTrust
from kitbag.text.hidden_characters import escape_for_terminal

STATE_LABELS: Final[dict[TrustState, str]] = {
    "nothing": "has nothing to trust",
    "trusted": "is trusted",
    "untrusted": "is not trusted",
    "changed": "has changed since you trusted it",
}
CHANGED_HEADING: Final = "Changed since you trusted it"
UNREADABLE_HEADING: Final = "Unreadable"
INCOMPLETE_HEADING: Final = "The scan is incomplete, so the workspace can't be trusted:"
TEXT_ONLY_NOTE: Final = "It contains only text for the model: nothing runs or grants permissions."
_HEADINGS: Final[dict[CapabilityKind, str]] = {
    "command": "Commands run by its files",
    "server": "Servers",
    "hook": "Hooks and other tools' commands",
    "script": "Scripts",
    "link": "Symbolic links",
    "mode": "Permission modes",
    "tools": "Tools requested by its skills and agents",
    "setting": "Settings",
    "environment": "Environment variables read by its files",
}
_CHANGE_LABELS: Final = {"+": "new", "~": "changed", "-": "removed"}
_SHORT_HASH: Final = 12


class TrustEntry(msgspec.Struct, frozen=True, kw_only=True):
    place: str
    """File and line."""
    note: str
    text: str


class TrustGroup(msgspec.Struct, frozen=True, kw_only=True):
    heading: str
    entries: tuple[TrustEntry, ...]


def list_trust_groups(trust: WorkspaceTrust) -> Iterator[TrustGroup]:
    """Everything that can act, grouped by kind."""
    for kind in CAPABILITY_KINDS:
        entries = tuple(
            TrustEntry(
                place=f"{item.path}:{act.line}" if act.line else item.path,
                note=act.note,
                text=f"{act.text}  sha256 {act.digest[:_SHORT_HASH]}" if act.digest else act.text,
            )
            for item in trust.items
            for act in item.capabilities
            if act.kind == kind
        )
        if entries:
            yield TrustGroup(heading=_HEADINGS[kind], entries=entries)


def describe_change(change: TrustChange) -> tuple[str, str]:
    """(location, what happened to it)"""
    place = f"{change.path}:{change.line}" if change.line else change.path
    return place, f"{change.kind}, {_CHANGE_LABELS[change.mark]}"


def safe_lines(text: str) -> list[str]:
    """Safe to show and complete: no control or hidden characters, no tabs, nothing truncated."""
    return [escape_for_terminal(line).replace("\t", "\\t") for line in text.split("\n")]
