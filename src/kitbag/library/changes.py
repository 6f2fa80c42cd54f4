"""What was added, edited or removed between two looks at the disk. Used by the registry's refresh."""

from typing import NamedTuple, TypeAlias

Snapshot: TypeAlias = dict[tuple[str, str], tuple[str, object]]
"""(kind, full name) to (path, what changes when the file does)."""


class Change(NamedTuple):
    """What `refresh` saw."""

    sign: str
    """`+`, `~` or `-`."""
    kind: str
    name: str
    path: str

    def __str__(self) -> str:
        return f"{self.sign} {self.kind} {self.name}"


def changes_between(before: Snapshot, after: Snapshot) -> list[Change]:
    found: list[Change] = []
    for key in {**before, **after}:
        if before.get(key) != after.get(key):
            sign = "+" if key not in before else "-" if key not in after else "~"
            found.append(Change(sign, *key, (after.get(key) or before[key])[0]))
    return sorted(found, key=lambda change: (change.kind, change.name.lower(), change.sign))
