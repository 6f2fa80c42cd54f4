"""Lines about what fills the context window. Used by `kitbag context` and `/context`.

They take the report of runtime/context_report.
"""

from typing import Any


def describe_skill_tokens(report: dict[str, Any]) -> str:
    """Empty if there are no skills."""
    skills = report["skills"]
    if not skills["each"]:
        return ""
    return f"{skills['listed']:,} tokens listed, {skills['loaded']:,} loaded, {skills['possible']:,} if all were loaded"


def describe_last_request(report: dict[str, Any]) -> str:
    """Empty before the provider's first count."""
    last = report["last_request"]
    if not last["provider"]:
        return ""
    counts = f"{last['provider']:,} tokens counted by the provider, {last['ours']:,} by Kitbag"
    return f"last request: {counts} ({last['residual']:+,})"
