"""Notifies a session, once, that a background task it started has ended; the answer is included as data.

Used by Agent between turns and before a message, and by the chat, which notifies the user.
"""

import html
from typing import Final

from kitbag.agent.session import NOTIFICATION_PREFIX
from kitbag.tasks.board import Board
from kitbag.tasks.task import Task
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.tools.task import escape_tags

MAX_CHARACTERS: Final = 4_000


async def take_notifications(board: Board, root: str, parent: str) -> str:
    """For finished tasks that have not been announced yet; empty if there are none."""
    told = [task for task in unnotified_tasks(board, parent or root) if await board.mark_notified(task.id, task.run)]
    return "\n\n".join(_render_notification(task) for task in told)


def unnotified_tasks(board: Board, parent_id: str) -> list[Task]:
    return [task for task in finished_background_tasks(board, parent_id) if not task.notified]


def finished_background_tasks(board: Board, parent_id: str) -> list[Task]:
    """Background tasks whose end is announced to this session, already or next."""
    begun = [*board.started_by(parent_id), *_commands_of_finished_agents(board, parent_id)]
    return [task for task in begun if task.background and task.is_finished]


def _commands_of_finished_agents(board: Board, parent_id: str) -> list[Task]:
    """Background commands of agents that have finished since: their parent is notified instead."""
    found: list[Task] = []
    left = [task for task in board.started_by(parent_id) if task.is_finished]
    while left:
        begun = board.started_by(left.pop().id)
        found += [task for task in begun if task.kind == "command"]
        left += [task for task in begun if task.is_finished and task.kind == "agent"]
    return found


def _render_notification(task: Task) -> str:
    end = task.end
    text, error = (end.text, end.error) if end is not None else ("", "")
    shown = escape_tags(text[:MAX_CHARACTERS])
    lines = [f"Error: {collapse_whitespace(escape_tags(error))}"] if error else []
    lines += [shown] if shown else []
    length = (end.length if end is not None else 0) or len(text)
    if task.kind == "command":
        lines = _render_command(task, lines)
    elif length > MAX_CHARACTERS:
        lines.append(
            f"[Cut: {length - MAX_CHARACTERS:,} more characters."
            f' TaskOutput(task_id="{task.id}", offset={MAX_CHARACTERS})]'
        )
    name = html.escape(task.agent or "Bash")
    about = f' description="{html.escape(task.description)}"' if task.description else ""
    head = f'{NOTIFICATION_PREFIX}task-id="{task.id}" status="{task.status}" agent="{name}"{about}>'
    return "\n".join([head, *lines, "</task-notification>"])


def _render_command(task: Task, lines: list[str]) -> list[str]:
    """The exit code and the end of the output."""
    end = task.end
    if end is None:
        return lines
    code = [f"Exit code: {end.code}"] if end.code is not None and not end.error else []
    is_whole = end.length <= len(end.text.encode())
    more = [] if is_whole else [f'[The end of {end.length:,} bytes. All of it: TaskOutput(task_id="{task.id}")]']
    return [*code, *lines, *more]
