"""The table of all tasks in their current state, derived from the board's records.

Used by the board, which writes those records and reads this table.
"""

import json
import sqlite3
from collections.abc import Iterable
from typing import Any, Final, cast

import msgspec

from kitbag.store.derived_tables import DerivedTable, JournalRecord, fields_version, register_table, state_checksum
from kitbag.store.journal_recovery import DAMAGE_STREAM
from kitbag.tasks.owner import Owner
from kitbag.tasks.task import RECORD_KINDS, Task, TaskResult, apply_record, hold_after_damage

TASKS_STREAM: Final = "tasks"
_DECODER: Final = msgspec.json.Decoder(Task)
_UPSERT = (
    "INSERT INTO task_states (id, number, changed, started_by, root, directory, queue, dedup_key, depth, not_before,"
    " finished, status, ended, state, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET changed = excluded.changed, queue = excluded.queue,"
    " not_before = excluded.not_before, finished = excluded.finished, status = excluded.status,"
    " ended = excluded.ended, state = excluded.state, checksum = excluded.checksum"
)


def apply_task_record(writer: sqlite3.Connection, record: JournalRecord) -> None:
    if record.stream == DAMAGE_STREAM:
        if cast("dict[str, Any]", record.body).get("hold"):
            unfinished = writer.execute("SELECT id, state, checksum FROM task_states WHERE finished = 0").fetchall()
            for task in decode_tasks(unfinished):
                _write(writer, hold_after_damage(task, record.at), record.seq)
        return
    body = cast("dict[str, Any]", record.body)
    tasks: dict[str, Task] = {}
    for name in dict.fromkeys((str(body["id"]), str(body.get("parent", "")))):
        if name:
            found = writer.execute("SELECT id, state, checksum FROM task_states WHERE id = ?", (name,))
            tasks |= {task.id: task for task in decode_tasks(found.fetchall())}
    task_id = apply_record(tasks, record)
    if record.kind == "pruned":  # in its old place, and found by nothing but its id
        writer.execute("DELETE FROM task_states WHERE id = ?", (task_id,))
    _write(writer, tasks[task_id], record.seq, int(body.get("number", record.seq)))


def decode_tasks(rows: Iterable[tuple[str, str, int]]) -> list[Task]:
    """Raises ValueError for a row that is not what was written."""
    tasks: list[Task] = []
    for key, state, checksum in rows:
        if state_checksum(key, state) != checksum:
            raise ValueError(f"the state of task {key} is damaged")
        try:
            tasks.append(_DECODER.decode(state))
        except msgspec.DecodeError:  # half characters, which only json reads
            tasks.append(msgspec.convert(json.loads(state), Task))
    return tasks


def _write(writer: sqlite3.Connection, task: Task, seq: int, number: int | None = None) -> None:
    """`number`: its place in the order of creation, if it is new."""
    try:
        state = msgspec.json.encode(task).decode()
    except UnicodeEncodeError:  # half characters, which only json writes
        state = json.dumps(msgspec.to_builtins(task))
    values = (
        task.id,
        seq if number is None else number,
        seq,
        task.parent or task.root,
        task.root,
        task.directory,
        task.queue if task.is_in_queue else None,
        task.key,
        task.depth,
        task.not_before,
        int(task.is_finished),
        task.status,
        task.ended,
        state,
    )
    writer.execute(_UPSERT, (*values, state_checksum(task.id, state)))


TASK_TABLE: Final = register_table(
    DerivedTable(
        name="task_states",
        version=fields_version(1, Task, TaskResult, Owner),
        streams=(TASKS_STREAM, DAMAGE_STREAM),
        kinds=frozenset((*RECORD_KINDS, "damaged")),
        apply=apply_task_record,
    )
)
