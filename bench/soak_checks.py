"""Checks for soak.py and fleet_soak.py that share no code with what they check: they read SQLite, PostgreSQL, /proc and
files by themselves.

A task is lost if its id was returned to a client and the journal has no record of its creation, or none of its end. A
double execution is unreported if a step left its line more than once and the task is not reported as interrupted.
"""

import contextlib
import json
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

_TEMPORARY = re.compile(r"(^tmp|^\.copy-|\.tmp|\.new$|\.part$|~$)")


class Record(NamedTuple):
    stream: str
    kind: str
    body: dict[str, Any]


def read_records(database: Path) -> list[Record]:
    """From the table that has streams, kinds and bodies, whatever else the schema holds."""
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            columns = {row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')}
            if {"stream", "kind", "body"} <= columns:
                rows = connection.execute(f'SELECT stream, kind, body FROM "{table}" ORDER BY rowid').fetchall()
                return [Record(stream, kind, json.loads(body)) for stream, kind, body in rows]
    raise AssertionError(f"{database} has no table of records: {tables}")


def check_database(database: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        found = [row[0] for row in connection.execute("PRAGMA integrity_check")]
        found += [f"foreign key {row}" for row in connection.execute("PRAGMA foreign_key_check")]
    return [f"the journal is damaged: {problem}" for problem in found if problem != "ok"]


def check_runs(records: Iterable[Record]) -> list[str]:
    """Each run of a task begins once and ends at most once."""
    runs = (one for one in records if one.stream == "tasks" and one.kind in ("begun", "ended"))
    keys = Counter((record.kind, record.body["id"], record.body["run"]) for record in runs)
    return [f"recorded {times} times: {key}" for key, times in keys.items() if times > 1]


def statuses(records: Iterable[Record]) -> dict[str, str]:
    """The last status of each task; empty: it has not ended. A worker that claims a task just after its end starts
    nothing, unless a user asked for it again."""
    found: dict[str, str] = {}
    for record in records:
        if record.stream != "tasks" or record.kind not in ("created", "begun", "ended"):
            continue
        is_late_claim = record.kind == "begun" and found.get(record.body["id"]) and not record.body["again"]
        if not is_late_claim:
            found[record.body["id"]] = record.body["status"] if record.kind == "ended" else ""
    return found


def lost_tasks(records: Iterable[Record], accepted: set[str]) -> list[str]:
    known = statuses(records)
    return [task for task in sorted(accepted) if not known.get(task)]


def double_executions(records: Iterable[Record], workspaces: list[Path]) -> tuple[list[str], list[str]]:
    """Tasks that did a step more than once: reported and unreported."""
    known = statuses(records)
    doubled = [
        path.name
        for workspace in workspaces
        for path in sorted((workspace / "effects").iterdir())
        if max(Counter(path.read_text().splitlines()).values(), default=0) > 1
    ]
    return (
        [task for task in doubled if known.get(task) == "interrupted"],
        [task for task in doubled if known.get(task) != "interrupted"],
    )


def processes_left(folder: Path) -> list[int]:
    """Processes with a Kitbag home in this folder, except this one."""
    wanted = f"KITBAG_HOME={folder}/".encode()
    left: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
            variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            if int(name) != os.getpid() and state != "Z" and any(one.startswith(wanted) for one in variables):
                left.append(int(name))
    return left


def files_left(home: Path, workspaces: list[Path], temporary: Path, tasks: set[str]) -> list[str]:
    """Temporary files in the home, anything in the directory for temporary files, and unknown files in a workspace."""
    expected = {"effect.sh", "script.json", *(f"effects/{task}" for task in tasks)}
    left = [str(path) for path in home.rglob("*") if path.is_file() and _TEMPORARY.search(path.name)]
    left += [str(path) for path in temporary.rglob("*")]
    for workspace in workspaces:
        files = (path for path in workspace.rglob("*") if path.is_file())
        names = (str(path.relative_to(workspace)) for path in files)
        left += [f"{workspace.name}/{name}" for name in names if name not in expected and not name.startswith(".git/")]
    return left
