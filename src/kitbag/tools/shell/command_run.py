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
from kitbag.library.dialects.permission_modes import Mode
from kitbag.permissions.model import Judgement, Workspace
from kitbag.processes.command_runner import FLOOD_BYTES, Command, Ran, Tick, run_command
from kitbag.sandbox.confine import Confinement, run_confined
from kitbag.sandbox.environment import scrubbed

T = TypeVar("T")
_KEPT = 2_000
"""Characters that the runner keeps for itself, to say why nothing could be started."""
_ENDING_SECONDS = 30.0  # on a busy machine the end of a sandbox takes seconds


class Wanted(NamedTuple):
    text: str
    directory: str
    seconds: float
    workspace: Workspace
    judgement: Judgement
    mode: Mode
    session_id: str = ""
    descriptors: tuple[int, ...] = ()
    environment: Mapping[str, str] | None = None
    """Of the one that wanted it, where that is another process; None: this one's."""
    flood: int = FLOOD_BYTES


def confinement_of(wanted: Wanted) -> Confinement | None:
    """None: it runs with all of the user's rights, as they agreed to. Raises InvalidError where nobody can have."""
    judgement = wanted.judgement
    if judgement.effect == "deny" or (judgement.sandbox == "none" and wanted.mode in ("plan", "autonomous")):
        raise InvalidError(f"{wanted.mode} mode does not run it: {judgement.reason}")
    return None if judgement.sandbox == "none" else Confinement(judgement.sandbox, judgement.network)


def run_wanted(wanted: Wanted, stop: threading.Event, heard: Callable[[bytes], None], tick: Tick | None = None) -> Ran:
    """Raises InvalidError, SandboxError among them, when it did not run."""
    confinement = confinement_of(wanted)
    own = os.environ if wanted.environment is None else wanted.environment
    # A sandbox takes secrets out itself.
    given = dict(own) if confinement is not None else dict(_scrubbed(tuple(own.items())))
    given.pop("OLDPWD", None)  # of no command of the session
    given["PWD"] = wanted.directory
    if wanted.session_id:
        given |= {"KITBAG_SESSION_ID": wanted.session_id, "CLAUDE_SESSION_ID": wanted.session_id}
    command = Command(
        wanted.text, wanted.directory, given, wanted.seconds, _KEPT, stop, heard, wanted.descriptors, wanted.flood
    )
    if confinement is None:
        return run_command(command, tick)
    return run_confined(command, tick, confinement=confinement, workspace=wanted.workspace)


@lru_cache(1)
def _scrubbed(environment: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """It hardly ever changes, and to look for secrets in it takes time."""
    return scrubbed(environment)


async def in_own_thread(work: Callable[[threading.Event], T]) -> T:
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
