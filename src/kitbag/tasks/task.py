"""The task model: values, and the function that folds journal records into tasks. No I/O; the board reads and writes.

A task is created once. A process that claims it starts a run; a crash or a resume leads to another run. Each run ends
exactly once: the first result that is written counts.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, cast

import msgspec

from kitbag.record_fields import RecordFields
from kitbag.store.derived_tables import JournalRecord
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
    "over-budget",
    "max-tokens",  # written by earlier versions, as max-cost
    "max-cost",
    "interrupted",
]
FINISHED: Final[frozenset[TaskStatus]] = frozenset(
    ("completed", "empty", "failed", "cancelled", "max-turns", "over-budget", "max-tokens", "max-cost", "interrupted")
)


WORKSPACE_KEY: Final = "workspace"
"""The option of a request that identifies its workspace (permissions/workspace_identity)."""


TRUSTED_CONTENT_KEY: Final = "trusted_content"
"""The option of a request with the fingerprint of its workspace, if the user trusts it (permissions/trust)."""


SUBMITTED_RULES_KEY: Final = "submitted_rules"
"""The option of a request with the rules of the submitter's settings that deny and ask: on another machine, they apply
besides that machine's own."""


SNAPSHOT_KEY: Final = "snapshot"
"""The option of a request with the hash of the submitter's user library (tasks/library_snapshot)."""


class TaskRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent or a command should do, in a form that another process can execute."""

    agent: str
    prompt: str
    description: str = ""
    model: str = ""
    """As the caller wrote it. Empty: the agent's own model, or the parent's."""
    parent_model: str = ""
    parent_mode: str = "default"
    max_turns: int = 0
    message: str = ""
    """For a resumed task: the new message. The original prompt stays in `prompt`."""
    previous_turns: int = 0
    """For a resumed task: the number of turns it had already taken."""
    skills: tuple[str, ...] = ()
    """Loaded at the start, in addition to the agent's own."""
    pack: str = ""
    """The id of a task whose packed context the agent gets."""
    contract: Mapping[str, Any] = {}
    """The output contract of a packed task."""
    output_schema: Mapping[str, Any] = {}
    """The JSON Schema of the final answer."""
    traceparent: str = ""
    """The span that it belongs to (telemetry/trace_context); empty: none."""
    command: str = ""
    """For a background command: the shell command. `agent` is empty then."""
    timeout_seconds: float = 0.0
    """The command's timeout; 0: none."""
    start_directory: str = ""
    """The shell's working directory, inside the workspace of `directory`."""
    directory: str = ""
    options: Mapping[str, Any] = {}
    """The user's options for the session (team, persona, trust, tools); for a command, also the permission decision."""


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    status: TaskStatus
    text: str = ""
    error: str = ""
    turns: int = 0
    tokens: int = 0
    cost: float | None = 0.0
    seconds: float = 0.0
    branch: str = ""
    """The branch with the changes of an agent that has its own worktree."""
    full_length: int = 0
    """Length of the whole text, when `text` is truncated."""
    stored_name: str = ""
    """The name under which the whole text is stored."""
    exit_code: int | None = None
    """A command's exit code, if it has one. `text` is the tail of its output."""
    patch: str = ""
    """The name of the patch with the changes of an agent that worked in a clone (tasks/task_patches)."""
    violations: tuple[str, ...] = ()
    """How the answer and the files of a packed task differ from its output contract."""


TASK_REQUEST_FIELDS: Final = RecordFields(
    TaskRequest, "agent", "prompt", "description", "model", "parent_model", "parent_mode", "max_turns", "skills",
    "pack", "contract", "output_schema", "traceparent", "command", "directory", "options", message="request",
    previous_turns="turns_before", timeout_seconds="seconds", start_directory="starts_in",
)  # fmt: skip
TASK_RESULT_FIELDS: Final = RecordFields(
    TaskResult, "status", "text", "error", "turns", "tokens", "cost", "seconds", "branch",
    "patch", "violations", full_length="length", stored_name="rest", exit_code="code",
)  # fmt: skip


class Task(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    kind: TaskKind
    agent: str
    description: str
    root: str
    """The user's session at the top of the task tree."""
    parent: str
    """The task that started this one; empty: the root session did."""
    depth: int
    background: bool
    """As of the latest start: a resumed task may switch between foreground and background."""
    directory: str
    created: str
    status: TaskStatus = "queued"
    owner: Owner | None = None
    """The process that runs it, or that will run a queued foreground task. None: any worker may claim it."""
    run: int = 0
    """The number of starts."""
    recoveries: int = 0
    """Restarts after the owner died, since a user last started it."""
    session: str = ""
    """The id of its session."""
    started: str = ""
    ended: str = ""
    result: TaskResult | None = None
    ended_run: int = -1
    """The run that ended last."""
    stop_requested: bool = False
    warnings: tuple[str, ...] = ()
    notified: bool = False
    """The session that started it has been notified of its end."""
    questions: tuple[str, ...] = ()
    """Ids of questions that wait for an answer."""
    version: str = ""
    """The Kitbag version that created it or last resumed it."""
    queue: str = ""
    """Workers of this queue run it; empty: any worker that shares the journal's file."""
    repository: str = ""
    """The URL of its repository, which machines without its directory clone; empty: it needs its directory."""
    priority: int = 0
    """Higher ones start first."""
    key: str = ""
    """While it is unfinished, its queue takes no other task with this key."""
    not_before: str = ""
    """The time of a scheduled start."""
    providers: tuple[str, ...] = ()
    """Model providers that its worker needs."""
    snapshot: str = ""
    """The hash of the user library that it runs with (tasks/library_snapshot); empty: that of the machine."""

    @property
    def is_in_queue(self) -> bool:
        """Whether it counts for the limits of its queue. Commands have their own, and the caller of a
        foreground task waits for its start anyway."""
        return self.background and self.kind == "agent"

    @property
    def shown_status(self) -> str:
        """For users."""
        return "scheduled" if self.is_scheduled(timestamp()) else self.status

    def is_scheduled(self, now: str) -> bool:
        return self.status == "queued" and self.not_before > now

    @property
    def is_finished(self) -> bool:
        return self.status in FINISHED

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """For the user and for the agent that started it."""
        violations = self.result.violations if self.result is not None else ()
        return (*self.warnings, *(f"not as required: {violation}" for violation in violations))

    def to_json(self) -> dict[str, Any]:
        result = self.result or TaskResult(status=self.status)
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
            "queue": self.queue,
            "priority": self.priority,
            "key": self.key,
            "not_before": self.not_before,
            "providers": list(self.providers),
            "session": self.session,
            "created": self.created,
            "started": self.started,
            "ended": self.ended,
            "run": self.run,
            "recoveries": self.recoveries,
            "turns": result.turns,
            "tokens": result.tokens,
            "cost": result.cost,
            "seconds": result.seconds,
            "error": result.error,
            "code": result.exit_code,
            "branch": result.branch,
            "repository": self.repository,
            "snapshot": self.snapshot,
            "patch": result.patch,
            "warnings": list(self.all_warnings),
        }


def apply_record(tasks: dict[str, Task], record: JournalRecord) -> str:
    """Applies one record of the board's stream and returns the id of its task. Raises for an unreadable record."""
    body = cast("dict[str, Any]", record.body)
    task_id = str(body["id"])
    if record.kind == "pruned":
        tasks[task_id] = _read_pruned(body)
    elif record.kind == "created":
        tasks.setdefault(task_id, _create_task(tasks, body, record.at))
    else:
        tasks[task_id] = _update_task(tasks[task_id], record.kind, body, record.at)
    return task_id


def pruned_body(task: Task, number: int) -> dict[str, Any]:
    """What is left of a task after pruning. `number`: its place in the order of creation."""
    return {
        "id": task.id,
        "kind": task.kind,
        "status": task.status,
        "created": task.created,
        "started": task.started,
        "ended": task.ended,
        "number": number,
    }


def _read_pruned(body: Mapping[str, Any]) -> Task:
    names = ("id", "kind", "status", "created", "started", "ended")
    nothing = {"agent": "", "description": "", "root": "", "parent": "", "directory": "", "depth": 0}
    return Task(
        **{name: str(body[name]) for name in names},  # pyright: ignore[reportArgumentType]
        **nothing,  # pyright: ignore[reportArgumentType]
        background=True,
        notified=True,
        result=TaskResult(status=body["status"], error=PRUNED),
    )


def _create_task(tasks: Mapping[str, Task], body: Mapping[str, Any], at: str) -> Task:
    """A task that is started by a stopped task is stopped too."""
    fields = {name: body[name] for name in _CREATED_FIELDS}
    if not all(isinstance(value, str | int) for value in fields.values()):
        raise TypeError("a field is neither text nor a number")
    parent = tasks.get(str(body["parent"]))
    stopped = parent is not None and (parent.stop_requested or parent.status == "cancelled")
    version, queue = str(body.get("version", "")), str(body.get("queue", ""))
    owner, warnings = _parse_owner(body) if body.get("owner", []) != [] else (None, ())
    task = Task(created=at, session=str(body["id"]), stop_requested=stopped, version=version, owner=owner, **fields)
    return msgspec.structs.replace(
        task,
        warnings=warnings,
        queue=queue,
        repository=str(body.get("repository", "")),
        priority=int(body.get("priority", 0)),
        key=str(body.get("key", "")),
        not_before=str(body.get("not_before", "")),
        providers=tuple(str(name) for name in body.get("providers", ())),
        snapshot=str(body.get("snapshot", "")),
    )


def _update_task(task: Task, kind: str, body: Mapping[str, Any], at: str) -> Task:
    match kind:
        case "begun":
            return _start_task(task, body, at) if int(body["run"]) == task.run + 1 else task
        case "queued":
            if task.is_finished:
                queued = msgspec.structs.replace(
                    task, status="queued", owner=None, result=None, ended="", stop_requested=False, recoveries=0
                )
                version = str(body.get("version", ""))
                return msgspec.structs.replace(queued, background=True, version=version, not_before="")
        case "waiting":
            if task.status in ("running", "waiting-approval"):
                questions = (*task.questions, str(body["question"]))
                return msgspec.structs.replace(task, status="waiting-approval", questions=questions)
        case "answered":
            left = tuple(question for question in task.questions if question != str(body["question"]))
            status = "running" if task.status == "waiting-approval" and not left else task.status
            return msgspec.structs.replace(task, status=status, questions=left)
        case "session":
            return msgspec.structs.replace(task, session=str(body["session"]))
        case "stop":
            return msgspec.structs.replace(task, stop_requested=not task.is_finished or task.stop_requested)
        case "warning":
            return msgspec.structs.replace(task, warnings=(*task.warnings, str(body["text"]))[-_MAX_WARNINGS:])
        case "moved":
            return task if task.is_finished else msgspec.structs.replace(task, background=True)
        case "notified":
            return msgspec.structs.replace(task, notified=True)
        case "ended":
            if task.result is None and int(body["run"]) == task.run:
                result = TASK_RESULT_FIELDS.read(body)
                if not isinstance(cast("object", result.status), str):
                    raise TypeError("the status is not text")
                return msgspec.structs.replace(
                    task, status=result.status, result=result, ended=at, ended_run=task.run, questions=()
                )
        case _:
            pass
    return task


def hold_after_damage(task: Task, at: str) -> Task:
    """A task that had not ended when the journal was damaged: its end may be among the lost records, so it runs again
    only when a person resumes it. It uses up a run number, because keys of the last run may exist."""
    run = task.run + 1
    result = TaskResult(status="interrupted", error=JOURNAL_DAMAGED)
    return msgspec.structs.replace(
        task, status="interrupted", result=result, run=run, ended=at, ended_run=run, questions=(), stop_requested=False
    )


def _start_task(task: Task, body: Mapping[str, Any], at: str) -> Task:
    """A finished task restarts only when a user asks for it; a claim that is too late still uses up its run number."""
    run = task.run + 1
    if task.result is not None and not body["again"]:
        return msgspec.structs.replace(task, run=run)
    owner, warnings = _parse_owner(body)
    return msgspec.structs.replace(
        task,
        status="running",
        owner=owner,
        warnings=(*task.warnings, *warnings)[-_MAX_WARNINGS:],
        run=run,
        background=task.background and not body.get("in_front"),
        recoveries=task.recoveries + 1 if body.get("recovered") else 0,
        started=at,
        ended="",
        result=None,
        # A stop request outlives the process that should have received it.
        stop_requested=task.stop_requested and task.result is None,
        notified=False,
        questions=(),
    )


def _parse_owner(body: Mapping[str, Any]) -> tuple[Owner, tuple[str, ...]]:
    """The owner, and warnings. An unreadable owner counts as dead, or nothing could end the task."""
    try:
        return parse_owner(body.get("owner")), ()
    except ValueError as error:
        return GONE_OWNER, (f"the journal does not name its process ({error}); Kitbag treats the process as ended",)


def timestamp(seconds: float | None = None) -> str:
    """As in the journal: UTC, comparable as text. Now by default; else seconds since the epoch."""
    moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


JOURNAL_DAMAGED: Final = "the journal was damaged, so its outcome is unknown; check what it did before you resume it"
PRUNED: Final = "its prompt, answer and output were deleted (store.retention_days, or kitbag store prune)"
_MAX_WARNINGS: Final = 20
RECORD_KINDS: Final = (
    "created", "begun", "queued", "waiting", "answered", "session", "stop", "warning", "moved", "notified", "ended",
    "pruned",
)  # fmt: skip
_CREATED_FIELDS: Final = ("id", "kind", "agent", "description", "root", "parent", "depth", "background", "directory")


def requester_label(agent: str, task_id: str) -> str:
    return f"{agent} (task {task_id})"
