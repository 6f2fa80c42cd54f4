"""TodoWrite: the model's todo list, shown to the user.

Used by the agent loop. The list is stored only in the calls that wrote it, which are in the journal; compaction renders
the last one again.
"""

from collections.abc import Collection, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, structs

from kitbag.messages import ToolCall
from kitbag.text.hidden_characters import collapse_whitespace, reveal_hidden
from kitbag.tools.base import NOT_ADVERTISED, Arguments, Tool, ToolContext, ToolOutput, load_description, text_output

MAX_TODOS: Final = 100
MAX_TODO_CHARS: Final = 500
_MAX_REMINDER_CHARS: Final = 200
_MAX_REMINDER_TODOS: Final = 50
_CHECKBOXES: Final = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}


class Todo(Arguments, frozen=True):
    content: Annotated[str, Meta(min_length=1, max_length=MAX_TODO_CHARS, pattern=r"\S", description="Write the tests")]
    status: Literal["pending", "in_progress", "completed"]
    activeForm: Annotated[str, Meta(max_length=MAX_TODO_CHARS, description="Writing the tests")] = ""  # noqa: N815 - its name
    priority: Annotated[Literal["high", "medium", "low"], NOT_ADVERTISED] = "medium"
    id: Annotated[str | int, NOT_ADVERTISED] = ""


class TodoArguments(Arguments, frozen=True):
    todos: Annotated[list[Todo], Meta(max_length=MAX_TODOS)]


async def _write_todos(arguments: TodoArguments, context: ToolContext) -> ToolOutput:
    del context
    todos = arguments.todos
    if not todos:
        return text_output("Todo list cleared.", "todo list cleared")
    active = [todo for todo in todos if todo.status == "in_progress"]
    left = sum(todo.status != "completed" for todo in todos)
    text = f"Todo list updated: {len(todos) - left} of {len(todos)} done."
    if left and len(active) != 1:
        text += f" {len(active)} todos are in_progress; keep exactly one."
    return structs.replace(text_output(text, _summary(todos)), details="\n".join(_format_todo(todo) for todo in todos))


def _summary(todos: Sequence[Todo]) -> str:
    done = f"{sum(todo.status == 'completed' for todo in todos)} of {len(todos)} done"
    active = next((todo for todo in todos if todo.status == "in_progress"), None)
    return f"{done}: {_visible_line(active.activeForm or active.content)}" if active is not None else done


def _format_todo(todo: Todo) -> str:
    return f"{_CHECKBOXES[todo.status]} {_visible_line(todo.content)}" + (" (high)" if todo.priority == "high" else "")


def _visible_line(text: str) -> str:
    return collapse_whitespace(reveal_hidden(text))


def render_last_todos(calls: dict[str, ToolCall], started_ids: Collection[str], kept_ids: Collection[str]) -> str:
    """The last todo list, for a conversation that no longer contains the call; empty if it does, or if there is no
    list. `calls` is in call order, `started_ids` are the calls that ran, `kept_ids` those still in the conversation."""
    last = next(
        (call for call in reversed(calls.values()) if call.name == "TodoWrite" and call.id in started_ids), None
    )
    if last is None or last.id in kept_ids:
        return ""
    try:
        todos = msgspec.convert(last.arguments, TodoArguments).todos
    except msgspec.ValidationError:
        return ""
    lines = [_format_todo(todo)[:_MAX_REMINDER_CHARS].replace("<", "&lt;") for todo in todos]
    if len(lines) > _MAX_REMINDER_TODOS:  # completed todos are dropped first
        open_ones = [line for line, todo in zip(lines, todos, strict=True) if todo.status != "completed"]
        more = (
            f"({len(lines) - len(open_ones[:_MAX_REMINDER_TODOS])} more, {len(lines) - len(open_ones)} of them done.)"
        )
        lines = [*open_ones[:_MAX_REMINDER_TODOS], more]
    if not lines:
        return ""
    return "\n".join(("<todo-list>", "The current todo list:", *lines, "</todo-list>"))


TODO_WRITE = Tool(
    name="TodoWrite", description=load_description("TodoWrite"), arguments=TodoArguments, run=_write_todos
)
