"""The limits of a run, and the one that the loop enforces itself: the number of model requests.

Used by loop; the budget enforces the others.
"""

import msgspec

from kitbag.agent.call_limit import MAX_CALLS
from kitbag.text.human_format import format_count


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """0: no limit. `turns` applies to a whole session, across resumes; `tokens`, `cost` and `seconds` include its
    subagents and are enforced by the budget."""

    turns: int = 0
    turns_per_run: int = 0
    """Applies if `turns` is not set."""
    calls: int = MAX_CALLS
    """Tool calls of one reply."""
    tokens: int = 0
    cost: float = 0.0
    """US dollars."""
    seconds: float = 0.0

    def is_reached(self, turns: int, first_turn: int) -> bool:
        """`turns` of the whole session: resuming does not reset the limit. `first_turn`: how many there were before
        this run."""
        max_turns = self.turns or (first_turn + self.turns_per_run if self.turns_per_run else 0)
        return bool(max_turns) and turns >= max_turns

    def describe_reached(self, turns: int) -> tuple[str, str]:
        """The problem and its fix."""
        count = self.turns or self.turns_per_run
        scope = "" if self.turns else " for one prompt"
        problem = f"stopped after {format_count(count, 'model request')}, the limit{scope}; the work is not finished"
        fix = f"resume with --continue --max-turns {turns + count}"
        return problem, fix if self.turns else f"{fix}, or raise `limits.turns`"
