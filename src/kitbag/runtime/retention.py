"""Deletes old sessions and tasks with everything that belongs to them: records, output, undo contents, worktrees.

Used by `kitbag store prune`, `kitbag sessions delete`, and once a day by an agent that starts. A session and the tasks
below it are deleted together, and only if all of them have ended and none is open. Of a task, its id, status and dates
stay. Work in a worktree that is not merged is never deleted.
"""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from kitbag.agent.inbox import INBOX_STREAM_PREFIX
from kitbag.agent.session_list import SessionSummary, read_summary
from kitbag.agent.session_table import SESSION_TABLE, STREAM_PREFIX
from kitbag.agent.undo.change_records import CHANGE, REDONE, UNDOING, UNDONE
from kitbag.errors import InvalidError, NotFoundError
from kitbag.runtime.session_leases import LEASE_STREAM_PREFIX
from kitbag.runtime.session_locks import is_session_open
from kitbag.store import damage_notices
from kitbag.store.content_store import ContentStore
from kitbag.store.fault_points import point
from kitbag.store.journal import Journal, JournalEntry
from kitbag.store.journal_prune import compact_file, delete_records, note_pruning
from kitbag.tasks.board import TASK_STREAM_PREFIX, Board
from kitbag.tasks.fleet import old_announcements
from kitbag.tasks.library_snapshot import unused_snapshots
from kitbag.tasks.output_file import OUTPUT_DIRECTORY
from kitbag.tasks.queue_limits import old_claims
from kitbag.tasks.reports import session_ids
from kitbag.tasks.task import Task, pruned_body
from kitbag.tasks.task_patches import PATCH_STREAM_PREFIX
from kitbag.tasks.task_table import TASKS_STREAM
from kitbag.tasks.worktree import find_unmerged_work, remove_worktree, worktree_path

_CHANGE_KINDS: Final = (CHANGE, UNDOING, UNDONE, REDONE)
_MAX_GROUPS: Final = 200
"""Sessions or trees of tasks per transaction: other processes can write between two."""
_DAY: Final = 86_400


class _Group(msgspec.Struct, frozen=True, kw_only=True):
    """A user's session and all tasks below it; each may be missing."""

    session: SessionSummary | None
    tasks: tuple[Task, ...]


class PruneReport(msgspec.Struct, kw_only=True):
    dry_run: bool
    before: str
    """What ended before this time is deleted."""
    sessions: list[str] = []
    tasks: list[str] = []
    records: int = 0
    freed_bytes: int = 0
    """Of undo contents, output and journals that were set aside."""
    kept: list[tuple[str, str]] = []
    """(session or task, reason): old, and not deleted."""

    def to_json(self) -> dict[str, Any]:
        return {
            "dry_run": self.dry_run,
            "before": self.before,
            "sessions": self.sessions,
            "tasks": self.tasks,
            "records": self.records,
            "freed_bytes": self.freed_bytes,
            "kept": [{"id": name, "reason": reason} for name, reason in self.kept],
        }


def prune(journal: Journal, kitbag_home: str, days: float, *, dry_run: bool = False, spare: str = "") -> PruneReport:
    """`spare`: a session that is in use here."""
    before = (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%S")
    report = PruneReport(dry_run=dry_run, before=f"{before}Z")
    groups = [
        group
        for group in _old_groups(journal, before)
        if _may_delete(journal, kitbag_home, group, before, spare, report)
    ]
    for start in range(0, len(groups), _MAX_GROUPS):
        _delete_groups(journal, kitbag_home, groups[start : start + _MAX_GROUPS], report)
    if not dry_run:
        board = Board(journal)
        old = [*old_announcements(board, before), *old_claims(journal, before)]
        snapshots = unused_snapshots(journal, {task.snapshot for task in board.all()}, before)
        if old or snapshots:
            report.records += delete_records(journal, snapshots, old, (), ())
        _delete_set_aside(kitbag_home, days, report)
        _delete_leftover_output(journal, kitbag_home, report)
        if report.records:
            compact_file(journal)
    return report


def delete_session(journal: Journal, kitbag_home: str, session_id: str) -> PruneReport:
    """Deletes one session with its tasks, however old. Raises NotFoundError, or InvalidError if it is in use."""
    journal.ensure_table(SESSION_TABLE)
    rows = journal.select("SELECT id, state, checksum FROM session_states WHERE id = ?", session_id)
    if not rows:
        raise NotFoundError(f"no session named {session_id!r}", "list sessions with `kitbag sessions list --all`")
    group = _Group(session=read_summary(journal, rows[0]), tasks=tuple(Board(journal).of_session(session_id)))
    report = PruneReport(dry_run=False, before="")
    if not _may_delete(journal, kitbag_home, group, "", "", report):
        raise InvalidError(f"cannot delete session {session_id}: {report.kept[0][1]}", "end that first, then retry")
    _delete_groups(journal, kitbag_home, [group], report)
    compact_file(journal)
    return report


def prune_daily(journal: Journal, kitbag_home: str, days: int, spare: str) -> PruneReport | None:
    """Call if `is_pruning_due`. None if nothing was deleted."""
    note_pruning(journal)
    report = prune(journal, kitbag_home, days, spare=spare)
    return report if report.sessions or report.tasks else None


def _old_groups(journal: Journal, before: str) -> list[_Group]:
    """By the oldest session, then tasks without one."""
    board = Board(journal)
    journal.ensure_table(SESSION_TABLE)
    sessions: dict[str, SessionSummary] = {}
    for row in journal.select("SELECT id, state, checksum FROM session_states WHERE task = '' ORDER BY last"):
        summary = read_summary(journal, row)
        if summary.last >= before:
            break
        sessions[summary.id] = summary
    tasks: dict[str, list[Task]] = {}
    for task in board.all():
        if task.root:  # not pruned before
            tasks.setdefault(task.root, []).append(task)
    known = {str(row[0]) for row in journal.select("SELECT id FROM session_states WHERE task = ''")}
    orphans = [root for root in tasks if root not in known]
    return [
        *(_Group(session=session, tasks=tuple(tasks.get(name, ()))) for name, session in sessions.items()),
        *(_Group(session=None, tasks=tuple(tasks[root])) for root in orphans if max_end(tasks[root]) < before),
    ]


def max_end(tasks: Iterable[Task]) -> str:
    return max((task.ended if task.is_finished else "9") for task in tasks)


def _may_delete(
    journal: Journal, kitbag_home: str, group: _Group, before: str, spare: str, report: PruneReport
) -> bool:
    """Adds the reason to the report if not. `before` is empty for a deletion that the user asked for."""
    name = group.session.id if group.session is not None else group.tasks[0].id
    unfinished = [task for task in group.tasks if not task.is_finished]
    reason = ""
    if name == spare:
        return False
    if unfinished:
        reason = f"task {unfinished[0].id} is {unfinished[0].status}"
    elif before and any(task.ended >= before for task in group.tasks):
        return False
    elif is_session_open(kitbag_home, name, journal):
        reason = "it is open in another process"
    elif fork := _kept_fork(journal, group, before):
        reason = f"session {fork} is a fork of it"
    else:
        for task in group.tasks:
            if problem := find_unmerged_work(kitbag_home, task.id):
                report.kept.append((task.id, problem))
                return False
    if reason:
        report.kept.append((name, reason))
    return not reason


def _kept_fork(journal: Journal, group: _Group, before: str) -> str:
    if group.session is None:
        return ""
    pattern = f'%"forked_from": "{group.session.id}"%'
    for row in journal.select("SELECT id, state, checksum FROM session_states WHERE state LIKE ?", pattern):
        fork = read_summary(journal, row)
        if fork.forked_from == group.session.id and (not before or fork.last >= before):
            return fork.id
    return ""


def _delete_groups(journal: Journal, kitbag_home: str, groups: list[_Group], report: PruneReport) -> None:
    tasks = [task for group in groups for task in group.tasks]
    sessions = [group.session.id for group in groups if group.session is not None]
    report.sessions += sessions
    report.tasks += [task.id for task in tasks]
    task_sessions = [name for task in tasks for name in session_ids(task)]
    streams = [STREAM_PREFIX + name for name in (*sessions, *task_sessions)]
    streams += [prefix + task.id for task in tasks for prefix in (TASK_STREAM_PREFIX, PATCH_STREAM_PREFIX)]
    streams += [LEASE_STREAM_PREFIX + name for name in sessions]
    streams += [INBOX_STREAM_PREFIX + name for name in (*sessions, *(task.id for task in tasks))]
    if report.dry_run or not (tasks or sessions):
        return
    contents = _referenced_contents(journal, streams, ContentStore(kitbag_home))
    numbers = _numbers(journal, tasks)
    report.records += delete_records(
        journal,
        streams,
        _records_of(journal, {task.id for task in tasks}),
        [JournalEntry(TASKS_STREAM, "pruned", pruned_body(task, numbers[task.id])) for task in tasks],
        [(SESSION_TABLE.name, name) for name in (*sessions, *task_sessions)],
    )
    for task in tasks:
        report.freed_bytes += _remove_file(os.path.join(kitbag_home, "state", OUTPUT_DIRECTORY, task.id))
        if os.path.isdir(worktree_path(kitbag_home, task.id)):
            with contextlib.suppress(InvalidError):
                remove_worktree(kitbag_home, task.id)
    point("prune-files")
    _delete_contents(journal, kitbag_home, contents, report)


def _numbers(journal: Journal, tasks: Iterable[Task]) -> dict[str, int]:
    return {
        task.id: int(journal.select("SELECT number FROM task_states WHERE id = ?", task.id)[0][0]) for task in tasks
    }


def _records_of(journal: Journal, task_ids: set[str]) -> list[int]:
    """Their records in streams that tasks share: the board, and approvals that they asked for."""
    if not task_ids:
        return []
    found = [
        record.seq for record in journal.read(TASKS_STREAM, page=1_000) if str(_field(record.body, "id")) in task_ids
    ]
    questions: set[str] = set()
    for record in journal.read("approvals", page=1_000):
        if record.kind == "question" and any(
            f"task {name})" in str(_field(record.body, "asked_by")) for name in task_ids
        ):
            questions.add(str(_field(record.body, "id")))
        if str(_field(record.body, "id")) in questions:
            found.append(record.seq)
    return found


def _field(body: Any, name: str) -> object:
    return body.get(name) if isinstance(body, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


# Contents for undo


def _referenced_contents(journal: Journal, streams: Iterable[str], content_store: ContentStore) -> set[str]:
    digests: set[str] = set()
    for stream in streams:
        for record in journal.read(stream, brief=True):
            if record.kind in _CHANGE_KINDS:
                digests |= _digests(record.body, content_store)
    return digests


def _digests(body: Any, content_store: ContentStore) -> set[str]:
    """Of all contents that a record refers to, of a list that is stored beside the journal too."""
    digests: set[str] = set()
    files = _field(body, "files")
    kept = _field(body, "kept")
    if isinstance(kept, str):
        digests.add(kept)
        with contextlib.suppress(ValueError):
            files = json.loads(content_store.get(kept) or b"[]")
    _collect_digests(files, digests)
    return digests


def _collect_digests(value: Any, digests: set[str]) -> None:
    if isinstance(value, str):
        if len(value) == 64:
            digests.add(value)
    elif isinstance(value, list | tuple | dict):
        for inner in value.values() if isinstance(value, dict) else value:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            _collect_digests(inner, digests)


def _delete_contents(journal: Journal, kitbag_home: str, digests: set[str], report: PruneReport) -> None:
    """Those that no other record refers to."""
    if digests:
        content_store = ContentStore(kitbag_home)
        kinds = ", ".join("?" for _ in _CHANGE_KINDS)
        query = f"SELECT body FROM records WHERE kind IN ({kinds})"  # noqa: S608
        for (body,) in journal.select(query, *_CHANGE_KINDS):
            with contextlib.suppress(ValueError):
                digests -= _digests(json.loads(body), content_store)
        report.freed_bytes += content_store.delete(digests)
    point("prune-contents")


# Files


def _remove_file(path: str) -> int:
    with contextlib.suppress(OSError):
        size = os.lstat(path).st_size
        os.unlink(path)
        return size
    return 0


def _delete_leftover_output(journal: Journal, kitbag_home: str, report: PruneReport) -> None:
    """Of tasks whose records are deleted already, by a process that was killed then."""
    folder = os.path.join(kitbag_home, "state", OUTPUT_DIRECTORY)
    board = Board(journal)
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        task = board.get(name)
        if task is not None and not task.root:
            report.freed_bytes += _remove_file(os.path.join(folder, name))


def _delete_set_aside(kitbag_home: str, days: float, report: PruneReport) -> None:
    """Damaged journals that were acknowledged."""
    state = os.path.join(kitbag_home, "state")
    reported = {notice.folder for notice in damage_notices.read_notices(kitbag_home)}
    for name in os.listdir(state) if os.path.isdir(state) else ():
        path = os.path.join(state, name)
        if not name.startswith("journal.db.damaged-") or path in reported or os.path.islink(path):
            continue
        with contextlib.suppress(OSError):
            if time.time() - os.lstat(path).st_mtime > days * _DAY:
                report.freed_bytes += sum(os.lstat(os.path.join(path, file)).st_size for file in os.listdir(path))
                shutil.rmtree(path)
