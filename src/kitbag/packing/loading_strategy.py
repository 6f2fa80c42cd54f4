"""How much of each skill is loaded: minimal, standard or comprehensive, and why (seed 001 §3, CONTRACT §4)."""

from typing import Literal, NamedTuple

from kitbag.packing.task_sources import Task

Strategy = Literal["minimal", "standard", "comprehensive"]
STRATEGIES: tuple[Strategy, ...] = ("minimal", "standard", "comprehensive")
TIGHT, MODERATE = 800, 3_000
BUSY = 0.7


class Choice(NamedTuple):
    strategy: Strategy
    reason: str


def choose_strategy(
    task: Task, skills: int, available: int, used: int, overhead: int, named: Strategy | None = None
) -> Choice:
    """The first rule that applies. `overhead` is what the budgets set aside for protocol and task."""
    if named is not None:
        return Choice(named, "asked for")
    share = used / available if available > 0 else 1.0
    if share > BUSY:
        return Choice("minimal", f"{share:.0%} of the context is in use, more than {BUSY:.0%}")
    each = max(available - overhead, 0) // max(skills, 1)
    if each < TIGHT:
        return Choice("minimal", f"{each:,} tokens for each skill, under {TIGHT:,}")
    if "simple" in {label.lower() for label in task.labels}:
        return Choice("minimal", "the task is labelled simple")
    if task.size == "small":
        return Choice("minimal", "the task is small")
    if each < MODERATE:
        return Choice("standard", f"{each:,} tokens for each skill, under {MODERATE:,}")
    if task.type == "epic":
        return Choice("comprehensive", "the task is an epic")
    if task.complexity == "high":
        return Choice("comprehensive", "the task's complexity is high")
    if len(task.depends) > 3:
        return Choice("comprehensive", f"the task has {len(task.depends)} dependencies, more than 3")
    return Choice("standard", "nothing calls for more or less")
