"""Blocks appended to a user message: skills that match it and that the catalog does not describe, and library
changes; and to a tool result: skills for the file. The prompt before them stays unchanged and cacheable.

Used by assembly at each message and by tools.path_skills; uses library.routing.
"""

from collections.abc import Collection, Sequence
from typing import Final

from kitbag.library.library_changes import Change
from kitbag.library.registry import Registry
from kitbag.library.skills import Skill, is_path_activated
from kitbag.packing.catalog import catalog_budget, render_entry
from kitbag.text.hidden_characters import collapse_whitespace, reveal_hidden

MAX_SUGGESTIONS: Final = 5
_OPENING: Final = "<suggested-skills>"
_CLOSING: Final = "</suggested-skills>"
_LEADING_CHARACTERS, _TRAILING_CHARACTERS = 1_500, 500
"""Characters of a message that are searched: people ask first, or after what they pasted."""
_MIN_SCORE_SHARE = 0.4
"""Minimum score, as a share of the best score."""
_MAX_CHANGES = 20


def suggest_skills(library: Registry, message: str, catalog: str, known: Collection[str] = ()) -> str:
    """The block, or an empty string. `message`: what the user typed; `catalog`: the one in the prompt; `known`: names
    of skills that are loaded or were suggested before."""
    max_length = catalog_budget(library.settings).entry
    described = frozenset(catalog.splitlines())
    if _describes_all(library, described, max_length):
        return ""
    from kitbag.library.routing.skill_search import search_skills

    searched = (
        message
        if len(message) <= _LEADING_CHARACTERS + _TRAILING_CHARACTERS
        else f"{message[:_LEADING_CHARACTERS]} {message[-_TRAILING_CHARACTERS:]}"
    )
    hits = [hit for hit in search_skills(library, searched, MAX_SUGGESTIONS * 3) if hit.is_confident]
    lines = [
        render_entry(hit.skill)
        for hit in hits
        if hit.score >= hits[0].score * _MIN_SCORE_SHARE
        and hit.skill.full_name not in known
        and not is_path_activated(hit.skill)
        and render_entry(hit.skill, max_length) not in described
    ]
    return _block("Keyword matches for this message:", lines[:MAX_SUGGESTIONS])


def suggest_skills_for_file(skills: Sequence[Skill]) -> str:
    """The block to append to a tool result, or an empty string."""
    return _block("Matches for this file by `paths`:", [render_entry(skill) for skill in skills[:MAX_SUGGESTIONS]])


def _block(heading: str, lines: Sequence[str]) -> str:
    return "\n".join((_OPENING, heading, *lines, _CLOSING)) if lines else ""


def extract_suggestions(text: str) -> list[str]:
    """The lines of the suggestion block at the end of a text."""
    start = text.rfind(_OPENING)
    return text[start:].splitlines() if start >= 0 and text.rstrip().endswith(_CLOSING) else []


def _describes_all(library: Registry, described: frozenset[str], max_length: int) -> bool:
    """True if there is nothing to suggest. With many skills, checking the last ones first finds a difference early."""
    view = library.visibility_context()
    for skill in reversed(list(library.skills)):
        if is_path_activated(skill):
            continue
        if render_entry(skill, max_length) not in described and library.evaluate(skill, view).searchable:
            return False
    return True


def library_changes_notice(changes: Sequence[Change]) -> str:
    """Skills and agents that were added, removed or changed since the session started."""
    if not changes:
        return ""
    lines = [_escape(str(change)) for change in changes[:_MAX_CHANGES]]
    if len(changes) > _MAX_CHANGES:
        lines.append(f"and {len(changes) - _MAX_CHANGES} more")
    return "\n".join(("<library-changes>", *lines, "</library-changes>"))


def _escape(text: str) -> str:
    return collapse_whitespace(reveal_hidden(text)).replace("<", "&lt;")
