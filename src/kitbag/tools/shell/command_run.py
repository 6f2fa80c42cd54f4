"""Runs an agent's command as it was decided: in that sandbox or not at all, without the user's secrets.

Used by Bash and by background commands. run_agent_command blocks; run_in_own_thread runs it in a thread that can be
canceled.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeVar

import msgspec

from kitbag.errors import InvalidError
from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.permissions.model import PermissionDecision, Workspace
from kitbag.processes.command_runner import MAX_OUTPUT_BYTES, CommandResult, ProgressCallback, ShellCommand, run_command
from kitbag.sandbox.confine import run_confined
from kitbag.sandbox.confinement import Confinement, WriteQuestion

T = TypeVar("T")
_MAX_RUNNER_CHARS = 2_000
"""Characters the runner keeps, to report why nothing could be started."""
_ENDING_SECONDS = 30.0  # on a busy machine a sandbox takes seconds to end


class AgentCommand(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    directory: str
    timeout_seconds: float
    workspace: Workspace
    decision: PermissionDecision
    mode: PermissionMode
    session_id: str = ""
    descriptors: tuple[int, ...] = ()
    environment: Mapping[str, str] | None = None
    """The environment of the process that requested it; None: of this process."""
    max_output_bytes: int = MAX_OUTPUT_BYTES
    on_question: WriteQuestion | None = None
    """Decides about protected paths that it wants to write; None: they are denied."""
    lift_timeout: threading.Event | None = None
    """As in ShellCommand."""


def confinement_for(request: AgentCommand) -> Confinement | None:
    """None: runs unconfined, as the user approved. Raises InvalidError if the mode does not allow that."""
    decision = request.decision
    if decision.effect == "deny" or (decision.sandbox == "none" and request.mode in ("plan", "autonomous")):
        raise InvalidError(f"not allowed in {request.mode} mode: {decision.reason}")
    return None if decision.sandbox == "none" else Confinement.of_decision(decision, request.on_question)


def run_agent_command(
    request: AgentCommand,
    stop: threading.Event,
    on_output: Callable[[bytes], None],
    on_tick: ProgressCallback | None = None,
) -> CommandResult:
    """Raises InvalidError, such as SandboxError or WorkspaceMovedError, if it did not run."""
    confinement = confinement_for(request)
    base_environment = os.environ if request.environment is None else request.environment
    # A sandbox removes secrets itself.
    environment = (
        dict(base_environment) if confinement is not None else dict(_scrub_environment(tuple(base_environment.items())))
    )
    environment.pop("OLDPWD", None)  # it is not from a command of this session
    environment["PWD"] = request.directory
    if request.session_id:
        environment |= {"KITBAG_SESSION_ID": request.session_id, "CLAUDE_SESSION_ID": request.session_id}
    command = ShellCommand(
        text=request.text,
        directory=request.directory,
        environment=environment,
        timeout=request.timeout_seconds,
        max_characters=_MAX_RUNNER_CHARS,
        stop=stop,
        on_output=on_output,
        descriptors=request.descriptors,
        max_output_bytes=request.max_output_bytes,
        lift_timeout=request.lift_timeout,
    )
    if confinement is None:
        request.workspace.check_in_place()
        return run_command(command, on_tick)
    return run_confined(command, on_tick, confinement=confinement, workspace=request.workspace)


@lru_cache(1)
def _scrub_environment(environment: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Cached, because it rarely changes and searching it for secrets takes time."""
    from kitbag.sandbox.environment import scrub_environment

    return scrub_environment(environment)


async def run_in_own_thread(work: Callable[[threading.Event], T]) -> T:
    """Uses a new thread, because commands may take long and the pool has few. Cancellation sets the event and waits for
    the work to end, so that nothing continues in the background."""
    loop = asyncio.get_running_loop()
    stop = threading.Event()
    done: asyncio.Future[T] = loop.create_future()
    done.add_done_callback(lambda ended: ended.exception())  # retrieved, or asyncio logs a warning

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
        except BaseException as raised:  # noqa: BLE001 - raised again where the work is awaited
            error = raised
        try:
            loop.call_soon_threadsafe(tell, result, error)
        except RuntimeError:
            return  # the loop is closed: nothing awaits the work

    threading.Thread(target=run, name="kitbag-command").start()
    try:
        return await asyncio.shield(done)
    except BaseException:
        stop.set()
        await asyncio.wait([done], timeout=_ENDING_SECONDS)
        raise
