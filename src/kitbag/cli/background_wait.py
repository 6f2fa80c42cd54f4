"""What `kitbag -p` does about background work that outlasts the answer: it waits, and then lets the model go on.

Used by headless. A question that nobody here can answer is no reason to wait: it is named, and the exit code says so.
"""

import time
from collections.abc import Callable
from typing import Final

from kitbag.runtime.agent import Agent
from kitbag.tasks.worker_process import NO_WORKER
from kitbag.tools.delegation import TaskReport

STILL_RUNNING: Final = 8
MAX_COMMAND_WAIT: Final = 600.0
"""Seconds for commands, which may be servers that never end; agents are waited for as long as they work."""
_POLL_SECONDS = 1.0


async def wait_for_background(agent: Agent, notify: Callable[[str], None]) -> list[TaskReport]:
    """Until one has ended, or until what is left waits for a person's answer, can't be begun, or is a command that does
    not end: then those."""
    delegation = agent.delegation
    if delegation is None:
        return []
    told, begun = "", time.monotonic()
    warned: set[str] = set()
    while (left := delegation.unfinished()) and not delegation.has_notifications():
        late = time.monotonic() - begun > MAX_COMMAND_WAIT
        for warning in (warning for one in left for warning in one.warnings if warning not in warned):
            warned.add(warning)
            notify(warning)
        if all((late and one.name == "Bash") or _is_blocked(one) for one in left):
            return left
        names = ", ".join(f"{one.name} {one.id}" for one in left)
        if names != told:
            notify(f"waiting for {len(left)} in the background (Ctrl-C leaves, and the work goes on): {names}")
            told = names
        await delegation.report(left[0].id, _POLL_SECONDS)
    return []


def _is_blocked(task: TaskReport) -> bool:
    has_nobody = task.status == "queued" and any(warning.startswith(NO_WORKER) for warning in task.warnings)
    return has_nobody or task.status == "waiting-approval"


def still_running_message(unfinished: list[TaskReport]) -> str:
    """For the person: what still runs, and what to do about it."""
    waiting = [one for one in unfinished if one.status == "waiting-approval"]
    names = ", ".join(f"{one.name} {one.id} ({one.status})" for one in unfinished)
    fix = "answer with `kitbag permissions pending`" if waiting else "watch it with `kitbag tasks watch`"
    return f"still at work in the background: {names}; {fix}, then go on with --continue"
