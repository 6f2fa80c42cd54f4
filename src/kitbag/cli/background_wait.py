"""Waits for background tasks that outlast the answer of `kitbag -p`, so that the model can continue.

Used by headless. It does not wait for approvals that can't be given here: it names them and sets the exit code.
"""

import time
from collections.abc import Callable
from typing import Final

from kitbag.events import Notice
from kitbag.runtime.agent import Agent
from kitbag.tasks.worker_process import NO_WORKER
from kitbag.tools.delegation import TaskReport

STILL_RUNNING: Final = 8
MAX_COMMAND_WAIT: Final = 600.0
"""Seconds for commands, which may be servers that never end; agents have no limit."""
_POLL_SECONDS = 1.0


async def wait_for_background(
    agent: Agent, notify: Callable[[str], None], emit: Callable[[Notice], None]
) -> list[TaskReport]:
    """Waits until a task ends. `emit`: for warnings. Returns the unfinished tasks if all of them wait for an approval
    or a worker, or are commands that take too long."""
    delegation = agent.delegation
    if delegation is None:
        return []
    announced, started = "", time.monotonic()
    while (unfinished := delegation.unfinished()) and not delegation.has_notifications():
        late = time.monotonic() - started > MAX_COMMAND_WAIT
        for warning in delegation.take_warnings():
            emit(Notice(severity="warning", text=warning))
        if all((late and task.name == "Bash") or _is_blocked(task) for task in unfinished):
            return unfinished
        names = ", ".join(f"{task.name} {task.id}" for task in unfinished)
        if names != announced:
            notify(f"waiting for background tasks ({len(unfinished)}; Ctrl-C stops waiting, not the tasks): {names}")
            announced = names
        await delegation.wait(unfinished[0].id, _POLL_SECONDS)
    return []


def _is_blocked(task: TaskReport) -> bool:
    has_no_worker = task.status == "queued" and any(warning.startswith(NO_WORKER) for warning in task.warnings)
    return has_no_worker or task.status == "waiting-approval"


def still_running_message(unfinished: list[TaskReport]) -> str:
    """For the user: what still runs, and what to do about it."""
    waiting = [task for task in unfinished if task.status == "waiting-approval"]
    names = ", ".join(f"{task.name} {task.id} ({task.status})" for task in unfinished)
    fix = (
        "answer pending approvals with `kitbag permissions pending`" if waiting else "follow with `kitbag tasks watch`"
    )
    return f"still running in the background: {names}; {fix}, then resume with --continue"
