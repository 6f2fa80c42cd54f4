"""Sends a message to an agent task that works: it waits in the task's inbox until the agent gets it.

Used by `kitbag tasks send` and `/tasks send`. Uses agent/inbox.
"""

from kitbag.agent.inbox import Inbox, InboxMessage
from kitbag.errors import InvalidError
from kitbag.tasks.board import Board
from kitbag.tasks.task import Task


async def send_to_task(board: Board, task: Task, text: str) -> InboxMessage:
    """The message is on disk on return. Raises UsageError for an empty one, InvalidError if no agent will get it."""
    if task.kind != "agent":
        raise InvalidError(f"task {task.id} is a command, which reads no messages", "send it to an agent's task")
    if task.is_finished:
        raise _ended(task)
    inbox = Inbox(board.journal, task.id)
    sent = await inbox.send(text)
    # Its end may have been recorded first. If the message was, the worker resumes the task for it.
    board.refresh()
    task = board.find(task.id)
    if task.is_finished and await inbox.take_back(sent.id) is not None:
        raise _ended(task)
    return sent


def _ended(task: Task) -> InvalidError:
    return InvalidError(
        f"task {task.id} has ended: {task.status}", f"resume it with the message: kitbag tasks resume {task.id} MESSAGE"
    )
