"""Chooses how much of each skill a payload includes: minimal, standard or comprehensive (seed 001 §3, CONTRACT §4).

Used by pack.
"""

from typing import Literal

import msgspec

from kitbag.packing.task_sources import PackTask

Strategy = Literal["minimal", "standard", "comprehensive"]
STRATEGIES: tuple[Strategy, ...] = ("minimal", "standard", "comprehensive")
TIGHT_TOKENS, MODERATE_TOKENS = 800, 3_000
BUSY_SHARE = 0.7


class StrategyChoice(msgspec.Struct, frozen=True, kw_only=True):
    strategy: Strategy
    reason: str


def choose_strategy(
    task: PackTask, skills: int, available: int, used: int, overhead: int, requested: Strategy | None = None
) -> StrategyChoice:
    """Applies the first matching rule. `overhead`: tokens that the budgets reserve for protocol and task."""
    if requested is not None:
        return StrategyChoice(strategy=requested, reason="requested")
    share = used / available if available > 0 else 1.0
    if share > BUSY_SHARE:
        return StrategyChoice(
            strategy="minimal", reason=f"{share:.0%} of the context is in use, more than {BUSY_SHARE:.0%}"
        )
    tokens_per_skill = max(available - overhead, 0) // max(skills, 1)
    if tokens_per_skill < TIGHT_TOKENS:
        return StrategyChoice(
            strategy="minimal", reason=f"{tokens_per_skill:,} tokens per skill, under {TIGHT_TOKENS:,}"
        )
    if "simple" in {label.lower() for label in task.labels}:
        return StrategyChoice(strategy="minimal", reason="the task is labeled simple")
    if task.size == "small":
        return StrategyChoice(strategy="minimal", reason="the task is small")
    if tokens_per_skill < MODERATE_TOKENS:
        return StrategyChoice(
            strategy="standard", reason=f"{tokens_per_skill:,} tokens per skill, under {MODERATE_TOKENS:,}"
        )
    if task.type == "epic":
        return StrategyChoice(strategy="comprehensive", reason="the task is an epic")
    if task.complexity == "high":
        return StrategyChoice(strategy="comprehensive", reason="the task's complexity is high")
    if len(task.depends) > 3:
        return StrategyChoice(
            strategy="comprehensive", reason=f"the task has {len(task.depends)} dependencies, more than 3"
        )
    return StrategyChoice(strategy="standard", reason="no other rule applies")
