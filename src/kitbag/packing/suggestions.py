"""What stands at the tail of a person's message: skills that its words speak for and the catalog does not describe,
and what has changed in the library since; and at the tail of a result, skills for the file that was used. The prompt
before it stays as it is, so that it can be cached.

Used by runtime at each message and by tools/path_skills; uses the router.
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
"""Characters of a message that are looked at: people ask first, or after what they pasted."""
_MIN_SCORE_SHARE = 0.4
"""The share of the best one's score that others need."""
_MAX_CHANGES = 20


def suggest_skills(library: Registry, message: str, catalog: str, known: Collection[str] = ()) -> str:
    """The block, or nothing. `message` is what the person typed, `catalog` the text the model already has; `known`
    are the names of skills that are loaded, or were suggested before."""
    longest = catalog_budget(library.settings).entry
    described = frozenset(catalog.splitlines())
    if _describes_all(library, described, longest):
        return ""
    from kitbag.library.routing.skill_search import search_skills

    said = (
        message
        if len(message) <= _LEADING_CHARACTERS + _TRAILING_CHARACTERS
        else f"{message[:_LEADING_CHARACTERS]} {message[-_TRAILING_CHARACTERS:]}"
    )
    hits = [hit for hit in search_skills(library, said, MAX_SUGGESTIONS * 3) if hit.is_confident]
    lines = [
        render_entry(hit.skill)
        for hit in hits
        if hit.score >= hits[0].score * _MIN_SCORE_SHARE
        and hit.skill.full_name not in known
        and not is_path_activated(hit.skill)
        and render_entry(hit.skill, longest) not in described
    ]
    return _block("Found by the words of this message:", lines[:MAX_SUGGESTIONS])


def suggest_skills_for_file(skills: Sequence[Skill]) -> str:
    """The block for the tail of a result, or nothing."""
    return _block(
        "For work with this file, by their `paths`:", [render_entry(skill) for skill in skills[:MAX_SUGGESTIONS]]
    )


def _block(why: str, lines: Sequence[str]) -> str:
    return "\n".join((_OPENING, why, *lines, _CLOSING)) if lines else ""


def extract_suggestions(text: str) -> list[str]:
    """The lines of a block at the end of a text."""
    start = text.rfind(_OPENING)
    return text[start:].splitlines() if start >= 0 and text.rstrip().endswith(_CLOSING) else []


def _describes_all(library: Registry, described: frozenset[str], longest: int) -> bool:
    """Whether there is nothing that could be suggested; with many skills, the last one answers that."""
    view = library.visibility_context()
    for skill in reversed(list(library.skills)):
        if is_path_activated(skill):
            continue
        if render_entry(skill, longest) not in described and library.evaluate(skill, view).searchable:
            return False
    return True


def library_changes_notice(changes: Sequence[Change]) -> str:
    """Skills and agents that came, went or changed since the conversation began."""
    if not changes:
        return ""
    lines = [_escape(str(change)) for change in changes[:_MAX_CHANGES]]
    if len(changes) > _MAX_CHANGES:
        lines.append(f"and {len(changes) - _MAX_CHANGES} more")
    return "\n".join(("<library-changes>", *lines, "</library-changes>"))


def _escape(text: str) -> str:
    return collapse_whitespace(reveal_hidden(text)).replace("<", "&lt;")
