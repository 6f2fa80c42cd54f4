"""The current state of a task: from the board and, while it runs, from its session's records.

Used by delegation, by stop, and by the commands that show tasks.
"""

import contextlib
import os
from collections.abc import Iterator

import msgspec

from kitbag.agent.inbox import Inbox
from kitbag.agent.resume import read_totals, resume
from kitbag.agent.session import STREAM_PREFIX, Session
from kitbag.agent.session_records import SessionTotals
from kitbag.errors import KitbagError
from kitbag.store.journal import Journal, NotFetchedError
from kitbag.store.private_files import StoreError
from kitbag.tasks.board import Board
from kitbag.tasks.output_file import CHUNK_BYTES, OutputChunk, read_chunk, read_tail
from kitbag.tasks.task import Task, TaskResult, TaskStatus
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.tools.delegation import TaskReport


def build_report(board: Board, task: Task, offset: int = 0, max_bytes: int = CHUNK_BYTES) -> TaskReport:
    """`offset` and `max_bytes`: the part of a command's output."""
    if task.kind == "command":
        return _build_command_report(board, task, offset, max_bytes)
    result, activity = task.result, ""
    if result is None:
        result, activity = _read_progress(board.journal, task)
        activity = f"starts at {task.not_before[:19]}Z" if task.shown_status == "scheduled" else activity
    elif not result.turns:  # recorded without knowledge of the run, e.g. after a crash
        known = _read_progress(board.journal, task)[0]
        result = msgspec.structs.replace(
            known,
            text=result.text or known.text,
            error=result.error,
            seconds=result.seconds,
            branch=result.branch,
            patch=result.patch,
            violations=result.violations,
        )
    return TaskReport(
        id=task.id,
        name=task.agent or "Bash",
        status=task.shown_status,
        is_finished=task.is_finished,
        text=(board.answer(task) if task.is_finished else "") or result.text,
        error=result.error,
        description=task.description,
        turns=result.turns,
        tokens=result.tokens,
        cost=result.cost,
        seconds=result.seconds,
        activity=activity,
        branch=result.branch,
        patch=result.patch,
        violations=result.violations,
        warnings=(*task.all_warnings, *undelivered_warnings(board, task)),
    )


def undelivered_warnings(board: Board, task: Task) -> tuple[str, ...]:
    """Messages that a task which failed or was stopped never got. They stay in its inbox: a resumed task gets them."""
    texts = waiting_messages(board, task) if task.is_finished else []
    return tuple(
        f"the task ended before it got your message {text!r}; resume it to deliver the message" for text in texts
    )


def waiting_messages(board: Board, task: Task) -> list[str]:
    """Messages to the agent that the model has not got yet, in one line each."""
    if task.kind != "agent":
        return []
    return [collapse_whitespace(message.text) for message in Inbox(board.journal, task.id).pending()]


def _build_command_report(board: Board, task: Task, offset: int, max_bytes: int) -> TaskReport:
    result = task.result or TaskResult(status=task.status)
    chunk, error = OutputChunk(text="", next_offset=0, size=0), result.error
    activity = "" if task.is_finished else _last_output_line(board.journal, task)
    try:
        chunk = read_chunk(state_directory(board.journal), task.id, offset, max_bytes)
    except StoreError as problem:
        error = error or problem.problem
    # The output was redacted when written, by a process that may know other secrets.
    text = board.journal.redactor.redact_text(chunk.text) if chunk.size else result.text
    return TaskReport(
        id=task.id,
        name="Bash",
        status=task.status,
        is_finished=task.is_finished,
        text=text,
        error=error,
        description=task.description,
        seconds=result.seconds,
        activity=activity,
        warnings=task.all_warnings,
        is_command=True,
        exit_code=result.exit_code,
        next_offset=chunk.next_offset,
        output_size=chunk.size,
    )


def _last_output_line(journal: Journal, task: Task) -> str:
    """The last line of the output so far."""
    try:
        lines = read_tail(state_directory(journal), task.id).split("\n")
    except StoreError:
        return ""
    return next((journal.redactor.redact_text(line.strip()) for line in reversed(lines) if line.strip()), "")


def state_directory(journal: Journal) -> str:
    return os.path.dirname(journal.path)


def partial_result(board: Board, task: Task, status: TaskStatus, error: str = "") -> TaskResult:
    """The result so far, recorded by a process that ends the task for its owner."""
    if task.kind == "command":
        with contextlib.suppress(StoreError):
            return TaskResult(status=status, text=read_tail(state_directory(board.journal), task.id), error=error)
        return TaskResult(status=status, error=error)
    return msgspec.structs.replace(_read_progress(board.journal, task)[0], status=status, error=error)


async def finish_for_owner(board: Board, task: Task, status: TaskStatus, error: str = "") -> None:
    """Ends a task whose owner can't, with the result so far."""
    await fetch_sessions(board.journal, task)
    await board.finish(task.id, task.run, partial_result(board, task, status, error))


def session_ids(task: Task) -> list[str]:
    """All of its sessions, including the current one: a restart for missing skills or files starts a new session."""
    _, _, number = task.session.partition("-")
    last = int(number) if number.isdecimal() else 1
    return [task.id, *(f"{task.id}-{at}" for at in range(2, last + 1))]


def earlier_spending(journal: Journal, task: Task) -> TaskResult:
    """Totals of all sessions but the current one."""
    totals = [read_totals(journal, session_id) for session_id in session_ids(task)[:-1]]
    return _with_totals(TaskResult(status="completed"), totals)


async def fetch_sessions(journal: Journal, task: Task) -> None:
    """Its report has the text so far then, also of a task that runs on another machine."""
    if task.kind == "agent":
        await journal.fetch_async(*(STREAM_PREFIX + session_id for session_id in session_ids(task)))


def _read_progress(journal: Journal, task: Task) -> tuple[TaskResult, str]:
    result = TaskResult(status=task.status)
    try:
        sessions = list(_resume_sessions(journal, session_ids(task)))
    except NotFetchedError:  # the text comes later
        return _with_totals(result, [read_totals(journal, name) for name in session_ids(task)]), ""
    if not sessions or sessions[-1].id != task.session:
        return _with_totals(result, [session.totals for session in sessions]), ""  # not started yet
    session = sessions[-1]
    replies = [message.text for message in session.messages() if message.role == "assistant" and message.text]
    activity = ", ".join(call.name for call in session.open_calls) or "waiting for the model"
    result = msgspec.structs.replace(result, text=replies[-1] if replies else "")
    return _with_totals(result, [one.totals for one in sessions]), activity


def _resume_sessions(journal: Journal, ids: list[str]) -> Iterator[Session]:
    for session_id in ids:
        try:
            yield resume(journal, session_id)
        except NotFetchedError:
            raise
        except KitbagError:
            continue  # not started, or unreadable


def _with_totals(result: TaskResult, totals: list[SessionTotals]) -> TaskResult:
    unpriced = any(one.unpriced for one in totals)
    return msgspec.structs.replace(
        result,
        turns=sum(one.turns for one in totals),
        tokens=sum(one.usage.total_input + one.usage.output for one in totals),
        cost=None if unpriced else sum(one.cost for one in totals),
    )
