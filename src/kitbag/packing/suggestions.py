"""Blocks appended to a user message: skills that match it and that the catalog does not describe, and library
changes; and to a tool result: skills for the file. The prompt before them stays unchanged and cacheable.

Used by assembly at each message and by tools.path_skills; uses library.routing.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kitbag.library.library_changes import Change
from kitbag.library.registry import Registry
from kitbag.library.skills import Skill, is_path_activated
from kitbag.packing.catalog import catalog_budget, render_entry
from kitbag.text.hidden_characters import collapse_whitespace, reveal_hidden

if TYPE_CHECKING:
    from kitbag.library.routing.skill_search import SkillMatch

MAX_SUGGESTIONS: Final = 5
_MAX_FOR_LONG_MESSAGE, _LONG_MESSAGE = 8, 400
"""A message of so many characters may have several needs."""
_MAX_CHARACTERS: Final = 3_200
_SEARCHED: Final = 40
_OPENING: Final = "<suggested-skills>"
_CLOSING: Final = "</suggested-skills>"
_MIN_SCORE_SHARE: Final = 0.25
"""A skill is suggested if its score is at least this share of the best one."""
_REPEATED_SHARE: Final = 0.7
"""What the score of a skill counts if skills before it match all that it matches."""
_BODY_SHARE: Final = 0.4
_REASON = re.compile(r" \[[^\[\]]*\]$")
_MAX_CHANGES = 20


def suggest_skills(library: Registry, message: str, catalog: str, known: Collection[str] = ()) -> str:
    """The block, or an empty string. `message`: what the user typed; `catalog`: the one in the prompt and what was
    suggested before; `known`: names of skills that are loaded."""
    max_length = catalog_budget(library.settings).entry
    described = frozenset(form for line in catalog.splitlines() for form in (line, _REASON.sub("", line)))
    if _describes_all(library, described, max_length):
        return ""
    from kitbag.library.routing.skill_search import search_skills

    hits = search_skills(library, message, _SEARCHED)
    best = max(hit.score for hit in hits) if any(hit.is_confident for hit in hits) else math.inf
    lines: list[str] = []
    left = _MAX_CHARACTERS
    most = MAX_SUGGESTIONS if len(message) < _LONG_MESSAGE else _MAX_FOR_LONG_MESSAGE
    for hit in cover_needs(hits, best):
        if hit.skill.full_name in known or is_path_activated(hit.skill):
            continue
        entry = render_entry(hit.skill)
        if described.isdisjoint((entry, render_entry(hit.skill, max_length))):
            line = f"{entry} [{_escape(hit.reason)}]"
            left -= len(line)
            if lines and (left < 0 or len(lines) >= most):
                break
            lines.append(line)
    return _block("Keyword matches for this message:", lines)


def cover_needs(hits: "Sequence[SkillMatch]", best: float) -> "list[SkillMatch]":
    """The skills with a high score, those first that match something that no skill before them matches. `best`: the
    highest score."""
    left = [(hit, {word: _BODY_SHARE * weight for word, weight in hit.body_words.items()} | hit.words) for hit in hits]
    covered: set[str] = set()
    chosen: list[SkillMatch] = []
    while left:
        values = [hit.score * _share_of_new(weights, covered) for hit, weights in left]
        at = max(range(len(left)), key=values.__getitem__)
        if values[at] < _MIN_SCORE_SHARE * best:
            break
        hit, weights = left.pop(at)
        chosen.append(hit)
        covered.update(weights)
    return chosen


def _share_of_new(weights: Mapping[str, float], covered: Collection[str]) -> float:
    """1 if nothing is covered, `_REPEATED_SHARE` if everything is."""
    total = sum(weights.values())
    if not total:
        return 1.0
    new = sum(weight for word, weight in weights.items() if word not in covered)
    return _REPEATED_SHARE + (1.0 - _REPEATED_SHARE) * new / total


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
