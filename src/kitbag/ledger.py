"""The ledger of a prompt: every piece a model sees, with its source, its cost, and what was truncated or omitted.

The texts of the entries, in order, are exactly the payload; its token count is the sum of theirs. Used by packing;
`kitbag pack --explain` prints it.
"""

from collections.abc import Callable
from typing import Any, Literal

import msgspec

EntryStatus = Literal["kept", "cut", "omitted"]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    """protocol, skills, skill, reference, task, output, identity, ..."""
    source: str
    """A file, or the component that generated the text."""
    scope: str
    level: str
    """For skills: L0 metadata, L1 the body, L2 another file of the skill."""
    text: str
    """Exactly as it appears in the payload; empty if the entry was omitted."""
    tokens: int
    tokens_cut: int
    """Tokens that were truncated; for an omitted entry, its full cost."""
    status: EntryStatus
    reason: str

    @property
    def bytes(self) -> int:
        return len(self.text.encode("utf-8", "surrogatepass"))

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "source": self.source,
            "scope": self.scope,
            "level": self.level,
            "tokens": self.tokens,
            "tokens_cut": self.tokens_cut,
            "bytes": self.bytes,
            "status": self.status,
            "reason": self.reason,
        }


class Ledger(msgspec.Struct, frozen=True):
    entries: tuple[Entry, ...]

    @property
    def payload(self) -> str:
        return "".join(entry.text for entry in self.entries)

    @property
    def tokens(self) -> int:
        return sum(entry.tokens for entry in self.entries)

    def to_json(self) -> list[dict[str, Any]]:
        return [entry.to_json() for entry in self.entries]


def full_entry(
    kind: str, source: str, text: str, count: Callable[[str], int], scope: str = "", level: str = ""
) -> Entry:
    """An entry with nothing truncated."""
    return Entry(
        kind=kind,
        source=source,
        scope=scope,
        level=level,
        text=text,
        tokens=count(text),
        tokens_cut=0,
        status="kept",
        reason="",
    )
