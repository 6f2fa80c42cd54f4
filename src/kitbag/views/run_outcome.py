"""Describes to the user how a run ended. Used by the CLI and the chat."""

from kitbag.events import RunEnded


def describe_outcome(ended: RunEnded) -> str:
    """Empty for a completed run."""
    return ended.error or {
        "completed": "",
        "empty": "the model returned an empty answer",
        "max-turns": "stopped: the session reached its turn limit; the work is not finished",
        "max-tokens": "stopped: the session reached its token limit (--max-tokens); the work is not finished",
        "max-cost": "stopped: the session reached its cost limit (--max-cost); the work is not finished",
        "cancelled": "interrupted; changes so far are kept",
    }.get(ended.status, "failed")
