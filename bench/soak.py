"""Clients begin background tasks, wait for them and stop some, while worker and clients are killed at random moments.

    python bench/soak.py --kills 1000

Half of the tasks run in a git repository, half in a plain folder; killed are the worker, a client, or both at once.
Prints how many kills it survived, and checks what was promised: every id that was returned is on the board, every task
ends, what is said to run has a process that lives, no step with effects is done twice, what was stopped stays stopped,
no process or file is left, and the journal is whole; once with Kitbag's own code and once without (soak_checks). Ends
with 1 where that is not so. With the same --seed it does the same, as far as it can.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import soak_checks

from kitbag.agent.session import STREAM_PREFIX, new_session_id
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import Board
from kitbag.tasks.stop import stop_task
from kitbag.tasks.task import Task, TaskRequest
from kitbag.tasks.task_processes import find_task_processes
from kitbag.tasks.worker_process import ensure_tasks_hosted, ensure_worker, read_worker_record

LEASE = 15.0
"""Seconds in which what is said to run must have a process that lives: as long as a worker takes to start, and more."""
KINDS = ("Does", "Reads", "Waits")
EFFECT = {"name": "Bash", "arguments": {"command": "sh effect.sh"}}
LOOK = {"name": "Read", "arguments": {"file_path": "script.json"}}
RULES = [
    {"system": "Task\\s+Does", "replies": [{"calls": [EFFECT]}, {"calls": [LOOK]}, {"text": "Done."}]},
    {"system": "Task\\s+Waits", "replies": [{"calls": [LOOK], "delay": 0.7}, {"calls": [EFFECT]}, {"text": "Done."}]},
    {"replies": [{"calls": [LOOK]}, {"text": "Done.", "delay": 0.2}]},
]


class Ground:
    """Where it happens; the same for those who begin tasks, who kills them, and who checks."""

    def __init__(self, base: Path) -> None:
        self.home, self.told, self.temporary = base / "home", base / "told", base / "temporary"
        self.workspaces = [base / "git", base / "plain"]
        self.kitbag_home = str(self.home / ".kitbag")
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("KITBAG")},
            "HOME": str(self.home),
            "KITBAG_HOME": self.kitbag_home,
            "TMPDIR": str(self.temporary),
        }

    def lay(self) -> None:
        for folder in (self.home / ".kitbag/agents", self.told, self.temporary):
            folder.mkdir(parents=True)
        agent = "---\nname: doer\ndescription: Does.\ntools: Bash, Read\n---\nDo it."
        (self.home / ".kitbag/agents/doer.md").write_text(agent)
        (self.home / ".kitbag/settings.toml").write_text("[tasks]\nidle = 2\n")
        for workspace in self.workspaces:
            (workspace / "effects").mkdir(parents=True)
            (workspace / "effect.sh").write_text('echo done >> "effects/$KITBAG_SESSION_ID"\n')
            (workspace / "script.json").write_text(json.dumps({"rules": RULES}))
        author = ["-c", "user.name=soak", "-c", "user.email=soak@example.com"]
        for command in (["init", "-q"], ["add", "."], [*author, "commit", "-q", "-m", "Start"]):
            subprocess.run(["git", *command], cwd=self.workspaces[0], env=self.environment, check=True)

    def journal(self) -> Journal:
        return Journal.open(journal_path(self.kitbag_home), Redactor([]))

    @property
    def database(self) -> Path:
        return Path(journal_path(self.kitbag_home))

    def wish(self, kind: str, workspace: Path) -> TaskRequest:
        model = f"scripted:{workspace / 'script.json'}"
        options = {"only_tools": ["Bash", "Read"]}
        return TaskRequest(
            agent="doer", prompt=f"{kind} it.", parent_model=model, directory=str(workspace), options=options
        )

    def acknowledged(self) -> list[list[str]]:
        """What clients were told, in their own words, the last line perhaps cut off by their end."""
        lines = [line for file in self.told.iterdir() for line in file.read_text().splitlines(keepends=True)]
        return [line.split() for line in lines if line.endswith("\n")]


# --- a client ---------------------------------------------------------------------------------------------------


async def begin_tasks(ground: Ground, number: int, seed: int, pause: float) -> None:
    """Until it is killed. What it says was said to it, by a method that returned."""
    chance = random.Random(seed)
    told = os.open(ground.told / str(number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    mine: list[str] = []
    with ground.journal() as journal:
        board = Board(journal)
        while True:
            kind, workspace = chance.choice(KINDS), chance.choice(ground.workspaces)
            request = ground.wish(kind, workspace)
            task = await board.create(
                new_session_id(), "agent", request, root="root", parent="", depth=1, background=True
            )
            os.write(told, f"created {task.id} {kind}\n".encode())
            mine.append(task.id)
            await asyncio.to_thread(ensure_worker, ground.kitbag_home)
            if chance.random() < 0.15:
                stopped = await stop_task(board, board.find(chance.choice(mine)), "person")
                os.write(told, f"stopped {stopped.report.id} {stopped.report.status}\n".encode())
            await asyncio.sleep(chance.uniform(0, 2 * pause))


class Clients:
    def __init__(self, ground: Ground, count: int, chance: random.Random, pause: float) -> None:
        self._ground, self._chance, self._pause = ground, chance, pause
        self._next = 0
        self._alive: list[subprocess.Popen[bytes]] = [self._start() for _ in range(count)]

    def _start(self) -> "subprocess.Popen[bytes]":
        self._next += 1
        words = [str(self._ground.home.parent), str(self._next), str(self._chance.randrange(1 << 30)), str(self._pause)]
        return subprocess.Popen([sys.executable, __file__, "client", *words], env=self._ground.environment)

    def kill_one(self) -> None:
        """And start another in its place."""
        victim = self._alive.pop(self._chance.randrange(len(self._alive)))
        victim.kill()
        victim.wait()
        self._alive.append(self._start())

    def end(self) -> None:
        for client in self._alive:
            client.kill()
            client.wait()


# --- who kills, and who checks ----------------------------------------------------------------------------------


def kill_worker(ground: Ground) -> bool:
    found = read_worker_record(ground.kitbag_home)
    if found is None or not found.owner.check_alive():
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(found.owner.pid, signal.SIGKILL)
    return True


async def ghosts_last(board: Board, ground: Ground) -> float:
    """How long something was said to run that nothing runs, while others may look; at most the lease is allowed."""
    begun = time.monotonic()
    while any(_is_ghost(task) for task in board.unfinished()):
        if time.monotonic() - begun > LEASE:
            break
        await ensure_tasks_hosted(board, ground.kitbag_home)
        await asyncio.sleep(0.05)
    return time.monotonic() - begun


def _is_ghost(task: Task) -> bool:
    return task.status != "queued" and (task.owner is None or not task.owner.check_alive())


async def drain(board: Board, ground: Ground, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while board.unfinished() and time.monotonic() < deadline:
        await ensure_tasks_hosted(board, ground.kitbag_home)
        await asyncio.sleep(0.1)


def check(ground: Ground, board: Board, killed: Counter[str], ghosts: list[float]) -> list[str]:
    """What is not as it was promised."""
    wrong: list[str] = []
    tasks = {task.id: task for task in board.all()}
    acknowledged = ground.acknowledged()
    wrong += [f"task {line[1]} was returned and is lost" for line in acknowledged if line[1] not in tasks]
    for kind, task_id, status in acknowledged:
        if kind == "stopped" and tasks[task_id].status != status:
            wrong.append(f"task {task_id} was stopped as {status} and is {tasks[task_id].status}")
    for task in tasks.values():
        wrong += _check_task(ground, board, task)
    wrong += [f"something seemed to run for {seconds:.1f} s and did not" for seconds in ghosts if seconds > LEASE]
    with contextlib.closing(sqlite3.connect(board.journal.path)) as connection:
        found = connection.execute("PRAGMA integrity_check").fetchone()[0]
    wrong += [f"the journal is damaged: {found}"] if found != "ok" else []
    return wrong


def _check_task(ground: Ground, board: Board, task: Task) -> list[str]:
    wrong: list[str] = []
    if not task.is_finished:
        return [f"task {task.id} is still {task.status}"]
    intents = Counter(r.body["call"] for r in board.journal.read(STREAM_PREFIX + task.session) if r.kind == "intent")
    wrong += [f"task {task.id}: {call} was begun {times} times" for call, times in intents.items() if times > 1]
    files = [workspace / "effects" / task.id for workspace in ground.workspaces]
    done = sum(len(file.read_text().splitlines()) for file in files if file.exists())
    wanted = 0 if board.request(task.id).prompt.startswith("Reads") else 1
    if done > wanted or (task.status == "completed" and done != wanted):
        wrong.append(f"task {task.id} ({task.status}) did its step {done} times")
    if task.status not in ("completed", "cancelled", "interrupted"):
        wrong.append(f"task {task.id} is {task.status}: {task.result.error if task.result else ''}")
    if task.status == "completed" and (task.result is None or task.result.text != "Done."):
        wrong.append(f"task {task.id} completed without its answer")
    return wrong


async def check_independently(ground: Ground) -> list[str]:
    """The same promises, and what is left, without Kitbag's code."""
    deadline = time.monotonic() + LEASE
    while (processes := soak_checks.processes_left(ground.home)) and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
    accepted = {line[1] for line in ground.acknowledged() if line[0] == "created"}
    records = soak_checks.read_records(ground.database)
    lost = soak_checks.lost_tasks(records, accepted)
    reported, unreported = soak_checks.double_executions(records, ground.workspaces)
    tasks = set(soak_checks.statuses(records))
    files = soak_checks.files_left(ground.home, ground.workspaces, ground.temporary, tasks)
    damage = [*soak_checks.check_database(ground.database), *soak_checks.check_runs(records)]
    print(
        f"checked apart: {len(accepted)} accepted, {len(lost)} lost, {len(unreported)} unreported double executions "
        f"({len(reported)} reported), {len(processes)} processes and {len(files)} files left, "
        f"journal {'damaged' if damage else 'ok'}"
    )
    wrong = [f"task {task} was accepted and is lost" for task in lost]
    wrong += [f"task {task} did its step twice, unreported" for task in unreported]
    wrong += [f"process {process} is left" for process in processes]
    return wrong + [f"{name} is left" for name in files] + damage


async def soak(ground: Ground, kills: int, clients: int, seed: int, pause: float) -> int:
    chance = random.Random(seed)
    ground.lay()
    os.environ.clear()
    os.environ.update(ground.environment)
    begun, killed, ghosts = time.monotonic(), Counter[str](), list[float]()
    with ground.journal() as journal:
        board = Board(journal)
        at_work_now = Clients(ground, clients, chance, pause)
        try:
            while not ground.acknowledged():
                await asyncio.sleep(0.05)
            while sum(killed.values()) < kills:
                await asyncio.sleep(chance.uniform(0, 1.0))
                victims = chance.choices((("worker",), ("client",), ("worker", "client")), (5, 3, 2))[0]
                if "worker" in victims:
                    killed["worker"] += kill_worker(ground)
                if "client" in victims:
                    at_work_now.kill_one()
                    killed["client"] += 1
                if "worker" in victims:
                    ghosts.append(await ghosts_last(board, ground))
        finally:
            at_work_now.end()
        await drain(board, ground, 60 + len(board.unfinished()) * 1.0)
        wrong = check(ground, board, killed, ghosts)
        kill_worker(ground)
        left = find_task_processes(*(task.id for task in board.all()))
        wrong += [f"{len(left)} processes are left"] if left else []
        wrong += await check_independently(ground)
        _tell(board, ground, killed, ghosts, time.monotonic() - begun, seed)
    for problem in wrong[:20]:
        print(f"WRONG: {problem}")
    kept = f"survived {sum(killed.values())} kills; nothing that was acknowledged is lost, nothing was done twice"
    print(kept if not wrong else f"{len(wrong)} promises were not kept")
    return 1 if wrong else 0


def _tell(board: Board, ground: Ground, killed: Counter[str], ghosts: list[float], seconds: float, seed: int) -> None:
    tasks = board.all()
    statuses = Counter[Any](task.status for task in tasks)
    runs = sum(task.run > 1 for task in tasks)
    kinds = Counter(line[0] for line in ground.acknowledged())
    print(f"seed {seed}, {seconds:.0f} s: {killed['worker']} workers and {killed['client']} clients killed")
    print(f"{len(tasks)} tasks, {kinds['created']} ids returned, {kinds['stopped']} stops answered")
    print("ended: " + ", ".join(f"{count} {status}" for status, count in statuses.most_common()))
    print(f"{runs} were taken up again; longest without a live owner after a kill: {max(ghosts, default=0.0):.2f} s")


def main() -> int:
    if sys.argv[1:2] == ["client"]:
        base, number, seed, pause = sys.argv[2:]
        asyncio.run(begin_tasks(Ground(Path(base)), int(number), int(seed), float(pause)))
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--pause", type=float, default=2.0, help="mean seconds between two tasks of a client")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kitbag-soak-") as base:
        return asyncio.run(soak(Ground(Path(base)), given.kills, given.clients, given.seed, given.pause))


if __name__ == "__main__":
    sys.exit(main())
