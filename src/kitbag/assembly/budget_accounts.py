"""The budget accounts of an agent: its own task, its session with all subagents, and the day.

Used by base_agent. Caps come from the settings (`limits.task_tokens` and similar) and, for the session, from the
options of the run; of two caps the lower one counts.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from kitbag.agent.budget import STREAM_PREFIX, Budget, BudgetAccount, Caps, Spending
from kitbag.agent.session import Session
from kitbag.agent.turn_limits import Limits
from kitbag.settings import Settings

_OWNERS: Final = {"task": "of this task", "session": "of this session and its subagents", "day": "of the day"}
_FIXES: Final = {
    "task": "run `kitbag config set limits.task_{limit} N` to raise it, and resume the task",
    "session": "raise {option}`limits.session_{limit}`, and resume with --continue",
    "day": "wait until tomorrow, or run `kitbag config set limits.day_{limit} N` to raise it",
}
_OPTIONS: Final = {"minutes": "--max-time or ", "tokens": "--max-tokens or ", "cost": "--max-cost or "}


def open_budget(
    session: Session,
    settings: Settings,
    limits: Limits,
    *,
    task: str,
    account: str,
    delegated: Callable[[], tuple[int, float]],
) -> Budget:
    """`account`: the session at the top of the task tree, or the topmost task. `delegated`: returns tokens and
    cost of the tree's other agents so far."""
    names = {"task": task or session.id, "session": account, "day": datetime.now().astimezone().date().isoformat()}
    found = [_account(scope, name, settings, limits) for scope, name in names.items()]
    journal, totals = session.journal, session.totals
    # An account that has records gets all further ones, so that a cap set later counts them.
    used = [one for one in found if one.caps.is_set or journal.last(one.stream) is not None]

    def spent_before(opened: BudgetAccount) -> Spending:
        if opened.stream.startswith(f"{STREAM_PREFIX}day/"):
            return Spending()
        tokens, cost = delegated() if opened.stream.startswith(f"{STREAM_PREFIX}session/") else (0, 0.0)
        usage = totals.usage.total_input + totals.usage.output
        return Spending(turns=totals.turns, tokens=usage + tokens, cost=totals.cost + cost)

    return Budget(journal, used, spent_before)


def _account(scope: str, name: str, settings: Settings, limits: Limits) -> BudgetAccount:
    options = limits if scope == "session" else Limits()
    caps = Caps(
        turns=int(settings.get(f"limits.{scope}_turns")),
        seconds=_lower(60.0 * settings.get(f"limits.{scope}_minutes"), options.seconds),
        tokens=int(_lower(settings.get(f"limits.{scope}_tokens"), options.tokens)),
        cost=_lower(settings.get(f"limits.{scope}_cost"), options.cost),
    )
    return BudgetAccount(
        name=f"{scope}/{name}",
        owner=_OWNERS[scope],
        caps=caps,
        fix=lambda limit: _FIXES[scope].format(limit=limit, option=_OPTIONS.get(limit, "")),
    )


def _lower(first: float, second: float) -> float:
    """Of two caps; 0 is none."""
    return min(first, second) if first and second else first or second
