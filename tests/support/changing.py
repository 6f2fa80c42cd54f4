"""A workspace whose files a session changes, with a real journal, kept files and commands, and takes back."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import World
from kitbag.agent.session import Session
from kitbag.agent.session_records import SessionHeader
from kitbag.agent.undo.plan import MessageChanges, UndoStep, find_later_changes, plan_undo, read_message_changes
from kitbag.agent.undo.restore import Restorer, RestoreResult
from kitbag.agent.undo.session_changes import SessionChanges, recover_interrupted_command
from kitbag.agent.undo.snapshot import SnapshotLimits
from kitbag.events import Notice
from kitbag.messages import Message, Text, ToolCall, Usage
from kitbag.permissions.model import Workspace
from kitbag.store.content_store import ContentStore
from kitbag.store.journal import Journal
from kitbag.store.redaction import Redactor
from support.waiting import TEST_TIMEOUT

Tree = dict[str, Any]
EVERYTHING = SnapshotLimits()


class Shop:
    """`say` begins a turn; `write`, `delete` and `command` are what tools do in it; `undo` takes a turn back."""

    def __init__(self, world: World, session_id: str = "shop", limits: SnapshotLimits = EVERYTHING) -> None:
        self.world = world
        self.root = world.workspace.resolve()
        self.kitbag_home = str(world.home / ".kitbag")
        self.workspace = Workspace(root=str(self.root), home=str(world.home), kitbag_home=self.kitbag_home)
        self.journal = Journal.open(f"{self.kitbag_home}/state/journal.db", Redactor(("hunter2-hunter2",)))
        self.session = Session(self.journal, session_id)
        self.kept = ContentStore(self.kitbag_home)
        self.notices: list[Notice] = []
        self.changes = SessionChanges(self.session, self.workspace, self.notices.append, limits=limits)
        self.run(self.session.start(SessionHeader(directory=str(world.workspace), model="model", mode="default")))

    def close(self) -> None:
        self.journal.close()

    def run(self, work: Any) -> Any:
        return asyncio.run(work)

    def say(self, text: str = "Do it.") -> None:
        self.run(self.session.add_user((Text(text),)))

    def call(self, tool: str) -> str:
        """With its intent in the journal."""
        call = ToolCall(id=f"call-{os.urandom(4).hex()}", name=tool, arguments={})
        self.run(self.session.add_reply(Message("assistant", (call,)), Usage(), 0.0, "model"))
        self.run(self.session.record_intent(call))
        return call.id

    def write(self, path: str, data: bytes, *, really: bool = True) -> None:
        place = self.root / path
        before = place.read_bytes() if place.exists() else None
        self.run(self.changes.record(self.call("Write"), str(place), before, data))
        if really:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)

    def delete(self, path: str) -> None:
        place = self.root / path
        self.run(self.changes.record(self.call("Edit"), str(place), place.read_bytes(), None))
        place.unlink()

    def command(self, command: str, meanwhile: Callable[[], None] = lambda: None, named: tuple[str, ...] = ()) -> None:
        async def work() -> None:
            async with self.changes.record_command(call, tuple(str(self.root / name) for name in named)):
                subprocess.run(["bash", "-ec", command], cwd=self.root, check=True, timeout=TEST_TIMEOUT)
                await asyncio.to_thread(meanwhile)

        call = self.call("Bash")
        self.run(work())

    def messages(self) -> list[MessageChanges]:
        return read_message_changes(self.journal, self.session.id, self.kept)

    def plan(self, number: int = 0) -> list[UndoStep]:
        messages = self.messages()
        turn = next(one for one in messages if one.number == number) if number else messages[-1]
        return plan_undo(turn.changes, self.kept, find_later_changes(messages, turn.number))

    def undo(self, number: int = 0) -> RestoreResult:
        steps = self.plan(number)
        assert not [step for step in steps if step.problem]
        return self.force(number)

    def force(self, number: int = 0) -> RestoreResult:
        number = number or self.messages()[-1].number
        return self.restorer().run(number, self.plan(number))

    def redo(self, number: int = 0) -> RestoreResult:
        turn = next(one for one in self.messages() if one.number == (number or self.messages()[-1].number))
        steps = plan_undo(turn.undo_changes, self.kept)
        assert not [step for step in steps if step.problem]
        return self.restorer().run(turn.number, steps, redo=True)

    def restorer(self) -> Restorer:
        return Restorer(self.journal, self.session.id, self.kept, self.workspace)

    def recover(self) -> bool:
        return recover_interrupted_command(self.journal, self.session.id, self.workspace, self.kept)

    def problems(self, number: int = 0) -> dict[str, str]:
        return {os.path.relpath(step.path, self.root): step.problem for step in self.plan(number) if step.problem}

    def tree(self) -> Tree:
        return tree(self.root)


def until_killed(world: World, code: str, session_id: str = "shop") -> None:
    """Runs code on a `shop` of its own in another process, which has to end by SIGKILL; `die()` does that."""
    head = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from pathlib import Path
from support.changing import Shop
from conftest import World
world = object.__new__(World)
world.home, world.workspace = Path({str(world.home)!r}), Path({str(world.workspace)!r})
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
shop = Shop(world, {session_id!r})
"""
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, timeout=TEST_TIMEOUT)
    assert done.returncode == -signal.SIGKILL, done.stderr


def reopened(world: World) -> "Shop":
    """The session of another process."""
    shop = Shop(world, "another")
    shop.session.id = "shop"
    return shop


def tree(root: Path) -> Tree:
    """Everything below a folder but `.git`: what each holds, and its rights."""
    found: Tree = {}
    for folder, folders, files in os.walk(os.fsencode(root)):
        folders[:] = [name for name in folders if name != b".git"]
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                held: Any = os.readlink(path)
            else:
                mode = stat.S_IMODE(status.st_mode)
                closed = stat.S_ISDIR(status.st_mode) or not os.access(path, os.R_OK)
                held = (mode, None if closed else Path(os.fsdecode(path)).read_bytes())
            found[os.path.relpath(path, os.fsencode(root)).decode("utf-8", "backslashreplace")] = held
    return found
