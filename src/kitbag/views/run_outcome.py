"""Describes to the user how a run ended and what it waits for. Used by the CLI and the chat."""

from kitbag.events import RunEnded


def describe_outcome(ended: RunEnded) -> str:
    """Empty for a completed run."""
    return ended.error or {
        "completed": "",
        "empty": "the model returned an empty answer",
        "max-turns": "stopped: the session reached its turn limit; the work is not finished",
        "over-budget": "stopped: over budget; the work is not finished",
        "cancelled": "interrupted; changes so far are kept",
    }.get(ended.status, "failed")
