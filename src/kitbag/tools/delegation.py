"""The interface through which tools start, watch and stop tasks. Implemented in tasks/delegation.

Used by task, skill and bash: values and one protocol.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import PermissionDecision
from kitbag.processes.command_runner import CommandResult
from kitbag.record_fields import RecordFields
from kitbag.tools.background_switch import BackgroundSwitch


class PackSelection(msgspec.Struct, frozen=True, kw_only=True):
    """How a task is packed; what is empty is chosen automatically."""

    skills: tuple[str, ...] = ()
    strategy: str = ""
    output: str = ""
    values: Mapping[str, str] = {}
    budgets: Mapping[str, int] = {}
    team: str = ""
    persona: str = ""
    allow_commands: bool = False
    """Only a user sets it."""
    allow_options: tuple[str, ...] = ()
    """Options of the user's command that allow references; an error names them."""


class QueueOptions(msgspec.Struct, frozen=True, kw_only=True):
    """When and where a background agent starts."""

    priority: int | None = None
    """Higher ones start first; None: that of the agent's file, else of the task that starts it, else 0."""
    key: str = ""
    """If its queue has an unfinished task with this key, that one is returned."""
    not_before: str = ""
    """A journal timestamp; empty: now."""
    delay: int = 0
    """Seconds until the start, instead of `not_before`."""
    providers: tuple[str, ...] = ()
    """Model providers that its worker needs."""


class DelegationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A task that a model asks another agent to do."""

    agent: str
    prompt: str
    description: str = ""
    background: bool = False
    model: str = ""
    max_turns: int = 0
    resume: str = ""
    pack: str = ""
    """The ID or file of a task whose packed context the agent gets."""
    pack_selection: PackSelection = PackSelection()
    queueing: QueueOptions = QueueOptions()
    output_schema: Mapping[str, Any] = {}
    """The JSON Schema of the final answer."""
    task_id: str = ""
    """An ID for the new task; empty: a random one."""


class TaskReport(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of a task."""

    id: str
    name: str
    """The agent's name, or `Bash` for a command."""
    status: str
    is_finished: bool
    text: str = ""
    """The final answer, or a range of a command's output so far."""
    error: str = ""
    description: str = ""
    turns: int = 0
    tokens: int = 0
    cost: float | None = 0.0
    seconds: float = 0.0
    activity: str = ""
    """What the task is doing now."""
    branch: str = ""
    patch: str = ""
    """The name of the patch with its changes, if it worked in a clone."""
    warnings: tuple[str, ...] = ()
    violations: tuple[str, ...] = ()
    """Of a packed task: what its output contract requires and the result lacks; also among the warnings."""
    is_command: bool = False
    exit_code: int | None = None
    """Of a finished command."""
    next_offset: int = 0
    """Of a command: the byte offset after the range of output in `text`."""
    output_size: int = 0
    """Of a command: the bytes of output so far."""
    is_existing: bool = False
    """It was not started now: an unfinished task had its key."""
    is_moved: bool = False
    """The user moved it to the background while its caller waited."""

    @property
    def further_warnings(self) -> tuple[str, ...]:
        """Warnings that the error does not repeat."""
        return tuple(warning for warning in self.warnings if warning not in self.error)

    def to_json(self) -> dict[str, Any]:
        """The names that `--json` prints, in its order."""
        return _REPORT_JSON.write(self)


_REPORT_JSON: Final = RecordFields(
    TaskReport,
    "id",
    "name",
    "status",
    "is_finished",
    "text",
    "error",
    "description",
    "turns",
    "tokens",
    "cost",
    "seconds",
    "activity",
    "branch",
    "patch",
    "warnings",
    "violations",
    "is_command",
    "is_existing",
    not_stored=("is_moved",),
    exit_code="code",
    next_offset="next",
    output_size="size",
)


class TaskStopResult(msgspec.Struct, frozen=True, kw_only=True):
    report: TaskReport
    was_finished: bool
    subtask_count: int
    """Tasks started by this one and stopped with it."""
    process_count: int
    """Processes of the task that are still alive."""


class RunningCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command of this process that continues as a background task."""

    text: str
    description: str
    directory: str
    result: "asyncio.Future[CommandResult]"
    """Canceling it ends the command."""
    attach: Callable[[Callable[[bytes], None], Callable[[], None]], None]
    """Passes all output, also what was printed before, to the first function; calls the second every second."""


class Delegation(Protocol):
    @property
    def end_notice(self) -> str:
        """How the model learns that a background task has ended, in a sentence for the model."""
        ...

    @property
    def has_started_tasks(self) -> bool:
        """Whether the board may have tasks started here."""
        ...

    def approval_facts(self, agent: str, resume: str) -> tuple[tuple[str, str], ...]:
        """What the user must know to approve the agent: its mode, tools and source. Raises NotFoundError with close
        names."""
        ...

    async def request_permission(self, request: DelegationRequest, permissions: Permissions, directory: str) -> str:
        """Ask for permission to start an agent outside of a Task call. Returns why it is denied, else empty."""
        ...

    async def start(
        self,
        request: DelegationRequest,
        progress: Callable[[str], None],
        background_switch: BackgroundSwitch | None = None,
    ) -> TaskReport:
        """Foreground: returns when the task has ended, or when the user moves it to the background. Background: returns
        at once. Raises KitbagError if the task can't start."""
        ...

    async def start_command(
        self,
        command: str,
        description: str,
        directory: str,
        timeout_seconds: float,
        decision: PermissionDecision,
        started_by: tuple[str, str] = ("", ""),
    ) -> TaskReport:
        """Start a command in the background, already decided and, where the decision says `ask`, approved. A timeout of
        0 means none. `started_by`: session and call, if its changes are to be recorded for undo. Raises KitbagError if
        it can't start."""
        ...

    async def adopt_command(self, command: RunningCommand) -> TaskReport:
        """Continue a running command as a background task. It ends with the session at the latest."""
        ...

    async def report(self, task_id: str, timeout_seconds: float, offset: int = 0) -> TaskReport:
        """Wait until the task ends or the timeout expires. `offset`: where in a command's output `text` starts, in
        bytes. The model gets the report: an end that it contains is not announced again. Raises NotFoundError with
        close ids."""
        ...

    async def wait(self, task_id: str, timeout_seconds: float) -> None:
        """Wait until the task ends or the timeout expires. Raises NotFoundError."""
        ...

    async def stop(self, task_id: str) -> TaskStopResult: ...

    async def take_notifications(self) -> str:
        """Describe background tasks that ended since the last call; empty if none did."""
        ...

    def take_warnings(self) -> tuple[str, ...]:
        """Warnings of the tasks reported so far that the user has not seen, each with the agent and the task ID."""
        ...

    def has_notifications(self) -> bool:
        """Whether `take_notifications` would return any."""
        ...

    def spent(self) -> tuple[int, float]:
        """Tokens and US dollars of all tasks started here."""
        ...

    def unfinished(self) -> list[TaskReport]:
        """Background tasks started here that have not ended."""
        ...
