"""What the calls of a session cost over time, what each skill cost, and what loading every skill would have cost.

Used by `kitbag context calls`, its exports and the web UI; uses context_summaries.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kitbag.agent.model_calls import ModelCall
from kitbag.runtime.context_calls import CallPricing, SessionContext, call_to_json, catalog_lines
from kitbag.runtime.context_summaries import CallSummary, summarize_calls
from kitbag.text.tokens import estimate_tokens

_TOKENS_PER_WORD: Final = 1.3
"""As the design counts."""


class TimelineRow(msgspec.Struct, frozen=True, kw_only=True):
    call: ModelCall
    tokens: int
    """Of the request, estimated."""
    predicted: int | None
    """Cached tokens, as context_diff predicts them."""
    skill_tokens: int
    """Of the skills in the request, estimated."""
    total_cost: float | None
    """Of the session up to this call; None if a price is unknown."""

    @property
    def residual(self) -> int | None:
        counted = self.call.usage.total_input
        return counted - self.tokens if counted else None

    def to_json(self) -> dict[str, Any]:
        return {
            **call_to_json(self.call),
            "tokens": self.tokens,
            "residual": self.residual,
            "predicted_cached": self.predicted,
            "skill_tokens": self.skill_tokens,
            "total_cost": self.total_cost,
        }


class SkillCost(msgspec.Struct, frozen=True, kw_only=True):
    """What a skill's own bytes cost: its text times the requests that carried it."""

    name: str
    listed_tokens: int
    """Its line in the catalog, in the last request that had it."""
    listed_requests: int
    tokens: int
    """Its text, in the last request that had it."""
    requests: int
    total_tokens: int
    """Of its text and its line, over all requests."""
    cost: float | None
    possible_tokens: int
    """Its text now."""

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "listed_tokens": self.listed_tokens,
            "listed_requests": self.listed_requests,
            "tokens": self.tokens,
            "requests": self.requests,
            "total_tokens": self.total_tokens,
            "cost": self.cost,
            "possible_tokens": self.possible_tokens,
        }


class SavingRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a request takes, beside the same request with every skill loaded from the start."""

    name: str
    everything: int
    used: int

    @property
    def saved(self) -> float:
        return 1 - self.used / self.everything if self.everything else 0.0

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "everything": self.everything, "used": self.used, "saved": self.saved}


class Savings(msgspec.Struct, frozen=True, kw_only=True):
    tokens: tuple[SavingRow, ...]
    """Every token of the request: prompt, tools, skills and messages."""
    words: tuple[SavingRow, ...]
    """1.3 tokens for each word of the system prompt and the loaded skills, as the design counts."""

    def to_json(self) -> dict[str, Any]:
        return {"tokens": [row.to_json() for row in self.tokens], "words": [row.to_json() for row in self.words]}


class ContextCosts(msgspec.Struct, frozen=True, kw_only=True):
    timeline: tuple[TimelineRow, ...]
    skills: tuple[SkillCost, ...]
    savings: Savings

    def to_json(self) -> dict[str, Any]:
        return {
            "calls": [row.to_json() for row in self.timeline],
            "skills": [skill.to_json() for skill in self.skills],
            "savings": self.savings.to_json(),
        }


class _SkillSum:
    def __init__(self) -> None:
        self.listed_tokens = self.listed_requests = self.tokens = self.requests = self.total_tokens = 0
        self.cost: float | None = 0.0

    def add_cost(self, tokens: int, cost: float | None) -> None:
        self.total_tokens += tokens
        self.cost = None if self.cost is None or cost is None else self.cost + cost


def compute_costs(context: SessionContext) -> ContextCosts:
    timeline: list[TimelineRow] = []
    sums: dict[str, _SkillSum] = {}
    savings: list[tuple[SavingRow, SavingRow]] = []
    lines = _CatalogLines()
    total: float | None = 0.0
    for one in summarize_calls(context):
        call = one.call
        total = None if total is None or call.cost is None else total + call.cost
        timeline.append(
            TimelineRow(
                call=call,
                tokens=one.tokens,
                predicted=one.predicted,
                skill_tokens=sum(span.tokens for span in one.skills),
                total_cost=total,
            )
        )
        if call.kind == "turn":
            _add_skill_costs(CallPricing(call, context.model_info(call), one.tokens), one, lines.find(call), sums)
            savings.append(_compute_saving(context, one))
    possible = context.possible_skills()
    for name in possible:
        sums.setdefault(name, _SkillSum())
    skills = [
        SkillCost(
            name=name,
            listed_tokens=one.listed_tokens,
            listed_requests=one.listed_requests,
            tokens=one.tokens,
            requests=one.requests,
            total_tokens=one.total_tokens,
            cost=one.cost,
            possible_tokens=possible[name].tokens if name in possible else 0,
        )
        for name, one in sums.items()
    ]
    skills.sort(key=lambda skill: (-skill.total_tokens, skill.name))
    return ContextCosts(timeline=tuple(timeline), skills=tuple(skills), savings=_sum_savings(savings))


class _CatalogLines:
    """Tokens of the lines of a catalog, counted once for all requests with the same prompt."""

    def __init__(self) -> None:
        self._known: tuple[object, dict[str, int]] = (None, {})

    def find(self, call: ModelCall) -> dict[str, int]:
        if self._known[0] is not call.prompt:
            self._known = call.prompt, {name: estimate_tokens(line) for name, line in catalog_lines(call).items()}
        return self._known[1]


def _add_skill_costs(
    pricing: CallPricing, summary: CallSummary, listed: Mapping[str, int], sums: dict[str, _SkillSum]
) -> None:
    carried: dict[str, int] = {}
    for span in summary.skills:
        carried[span.name] = carried.get(span.name, 0) + span.tokens
        sums.setdefault(span.name, _SkillSum()).add_cost(span.tokens, pricing.cost(span.start, span.tokens))
    for name, tokens in listed.items():
        one = sums.setdefault(name, _SkillSum())
        one.listed_tokens = tokens
        one.listed_requests += 1
        one.add_cost(tokens, pricing.cost(summary.catalog_start, tokens))
    for name, tokens in carried.items():
        sums[name].tokens = tokens
        sums[name].requests += 1


def _compute_saving(context: SessionContext, summary: CallSummary) -> tuple[SavingRow, SavingRow]:
    """By tokens and by words."""
    names = {span.name for span in summary.skills}
    others = [size for name, size in context.possible_skills().items() if name not in names]
    everything = summary.tokens - summary.listed_tokens + sum(size.tokens for size in others)
    words = summary.prompt_words + sum(span.words for span in summary.skills)
    all_words = words - summary.listed_words + sum(size.words for size in others)
    return (
        SavingRow(name="", everything=everything, used=summary.tokens),
        SavingRow(name="", everything=round(all_words * _TOKENS_PER_WORD), used=round(words * _TOKENS_PER_WORD)),
    )


def _sum_savings(rows: Sequence[tuple[SavingRow, SavingRow]]) -> Savings:
    if not rows:
        return Savings(tokens=(), words=())

    def make(at: int) -> tuple[SavingRow, ...]:
        everything, used = sum(row[at].everything for row in rows), sum(row[at].used for row in rows)
        return (
            msgspec.structs.replace(rows[0][at], name="first call"),
            msgspec.structs.replace(rows[-1][at], name="last call"),
            SavingRow(name="all calls", everything=everything, used=used),
        )

    return Savings(tokens=make(0), words=make(1))
