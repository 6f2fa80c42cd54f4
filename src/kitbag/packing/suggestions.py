"""What stands at the tail of a person's message: skills that its words speak for and the catalog does not describe,
and what has changed in the library since. The prompt before it stays as it is, so that it can be cached.

Used by runtime at each message; uses the router.
"""

from collections.abc import Sequence
from typing import Final

from kitbag.library.changes import Change
from kitbag.library.registry import Registry
from kitbag.library.router import search
from kitbag.packing.catalog import entry_of
from kitbag.text.hidden import one_line, reveal_hidden

MOST: Final = 5
_LONGEST_QUERY = 2_000
_MOST_CHANGES = 20


def suggested_skills(library: Registry, message: str, catalog: str) -> str:
    """The block, or nothing. `catalog` is the text the model already has."""
    hits = search(library, message[:_LONGEST_QUERY], MOST * 3)
    lines = [entry_of(hit.skill) for hit in hits if entry_of(hit.skill, 1_536) not in catalog][:MOST]
    if not lines:
        return ""
    return "\n".join(("<suggested-skills>", "Found by the words of this message:", *lines, "</suggested-skills>"))


def told_changes(changes: Sequence[Change]) -> str:
    """Skills and agents that came, went or changed since the conversation began."""
    if not changes:
        return ""
    lines = [_safe(str(change)) for change in changes[:_MOST_CHANGES]]
    if len(changes) > _MOST_CHANGES:
        lines.append(f"and {len(changes) - _MOST_CHANGES} more")
    return "\n".join(("<library-changes>", *lines, "</library-changes>"))


def _safe(text: str) -> str:
    return one_line(reveal_hidden(text)).replace("<", "&lt;")
