"""What a task is, and how it follows from its records. Values and one pure function; the board reads and writes.

A task is created once. It is begun by whoever claims it, perhaps more than once: after a crash, or when it is resumed.
Each beginning has exactly one end, and the first end that is written counts.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, cast

from kitbag.record_fields import RecordFields
from kitbag.store.journal import JournalRecord
from kitbag.tasks.owner import GONE_OWNER, Owner, parse_owner

TaskKind = Literal["agent", "command"]
TaskStatus = Literal[
    "queued",
    "running",
    "waiting-approval",
    "completed",
    "empty",
    "failed",
    "cancelled",
    "max-turns",
    "max-tokens",
    "max-cost",
    "interrupted",
]
FINISHED: Final[frozenset[TaskStatus]] = frozenset(
    ("completed", "empty", "failed", "cancelled", "max-turns", "max-tokens", "max-cost", "interrupted")
)


class TaskRequest(NamedTuple):
    """What was asked for, in a form that another process can carry out."""

    agent: str
    prompt: str
    description: str = ""
    model: str = ""
    """As the caller wrote it; empty: the agent's own, or the parent's."""
    parent_model: str = ""
    parent_mode: str = "default"
    max_turns: int = 0
    request: str = ""
    """Of a task that goes on: what it is told now. What it was asked at first stays in its prompt."""
    turns_before: int = 0
    """Of a task that goes on: how many it had taken."""
    skills: tuple[str, ...] = ()
    """To be there from the start, besides the agent's own."""
    pack: str = ""
    """The id of a task whose packed context is to be the agent's."""
    contract: Mapping[str, Any] = {}
    """What the answer to a packed task must be."""
    command: str = ""
    """Of a background command: what the shell runs; `agent` is empty then."""
    seconds: float = 0.0
    """Its time; 0: as long as it takes."""
    starts_in: str = ""
    """Where the shell starts, in the workspace of `directory`."""
    directory: str = ""
    options: Mapping[str, Any] = {}
    """What the person said when the session began: team, persona, trust, tools; of a command, what was decided."""


class TaskResult(NamedTuple):
    status: TaskStatus
    text: str = ""
    error: str = ""
    turns: int = 0
    tokens: int = 0
    cost: float | None = 0.0
    seconds: float = 0.0
    branch: str = ""
    """Where the changes of an agent in a worktree of its own are."""
    length: int = 0
    """Characters of the whole text, where `text` is only its beginning."""
    rest: str = ""
    """The name under which the whole text was put away."""
    code: int | None = None
    """Of a command: its exit code, where it had one. `text` is the end of what it printed."""


TASK_REQUEST_FIELDS: Final = RecordFields(
    TaskRequest, "agent", "prompt", "description", "model", "parent_model", "parent_mode", "max_turns", "request",
    "turns_before", "skills", "pack", "contract", "command", "seconds", "starts_in", "directory", "options",
)  # fmt: skip
TASK_RESULT_FIELDS: Final = RecordFields(
    TaskResult, "status", "text", "error", "turns", "tokens", "cost", "seconds", "branch", "length", "rest", "code"
)


class Task(NamedTuple):
    id: str
    kind: TaskKind
    agent: str
    description: str
    root: str
    """The session of the person that all of it belongs to."""
    parent: str
    """The task that started this one; empty: the root did."""
    depth: int
    background: bool
    """As it was begun last: one that is resumed may go on in the other way."""
    directory: str
    created: str
    status: TaskStatus = "queued"
    owner: Owner | None = None
    """Who does it; of one in front that waits for its turn, who will. None: whoever claims it."""
    run: int = 0
    """How often it has begun."""
    recoveries: int = 0
    """How often it began again because its owner was gone, since a person last began it."""
    session: str = ""
    """Where its conversation is."""
    started: str = ""
    ended: str = ""
    end: TaskResult | None = None
    ended_run: int = -1
    """Which beginning it was that ended last."""
    stop_wanted: bool = False
    warnings: tuple[str, ...] = ()
    notified: bool = False
    """The session that began it has been told of its end."""
    questions: tuple[str, ...] = ()
    """Those that wait for an answer."""
    version: str = ""
    """The Kitbag that it was created with, or last resumed with."""

    @property
    def is_finished(self) -> bool:
        return self.status in FINISHED

    def to_json(self) -> dict[str, Any]:
        end = self.end or TaskResult(self.status)
        return {
            "id": self.id,
            "kind": self.kind,
            "agent": self.agent,
            "description": self.description,
            "status": self.status,
            "root": self.root,
            "parent": self.parent,
            "depth": self.depth,
            "background": self.background,
            "directory": self.directory,
            "session": self.session,
            "created": self.created,
            "started": self.started,
            "ended": self.ended,
            "run": self.run,
            "recoveries": self.recoveries,
            "turns": end.turns,
            "tokens": end.tokens,
            "cost": end.cost,
            "seconds": end.seconds,
            "error": end.error,
            "code": end.code,
            "branch": end.branch,
            "warnings": list(self.warnings),
        }


def apply_record(tasks: dict[str, Task], record: JournalRecord) -> str:
    """Takes in one record of the board's stream; the id of the task it was about. Raises for what is no such record."""
    body = cast("dict[str, Any]", record.body)
    task_id = str(body["id"])
    if record.kind == "created":
        tasks.setdefault(task_id, _create_task(tasks, body, record.at))
    else:
        tasks[task_id] = _update_task(tasks[task_id], record.kind, body, record.at)
    return task_id


def _create_task(tasks: Mapping[str, Task], body: Mapping[str, Any], at: str) -> Task:
    """Whatever a task begins after it was told to stop is to stop too."""
    known = {name: body[name] for name in _CREATED_FIELDS}
    parent = tasks.get(str(body["parent"]))
    stopped = parent is not None and (parent.stop_wanted or parent.status == "cancelled")
    version = str(body.get("version", ""))
    owner, warnings = _parse_owner(body) if body.get("owner", []) != [] else (None, ())
    made = Task(created=at, session=str(body["id"]), stop_wanted=stopped, version=version, owner=owner, **known)
    return made._replace(warnings=warnings)


def _update_task(task: Task, kind: str, body: Mapping[str, Any], at: str) -> Task:
    match kind:
        case "begun":
            return _start_task(task, body, at) if int(body["run"]) == task.run + 1 else task
        case "queued":
            if task.is_finished:
                fresh = task._replace(status="queued", owner=None, end=None, ended="", stop_wanted=False, recoveries=0)
                return fresh._replace(background=True, version=str(body.get("version", "")))
        case "waiting":
            if task.status in ("running", "waiting-approval"):
                asked = (*task.questions, str(body["question"]))
                return task._replace(status="waiting-approval", questions=asked)
        case "answered":
            left = tuple(question for question in task.questions if question != str(body["question"]))
            status = "running" if task.status == "waiting-approval" and not left else task.status
            return task._replace(status=status, questions=left)
        case "session":
            return task._replace(session=str(body["session"]))
        case "stop":
            return task._replace(stop_wanted=not task.is_finished or task.stop_wanted)
        case "warning":
            return task._replace(warnings=(*task.warnings, str(body["text"]))[-_MAX_WARNINGS:])
        case "notified":
            return task._replace(notified=True)
        case "ended":
            if task.end is None and int(body["run"]) == task.run:
                end = TASK_RESULT_FIELDS.read(body)
                return task._replace(status=end.status, end=end, ended=at, ended_run=task.run, questions=())
        case _:
            pass
    return task


def _start_task(task: Task, body: Mapping[str, Any], at: str) -> Task:
    """What has ended begins again only when a person wants that; whoever came too late has used up the number."""
    run = task.run + 1
    if task.end is not None and not body["again"]:
        return task._replace(run=run)
    owner, warnings = _parse_owner(body)
    return task._replace(
        status="running",
        owner=owner,
        warnings=(*task.warnings, *warnings)[-_MAX_WARNINGS:],
        run=run,
        background=task.background and not body.get("in_front"),
        recoveries=task.recoveries + 1 if body.get("recovered") else 0,
        started=at,
        ended="",
        end=None,
        # A wish to stop outlives the process that was to hear it.
        stop_wanted=task.stop_wanted and task.end is None,
        notified=False,
        questions=(),
    )


def _parse_owner(body: Mapping[str, Any]) -> tuple[Owner, tuple[str, ...]]:
    """With what is wrong with it. One that can't be read is taken to be gone, or nobody could end the task."""
    try:
        return parse_owner(body.get("owner")), ()
    except ValueError as error:
        return GONE_OWNER, (
            f"the journal does not say which process runs it ({error}); Kitbag treats that process as ended",
        )


_MAX_WARNINGS: Final = 20
_CREATED_FIELDS: Final = ("id", "kind", "agent", "description", "root", "parent", "depth", "background", "directory")


def requester_label(agent: str, task_id: str) -> str:
    return f"{agent} (task {task_id})"
