"""Describes to the user how a run ended. Used by the CLI and the chat."""

from kitbag.events import RunEnded


def describe_outcome(ended: RunEnded) -> str:
    """Empty for a completed run."""
    return {
        "completed": "",
        "empty": "the model's answer was empty",
        "max-turns": "stopped: the session has had as many turns as its limit allows; the work is not finished",
        "max-tokens": "stopped: the session's tokens are used up, as --max-tokens says; the work is not finished",
        "max-cost": "stopped: the session's budget is used up, as --max-cost says; the work is not finished",
        "cancelled": "cancelled: what was done is kept",
    }.get(ended.status, ended.error or "failed")
