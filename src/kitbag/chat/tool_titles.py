"""One-line titles and summaries of tool calls. Used by event_blocks for live events and by replay."""

import re
from typing import Any, Final, cast

from kitbag.agent.execute import describe_call
from kitbag.permissions.approvals.approval import DENIED_BY_USER

_SECONDS: Final = re.compile(r"\A\d+ s(?:: |\Z)")


def call_title(name: str, arguments: dict[str, Any], event_title: str = "", directory: str = "") -> str:
    """`src/app.py`, `git log`, `reviewer: look at the change`. `event_title`: title from the event. `directory`:
    working directory; paths in it are shown relative."""
    if name == "Task":
        parts = (arguments.get("subagent_type"), arguments.get("description"))
        return ": ".join(part for part in parts if isinstance(part, str) and part)
    title = event_title or describe_call(name, arguments)
    about_text = title.removeprefix(name)
    if title.startswith(name) and about_text.startswith("(") and about_text.endswith(")"):
        about_text = about_text[1:-1]
        return about_text.removeprefix(f"{directory}/") or about_text if directory else about_text
    return about_text if title.startswith(name) else title


def call_summary(name: str, about: str, summary: str, is_error: bool) -> str:
    """Removes what the title already says. Rewrites two results for the user: a skill was loaded, and the user denied a
    call (the original is addressed to the model)."""
    denied = f"{name} is not allowed: {DENIED_BY_USER}"
    if is_error and summary.startswith(denied):
        reason = summary.removeprefix(denied)
        return f"denied by you{reason if reason.startswith(': ') else ''}"
    if name == "Skill" and not is_error and summary.startswith(f"{about.lstrip('/')}, "):
        return f"loaded, {summary.partition(', ')[2]}"
    if is_error or not about:
        return summary
    if name == "Task":
        agent = about.partition(":")[0]
        return summary.removeprefix(f"{agent}: ").removeprefix(f"{agent} ")
    return summary.removesuffix(f" of {about}").removeprefix(f"{about} ")


def progress_text(text: str) -> str:
    """Without the seconds: the UI shows the elapsed time."""
    return _SECONDS.sub("", text)


def parse_todos(arguments: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """(status, text) pairs of a TodoWrite call; tolerates malformed arguments."""
    parsed: list[tuple[str, str]] = []
    todos = arguments.get("todos")
    for todo in cast("list[Any]", todos) if isinstance(todos, list) else []:
        if isinstance(todo, dict):
            fields = cast("dict[str, Any]", todo)
            status, text, active = (str(fields.get(key, "")) for key in ("status", "content", "activeForm"))
            parsed.append((status, active if status == "in_progress" and active else text))
    return tuple(parsed)
