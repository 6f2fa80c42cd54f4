"""Runs a command for an agent as it was judged: in that sandbox or not at all, with nothing of the user's secrets.

Used by Bash, and by whatever runs commands in the background. Blocks, so it belongs into a thread: `in_own_thread`
gives it one that ends when nobody waits for it any more.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeVar

from kitbag.errors import InvalidError
from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.permissions.model import PermissionDecision, Workspace
from kitbag.processes.command_runner import MAX_OUTPUT_BYTES, CommandResult, ProgressCallback, ShellCommand, run_command
from kitbag.sandbox.confine import Confinement, run_confined
from kitbag.sandbox.environment import scrub_environment

T = TypeVar("T")
_MAX_RUNNER_CHARS = 2_000
"""Characters that the runner keeps for itself, to say why nothing could be started."""
_ENDING_SECONDS = 30.0  # on a busy machine the end of a sandbox takes seconds


class AgentCommand(NamedTuple):
    text: str
    directory: str
    timeout_seconds: float
    workspace: Workspace
    decision: PermissionDecision
    mode: PermissionMode
    session_id: str = ""
    descriptors: tuple[int, ...] = ()
    environment: Mapping[str, str] | None = None
    """Of the one that wanted it, where that is another process; None: this one's."""
    max_output_bytes: int = MAX_OUTPUT_BYTES


def confinement_for(request: AgentCommand) -> Confinement | None:
    """None: it runs with all of the user's rights, as they agreed to. Raises InvalidError where nobody can have."""
    judgement = request.decision
    if judgement.effect == "deny" or (judgement.sandbox == "none" and request.mode in ("plan", "autonomous")):
        raise InvalidError(f"{request.mode} mode does not run it: {judgement.reason}")
    return None if judgement.sandbox == "none" else Confinement(judgement.sandbox, judgement.network)


def run_agent_command(
    request: AgentCommand,
    stop: threading.Event,
    on_output: Callable[[bytes], None],
    on_tick: ProgressCallback | None = None,
) -> CommandResult:
    """Raises InvalidError, SandboxError among them, when it did not run."""
    confinement = confinement_for(request)
    own = os.environ if request.environment is None else request.environment
    # A sandbox takes secrets out itself.
    given = dict(own) if confinement is not None else dict(_scrub_environment(tuple(own.items())))
    given.pop("OLDPWD", None)  # of no command of the session
    given["PWD"] = request.directory
    if request.session_id:
        given |= {"KITBAG_SESSION_ID": request.session_id, "CLAUDE_SESSION_ID": request.session_id}
    command = ShellCommand(
        request.text,
        request.directory,
        given,
        request.timeout_seconds,
        _MAX_RUNNER_CHARS,
        stop,
        on_output,
        request.descriptors,
        request.max_output_bytes,
    )
    if confinement is None:
        return run_command(command, on_tick)
    return run_confined(command, on_tick, confinement=confinement, workspace=request.workspace)


@lru_cache(1)
def _scrub_environment(environment: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """It hardly ever changes, and to look for secrets in it takes time."""
    return scrub_environment(environment)


async def run_in_own_thread(work: Callable[[threading.Event], T]) -> T:
    """A thread for it alone, since commands may take long and there are few others. Cancelling sets the event and waits
    for the end of the work, so that nothing goes on behind the caller's back.
    """
    loop = asyncio.get_running_loop()
    stop = threading.Event()
    done: asyncio.Future[T] = loop.create_future()
    done.add_done_callback(lambda ended: ended.exception())  # looked at, or asyncio complains about it

    def tell(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # pyright: ignore[reportArgumentType]

    def run() -> None:
        result, error = None, None
        try:
            result = work(stop)
        except BaseException as raised:  # noqa: BLE001 - it is raised where the work is waited for
            error = raised
        try:
            loop.call_soon_threadsafe(tell, result, error)
        except RuntimeError:
            return  # the loop is closed: nobody waits

    threading.Thread(target=run, name="kitbag-command").start()
    try:
        return await asyncio.shield(done)
    except BaseException:
        stop.set()
        await asyncio.wait([done], timeout=_ENDING_SECONDS)
        raise
