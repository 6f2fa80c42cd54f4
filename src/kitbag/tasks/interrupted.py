"""What a task was doing when its process ended, and what resuming it does: repeat the step, or continue without knowing
whether it took effect.

Used by subagent, which repeats steps that only read, by the runner and the worker, which report the others, and by
resume, which lists them for the user.
"""

import contextlib
import os
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from kitbag.agent.execute import describe_call
from kitbag.agent.resume import resume
from kitbag.agent.session import Session
from kitbag.errors import KitbagError
from kitbag.library.scopes import find_places
from kitbag.messages import ToolCall
from kitbag.permissions.workspace_identity import WorkspaceIdentity
from kitbag.tasks.board import Board
from kitbag.tasks.task import WORKSPACE_KEY, Task

ResumeEffect = Literal["repeat", "unknown", "continue", "skip"]
UNKNOWN_OUTCOME: Final = "interrupted (unknown outcome)"
EFFECT_LABELS: Final[dict[ResumeEffect, str]] = {
    "repeat": "repeat it (it only reads)",
    "unknown": "continue, and tell the agent that the outcome is unknown",
    "continue": "continue",
    "skip": "not resumed",
}


class InterruptedTask(msgspec.Struct, frozen=True, kw_only=True):
    task: Task
    steps: tuple[str, ...]
    """Calls that had started and have no result; empty if it was waiting for the model."""
    effect: ResumeEffect
    problem: str = ""
    """Why it is skipped."""

    def to_json(self) -> dict[str, object]:
        return {
            "id": self.task.id,
            "agent": self.task.agent,
            "description": self.task.description,
            "directory": self.task.directory,
            "steps": list(self.steps),
            "effect": self.effect,
            "problem": self.problem,
        }


def only_reads(call: ToolCall) -> bool:
    """Whether a call that was interrupted can be repeated without a second effect. Calls of tools that only read have
    no recorded start; these are calls of tools that may have effects, but not with these arguments."""
    if call.name in ("TodoWrite", "AskUser"):
        return True  # change only their own session; the same question gets the same answer
    command = call.arguments.get("command")
    if call.name != "Bash" or not isinstance(command, str) or call.arguments.get("run_in_background"):
        return False
    from kitbag.permissions.decisions.command import is_read_only
    from kitbag.shell.analysis import analyze

    return is_read_only(analyze(command))


def started_calls(session: Session) -> list[ToolCall]:
    """Calls that had started and have no result."""
    return [call for call in session.open_calls if call.id in session.started_calls]


def calls_with_unknown_outcome(session: Session) -> list[str]:
    """Names of calls that started and have no known result, and that may have had an effect."""
    return [call.name for call in started_calls(session) if not only_reads(call)]


def describe_ended_process(board: Board, task: Task) -> str:
    """Why a task whose process ended too often is not started again. Its session must be here as a whole."""
    problem, unknown = f"its process ended {task.recoveries + 1} times", list[str]()
    with contextlib.suppress(KitbagError):  # it has no session yet
        unknown = calls_with_unknown_outcome(resume(board.journal, task.session))
    if unknown:
        problem = f"{UNKNOWN_OUTCOME}: {problem}, the last time while running {', '.join(unknown)}"
    return f"{problem}; resume it to try again"


def list_interrupted(board: Board) -> list[InterruptedTask]:
    """Every interrupted task, oldest first."""
    tasks = sorted((task for task in board.all() if task.status == "interrupted"), key=lambda task: task.ended)
    return [_describe(board, task) for task in tasks]


def _describe(board: Board, task: Task) -> InterruptedTask:
    if task.kind == "command":
        step = f"Bash({board.request(task.id).command})"
        return InterruptedTask(
            task=task, steps=(step,), effect="skip", problem="a command is not repeated; run it again if you want to"
        )
    try:
        calls = started_calls(resume(board.journal, task.session))
        problem = _blocking_problem(board, task)
    except KitbagError as error:
        return InterruptedTask(task=task, steps=(), effect="skip", problem=error.problem)
    steps = tuple(describe_call(call.name, call.arguments) for call in calls)
    if problem:
        return InterruptedTask(task=task, steps=steps, effect="skip", problem=problem)
    return InterruptedTask(task=task, steps=steps, effect=_effect(calls))


def _effect(calls: Iterable[ToolCall]) -> ResumeEffect:
    reads = [only_reads(call) for call in calls]
    return "continue" if not reads else "repeat" if all(reads) else "unknown"


def _blocking_problem(board: Board, task: Task) -> str:
    if not task.background:
        return f"it ran in the foreground; resume it with `kitbag agents run {task.agent} PROMPT --resume {task.id}`"
    if not task.repository and not os.path.isdir(task.directory):
        return f"{task.directory} no longer exists"
    identity = WorkspaceIdentity.from_record(board.request(task.id).options.get(WORKSPACE_KEY))
    if identity is not None and not identity.is_at(os.path.realpath(find_places(task.directory).project)):
        return f"{task.directory} was moved or replaced"
    return ""
