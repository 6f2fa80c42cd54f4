"""Notifies a session, once, that a background task it started has ended; the answer is included as data.

Used by Agent between turns and before a message, and by the chat, which notifies the user.
"""

import html
import re
from typing import Final

from kitbag.agent.session import NOTIFICATION_PREFIX
from kitbag.tasks.board import Board
from kitbag.tasks.reports import undelivered_warnings
from kitbag.tasks.task import Task
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.tools.task import escape_tags, render_warnings

MAX_CHARACTERS: Final = 4_000
_TASK_ID: Final = re.compile(rf'^{re.escape(NOTIFICATION_PREFIX)}task-id="([^"]*)"', re.MULTILINE)


async def take_unnotified(board: Board, root: str, parent: str) -> list[Task]:
    """Finished tasks that have not been announced yet."""
    return [task for task in unnotified_tasks(board, parent or root) if await board.mark_notified(task.id, task.run)]


def render_notifications(board: Board, finished: list[Task]) -> str:
    """Empty if there are none."""
    return "\n\n".join(_render_notification(board, task) for task in finished)


def notified_tasks(text: str) -> list[str]:
    """The ids of the tasks whose end a message of the session reports."""
    return _TASK_ID.findall(text) if text.startswith(NOTIFICATION_PREFIX) else []


def unnotified_tasks(board: Board, parent_id: str) -> list[Task]:
    return [task for task in finished_background_tasks(board, parent_id) if not task.notified]


def finished_background_tasks(board: Board, parent_id: str) -> list[Task]:
    """Background tasks whose end is announced to this session, already or next."""
    tasks = [*board.started_by(parent_id), *_commands_of_finished_agents(board, parent_id)]
    return [task for task in tasks if task.background and task.is_finished]


def _commands_of_finished_agents(board: Board, parent_id: str) -> list[Task]:
    """Background commands of agents that have finished since: their parent is notified instead."""
    commands: list[Task] = []
    pending = [task for task in board.started_by(parent_id) if task.is_finished]
    while pending:
        children = board.started_by(pending.pop().id)
        commands += [task for task in children if task.kind == "command"]
        pending += [task for task in children if task.is_finished and task.kind == "agent"]
    return commands


def _render_notification(board: Board, task: Task) -> str:
    result = task.result
    text, error = (result.text, result.error) if result is not None else ("", "")
    shown = escape_tags(text[:MAX_CHARACTERS])
    lines = [f"Error: {collapse_whitespace(escape_tags(error))}"] if error else []
    warnings = (*task.all_warnings, *undelivered_warnings(board, task))
    lines += render_warnings(warning for warning in warnings if warning not in error)
    lines += [shown] if shown else []
    length = (result.full_length if result is not None else 0) or len(text)
    if task.kind == "command":
        lines = _render_command(task, lines)
    elif length > MAX_CHARACTERS:
        lines.append(
            f"[Truncated: {length - MAX_CHARACTERS:,} more characters."
            f' TaskOutput(task_id="{task.id}", offset={MAX_CHARACTERS})]'
        )
    name = html.escape(task.agent or "Bash")
    description = f' description="{html.escape(task.description)}"' if task.description else ""
    opening = f'{NOTIFICATION_PREFIX}task-id="{task.id}" status="{task.status}" agent="{name}"{description}>'
    return "\n".join([opening, *lines, "</task-notification>"])


def _render_command(task: Task, lines: list[str]) -> list[str]:
    """The exit code and the end of the output."""
    result = task.result
    if result is None:
        return lines
    code = [f"Exit code: {result.exit_code}"] if result.exit_code is not None and not result.error else []
    is_whole = result.full_length <= len(result.text.encode())
    more = (
        []
        if is_whole
        else [f'[Last part of {result.full_length:,} bytes. Full output: TaskOutput(task_id="{task.id}")]']
    )
    return [*code, *lines, *more]
