"""Explains for a message what the ranking does with each skill: its features, what matched, whether the model is
notified about it, and the rule that decides.

Used by `kitbag skills explain` and `/why`; uses library.routing and suggestions, which decide.
"""

from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec

from kitbag.library.registry import Registry
from kitbag.library.routing.skill_search import SkillMatch, search_skills
from kitbag.library.skills import Skill
from kitbag.library.visibility import Verdict
from kitbag.packing.catalog import catalog_budget, catalog_name, parse_catalog_lines, render_entry, render_skills
from kitbag.packing.suggestions import (
    MIN_SCORE_SHARE,
    SEARCHED_MATCHES,
    SuggestionDecision,
    best_score,
    decide_suggestions,
)

RoutingOutcome = Literal["loaded", "suggested", "described", "not suggested", "hidden", "no match"]
_MAX_CONSIDERED = 200


class SkillExplanation(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    outcome: RoutingOutcome
    rule: str
    listing: str
    """In the catalog: described, shortened, by name, or no."""
    match: SkillMatch | None = None

    def to_json(self) -> dict[str, Any]:
        match = self.match
        found: dict[str, Any] = {
            "name": self.name,
            "outcome": self.outcome,
            "rule": self.rule,
            "listing": self.listing,
            "probability": match.probability if match else 0.0,
            "score": match.score if match else 0.0,
        }
        if match is not None:
            found |= {
                "reason": match.reason,
                "usage": match.usage,
                "touched": match.touched,
                "words": match.words,
                "body_words": match.body_words,
                "passage": match.passage,
                "features": {name: round(value, 4) for name, value in msgspec.structs.asdict(match.features).items()},
            }
        return found


class RoutingExplanation(msgspec.Struct, frozen=True, kw_only=True):
    message: str
    skills: tuple[SkillExplanation, ...]
    """Best match first; a skill that was asked for and does not match is last."""
    session: str = ""
    turn: int = 0
    """The number of the message in its session; 0: the message belongs to none."""

    def to_json(self) -> dict[str, Any]:
        return {
            "message": self.message,
            "session": self.session,
            "turn": self.turn,
            "skills": [skill.to_json() for skill in self.skills],
        }


class RoutingState(msgspec.Struct, frozen=True, kw_only=True):
    """What a session's model knew at a message, and what came of it."""

    catalog: str = ""
    known: frozenset[str] = frozenset()
    """Skills that were loaded before the message."""
    suggested_before: str = ""
    """The blocks of earlier messages."""
    suggested: frozenset[str] | None = None
    """As recorded; None: decide now."""
    suggested_for_files: frozenset[str] = frozenset()
    """For files that were used after the message."""
    touched: tuple[str, ...] = ()
    """Files that tools used in the turns before the message, newest first."""
    loaded: Mapping[str, str] = {}
    """Skills that this message led to, with how."""


def new_session_state(library: Registry) -> RoutingState:
    """The first message of a new session."""
    return RoutingState(catalog=render_skills(library.visible_skills(), catalog_budget(library.settings)).text)


def explain_routing(
    library: Registry,
    message: str,
    state: RoutingState,
    *,
    most: int = 10,
    names: Collection[str] = (),
    wait: float = 0.0,
    session: str = "",
    turn: int = 0,
) -> RoutingExplanation:
    """`most`: number of matches to explain. `names`: explain these skills instead. `wait`: seconds for the index."""
    matches = search_skills(library, message, _MAX_CONSIDERED, wait=wait, hidden=True, touched=state.touched)
    considered = [match for match in matches if match.visibility.searchable][:SEARCHED_MATCHES]
    catalog = f"{state.catalog}\n{state.suggested_before}"
    decisions = decide_suggestions(library, message, considered, catalog, state.known)
    explain = _Explainer(library, state, {one.match.skill.full_name: one for one in decisions})
    by_name = {match.skill.full_name: match for match in matches}
    if names:
        skills = [library.find_skill(name) for name in names]
    else:
        led_to = (*state.loaded, *state.suggested_for_files)
        used = [skill for name in led_to if (skill := library.skills.get_exact(name)) is not None]
        # A skill that a model may not find is worth mentioning only if its score would be enough to suggest it.
        least = MIN_SCORE_SHARE * best_score(matches)
        shown = [match.skill for match in matches if match.visibility.searchable or match.score >= least]
        skills = list(dict.fromkeys([*shown[:most], *used]))
    found = tuple(explain.explain(skill, by_name.get(skill.full_name)) for skill in skills)
    return RoutingExplanation(message=message, skills=found, session=session, turn=turn)


class _Explainer:
    def __init__(self, library: Registry, state: RoutingState, decisions: Mapping[str, SuggestionDecision]) -> None:
        self._library = library
        self._view = library.visibility_context()
        self._state = state
        self._decisions = decisions
        self._lines = parse_catalog_lines(state.catalog)
        self._entry = catalog_budget(library.settings).entry

    def explain(self, skill: Skill, match: SkillMatch | None) -> SkillExplanation:
        listing = self._listing(skill)
        outcome, rule = self._decide(skill, match, listing)
        if match is not None and match.touched_rule and outcome != "hidden":
            rule = f"{rule}; raised: {match.touched_rule}"
        return SkillExplanation(name=skill.full_name, outcome=outcome, rule=rule, listing=listing, match=match)

    def _listing(self, skill: Skill) -> str:
        line = self._lines.get(catalog_name(skill), "")
        if not line:
            return "no"
        if line == f"- {catalog_name(skill)}":
            return "by name"
        return "described" if line == render_entry(skill, self._entry) else "shortened"

    def _decide(self, skill: Skill, match: SkillMatch | None, listing: str) -> tuple[RoutingOutcome, str]:
        name, state = skill.full_name, self._state
        if name in state.loaded:
            return "loaded", state.loaded[name]
        verdict = self._library.evaluate(skill, self._view)
        if not verdict.searchable:
            return "hidden", _hidden_rule(verdict)
        if state.suggested is not None and name in state.suggested:
            return "suggested", f"recorded with this message: {match.reason if match else 'it matched then'}"
        if name in state.suggested_for_files:
            return "suggested", "for a file that was used and that matches its `paths`"
        decision = self._decisions.get(name)
        if decision is not None:
            if decision.outcome == "suggested" and state.suggested is not None:
                return "not suggested", "was not suggested then; it would be now"
            return decision.outcome, decision.rule
        if listing == "described":
            return "described", "the catalog describes it"
        if match is None:
            return "no match", "no word of the message is in its name, description, tags, triggers or instructions"
        return "not suggested", f"not among the {SEARCHED_MATCHES} best matches"


def _hidden_rule(verdict: Verdict) -> str:
    return verdict.reason or "a model may not find it"
