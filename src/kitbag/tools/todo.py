"""TodoWrite: the list of what is to be done, as the model keeps it and the person sees it.

Used by the loop. The list is nowhere but in the calls that wrote it, which are in the journal; compaction tells the
last one again.
"""

from collections.abc import Collection, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from kitbag.messages import ToolCall
from kitbag.text.hidden_characters import one_line, reveal_hidden
from kitbag.tools.base import Arguments, Context, Outcome, Tool, answer, description

MOST: Final = 100
LONGEST: Final = 500
_LONGEST_AGAIN: Final = 200
_MOST_AGAIN: Final = 50
_MARKS: Final = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}


class Todo(Arguments, frozen=True):
    content: Annotated[str, Meta(min_length=1, max_length=LONGEST, pattern=r"\S", description="Write the tests")]
    status: Literal["pending", "in_progress", "completed"]
    activeForm: Annotated[str, Meta(max_length=LONGEST, description="Writing the tests")] = ""  # noqa: N815 - its name
    priority: Literal["high", "medium", "low"] = "medium"
    id: Annotated[str, Meta(max_length=100)] | int = ""


class TodoArguments(Arguments, frozen=True):
    todos: Annotated[list[Todo], Meta(max_length=MOST, description="The whole list, in order.")]


async def _write(arguments: TodoArguments, context: Context) -> Outcome:
    del context
    todos = arguments.todos
    if not todos:
        return answer("The list is empty now.", "the list is empty")
    active = [todo for todo in todos if todo.status == "in_progress"]
    left = sum(todo.status != "completed" for todo in todos)
    text = f"The list is kept: {len(todos) - left} of {len(todos)} done."
    if left and len(active) != 1:
        text += f" {len(active) or 'None'} of the others {'is' if not active else 'are'} in_progress; have exactly one."
    return answer(text, _summary(todos))._replace(details="\n".join(_shown(todo) for todo in todos))


def _summary(todos: Sequence[Todo]) -> str:
    done = f"{sum(todo.status == 'completed' for todo in todos)} of {len(todos)} done"
    active = next((todo for todo in todos if todo.status == "in_progress"), None)
    return f"{done}: {_plain(active.activeForm or active.content)}" if active is not None else done


def _shown(todo: Todo) -> str:
    return f"{_MARKS[todo.status]} {_plain(todo.content)}" + (" (high)" if todo.priority == "high" else "")


def _plain(text: str) -> str:
    return one_line(reveal_hidden(text))


def told_again(called: dict[str, ToolCall], began: Collection[str], kept: Collection[str]) -> str:
    """The list as it was written last, for a conversation that no longer holds the call; empty where it does, and
    where there is none. `called` in the order of the calls, `began` those that were run, `kept` those still there."""
    last = next((call for call in reversed(called.values()) if call.name == "TodoWrite" and call.id in began), None)
    if last is None or last.id in kept:
        return ""
    try:
        todos = msgspec.convert(last.arguments, TodoArguments).todos
    except msgspec.ValidationError:
        return ""
    lines = [_shown(todo)[:_LONGEST_AGAIN].replace("<", "&lt;") for todo in todos]
    if len(lines) > _MOST_AGAIN:  # what is done may go first
        open_ones = [line for line, todo in zip(lines, todos, strict=True) if todo.status != "completed"]
        more = f"({len(lines) - len(open_ones[:_MOST_AGAIN])} more, {len(lines) - len(open_ones)} of them done.)"
        lines = [*open_ones[:_MOST_AGAIN], more]
    if not lines:
        return ""
    return "\n".join(("<todo-list>", "As TodoWrite left it last:", *lines, "</todo-list>"))


TODO_WRITE = Tool("TodoWrite", description("TodoWrite"), TodoArguments, _write)
