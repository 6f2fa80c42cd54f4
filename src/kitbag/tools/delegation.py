"""What the tools for delegated work need of the run they belong to. The runtime ties it to agents, board and worker.

Used by task and bash; values and one protocol.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import PermissionDecision


class DelegationRequest(NamedTuple):
    """What a model asks another agent to do."""

    agent: str
    prompt: str
    description: str = ""
    background: bool = False
    model: str = ""
    max_turns: int = 0
    resume: str = ""
    pack: str = ""


class TaskReport(NamedTuple):
    """A task as it is now."""

    id: str
    name: str
    """The agent, or `Bash` for a command."""
    status: str
    is_finished: bool
    text: str = ""
    """The final answer; or a piece of what a command has printed so far."""
    error: str = ""
    description: str = ""
    turns: int = 0
    tokens: int = 0
    cost: float | None = 0.0
    seconds: float = 0.0
    activity: str = ""
    """What it does at this moment."""
    branch: str = ""
    warnings: tuple[str, ...] = ()
    is_command: bool = False
    exit_code: int | None = None
    """Of a command that has ended: its exit code."""
    next_offset: int = 0
    """Of a command: the byte of its output at which what follows the piece begins."""
    output_size: int = 0
    """Of a command: the bytes of output that there are."""

    def to_json(self) -> dict[str, object]:
        """The names that `--json` prints, in its order."""
        renamed = {"exit_code": "code", "next_offset": "next", "output_size": "size"}
        return {renamed.get(name, name): value for name, value in self._asdict().items()}


class TaskStopResult(NamedTuple):
    report: TaskReport
    was_finished: bool
    subtask_count: int
    """Tasks that it had begun, and that were stopped with it."""
    process_count: int
    """Processes of it that still live."""


class Delegation(Protocol):
    @property
    def has_started_tasks(self) -> bool:
        """Whether there may be tasks on the board that it has started."""
        ...

    def approval_facts(self, agent: str, resume: str) -> tuple[tuple[str, str], ...]:
        """What a person must know before the agent starts: its mode, its tools, where it comes from. Raises
        NotFoundError with close names."""
        ...

    async def request_permission(self, request: DelegationRequest, permissions: Permissions, directory: str) -> str:
        """Asks for the permission to start it, where no call of Task has; why not, or nothing."""
        ...

    async def start(self, request: DelegationRequest, progress: Callable[[str], None]) -> TaskReport:
        """In front: when it has ended. In the background: at once. Raises KitbagError for what can't be started."""
        ...

    async def start_command(
        self, command: str, description: str, directory: str, timeout_seconds: float, decision: PermissionDecision
    ) -> TaskReport:
        """In the background, for so long, or as long as it takes; it was judged before, and a person has agreed where
        that says `ask`. Raises KitbagError for what can't be started."""
        ...

    async def report(self, task_id: str, timeout_seconds: float, offset: int = 0) -> TaskReport:
        """When it has ended, or when the time is over. `offset`: the byte of a command's output at which its piece
        begins. Raises NotFoundError with close ids."""
        ...

    async def stop(self, task_id: str) -> TaskStopResult: ...

    async def take_notifications(self) -> str:
        """Of background work that has ended and was not told of; empty when there is none."""
        ...

    def has_notifications(self) -> bool:
        """Whether `news` would tell something."""
        ...

    def spent(self) -> tuple[int, float]:
        """Tokens and US dollars of all that was begun."""
        ...

    def unfinished(self) -> list[TaskReport]:
        """Background work that was begun here and has not ended."""
        ...
