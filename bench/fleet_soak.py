"""Workers with homes of their own share a PostgreSQL database, and everything is killed, frozen or restarted at random.

    python bench/fleet_soak.py --seconds 300

Submitters create tasks and stop some. Meanwhile: kill -9 of a worker, of all workers, of a submitter; a worker is
frozen beyond its lease and revived; PostgreSQL is restarted, orderly or as after a crash. At the end all are drained.
Checked without Kitbag's code (soak_checks): every id that was returned is in the database and ended, no step was done
twice without a report, a completed task did each step once, nothing is left running, every record is there and the same
in every mirror. Ends with 1 where that is not so. With the same --seed it does the same, as far as it can.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import soak_checks
from soak import LOOK, Ground

from kitbag.agent.session import new_session_id
from kitbag.assembly.open_journal import open_journal
from kitbag.store.private_files import StoreError
from kitbag.tasks.board import Board
from kitbag.tasks.stop import stop_task
from support.postgres import Server

QUEUE = "soak"
LEASE = 4.0
"""Seconds, so that a worker can be frozen beyond it often."""
DRAIN_SECONDS = 120.0
STEPS = {"Does": ("one", "two"), "Waits": ("one",), "Reads": ()}
UNREACHABLE = 6
"""The exit code of a command that can't reach its database."""
EXPECTED = ("completed", "cancelled", "interrupted")


def _step(name: str) -> dict[str, Any]:
    return {"calls": [{"name": "Bash", "arguments": {"command": f"sh effect.sh {name}"}}]}


RULES = [
    {"system": "Task\\s+Does", "replies": [_step("one"), {"calls": [LOOK]}, _step("two"), {"text": "Done."}]},
    {"system": "Task\\s+Waits", "replies": [{"calls": [LOOK], "delay": 1.0}, _step("one"), {"text": "Done."}]},
    {"replies": [{"calls": [LOOK]}, {"text": "Done.", "delay": 0.3}]},
]


class FleetGround(Ground):
    """The workspaces are the same for all, as on machines that share a file system."""

    def __init__(self, base: Path, url: str) -> None:
        super().__init__(base)
        self.url = url

    def lay(self) -> None:
        super().lay()
        for workspace in self.workspaces:
            # It takes a moment, so that a worker can be killed or frozen in the middle.
            (workspace / "effect.sh").write_text('sleep 0.2; echo "$1" >> "effects/$KITBAG_SESSION_ID"\n')
            (workspace / "script.json").write_text(json.dumps({"rules": RULES}))

    def kitbag_home_of(self, name: str) -> str:
        home = self.home / name
        if not home.exists():
            (home / "agents").mkdir(parents=True)
            (home / "agents/doer.md").write_text((self.home / ".kitbag/agents/doer.md").read_text())
            (home / "settings.toml").write_text(f'[tasks]\nqueue = "{QUEUE}"\n')
        return str(home)

    def environment_of(self, name: str) -> dict[str, str]:
        return {**self.environment, "KITBAG_HOME": self.kitbag_home_of(name), "KITBAG_DATABASE_URL": self.url}


# --- a submitter ------------------------------------------------------------------------------------------------


async def submit(ground: FleetGround, number: int, seed: int, pause: float) -> None:
    """Until it is killed. What it says was said to it, by a method that returned."""
    chance = random.Random(seed)
    told = os.open(ground.told / str(number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    mine: list[str] = []
    with open_journal(os.environ["KITBAG_HOME"]) as journal:
        board = Board(journal)
        while True:
            kind = chance.choice(sorted(STEPS))
            request = ground.wish(kind, chance.choice(ground.workspaces))
            task = await board.create(
                new_session_id(), "agent", request, root=f"root{number}", parent="", depth=1, background=True
            )
            os.write(told, f"created {task.id} {kind}\n".encode())
            mine.append(task.id)
            if chance.random() < 0.15:
                stopped = await stop_task(board, board.find(chance.choice(mine)), "person")
                os.write(told, f"stopped {stopped.report.id} {stopped.report.status}\n".encode())
            await asyncio.sleep(chance.uniform(0, 2 * pause))


# --- processes that are killed and started again ----------------------------------------------------------------


class Processes:
    """Workers and submitters by name."""

    def __init__(self, ground: FleetGround, seed: int, pause: float) -> None:
        self._ground, self._pause = ground, pause
        self._chance = random.Random(seed)
        self._alive: dict[str, subprocess.Popen[bytes]] = {}
        self._submitters = 0

    def start_worker(self, name: str) -> None:
        words = ["worker", "--queue", QUEUE, "--concurrency", "4", "--idle", "86400"]
        self._start(name, [sys.executable, "-P", "-m", "kitbag", *words])

    def start_submitter(self, name: str) -> None:
        self._submitters += 1
        base, seed = str(self._ground.home.parent), self._chance.randrange(1 << 30)
        words = [base, str(self._submitters), str(seed), str(self._pause)]
        self._start(name, [sys.executable, __file__, "submit", *words])

    def _start(self, name: str, command: list[str]) -> None:
        with (self._ground.home.parent / f"{name}.log").open("ab") as log:
            environment = self._ground.environment_of(name)
            self._alive[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def restart_ended(self) -> list[str]:
        """As systemd would. Returns those that had no reason to end: one that starts while the server is away does."""
        ended = {name: one.returncode for name, one in self._alive.items() if one.poll() is not None}
        for name in ended:
            self.start_worker(name) if name.startswith("worker") else self.start_submitter(name)
        return [name for name, status in ended.items() if status != UNREACHABLE]

    def kill(self, *names: str) -> None:
        """All are dead before one is started again."""
        victims = [self._alive.pop(name) for name in names]
        for victim in victims:
            victim.kill()
        for victim in victims:
            victim.wait()

    def freeze(self, name: str) -> None:
        self._alive[name].send_signal(signal.SIGSTOP)

    def revive(self, name: str) -> None:
        self._alive[name].send_signal(signal.SIGCONT)

    def names(self, prefix: str) -> list[str]:
        return sorted(name for name in self._alive if name.startswith(prefix))

    def have_ended(self, prefix: str) -> bool:
        return all(self._alive[name].poll() is not None for name in self.names(prefix))


class Harm:
    """Does one harmful thing at a time."""

    def __init__(self, server: Server, processes: Processes, chance: random.Random) -> None:
        self._server, self._processes, self._chance = server, processes, chance
        self.done = Counter[str]()
        self._kinds = {
            "worker killed": (6, self._kill_worker),
            "all workers killed": (1, self._kill_all),
            "submitter killed": (3, self._kill_submitter),
            "worker frozen": (5, self._freeze),
            "server restarted": (1, self._restart_server),
        }

    async def do_one(self) -> None:
        names = list(self._kinds)
        name = self._chance.choices(names, [self._kinds[one][0] for one in names])[0]
        await self._kinds[name][1]()
        self.done[name] += 1

    async def _kill_worker(self) -> None:
        name = self._chance.choice(self._processes.names("worker"))
        self._processes.kill(name)
        await asyncio.sleep(self._chance.choice((0.0, 0.0, LEASE * 1.5)))  # the others take over, or it comes back
        self._processes.start_worker(name)

    async def _kill_all(self) -> None:
        names = self._processes.names("worker")
        self._processes.kill(*names)
        for name in names:
            self._processes.start_worker(name)

    async def _kill_submitter(self) -> None:
        name = self._chance.choice(self._processes.names("submitter"))
        self._processes.kill(name)
        self._processes.start_submitter(name)

    async def _freeze(self) -> None:
        name = self._chance.choice(self._processes.names("worker"))
        self._processes.freeze(name)
        await asyncio.sleep(LEASE * self._chance.uniform(0.8, 2.0))
        self._processes.revive(name)

    async def _restart_server(self) -> None:
        self._server.stop(self._chance.choice((signal.SIGINT, signal.SIGQUIT)))
        if self._chance.random() < 0.4:
            await self._kill_worker()
        await asyncio.sleep(self._chance.uniform(0, 2 * LEASE))
        self._server.start()


# --- checks -----------------------------------------------------------------------------------------------------


def read_records(server: Server) -> list[soak_checks.Record]:
    rows = server.rows("SELECT stream, kind, body FROM kitbag_records ORDER BY seq")
    return [soak_checks.Record(stream, kind, json.loads(body)) for stream, kind, body in rows]


def unfinished(server: Server) -> list[str]:
    return [task for task, status in soak_checks.statuses(read_records(server)).items() if not status]


def check_database(server: Server, ground: FleetGround) -> list[str]:
    """Every number is there once, and what a mirror has is what the database has."""
    query = "SELECT seq, stream, at, kind, body, key FROM kitbag_records ORDER BY seq"
    rows = {row[0]: row for row in server.rows(query)}
    [[last]] = server.rows("SELECT last FROM kitbag_counter")
    wrong = [] if list(rows) == list(range(1, last + 1)) else [f"{len(rows)} records, the last number is {last}"]
    for path in ground.home.rglob("mirror-*.db"):
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as mirror:
            whole = query.replace("kitbag_records", "records WHERE checksum <> -1")  # others are shortened there
            found = mirror.execute(whole).fetchall()
        wrong += [f"{path} differs at {row[0]}" for row in found if rows.get(row[0]) != row][:1]
    return wrong


def check_tasks(ground: FleetGround, records: list[soak_checks.Record]) -> list[str]:
    known = soak_checks.statuses(records)
    wrong: list[str] = []
    for line in ground.acknowledged():
        if line[0] == "stopped" and known.get(line[1]) != line[2]:
            wrong.append(f"task {line[1]} was stopped as {line[2]} and is {known.get(line[1])}")
    kinds = {line[1]: line[2] for line in ground.acknowledged() if line[0] == "created"}
    ends = {one.body["id"]: one.body for one in records if one.stream == "tasks" and one.kind == "ended"}
    for task, end in ends.items():
        done = [line for place in ground.workspaces for line in _lines(place / "effects" / task)]
        if end["status"] not in EXPECTED:
            wrong.append(f"task {task} is {end['status']}: {end['error']}")
        elif end["status"] == "completed" and (task in kinds and done != list(STEPS[kinds[task]])):
            wrong.append(f"task {task} completed and did {done}")
        elif end["status"] == "completed" and end["text"] != "Done.":
            wrong.append(f"task {task} completed without its answer")
    intents = Counter((one.stream, one.body["call"]) for one in records if one.kind == "intent")
    return wrong + [
        f"{stream}: {call} was begun {times} times" for (stream, call), times in intents.items() if times > 1
    ]


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


async def left_over(server: Server, ground: FleetGround) -> list[str]:
    """Processes, connections and unfinished tasks, after everybody had time to leave."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'kitbag'"
    deadline = time.monotonic() + 15
    while True:
        processes = soak_checks.processes_left(ground.home)
        [[connections]] = server.rows(query)
        if not (processes or connections) or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.2)
    found = [f"process {pid} is left" for pid in processes]
    found += [f"{connections} connections are left"] if connections else []
    return found + [f"task {task} did not end" for task in unfinished(server)]


# --- the soak ---------------------------------------------------------------------------------------------------


async def wait_for_end(server: Server, processes: Processes) -> None:
    """Until all tasks have ended; workers that exit are started again."""
    deadline = time.monotonic() + DRAIN_SECONDS
    while unfinished(server) and time.monotonic() < deadline:
        processes.restart_ended()
        await asyncio.sleep(1.0)


async def drain(ground: FleetGround, processes: Processes) -> list[str]:
    command = [sys.executable, "-P", "-m", "kitbag", "fleet", "drain", "--all"]
    environment = ground.environment_of("submitter-0")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    deadline = time.monotonic() + 30
    while not processes.have_ended("worker") and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    wrong = [] if processes.have_ended("worker") else [f"drained workers do not leave: {done.stdout}{done.stderr}"]
    processes.kill(*processes.names("worker"))
    return wrong


async def soak(ground: FleetGround, server: Server, given: argparse.Namespace) -> int:
    chance = random.Random(given.seed)
    ground.lay()
    processes = Processes(ground, given.seed, given.pause)
    harm, ended_early = Harm(server, processes, chance), Counter[str]()
    begun = time.monotonic()
    try:
        for number in range(given.submitters):
            processes.start_submitter(f"submitter-{number}")
        while not ground.acknowledged():
            await asyncio.sleep(0.1)
        server.run(f"UPDATE kitbag_facts SET value = '{LEASE}' WHERE name = 'lease_seconds'")
        for number in range(given.workers):
            processes.start_worker(f"worker-{number}")
        while time.monotonic() - begun < given.seconds:
            await asyncio.sleep(chance.uniform(0, 2.0))
            await harm.do_one()
            ended_early.update(processes.restart_ended())
        processes.kill(*processes.names("submitter"))
        await wait_for_end(server, processes)
        wrong = await drain(ground, processes)
    finally:
        processes.kill(*processes.names(""))
    orphans = await left_over(server, ground)
    wrong += [f"{name} ended by itself {times} times" for name, times in ended_early.items()]
    print(f"seed {given.seed}, {time.monotonic() - begun:.0f} s, lease {LEASE:g} s, load {os.getloadavg()[0]:.1f}")
    print(", ".join(f"{count} x {name}" for name, count in sorted(harm.done.items())))
    return report(ground, server, wrong, orphans)


def report(ground: FleetGround, server: Server, wrong: list[str], orphans: list[str]) -> int:
    records = read_records(server)
    accepted = {line[1] for line in ground.acknowledged() if line[0] == "created"}
    lost = soak_checks.lost_tasks(records, accepted)
    reported, unreported = soak_checks.double_executions(records, ground.workspaces)
    known = soak_checks.statuses(records)
    taken = {one.body["id"] for one in records if one.kind == "begun" and one.body.get("run", 1) > 1}
    unknown = sum(
        "unknown outcome" in one.body["error"] for one in records if one.kind == "ended" and "error" in one.body
    )
    print(f"tasks {len(known)} ({len(accepted)} ids returned), {len(records)} records, {len(taken)} tasks taken over")
    print("ended: " + ", ".join(f"{count} {status}" for status, count in Counter(known.values()).most_common()))
    print(f"steps with unknown outcome, reported: {unknown}; double steps, reported: {len(reported)}")
    print(f"lost {len(lost)}, unreported double steps {len(unreported)}, orphans {len(orphans)}")
    wrong += [f"task {task} was accepted and is lost" for task in lost]
    wrong += [f"task {task} did a step twice, unreported" for task in unreported]
    wrong += [
        *orphans,
        *soak_checks.check_runs(records),
        *check_tasks(ground, records),
        *check_database(server, ground),
    ]
    for problem in wrong[:20]:
        print(f"WRONG: {problem}")
    print("every promise was kept" if not wrong else f"{len(wrong)} promises were not kept")
    return 1 if wrong else 0


def main() -> int:
    if sys.argv[1:2] == ["submit"]:
        base, number, seed, pause = sys.argv[2:]
        try:
            asyncio.run(submit(FleetGround(Path(base), ""), int(number), int(seed), float(pause)))
        except StoreError as error:
            print(error.problem)
            return UNREACHABLE
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--submitters", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--pause", type=float, default=1.0, help="mean seconds between two tasks of a submitter")
    given = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="kitbag-fleet-soak-"))
    with contextlib.closing(Server()) as server:
        status = asyncio.run(soak(FleetGround(base, server.url()), server, given))
        if status:
            rows = server.rows("SELECT seq, at, stream, kind, body FROM kitbag_records ORDER BY seq")
            (base / "records.txt").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
    if status:
        print(f"logs and records are in {base}")
    else:
        shutil.rmtree(base)
    return status


if __name__ == "__main__":
    sys.exit(main())
