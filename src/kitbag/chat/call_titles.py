"""What a call is about, in a line for a person, and what came of it. Used by event_view as it happens and by replay."""

from typing import Any, cast

from kitbag.agent.execute import title


def title_of(name: str, arguments: dict[str, Any], given: str = "") -> str:
    """`src/app.py`, `git log`, `reviewer: look at the change`. `given`: as the event has it."""
    if name == "Task":
        parts = (arguments.get("subagent_type"), arguments.get("description"))
        return ": ".join(part for part in parts if isinstance(part, str) and part)
    shown = given or title(name, arguments)
    inside = shown.removeprefix(name)
    if shown.startswith(name) and inside.startswith("(") and inside.endswith(")"):
        return inside[1:-1]
    return inside if shown.startswith(name) else shown


def summary_of(name: str, about: str, summary: str, is_error: bool) -> str:
    """A skill says that it was loaded: that is what a person looks for."""
    if name == "Skill" and not is_error and summary.startswith(f"{about.lstrip('/')}, "):
        return f"loaded, {summary.partition(', ')[2]}"
    return summary


def todos_in(arguments: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """(status, text) of a call of TodoWrite, whatever a model has written there."""
    found: list[tuple[str, str]] = []
    todos = arguments.get("todos")
    for todo in cast("list[Any]", todos) if isinstance(todos, list) else []:
        if isinstance(todo, dict):
            fields = cast("dict[str, Any]", todo)
            status, text, active = (str(fields.get(key, "")) for key in ("status", "content", "activeForm"))
            found.append((status, active if status == "in_progress" and active else text))
    return tuple(found)
