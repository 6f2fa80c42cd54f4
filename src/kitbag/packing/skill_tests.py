"""Tests the descriptions of skills without a model: does the ranking choose the skill for each of its messages, in
competition with the whole library?

Used by `kitbag skills test`; runtime/skill_trials asks a model instead and fills the same results.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec

from kitbag.library.registry import Registry
from kitbag.library.routing.skill_search import search_skills
from kitbag.packing.skill_case_formats import SkillCase
from kitbag.packing.suggestions import SEARCHED_MATCHES, decide_suggestions

_INVOCATION: Final = re.compile(r"\s*/(\S+)")
CaseOutcome = Literal["passed", "failed", "skipped", "error"]
"""`error`: the model gave no answer, so nothing is known."""
ReportProgress = Callable[[int, int], None]
"""(cases that are done, all cases)"""


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    case: SkillCase
    outcome: CaseOutcome
    chosen: tuple[str, ...]
    """The skills that were chosen for the message, best first."""
    reason: str
    rank: int = 0
    """Position of the skill among all matches; 0: no match, or a model was asked."""
    seconds: float = 0.0
    cost: float | None = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "skill": self.case.skill,
            "id": self.case.id,
            "file": self.case.file,
            "message": self.case.message,
            "should_load": self.case.should_load,
            "outcome": self.outcome,
            "chosen": list(self.chosen),
            "rank": self.rank,
            "reason": self.reason,
            "cost": self.cost,
        }


class Confusion(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one skill for which another was chosen."""

    skill: str
    """Empty: the message needs another skill or none."""
    chosen: str
    """Empty: none was chosen."""
    messages: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"skill": self.skill, "chosen": self.chosen, "messages": list(self.messages)}


def check_routing(
    library: Registry, cases: Sequence[SkillCase], report: ReportProgress | None = None
) -> list[CaseResult]:
    """A message chooses the skills that would be suggested for it if the catalog described none."""
    results: list[CaseResult] = []
    for case in cases:
        results.append(_test_case(library, case))
        if report is not None:
            report(len(results), len(cases))
    return results


def judge_invocation(library: Registry, case: SkillCase) -> CaseResult | None:
    """`/name` loads a skill, whatever the ranking or a model would choose. None for any other message."""
    command = _INVOCATION.match(case.message)
    candidates = library.skills.candidates(command[1]) if command is not None else []
    if len(candidates) != 1 or not library.evaluate(candidates[0]).user:
        return None
    return judge(case, (candidates[0].full_name,), "the message invokes it")


def _test_case(library: Registry, case: SkillCase) -> CaseResult:
    if (invoked := judge_invocation(library, case)) is not None:
        return invoked
    hits = search_skills(library, case.message, SEARCHED_MATCHES)
    decisions = decide_suggestions(library, case.message, hits, "")
    chosen = tuple(one.match.skill.full_name for one in decisions if one.outcome == "suggested")
    rank = next((at for at, hit in enumerate(hits, 1) if hit.skill.full_name == case.skill), 0)
    own = next((one for one in decisions if one.match.skill.full_name == case.skill), None)
    if own is None:
        reason = _unmatched_reason(library, case) if not rank else ""
    else:
        reason = own.match.reason if own.outcome == "suggested" else own.rule
    return judge(case, chosen, reason, rank=rank)


def _unmatched_reason(library: Registry, case: SkillCase) -> str:
    skill = library.skills.get_exact(case.skill)
    verdict = library.evaluate(skill) if skill is not None else None
    if verdict is not None and not verdict.searchable:
        return f"a model may not find it: {verdict.reason}"
    return "no word of the message is in its name, description or instructions"


def judge(
    case: SkillCase,
    chosen: tuple[str, ...],
    reason: str,
    *,
    rank: int = 0,
    seconds: float = 0.0,
    cost: float | None = 0.0,
) -> CaseResult:
    passed = (case.skill in chosen) == case.should_load
    if passed:
        reason = ""
    elif not case.should_load:
        reason = f"chosen, but should not be{f' ({reason})' if reason else ''}"
    else:
        instead = f"{', '.join(chosen[:3])} instead" if chosen else "no skill was chosen"
        reason = f"not chosen: {instead}{f' ({reason})' if reason else ''}"
    return CaseResult(
        case=case,
        outcome="passed" if passed else "failed",
        chosen=chosen,
        reason=reason,
        rank=rank,
        seconds=seconds,
        cost=cost,
    )


def find_confusions(results: Sequence[CaseResult]) -> list[Confusion]:
    """Of the failed cases, most frequent first."""
    found: dict[tuple[str, str], list[str]] = {}
    for result in results:
        if result.outcome != "failed":
            continue
        case = result.case
        pair = (case.skill, result.chosen[0] if result.chosen else "") if case.should_load else ("", case.skill)
        found.setdefault(pair, []).append(case.message)
    ordered = sorted(found.items(), key=lambda one: (-len(one[1]), one[0]))
    return [Confusion(skill=pair[0], chosen=pair[1], messages=tuple(messages)) for pair, messages in ordered]


def count_outcomes(results: Sequence[CaseResult]) -> dict[CaseOutcome, int]:
    counts: dict[CaseOutcome, int] = {"passed": 0, "failed": 0, "skipped": 0, "error": 0}
    for result in results:
        counts[result.outcome] += 1
    return counts
