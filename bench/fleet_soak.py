"""Workers with homes of their own share a PostgreSQL database, and everything is killed, frozen, cut off or restarted.

    python bench/fleet_soak.py --seconds 300
    python bench/fleet_soak.py --fault tasks-fence     with a deliberate fault; must end with 1
    python bench/fleet_soak.py --faults                with each of them, one after another

Submitters create tasks and stop some. Meanwhile: kill -9 of a worker, of all, of a submitter; a worker is frozen or cut
off beyond its lease and comes back; PostgreSQL is restarted or can't be reached. Half of the workers are hosts of their
own (pid namespaces, needs root). fleet_checks has the invariants; ends with 1 if one is violated.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests"))
import fleet_checks
import soak_checks
from soak import LOOK, Ground

from kitbag.agent.session import new_session_id
from kitbag.assembly.open_journal import open_journal
from kitbag.store.private_files import StoreError
from kitbag.tasks.board import Board
from kitbag.tasks.stop import stop_task
from support.postgres import Server
from support.tcp_proxy import TcpProxy

ROOT = Path(__file__).resolve().parents[1]
QUEUE = "soak"
LEASE = 4.0
"""Seconds, so that a worker can be frozen beyond it often."""
MAX_UNFINISHED = 25
"""If there are more, a busy machine has no time for them, and nothing is submitted."""
MAX_HELD = 4
"""Then those that would run forever are stopped, except these."""
TAKE_OVER = 30.0
"""Seconds in which others take over the tasks of a worker, on a busy machine."""
STEPS = {"Does": ("one", "two"), "Waits": ("one",), "Reads": (), "Holds": ("hold",)}
UNREACHABLE = 6
"""The exit code of a command that can't reach its database."""
FAULTS = (
    "tasks-fence",
    "store-postgres-fence",
    "store-postgres-sequence",
    "store-lease",
    "tasks-end-twice",
    "tasks-recovery",
    "tasks-repeated-step",
    "tasks-unknown-outcome",
)
"""Of scripts/faults.toml: each violates an invariant, and the soak must find it. Not `tasks-orphans`, which only tests
find: bubblewrap and the supervisor of a command end it with its worker, so nothing is left for others to kill."""
EFFECT = """
echo "begin $KITBAG_SESSION_ID $1 $KITBAG_HOME" >> effects.log
if [ "$1" = hold ]; then sleep 900; else sleep 0.7; fi
echo "end $KITBAG_SESSION_ID $1 $KITBAG_HOME" >> effects.log
"""
"""It takes a moment, so that a worker can be killed or frozen in the middle."""


def _step(name: str) -> dict[str, Any]:
    return {"calls": [{"name": "Bash", "arguments": {"command": f"sh effect.sh {name}", "timeout": 600_000}}]}


RULES = [
    {"system": "Task\\s+Does", "replies": [_step("one"), {"calls": [LOOK]}, _step("two"), {"text": "Done."}]},
    {"system": "Task\\s+Waits", "replies": [{"calls": [LOOK], "delay": 1.0}, _step("one"), {"text": "Done."}]},
    {"system": "Task\\s+Holds", "replies": [_step("hold"), {"text": "Done."}]},
    {"replies": [{"calls": [LOOK], "delay": 0.5}, {"text": "Done.", "delay": 0.5}]},
]


class FleetGround(Ground):
    """The workspaces are the same for all, as on machines that share a file system."""

    def __init__(self, base: Path, url: str = "", source: Path = ROOT / "src") -> None:
        """`source`: the code that workers and submitters run."""
        super().__init__(base)
        self.url, self._source = url, source

    def lay(self) -> None:
        super().lay()
        for workspace in self.workspaces:
            (workspace / "effect.sh").write_text(EFFECT)
            (workspace / "script.json").write_text(json.dumps({"rules": RULES}))

    def kitbag_home_of(self, name: str) -> str:
        home = self.home / name
        if not home.exists():
            (home / "agents").mkdir(parents=True)
            (home / "agents/doer.md").write_text((self.home / ".kitbag/agents/doer.md").read_text())
            (home / "settings.toml").write_text(f'[tasks]\nqueue = "{QUEUE}"\n')
        return str(home)

    def environment_of(self, name: str, number: int = 0, port: int = 0) -> dict[str, str]:
        """`number`: of the process with that name, which its connections carry. `port`: of its proxy."""
        url = self.url.replace(self.url.rpartition("/")[0].rpartition(":")[2], str(port)) if port else self.url
        return {
            **self.environment,
            "KITBAG_HOME": self.kitbag_home_of(name),
            "KITBAG_DATABASE_URL": f"{url}&application_name={name}.{number}",
            "PYTHONPATH": str(self._source),
        }

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-P", "-m", "kitbag", *words]
        environment = self.environment_of("driver")
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


# --- a submitter ------------------------------------------------------------------------------------------------


async def submit(ground: FleetGround, number: int, seed: int, pause: float) -> None:
    """Until it is killed. It writes down what a method returned."""
    chance = random.Random(seed)
    told = os.open(ground.told / str(number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    mine: list[str] = []

    async def create(board: Board, kind: str) -> None:
        request = ground.wish(kind, chance.choice(ground.workspaces))
        task = await board.create(
            new_session_id(), "agent", request, root=f"{kind}{number}", parent="", depth=1, background=True
        )
        os.write(told, f"created {task.id} {kind}\n".encode())
        mine.append(task.id)

    async def stop(board: Board, task_id: str) -> None:
        stopped = await stop_task(board, board.find(task_id), "person")
        os.write(told, f"stopped {stopped.report.id} {stopped.report.status}\n".encode())

    with open_journal(os.environ["KITBAG_HOME"]) as journal:
        board = Board(journal)
        while True:
            for kind in chance.choices(sorted(STEPS), (4, 1, 1, 2), k=chance.choice((1, 1, 3))):
                await create(board, kind)
            await asyncio.sleep(chance.uniform(0, 2 * pause))
            while len(left := board.unfinished()) > MAX_UNFINISHED:
                held = [task.id for task in left if task.root.startswith("Holds")]
                await stop(board, held[0]) if len(held) > MAX_HELD else await asyncio.sleep(pause)
            if chance.random() < 0.15:
                await stop(board, chance.choice(mine))


# --- processes that are killed and started again ----------------------------------------------------------------


class Processes:
    """Workers and submitters by name. Each has a proxy to the database of its own."""

    def __init__(self, ground: FleetGround, server: Server, given: argparse.Namespace) -> None:
        self._ground, self._server, self._pause = ground, server, given.pause
        self._chance = random.Random(given.seed)
        self._alive: dict[str, subprocess.Popen[bytes]] = {}
        self._proxies: dict[str, TcpProxy] = {}
        self._started = Counter[str]()
        self._submitters = 0
        self.has_hosts = os.geteuid() == 0 and bool(shutil.which("unshare"))

    def start_worker(self, name: str) -> None:
        words = ["worker", "--queue", QUEUE, "--concurrency", "6", "--idle", "86400"]
        command = [sys.executable, "-P", "-m", "kitbag", *words]
        if self.has_hosts and int(name.rpartition("-")[2]) % 2:
            host = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts"]
            command = [*host, "sh", "-c", 'hostname "$0" && exec "$@"', name, *command]
        self._start(name, command)

    def start_submitter(self, name: str) -> None:
        self._submitters += 1
        base, seed = str(self._ground.home.parent), self._chance.randrange(1 << 30)
        self._start(
            name, [sys.executable, __file__, "submit", base, str(self._submitters), str(seed), str(self._pause)]
        )

    def _start(self, name: str, command: list[str]) -> None:
        if name not in self._proxies:
            self._proxies[name] = TcpProxy(self._server.port)
        self._started[name] += 1
        with (self._ground.home.parent / f"{name}.log").open("ab") as log:
            environment = self._ground.environment_of(name, self._started[name], self._proxies[name].port)
            self._alive[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def restart_ended(self) -> list[str]:
        """As systemd would. Returns those that had no reason to end: one that starts while the server is away has."""
        ended = {name: one.returncode for name, one in self._alive.items() if one.poll() is not None}
        for name in ended:
            self.start_worker(name) if name.startswith("worker") else self.start_submitter(name)
        return [f"{name} ({status})" for name, status in ended.items() if status != UNREACHABLE]

    def kill(self, *names: str) -> None:
        """All are dead before one is started again."""
        victims = [self._alive.pop(name) for name in names]
        for victim in victims:
            victim.kill()
        for victim in victims:
            victim.wait()

    def signal(self, name: str, number: int) -> None:
        pid = self._alive[name].pid
        if "unshare" in Path(f"/proc/{pid}/comm").read_text():
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            pid = int(children[0]) if children else pid
        os.kill(pid, number)

    def proxies(self, *names: str) -> list[TcpProxy]:
        return [proxy for name, proxy in self._proxies.items() if not names or name in names]

    def names(self, prefix: str) -> list[str]:
        return sorted(name for name in self._alive if name.startswith(prefix))

    def have_ended(self, prefix: str) -> bool:
        return all(self._alive[name].poll() is not None for name in self.names(prefix))

    def close(self) -> None:
        self.kill(*self.names(""))
        for proxy in self._proxies.values():
            proxy.__exit__(None, None, None)


class Harm:
    """Does one harmful thing at a time."""

    def __init__(
        self,
        server: Server,
        processes: Processes,
        running: Callable[[], dict[str, set[str]]],
        chance: random.Random,
        outage: float,
    ) -> None:
        """`running`: the tasks that each worker runs."""
        self._server, self._processes, self._chance, self._outage = server, processes, chance, outage
        self._running = running
        self.done = Counter[str]()
        self._kinds = {
            "worker killed": (5, lambda: self._kill_worker(self._worker())),
            "all workers killed": (1, self._kill_all),
            "submitter killed": (2, self._kill_submitter),
            "worker frozen": (5, self._freeze),
            "worker cut off": (3, self._cut_off_worker),
            "server restarted": (1, self._restart_server),
            "server unreachable": (1, self._cut_off_all),
        }
        self.pending = [name for name in self._kinds if name != "server unreachable" or outage]

    async def do_one(self) -> None:
        """Each kind once, then at random."""
        names = list(self._kinds)
        name = self._chance.choices(names, [self._kinds[one][0] for one in names])[0]
        if self.pending:
            name = self.pending.pop(self._chance.randrange(len(self.pending)))
        await self._kinds[name][1]()
        self.done[name] += 1

    def _worker(self) -> str:
        """One that runs something, if there is one."""
        running = self._running()
        names = self._processes.names("worker")
        return self._chance.choice([name for name in names if running.get(name)] or names)

    async def _stay_away(self, name: str) -> None:
        """Shorter or longer than its lease, or until others have taken over what it runs."""
        tasks = self._running().get(name, set[str]())
        await asyncio.sleep(LEASE * self._chance.uniform(0.8, 2.5))
        deadline = time.monotonic() + self._chance.choice((0.0, TAKE_OVER, TAKE_OVER))
        while tasks and tasks <= self._running().get(name, set()) and time.monotonic() < deadline:
            await asyncio.sleep(0.5)

    async def _kill_worker(self, name: str) -> None:
        self._processes.kill(name)
        await asyncio.sleep(self._chance.choice((0.0, LEASE * 1.5)))  # it comes back at once, or the others take over
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
        name = self._worker()
        self._processes.signal(name, signal.SIGSTOP)
        await self._stay_away(name)
        self._processes.signal(name, signal.SIGCONT)

    async def _cut_off_worker(self) -> None:
        name = self._worker()
        await self._cut_off(self._processes.proxies(name), self._stay_away(name))

    async def _cut_off_all(self) -> None:
        await self._cut_off(self._processes.proxies(), asyncio.sleep(self._outage or LEASE))

    async def _cut_off(self, proxies: list[TcpProxy], meanwhile: Coroutine[Any, Any, None]) -> None:
        """Connections break, or stay open while nothing passes."""
        is_silent = self._chance.random() < 0.5
        for proxy in proxies:
            proxy.pause() if is_silent else proxy.cut()
        await meanwhile
        for proxy in proxies:
            proxy.resume() if is_silent else proxy.restore()

    async def _restart_server(self) -> None:
        name = self._worker()
        self._server.stop(self._chance.choice((signal.SIGINT, signal.SIGQUIT)))
        if self._chance.random() < 0.4:
            await self._kill_worker(name)
        await asyncio.sleep(self._chance.uniform(0, 2 * LEASE))
        self._server.start()


# --- the soak ---------------------------------------------------------------------------------------------------


class Soak:
    def __init__(self, ground: FleetGround, server: Server, given: argparse.Namespace) -> None:
        self._ground, self._server, self._given = ground, server, given
        self._processes = Processes(ground, server, given)
        self._chance = random.Random(given.seed)
        running = lambda: fleet_checks.running(self._evidence())  # noqa: E731
        self._harm = Harm(server, self._processes, running, self._chance, given.outage)
        self._observer = fleet_checks.Observer(server.url())
        self._wrong: list[str] = []
        self._is_finished = False
        self._ended_early = Counter[str]()

    async def run(self) -> int:
        begun = time.monotonic()
        self._ground.lay()
        prepared = self._ground.run("tasks", "list")  # creates the tables
        assert prepared.returncode == 0, prepared.stdout + prepared.stderr
        lease = f"UPDATE kitbag_facts SET value = '{LEASE}' WHERE name = 'lease_seconds'"
        self._server.run(*fleet_checks.INSTALL, lease)
        self._observer.start()
        try:
            await self._work()
            if not self._wrong:
                await self._finish()
                self._is_finished = True
        finally:
            self._processes.close()
            self._observer.stop()
        orphans = fleet_checks.wait_until_gone(self._left_over, 60)
        self._wrong += orphans
        self._report(time.monotonic() - begun, len(orphans))
        return 1 if self._wrong else 0

    async def _work(self) -> None:
        """For the given time, and until each kind of harm was done: on a busy machine, all take longer."""
        for number in range(self._given.workers):
            self._processes.start_worker(f"worker-{number}")
        for number in range(self._given.submitters):
            self._processes.start_submitter(f"submitter-{number}")
        while not fleet_checks.running(self._evidence()):
            assert not (ended := self._processes.restart_ended()), f"cannot start: {ended}"
            await asyncio.sleep(0.1)
        until = time.monotonic() + self._given.seconds
        while (time.monotonic() < until or self._harm.pending) and not self._wrong:
            await asyncio.sleep(self._chance.uniform(0, 2.0))
            await self._harm.do_one()
            self._ended_early.update(self._processes.restart_ended())
            self._wrong += self._observer.violations[:5] + fleet_checks.violations(self._evidence(), STEPS)

    async def _finish(self) -> None:
        """Everything ends while one worker is frozen, and it changes nothing when it comes back."""
        self._processes.kill(*self._processes.names("submitter"))
        frozen = self._processes.names("worker")[0]
        self._processes.signal(frozen, signal.SIGSTOP)
        deadline, fewest = time.monotonic() + self._given.drain, sys.maxsize
        while (left := fleet_checks.unfinished(self._evidence())) and time.monotonic() < deadline:
            if len(left) < fewest:
                deadline, fewest = time.monotonic() + self._given.drain, len(left)
            if held := [task for task in left if self._evidence().accepted.get(task, "Holds") == "Holds"]:
                await asyncio.to_thread(self._ground.run, "tasks", "stop", held[0])
            self._ended_early.update(self._processes.restart_ended())
            await asyncio.sleep(0.5)
        self._processes.signal(frozen, signal.SIGCONT)
        self._wrong += [f"task {task} did not end" for task in fleet_checks.unfinished(self._evidence())]
        deadline = time.monotonic() + self._given.drain
        drained = ""
        while not self._processes.have_ended("worker") and time.monotonic() < deadline:
            done = await asyncio.to_thread(self._ground.run, "fleet", "drain", "--all")  # again: one may just start
            drained = done.stdout + done.stderr
            await asyncio.sleep(3)
        if not self._processes.have_ended("worker"):
            self._wrong.append(f"drained workers do not leave: {drained}")
        found = self._evidence()
        self._wrong += self._observer.violations[:5] + fleet_checks.violations(found, STEPS)
        self._wrong += fleet_checks.mirror_violations(found, self._ground.home)

    def _evidence(self) -> fleet_checks.Evidence:
        logs = [workspace / "effects.log" for workspace in self._ground.workspaces]
        return fleet_checks.collect(self._ground.acknowledged(), logs, self._server.rows)

    def _left_over(self) -> list[str]:
        query = "SELECT application_name FROM pg_stat_activity WHERE application_name LIKE '%-%.%'"
        found = [f"process {pid} is left" for pid in soak_checks.processes_left(self._ground.home)]
        return found + [f"a connection of {row[0]} is left" for row in self._server.rows(query)]

    def _report(self, seconds: float, orphans: int) -> None:
        found = self._evidence()
        ends = found.ends()
        runs = [one for one in found.records if one.kind == "begun" and one.stream == "tasks"]
        taken = {one.body["id"] for one in runs if one.body["run"] > 1}
        unknown = sum(fleet_checks.UNKNOWN in end["error"] for end in ends.values())
        hosts = "half of the workers in pid namespaces" if self._processes.has_hosts else "one host: not root"
        given = self._given
        print(f"seed {given.seed}, {seconds:.0f} s, lease {LEASE:g} s, {hosts}, load {os.getloadavg()[0]:.1f}")
        print(", ".join(f"{count} x {name}" for name, count in sorted(self._harm.done.items())))
        print(f"tasks {len(ends)} ({len(found.accepted)} ids returned), {len(found.records)} records")
        print("ended: " + ", ".join(f"{n} {name}" for name, n in Counter(e["status"] for e in ends.values()).items()))
        print(f"{len(taken)} tasks taken over, {len(found.steps)} steps, {unknown} reported as unknown")
        if early := ", ".join(f"{name} {times} times" for name, times in self._ended_early.items()):
            self._wrong.append(f"ended by itself: {early}")
        lost = len(fleet_checks.unfinished(found)) if self._is_finished else "unknown (stopped at a violation)"
        print(f"lost {lost}, unreported double steps {len(fleet_checks.double_steps(found))}, orphans {orphans}")
        for problem in self._wrong[:20]:
            print(f"WRONG: {problem}")
        print("every promise was kept" if not self._wrong else f"{len(self._wrong)} promises were not kept")


# --- faults -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def source_with(fault: str) -> Iterator[Path]:
    """The code with this fault of scripts/faults.toml, in a copy."""
    if not fault:
        yield ROOT / "src"
        return
    listed = tomllib.loads((ROOT / "scripts/faults.toml").read_text())["fault"]
    [entry] = [one for one in listed if one["id"] == fault]
    with tempfile.TemporaryDirectory(prefix="kitbag-fleet-fault-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        file = source / "kitbag" / entry["file"]
        text = file.read_text()
        assert text.count(entry["old"]) == 1, f"{fault} does not fit the code; see scripts/faults --check"
        file.write_text(text.replace(entry["old"], entry["new"]))
        yield source


def run_faults(given: argparse.Namespace) -> int:
    """Whether each is found."""
    missed: list[str] = []
    for fault in FAULTS:
        print(f"--- {fault}", flush=True)
        if run_soak(argparse.Namespace(**{**vars(given), "fault": fault})) == 0:
            missed.append(fault)
    print(f"found {len(FAULTS) - len(missed)} of {len(FAULTS)} faults" + (f"; missed: {missed}" if missed else ""))
    return 1 if missed else 0


def run_soak(given: argparse.Namespace) -> int:
    base = Path(tempfile.mkdtemp(prefix="kitbag-fleet-soak-"))
    with source_with(given.fault) as source, contextlib.closing(Server()) as server:
        status = asyncio.run(Soak(FleetGround(base, server.url(), source), server, given).run())
        if status:
            rows = server.rows(
                "SELECT seq, at, (SELECT writer FROM soak_writes WHERE soak_writes.seq = kitbag_records.seq LIMIT 1),"
                " stream, kind, body FROM kitbag_records ORDER BY seq"
            )
            (base / "records.txt").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
    if status and not given.fault:
        print(f"logs and records are in {base}")
    else:
        shutil.rmtree(base)
    return status


def main() -> int:
    if sys.argv[1:2] == ["submit"]:
        base, number, seed, pause = sys.argv[2:]
        try:
            asyncio.run(submit(FleetGround(Path(base)), int(number), int(seed), float(pause)))
        except StoreError as error:
            print(error.problem)
            return UNREACHABLE
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--submitters", type=int, default=2)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--pause", type=float, default=1.0, help="mean seconds between two submissions of a submitter")
    parser.add_argument("--outage", type=float, default=10.0, help="seconds for which nobody reaches the server")
    parser.add_argument("--drain", type=float, default=120.0, help="seconds in which one more task must end")
    parser.add_argument("--fault", default="", metavar="ID", help=f"a deliberate fault: {', '.join(FAULTS)}")
    parser.add_argument("--faults", action="store_true", help="each deliberate fault; 0 if all are found")
    given = parser.parse_args()
    return run_faults(given) if given.faults else run_soak(given)


if __name__ == "__main__":
    sys.exit(main())
