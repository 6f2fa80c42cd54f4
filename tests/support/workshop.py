"""What the tests of delegated work share: a home with a scripted model, an agent that does things, and real workers."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from conftest import World
from kitbag.agent.session import STREAM_PREFIX, new_session_id
from kitbag.permissions.approvals.queue import ApprovalQueue
from kitbag.store.journal import Journal, JournalRecord, journal_path
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import Board
from kitbag.tasks.task import Task, TaskRequest
from kitbag.tasks.worker_process import read_worker_record
from support.waiting import TEST_TIMEOUT, wait_until

AN_AGENT = "## Your Task"
TOOLS = ("Bash", "Read", "Write", "Task", "TaskOutput", "TaskStop")


class Nursery:
    """Forks workers that need not be imported each time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("nursery.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._alive: set[int] = set()

    def start(self, kind: str, environment: dict[str, str], log: str, **more: Any) -> int:
        pid = int(self._ask({"kind": kind, "environment": environment, "log": log, **more}))
        self._alive.add(pid)
        return pid

    def wait(self, pid: int) -> int:
        """How it ended: negative for a signal."""
        status = int(self._ask({"kind": "wait", "pid": pid}))
        self._alive.discard(pid)
        return status

    def kill(self, pid: int) -> None:
        if pid in self._alive:
            os.kill(pid, signal.SIGKILL)
            self.wait(pid)

    def _ask(self, what: dict[str, Any]) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def close(self) -> None:
        for pid in list(self._alive):
            self.kill(pid)
        self._process.communicate(timeout=TEST_TIMEOUT)


def has_ended(pid: int) -> bool:
    """Also where nobody has waited for it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")
    except OSError:
        return True


class Workshop:
    def __init__(self, world: World, nursery: Nursery) -> None:
        self.world = world
        self.home = str(world.home / ".kitbag")
        self.nursery = nursery
        self.environment = {**world.env, "KITBAG_HOME": self.home}
        self.journal = Journal.open(journal_path(self.home), Redactor([]))
        self._board = Board(self.journal)
        self._workers: list[int] = []
        self.agent("doer")

    @property
    def board(self) -> Board:
        """As of now."""
        self.journal.catch_up()
        return self._board

    def agent(self, name: str, **fields: str) -> None:
        given = {"tools": ", ".join(TOOLS), **fields}
        rows = "".join(f"{key}: {value}\n" for key, value in given.items())
        self.world.write(f"~/.kitbag/agents/{name}.md", f"---\nname: {name}\ndescription: Does.\n{rows}---\nDo it.")

    def script(self, *replies: Any, **of_prompts: list[Any]) -> None:
        """What agents say; by name: those whose task has that word."""
        rules = [{"system": word, "replies": said} for word, said in of_prompts.items()]
        rules.append({"replies": list(replies)})
        self.world.write("script.json", json.dumps({"rules": rules}))

    def wish(self, prompt: str = "Do it.", agent: str = "doer", **more: Any) -> TaskRequest:
        options = {"only_tools": list(TOOLS), **more.pop("options", {})}
        model = more.pop("parent_model", f"scripted:{self.world.workspace / 'script.json'}")
        directory = str(self.world.workspace)
        return TaskRequest(agent=agent, prompt=prompt, parent_model=model, directory=directory, options=options, **more)

    def put(self, prompt: str = "Do it.", *, background: bool = True, parent: Task | None = None, **more: Any) -> str:
        made = self.board.create(
            new_session_id(),
            "agent",
            self.wish(prompt, **more),
            root="root",
            parent=parent.id if parent else "",
            depth=parent.depth + 1 if parent else 1,
            background=background,
        )
        return asyncio.run(made).id

    def worker(self, fault: str = "", *, idle: float = 0.3, at_once: int = 20) -> int:
        environment = {**self.environment, **({"KITBAG_FAULT_AT": fault} if fault else {})}
        log = str(self.world.home / "worker.log")
        pid = self.nursery.start("worker", environment, log, idle=idle, at_once=at_once)
        self._workers.append(pid)
        # Until it has the lock, whoever puts something on the board would start another one.
        wait_until(lambda: self._has_begun(pid), "the worker did not begin")
        return pid

    def _has_begun(self, pid: int) -> bool:
        found = read_worker_record(self.home)
        return (found is not None and found.owner.pid == pid) or has_ended(pid)

    def work(self) -> None:
        """A worker, until it has nothing to do."""
        assert self.nursery.wait(self.worker(idle=0)) == 0, (self.world.home / "worker.log").read_text()

    def task(self, task_id: str) -> Task:
        return self.board.find(task_id)

    def until(self, is_so: Callable[[], Any], what: str = "") -> Any:
        log = self.world.home / "worker.log"
        return wait_until(is_so, lambda: f"{what or 'it did not happen'}\n{log.read_text() if log.exists() else ''}")

    def until_status(self, task_id: str, *statuses: str) -> Task:
        self.until(lambda: self.task(task_id).status in statuses, f"{self.task(task_id)}")
        return self.task(task_id)

    def until_asked(self, task_id: str) -> None:
        """Until its question can be answered: it is recorded after the task's status."""
        self.until_status(task_id, "waiting-approval")
        self.until(ApprovalQueue(self.journal).pending, "no question is pending")

    def records(self, task_id: str, kind: str = "") -> list[JournalRecord]:
        found = self.journal.read(STREAM_PREFIX + self.task(task_id).session)
        return [record for record in found if not kind or record.kind == kind]

    def close(self) -> None:
        """No process stays."""
        for pid in self._workers:
            self.nursery.kill(pid)
        self.world.end_worker()
        self.journal.close()


def call(tool: str, call_id: str = "", **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"id": call_id or f"c-{tool}-{abs(hash(str(arguments)))}", "name": tool, "arguments": arguments}]}


@contextlib.contextmanager
def opened(world: World, nursery: Nursery) -> Generator[Workshop, None, None]:
    workshop = Workshop(world, nursery)
    try:
        yield workshop
    finally:
        workshop.close()
