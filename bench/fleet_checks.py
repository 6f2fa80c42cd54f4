"""The invariants of fleet_soak.py, checked on what was recorded outside Kitbag: lines written by the commands of agents
and by submitters, rows of PostgreSQL with the connection that wrote each, /proc. Shares no code with Kitbag.

1. Every accepted task is recorded and ends exactly once; what was stopped stays stopped.
2. Each step runs at most once, or its outcome is reported as unknown; a completed task ran each step once, in order.
3. A step starts only after the worker that runs it recorded the intent.
4. Only the owner of the current run writes to a task's session, and nobody after its end.
5. Whoever sees a record sees all before it: at any moment, in the database and in every mirror.
6. No process and no connection is left.
"""

import contextlib
import json
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

STATUSES = ("completed", "cancelled", "interrupted")
UNKNOWN = "unknown outcome"
INSTALL = (
    "CREATE TABLE soak_writes (seq bigint, writer text)",
    "CREATE INDEX ON soak_writes (seq)",
    "CREATE FUNCTION soak_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
    " INSERT INTO soak_writes VALUES (new.seq, current_setting('application_name'));"
    " IF random() < 0.02 THEN PERFORM pg_sleep(0.05); END IF; RETURN new; END $$",
    "CREATE TRIGGER soak_note AFTER INSERT ON kitbag_records FOR EACH ROW EXECUTE FUNCTION soak_note()",
)
"""Notes which connection wrote each record. Some transactions take longer, so that others could overtake them."""
_QUERY = (
    "SELECT seq, stream, kind, body, coalesce((SELECT string_agg(writer, '+') FROM soak_writes"
    " WHERE soak_writes.seq = kitbag_records.seq), '') FROM kitbag_records ORDER BY seq"
)


class Record(NamedTuple):
    seq: int
    stream: str
    kind: str
    body: dict[str, Any]
    writer: str
    """The process that wrote it: `worker-1.4` is the fourth process of worker-1."""


class Step(NamedTuple):
    """A line that the command of a step wrote when it began."""

    task: str
    name: str
    worker: str


class Evidence(NamedTuple):
    """What happened, in the order in which it may be read while it still goes on: steps before records."""

    accepted: dict[str, str]
    """The kind of each task whose id was returned to a submitter."""
    stopped: dict[str, str]
    """The status that a stop returned."""
    steps: list[Step]
    ended_steps: Counter[tuple[str, str]]
    records: list[Record]

    def ends(self) -> dict[str, dict[str, Any]]:
        return {one.body["id"]: one.body for one in self.records if one.stream == "tasks" and one.kind == "ended"}


def collect(acknowledged: Iterable[list[str]], logs: Iterable[Path], rows: Callable[[str], list[Any]]) -> Evidence:
    """`logs`: of the commands of steps. `rows`: runs a query."""
    lines = [line.split() for log in logs if log.exists() for line in log.read_text().splitlines()]
    told = list(acknowledged)
    return Evidence(
        accepted={line[1]: line[2] for line in told if line[0] == "created"},
        stopped={line[1]: line[2] for line in told if line[0] == "stopped"},
        steps=[Step(one[1], one[2], Path(one[3]).name) for one in lines if one[0] == "begin"],
        ended_steps=Counter((one[1], one[2]) for one in lines if one[0] == "end"),
        records=[Record(*row[:3], json.loads(row[3]), row[4]) for row in rows(_QUERY)],
    )


def violations(found: Evidence, steps_of: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Of what must hold at any moment. `steps_of`: the steps of each kind of task."""
    return [*_tasks(found), *double_steps(found), *_steps(found, steps_of), *_intents(found), *_fences(found)]


def unfinished(found: Evidence) -> list[str]:
    """Tasks that have not ended, or were accepted and have no record."""
    created = {one.body["id"] for one in found.records if one.stream == "tasks" and one.kind == "created"}
    return sorted((created | set(found.accepted)) - set(found.ends()))


def running(found: Evidence) -> dict[str, set[str]]:
    """The tasks that each worker runs."""
    tasks, ended = dict[str, str](), found.ends()
    for one in found.records:
        if one.stream == "tasks" and one.kind == "begun" and one.body["id"] not in ended:
            tasks[one.body["id"]] = one.writer.partition(".")[0]
    return {worker: {task for task in tasks if tasks[task] == worker} for worker in tasks.values()}


def _tasks(found: Evidence) -> list[str]:
    created = Counter(one.body["id"] for one in found.records if one.stream == "tasks" and one.kind == "created")
    ends = Counter(one.body["id"] for one in found.records if one.stream == "tasks" and one.kind == "ended")
    runs = Counter(
        (one.body["id"], one.body["run"]) for one in found.records if one.stream == "tasks" and one.kind == "begun"
    )
    wrong = [f"task {task} was created {times} times" for task, times in created.items() if times > 1]
    wrong += [f"task {task} ended {times} times" for task, times in ends.items() if times > 1]
    wrong += [f"run {run} of task {task} began {times} times" for (task, run), times in runs.items() if times > 1]
    for task, end in found.ends().items():
        if end["status"] not in STATUSES:
            wrong.append(f"task {task} is {end['status']}: {end['error']}")
        elif end["status"] == "completed" and end["text"] != "Done.":
            wrong.append(f"task {task} completed without its answer")
        if task in found.stopped and end["status"] != found.stopped[task]:
            wrong.append(f"task {task} was stopped as {found.stopped[task]} and is {end['status']}")
    return wrong


def double_steps(found: Evidence) -> list[str]:
    """Steps that ran more than once without a report that their outcome is unknown."""
    ends = found.ends()
    return [
        f"task {task} began step {name} {times} times, unreported"
        for (task, name), times in Counter((step.task, step.name) for step in found.steps).items()
        if times > 1 and UNKNOWN not in ends.get(task, {}).get("error", "")
    ]


def _steps(found: Evidence, steps_of: Mapping[str, tuple[str, ...]]) -> list[str]:
    ends, wrong = found.ends(), list[str]()
    begun: dict[str, list[str]] = {}
    for step in found.steps:
        begun.setdefault(step.task, []).append(step.name)
    for task, end in ends.items():
        if end["status"] != "completed" or task not in found.accepted:
            continue
        wanted = list(steps_of[found.accepted[task]])
        if begun.get(task, []) != wanted or any(found.ended_steps[task, name] != 1 for name in wanted):
            done = [name for name in wanted if found.ended_steps[task, name]]
            wrong.append(f"task {task} completed, began {begun.get(task, [])} and ended {done} instead of {wanted}")
    return wrong


def _intents(found: Evidence) -> list[str]:
    """A step has an intent of its worker, and an intent without a result is reported."""
    intents, results = Counter[tuple[str, str]](), dict[str, set[str]]()
    open_calls: dict[str, set[str]] = {}
    for one in found.records:
        task = _task_of_session(one.stream)
        if task and one.kind == "intent":
            intents[task, one.writer.partition(".")[0]] += 1
            open_calls.setdefault(task, set()).add(one.body["call"])
        elif task and one.kind == "result":
            results.setdefault(task, set()).add(one.body["result"]["call_id"])
    begun = Counter((step.task, step.worker) for step in found.steps)
    wrong = [
        f"{worker} began {times} steps of task {task} with {intents[task, worker]} intents"
        for (task, worker), times in begun.items()
        if times > intents[task, worker]
    ]
    for task, end in found.ends().items():
        is_open = bool(open_calls.get(task, set()) - results.get(task, set()))
        if is_open and end["status"] != "cancelled" and UNKNOWN not in end["error"]:
            wrong.append(f"task {task} is {end['status']}, and the unknown outcome of a step is not reported")
    return wrong


def _fences(found: Evidence) -> list[str]:
    wrong, owners, ended = list[str](), dict[str, str](), set[str]()
    for one in found.records:
        if one.stream == "tasks" and one.kind == "begun" and one.body["id"] not in ended:
            owners[one.body["id"]] = one.writer
        elif one.stream == "tasks" and one.kind == "ended":
            ended.add(one.body["id"])
        elif (task := _task_of_session(one.stream)) in owners:
            if task in ended:
                wrong.append(f"{one.writer} wrote {one.kind} to task {task} after its end (record {one.seq})")
            elif one.writer != owners[task]:
                wrong.append(f"{one.writer} wrote {one.kind} to task {task} of {owners[task]} (record {one.seq})")
    return wrong


def _task_of_session(stream: str) -> str:
    name, _, session = stream.partition("/")
    return session.partition("-")[0] if name == "session" else ""


def mirror_violations(found: Evidence, home: Path) -> list[str]:
    """What a mirror has is what the database has, without gaps."""
    wrong, bodies = list[str](), {one.seq: one for one in found.records}
    for path in home.rglob("mirror-*.db"):
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as mirror:
            rows = mirror.execute("SELECT seq, stream, kind, body, checksum FROM records ORDER BY seq").fetchall()
        if [row[0] for row in rows] != list(range(1, len(rows) + 1)):
            wrong.append(f"{path} lacks records among its {len(rows)}")
        for seq, stream, kind, body, checksum in rows:
            stored = bodies.get(seq)
            is_same = stored is not None and (stored.stream, stored.kind) == (stream, kind)
            if not is_same or (checksum != -1 and stored is not None and json.loads(body) != stored.body):
                wrong.append(f"{path} differs at {seq}")
                break
    return wrong


class Observer(threading.Thread):
    """Reads new records all the time, as another machine would, and notes when one appears below the last it saw."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url, self._stop_requested = url, threading.Event()
        self.last = 0
        self.violations: list[str] = []

    def run(self) -> None:
        while not self._stop_requested.wait(0.05):
            with contextlib.suppress(psycopg.Error), psycopg.connect(self._url, autocommit=True) as connection:
                while not self._stop_requested.wait(0.005):
                    self._look(connection)

    def _look(self, connection: "psycopg.Connection[Any]") -> None:
        rows = connection.execute("SELECT seq FROM kitbag_records WHERE seq > %s ORDER BY seq", (self.last,)).fetchall()
        numbers = [row[0] for row in rows]
        if numbers and numbers != list(range(self.last + 1, self.last + 1 + len(numbers))):
            missing = sorted(set(range(self.last + 1, numbers[-1])) - set(numbers))
            self.violations.append(f"record {numbers[-1]} was visible before {missing[:5]}")
        self.last = max([self.last, *numbers])

    def stop(self) -> None:
        self._stop_requested.set()
        self.join()


def wait_until_gone(left: Callable[[], list[str]], seconds: float) -> list[str]:
    """What is still left after that time."""
    deadline = time.monotonic() + seconds
    while (found := left()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found
