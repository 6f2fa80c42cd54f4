"""Blocks appended to a user message: skills that match it and that the catalog does not describe, and library
changes; and to a tool result: skills for the file. The prompt before them stays unchanged and cacheable.

Used by assembly at each message and by tools.path_skills; uses library.routing.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from kitbag.library.library_changes import Change
from kitbag.library.registry import Registry
from kitbag.library.skills import Skill, is_path_activated
from kitbag.packing.catalog import catalog_budget, parse_catalog_lines, render_entry
from kitbag.text.hidden_characters import collapse_whitespace, reveal_hidden

if TYPE_CHECKING:
    from kitbag.library.routing.skill_search import SkillMatch

MAX_SUGGESTIONS: Final = 5
_MAX_FOR_LONG_MESSAGE: Final = 14
"""It may have several needs."""
_ENTRY, _ENTRY_OF_MANY = 400, 160
"""The longest description, and the longest one for a long message."""
_MAX_CHARACTERS: Final = 3_200
SEARCHED_MATCHES: Final = 40
_OPENING: Final = "<suggested-skills>"
_CLOSING: Final = "</suggested-skills>"
MIN_SCORE_SHARE, _MIN_SCORE_SHARE_OF_MANY = 0.45, 0.27
"""A skill is suggested if its score is at least this share of the best one; the second is for long messages."""
_REPEATED_SHARE: Final = 0.8
"""What the score of a skill counts if skills before it match all that it matches."""
_BODY_SHARE: Final = 0.4
_MENTIONED_RULE: Final = "the message names a file that matches its `paths`, and the catalog does not describe it"
_PROBABLE_RULE: Final = "probable enough, and the catalog does not describe it"
_REASON = re.compile(r" \[[^\[\]]*\]$")
_MAX_CHANGES = 20


class SuggestionDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a skill that matches a message is suggested, and the rule that decides."""

    match: "SkillMatch"
    outcome: Literal["suggested", "described", "loaded", "not suggested"]
    rule: str
    line: str = ""
    """Of the block, if it is suggested."""


def suggest_skills(
    library: Registry, message: str, catalog: str, known: Collection[str] = (), touched: Sequence[str] = ()
) -> str:
    """The block, or an empty string. `message`: what the user typed; `catalog`: the one in the prompt and what was
    suggested before; `known`: names of skills that are loaded; `touched`: files that were used before the message."""
    if _describes_all(library, _split_catalog(catalog), catalog_budget(library.settings).entry, message, touched):
        return ""
    from kitbag.library.routing.skill_search import search_skills

    hits = search_skills(library, message, SEARCHED_MATCHES, touched=touched)
    decisions = decide_suggestions(library, message, hits, catalog, known)
    return _block("Keyword matches for this message:", [one.line for one in decisions if one.line])


def decide_suggestions(
    library: Registry, message: str, hits: "Sequence[SkillMatch]", catalog: str, known: Collection[str] = ()
) -> list[SuggestionDecision]:
    """For each match, suggested ones first, in the order of the block. `catalog` and `known`: as for suggest_skills."""
    from kitbag.library.routing.ranking_model import LONG_MESSAGE

    max_length, described = catalog_budget(library.settings).entry, _split_catalog(catalog)
    best = best_score(hits)
    suggested: list[SuggestionDecision] = []
    others: list[SuggestionDecision] = []
    is_long = any(hit.features.terms >= math.log(LONG_MESSAGE) for hit in hits[:1])
    share = _MIN_SCORE_SHARE_OF_MANY if is_long else MIN_SCORE_SHARE
    named = [hit for hit in hits if _is_named_by_file(hit)]
    covering = [*named, *cover_needs([hit for hit in hits if not _is_named_by_file(hit)], share * best)]
    left = _MAX_CHARACTERS
    most, length = (_MAX_FOR_LONG_MESSAGE, _ENTRY_OF_MANY) if is_long else (MAX_SUGGESTIONS, _ENTRY)
    chosen = {hit.skill.full_name for hit in covering}
    for hit in (*covering, *(hit for hit in hits if hit.skill.full_name not in chosen)):
        entries = {render_entry(hit.skill, longest) for longest in (_ENTRY, _ENTRY_OF_MANY, max_length)}
        if hit.skill.full_name in known:
            others.append(SuggestionDecision(match=hit, outcome="loaded", rule="loaded skills are not suggested"))
        elif not described.isdisjoint(entries):
            rule = "the catalog, or an earlier suggestion, describes it"
            others.append(SuggestionDecision(match=hit, outcome="described", rule=rule))
        elif is_path_activated(hit.skill) and not hit.features.path and "`paths`" not in hit.touched_rule:
            rule = "it has `paths`: suggested when a matching file is named or used"
            others.append(SuggestionDecision(match=hit, outcome="not suggested", rule=rule))
        elif hit.skill.full_name not in chosen:
            others.append(SuggestionDecision(match=hit, outcome="not suggested", rule=_ranking_rule(hit, best, share)))
        else:
            line = f"{render_entry(hit.skill, length)} [{_escape(hit.reason)}]"
            left -= len(line)
            if suggested and (left < 0 or len(suggested) >= most):
                left = -1  # the first that does not fit ends the block
                rule = f"at most {most} suggestions and {_MAX_CHARACTERS:,} characters per message"
                others.append(SuggestionDecision(match=hit, outcome="not suggested", rule=rule))
            else:
                rule = _MENTIONED_RULE if _is_named_by_file(hit) else f"{_PROBABLE_RULE}: {hit.reason}"
                suggested.append(SuggestionDecision(match=hit, outcome="suggested", rule=rule, line=line))
    return [*suggested, *others]


def _is_named_by_file(hit: "SkillMatch") -> bool:
    return bool(hit.features.path) and is_path_activated(hit.skill)


def best_score(hits: "Sequence[SkillMatch]") -> float:
    """Infinite if the message seems to need no skill, apart from those for the files that it names."""
    others = [hit for hit in hits if not _is_named_by_file(hit)]
    return max(hit.score for hit in others) if any(hit.is_confident for hit in others) else math.inf


def _ranking_rule(hit: "SkillMatch", best: float, share: float) -> str:
    if best == math.inf:
        return "the message seems to need no skill"
    if hit.score < share * best:
        return f"its score is less than {share:.0%} of the best one"
    return "better matches cover the same words"


def _split_catalog(catalog: str) -> frozenset[str]:
    """Its lines, with and without the reason of a suggestion."""
    return frozenset(form for line in catalog.splitlines() for form in (line, _REASON.sub("", line)))


def cover_needs(hits: "Sequence[SkillMatch]", least: float) -> "list[SkillMatch]":
    """The skills with at least this score, those first that match something that no skill before them matches."""
    left = [(hit, {word: _BODY_SHARE * weight for word, weight in hit.body_words.items()} | hit.words) for hit in hits]
    covered: set[str] = set()
    chosen: list[SkillMatch] = []
    while left:
        values = [hit.score * _share_of_new(weights, covered) for hit, weights in left]
        at = max(range(len(left)), key=values.__getitem__)
        if values[at] < least:
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


def list_suggested(block: str) -> list[str]:
    """The names of the skills in a block of suggestions."""
    from html import unescape

    return [unescape(name) for name in parse_catalog_lines(block)]


def extract_suggestions(text: str) -> list[str]:
    """The lines of the suggestion block at the end of a text."""
    start = text.rfind(_OPENING)
    return text[start:].splitlines() if start >= 0 and text.rstrip().endswith(_CLOSING) else []


def _describes_all(
    library: Registry, described: frozenset[str], max_length: int, message: str, touched: Sequence[str]
) -> bool:
    """True if there is nothing to suggest. With many skills, checking the last ones first finds a difference early."""
    from kitbag.library.routing.mentioned_files import find_mentioned_files

    view = library.visibility_context()
    has_files = bool(touched) or any(find_mentioned_files(message))
    for skill in reversed(list(library.skills)):
        if is_path_activated(skill) and not has_files:
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
