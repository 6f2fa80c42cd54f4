"""What a model is shown, piece by piece: where each came from, what it costs, what was left out and why.

The texts of the entries, in order, are exactly the payload, and its tokens are the sum of theirs. Used
by packing; a view of it is printed by `kitbag pack --explain`.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

EntryStatus = Literal["kept", "cut", "omitted"]


class Entry(NamedTuple):
    kind: str
    """protocol, skills, skill, reference, task, output, identity, ..."""
    source: str
    """A file, or what made the text."""
    scope: str
    level: str
    """For skills: L0 metadata, L1 the body, L2 a file beside it."""
    text: str
    """Exactly as it stands in the payload; empty when it was omitted."""
    tokens: int
    tokens_cut: int
    """What is not there; for an omitted entry what it would have cost."""
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


class Ledger(NamedTuple):
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
    """An entry of which nothing is missing."""
    return Entry(kind, source, scope, level, text, count(text), 0, "kept", "")
