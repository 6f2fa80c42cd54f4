"""Chooses how much of each skill a payload includes: minimal, standard or comprehensive (seed 001 §3, CONTRACT §4).

Used by pack.
"""

from typing import Literal, NamedTuple

from kitbag.packing.task_sources import PackTask

Strategy = Literal["minimal", "standard", "comprehensive"]
STRATEGIES: tuple[Strategy, ...] = ("minimal", "standard", "comprehensive")
TIGHT_TOKENS, MODERATE_TOKENS = 800, 3_000
BUSY_SHARE = 0.7


class StrategyChoice(NamedTuple):
    strategy: Strategy
    reason: str


def choose_strategy(
    task: PackTask, skills: int, available: int, used: int, overhead: int, requested: Strategy | None = None
) -> StrategyChoice:
    """Applies the first matching rule. `overhead`: tokens that the budgets reserve for protocol and task."""
    if requested is not None:
        return StrategyChoice(requested, "requested")
    share = used / available if available > 0 else 1.0
    if share > BUSY_SHARE:
        return StrategyChoice("minimal", f"{share:.0%} of the context is in use, more than {BUSY_SHARE:.0%}")
    tokens_per_skill = max(available - overhead, 0) // max(skills, 1)
    if tokens_per_skill < TIGHT_TOKENS:
        return StrategyChoice("minimal", f"{tokens_per_skill:,} tokens per skill, under {TIGHT_TOKENS:,}")
    if "simple" in {label.lower() for label in task.labels}:
        return StrategyChoice("minimal", "the task is labeled simple")
    if task.size == "small":
        return StrategyChoice("minimal", "the task is small")
    if tokens_per_skill < MODERATE_TOKENS:
        return StrategyChoice("standard", f"{tokens_per_skill:,} tokens per skill, under {MODERATE_TOKENS:,}")
    if task.type == "epic":
        return StrategyChoice("comprehensive", "the task is an epic")
    if task.complexity == "high":
        return StrategyChoice("comprehensive", "the task's complexity is high")
    if len(task.depends) > 3:
        return StrategyChoice("comprehensive", f"the task has {len(task.depends)} dependencies, more than 3")
    return StrategyChoice("standard", "default")
