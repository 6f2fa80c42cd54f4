"""Pairs of skills that messages will confuse: how alike they are, messages that show it, and words that would
separate them.

Each skill's description, sentence by sentence, and the messages of its tests are ranked against the whole library.
Used by `kitbag skills lint --collisions`; uses library.routing.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from kitbag.library.registry import Registry
from kitbag.library.routing.message_terms import split_passages
from kitbag.library.routing.retrieval import term_weight
from kitbag.library.routing.skill_search import SkillMatch, search_skills
from kitbag.library.routing.skill_text import read_skill_text, summary_without_exclusions
from kitbag.library.routing.terms import list_terms, term_keys
from kitbag.library.skills import Skill
from kitbag.packing.skill_cases import find_case_files, read_cases

_MIN_OVERLAP: Final = 0.5
"""Share of a description's weight that another skill's name and description have."""
_MIN_WORDS: Final = 3
"""A shorter sentence is no message that shows a collision."""
_CLOSE: Final = 0.9
"""Scores of which the lower is at least this share of the higher one are a tie."""
_SEARCHED: Final = 12
_MAX_MESSAGES: Final = 3
_MAX_WORDS: Final = 5
_HEADING_COUNT: Final = 3
_NO_PROSE: Final = re.compile(
    r"^(```|~~~).*?^\1|<!--.*?-->|</?[a-zA-Z][^<>\n]*>|`[^`\n]*`|\bhttps?://\S+|\]\([^)\s]*\)", re.MULTILINE | re.DOTALL
)
"""Code blocks and spans, comments, tags, addresses and the targets of links."""
_MAX_SHARED: Final = 4
"""Words that both skills have, as a short message."""


class SkillCollision(msgspec.Struct, frozen=True, kw_only=True):
    first: str
    second: str
    overlap: float
    """Share of one description that the other covers, from 0 to 1: the higher of both directions."""
    messages: tuple[str, ...]
    """Taken from tests and descriptions; the ranking chooses the wrong skill or can't tell them apart."""
    first_words: tuple[str, ...]
    """Words that are in the instructions of the first skill only, and would tell them apart in its description."""
    second_words: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "second": self.second,
            "overlap": self.overlap,
            "messages": list(self.messages),
            "first_words": list(self.first_words),
            "second_words": list(self.second_words),
        }


class CollisionReport(msgspec.Struct, frozen=True, kw_only=True):
    collisions: tuple[SkillCollision, ...]
    """The worst first: those that a message confuses, then those whose descriptions overlap most."""
    total: int
    """With those that were not asked for."""


class _Pair:
    def __init__(self, first: Skill, second: Skill) -> None:
        self.first, self.second = sorted((first, second), key=lambda skill: skill.full_name.lower())
        self.overlap = 0.0
        self.messages: list[str] = []
        self.names = self.first.full_name.lower(), self.second.full_name.lower()


def find_collisions(
    library: Registry,
    skills: Sequence[Skill] | None = None,
    *,
    most: int = 0,
    report: Callable[[int, int], None] | None = None,
) -> CollisionReport:
    """`skills`: only pairs with one of these. `most`: describe at most this many; 0: all. `report`: is called with the
    number of skills that are compared and of all. Only skills that a model may find can collide."""
    view = library.visibility_context()
    pairs: dict[frozenset[str], _Pair] = {}
    compared = list(library.skills if skills is None else skills)
    for number, skill in enumerate(compared, 1):
        if library.evaluate(skill, view).searchable:
            _compare(library, skill, pairs)
        if report is not None:
            report(number, len(compared))
    found = [pair for pair in pairs.values() if pair.overlap >= _MIN_OVERLAP or pair.messages]
    found.sort(
        key=lambda one: (not one.messages, -one.overlap, one.first.full_name.lower(), one.second.full_name.lower())
    )
    terms = _SkillTerms(pair_skill for pair in found[: most or None] for pair_skill in (pair.first, pair.second))
    return CollisionReport(
        collisions=tuple(_make_collision(pair, terms) for pair in found[: most or None]), total=len(found)
    )


def _compare(library: Registry, skill: Skill, pairs: dict[frozenset[str], _Pair]) -> None:
    summary = summary_without_exclusions(skill)
    for match in search_skills(library, summary, _SEARCHED):
        if match.skill is not skill and match.features.coverage >= _MIN_OVERLAP:
            pair = _pair(pairs, skill, match.skill)
            pair.overlap = max(pair.overlap, round(match.features.coverage, 2))
            shared = " ".join(list(dict.fromkeys(" ".join(match.words).split()))[:_MAX_SHARED])
            tied = {hit.skill.full_name for hit in search_skills(library, shared, 2) if hit.is_confident}
            if tied == {skill.full_name, match.skill.full_name}:
                pair.messages.append(shared)
    for message in dict.fromkeys((*_test_messages(skill), *split_passages(summary))):
        if len(set(term_keys(message))) < _MIN_WORDS:
            continue
        hits = search_skills(library, message, 2)
        other = _confused_with(skill, hits)
        if other is not None:
            _pair(pairs, skill, other).messages.append(message)


def _confused_with(skill: Skill, hits: Sequence[SkillMatch]) -> Skill | None:
    """The skill that a message of this skill chooses instead, or can't tell from it."""
    if not hits or not hits[0].is_confident:
        return None
    if hits[0].skill is not skill:
        return hits[0].skill
    if len(hits) > 1 and hits[1].is_confident and hits[1].score >= _CLOSE * hits[0].score:
        return hits[1].skill
    return None


def _pair(pairs: dict[frozenset[str], _Pair], skill: Skill, other: Skill) -> _Pair:
    return pairs.setdefault(frozenset((skill.full_name, other.full_name)), _Pair(skill, other))


def _test_messages(skill: Skill) -> Iterable[str]:
    for path in find_case_files(skill):
        yield from (case.message for case in read_cases(skill, path).cases if case.should_load)


class _SkillTerms:
    """The words of skills that collide, and how many of these skills have each."""

    def __init__(self, skills: Iterable[Skill]) -> None:
        self._counts: dict[str, dict[str, tuple[str, int]]] = {}
        self._frequencies: dict[str, int] = {}
        for skill in skills:
            if skill.full_name not in self._counts:
                counts = self._counts[skill.full_name] = _count_terms(skill)
                for key in counts:
                    self._frequencies[key] = self._frequencies.get(key, 0) + 1

    def separating_words(self, skill: Skill, other: Skill) -> tuple[str, ...]:
        """Words that only the instructions of `skill` have: frequent there, rare among skills that collide."""
        excluded = self._counts[other.full_name]
        described = set(term_keys(f"{skill.full_name} {skill.summary}"))
        total = len(self._counts)
        weights = {
            word: math.log1p(count) * term_weight(key, total, 1) * math.log1p(total / self._frequencies[key])
            for key, (word, count) in self._counts[skill.full_name].items()
            if key not in excluded and key not in described and word.isalpha() and len(word) > 2
        }
        return tuple(sorted(weights, key=lambda word: (-weights[word], word))[:_MAX_WORDS])


def _make_collision(pair: _Pair, terms: _SkillTerms) -> SkillCollision:
    return SkillCollision(
        first=pair.first.full_name,
        second=pair.second.full_name,
        overlap=pair.overlap,
        messages=tuple(sorted(dict.fromkeys(pair.messages), key=len, reverse=True))[:_MAX_MESSAGES],
        first_words=terms.separating_words(pair.first, pair.second),
        second_words=terms.separating_words(pair.second, pair.first),
    )


def _count_terms(skill: Skill) -> dict[str, tuple[str, int]]:
    """By key: the word and how often it occurs in the whole skill; headings count more. Code, markup and addresses have
    no words that a description would use."""
    text = read_skill_text(skill)
    found: dict[str, tuple[str, int]] = {}
    body = _NO_PROSE.sub(" ", text.body)
    for part, count in ((skill.full_name, 1), (skill.summary, 1), (text.headings, _HEADING_COUNT), (body, 1)):
        for key, word in list_terms(part):
            found[key] = (found[key][0] if key in found else word, (found[key][1] if key in found else 0) + count)
    return found
