"""What a task is, and how it follows from its records. Values and one pure function; the board reads and writes.

A task is created once. It is begun by whoever claims it, perhaps more than once: after a crash, or when it is resumed.
Each beginning has exactly one end, and the first end that is written counts.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, cast

from kitbag.store.journal import Record
from kitbag.tasks.owner import Owner

Kind = Literal["agent", "command"]
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


class Wish(NamedTuple):
    """What was asked for, in a form that another process can carry out."""

    agent: str
    prompt: str
    description: str = ""
    model: str = ""
    """As the caller wrote it; empty: the agent's own, or the parent's."""
    parent_model: str = ""
    parent_mode: str = "default"
    max_turns: int = 0
    turns_before: int = 0
    """Of a task that goes on: how many it had taken."""
    skills: tuple[str, ...] = ()
    """To be there from the start, besides the agent's own."""
    pack: str = ""
    """The id of a task whose packed context is to be the agent's."""
    command: str = ""
    """Of a background command: what the shell runs; `agent` is empty then."""
    seconds: float = 0.0
    directory: str = ""
    options: Mapping[str, Any] = {}
    """What the person said when the session began: team, persona, trust, tools."""


class End(NamedTuple):
    status: TaskStatus
    text: str = ""
    error: str = ""
    turns: int = 0
    tokens: int = 0
    cost: float | None = 0.0
    seconds: float = 0.0
    branch: str = ""
    """Where the changes of an agent in a worktree of its own are."""


class Task(NamedTuple):
    id: str
    kind: Kind
    agent: str
    description: str
    root: str
    """The session of the person that all of it belongs to."""
    parent: str
    """The task that started this one; empty: the root did."""
    depth: int
    background: bool
    directory: str
    created: str
    status: TaskStatus = "queued"
    owner: Owner | None = None
    run: int = 0
    """How often it has begun."""
    recoveries: int = 0
    """How often it began again because its owner was gone, since a person last began it."""
    session: str = ""
    """Where its conversation is."""
    started: str = ""
    ended: str = ""
    end: End | None = None
    stop_wanted: bool = False
    warnings: tuple[str, ...] = ()
    notified: bool = False
    """The session that began it has been told of its end."""

    @property
    def is_finished(self) -> bool:
        return self.status in FINISHED

    def to_json(self) -> dict[str, Any]:
        end = self.end or End(self.status)
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
            "branch": end.branch,
            "warnings": list(self.warnings),
        }


def apply(tasks: dict[str, Task], record: Record) -> str:
    """Takes in one record of the board's stream; the id of the task it was about. Raises for what is no such record."""
    body = cast("dict[str, Any]", record.body)
    task_id = str(body["id"])
    if record.kind == "created":
        known = {name: body[name] for name in _CREATED}
        tasks.setdefault(task_id, Task(created=record.at, session=task_id, **known))
        return task_id
    task = tasks[task_id]
    match record.kind:
        case "begun":
            if int(body["run"]) == task.run + 1 and (task.end is None or bool(body["again"])):
                recovered = bool(body.get("recovered"))
                task = task._replace(
                    status="running",
                    owner=Owner(*body["owner"]),
                    run=task.run + 1,
                    recoveries=task.recoveries + 1 if recovered else 0,
                    started=record.at,
                    ended="",
                    end=None,
                    stop_wanted=False,
                    notified=False,
                )
        case "queued":
            if task.is_finished:
                task = task._replace(
                    status="queued",
                    background=True,
                    owner=None,
                    end=None,
                    ended="",
                    stop_wanted=False,
                    recoveries=0,
                )
        case "waiting":
            if task.status == "running":
                task = task._replace(status="waiting-approval")
        case "answered":
            if task.status == "waiting-approval":
                task = task._replace(status="running")
        case "session":
            task = task._replace(session=str(body["session"]))
        case "stop":
            task = task._replace(stop_wanted=not task.is_finished or task.stop_wanted)
        case "warning":
            task = task._replace(warnings=(*task.warnings, str(body["text"])))
        case "notified":
            task = task._replace(notified=True)
        case "ended":
            if task.end is None and int(body["run"]) == task.run:
                end = End(**{name: body[name] for name in End._fields if name in body})
                task = task._replace(status=end.status, end=end, ended=record.at)
        case _:
            pass
    tasks[task_id] = task
    return task_id


_CREATED: Final = ("id", "kind", "agent", "description", "root", "parent", "depth", "background", "directory")
