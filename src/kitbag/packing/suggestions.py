"""What stands at the tail of a person's message: skills that its words speak for and the catalog does not describe,
and what has changed in the library since; and at the tail of a result, skills for the file that was used. The prompt
before it stays as it is, so that it can be cached.

Used by runtime at each message and by tools/path_skills; uses the router.
"""

from collections.abc import Collection, Sequence
from typing import Final

from kitbag.library.library_changes import Change
from kitbag.library.registry import Registry
from kitbag.library.skills import Skill, waits_for_files
from kitbag.packing.catalog import budget_of, entry_of
from kitbag.text.hidden_characters import one_line, reveal_hidden

MOST: Final = 5
_OPENING: Final = "<suggested-skills>"
_CLOSING: Final = "</suggested-skills>"
_HEAD, _TAIL = 1_500, 500
"""Characters of a message that are looked at: people ask first, or after what they pasted."""
_WORTH = 0.4
"""The share of the best one's score that others need."""
_MOST_CHANGES = 20


def suggested_skills(library: Registry, message: str, catalog: str, known: Collection[str] = ()) -> str:
    """The block, or nothing. `message` is what the person typed, `catalog` the text the model already has; `known`
    are the names of skills that are loaded, or were suggested before."""
    longest = budget_of(library.settings).entry
    described = frozenset(catalog.splitlines())
    if _has_all(library, described, longest):
        return ""
    from kitbag.library.routing.skill_search import search

    said = message if len(message) <= _HEAD + _TAIL else f"{message[:_HEAD]} {message[-_TAIL:]}"
    hits = [hit for hit in search(library, said, MOST * 3) if hit.sure]
    lines = [
        entry_of(hit.skill)
        for hit in hits
        if hit.score >= hits[0].score * _WORTH
        and hit.skill.full_name not in known
        and not waits_for_files(hit.skill)
        and entry_of(hit.skill, longest) not in described
    ]
    return _block("Found by the words of this message:", lines[:MOST])


def skills_for_file(skills: Sequence[Skill]) -> str:
    """The block for the tail of a result, or nothing."""
    return _block("For work with this file, by their `paths`:", [entry_of(skill) for skill in skills[:MOST]])


def _block(why: str, lines: Sequence[str]) -> str:
    return "\n".join((_OPENING, why, *lines, _CLOSING)) if lines else ""


def told_in(text: str) -> list[str]:
    """The lines of a block at the end of a text."""
    start = text.rfind(_OPENING)
    return text[start:].splitlines() if start >= 0 and text.rstrip().endswith(_CLOSING) else []


def _has_all(library: Registry, described: frozenset[str], longest: int) -> bool:
    """Whether there is nothing that could be suggested; with many skills, the last one answers that."""
    view = library.view()
    for skill in reversed(list(library.skills)):
        if waits_for_files(skill):
            continue
        if entry_of(skill, longest) not in described and library.judge(skill, view).searchable:
            return False
    return True


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
