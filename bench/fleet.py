"""What a fleet of workers does per second, beside bare DBOS with empty workflows of as many steps.

    python bench/fleet.py [--quick] [--dbos PYTHON] [--queued N] [--json FILE]

A task is an agent with a scripted model that calls one tool and answers: three steps. Workers are processes with homes
of their own, as on several machines; the server is on loopback and syncs every commit. `--dbos`: a Python with the
package dbos, whose workers run workflows with three empty steps through its queue, in the same database server.
Without it, only Kitbag is measured. Latency is of single tasks while the workers are idle. With `--queued`, the same
number of tasks ends while so many others wait.
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from kitbag.assembly.open_journal import open_journal  # noqa: E402
from kitbag.runtime.agent import Options  # noqa: E402
from kitbag.store.journal import Journal  # noqa: E402
from kitbag.tasks.board import Board  # noqa: E402
from kitbag.tasks.fleet import read_fleet  # noqa: E402
from kitbag.tasks.stored_options import serialize_options  # noqa: E402
from kitbag.tasks.task import TaskRequest  # noqa: E402
from support.postgres import Server  # noqa: E402

QUEUE = "bench"
CONCURRENCY = 20
AT_ONCE = 500
"""Tasks that are created at the same time."""
DBOS_PROCESS = """
import os, sys, time
from concurrent.futures import ThreadPoolExecutor
from dbos import DBOS

@DBOS.step()
def step(number): return number

@DBOS.workflow()
def work(number):
    for one in range(3):
        step(one)
    return number

url, name, concurrency = sys.argv[1:]
DBOS(config={"name": "bench", "system_database_url": url, "application_version": "1", "log_level": "ERROR",
    "executor_id": name, "sys_db_pool_size": 20, "use_listen_notify": True})
if name == "submitter":
    DBOS.listen_queues([])
DBOS.launch()
DBOS.register_queue("bench", worker_concurrency=int(concurrency), polling_interval_sec=0.01)
print("ready", flush=True)
pool = ThreadPoolExecutor(20)
for line in sys.stdin:
    begun = time.perf_counter()
    handles = list(pool.map(lambda number: DBOS.enqueue_workflow("bench", work, number), range(int(line))))
    for handle in handles:
        handle.get_result(polling_interval_sec=0.01)
    print(time.perf_counter() - begun, flush=True)
os._exit(0)
"""


class Bench:
    def __init__(self, base: Path, url: str) -> None:
        self.base = base
        self.work = base / "work"
        self.work.mkdir()
        self.script = base / "script.json"
        call = {"calls": [{"name": "ListLoadedSkills", "arguments": {}}]}
        self.script.write_text(json.dumps({"replies": [call, {"text": "The answer is 42."}]}))
        self.home = base / "submitter" / ".kitbag"
        self.environment = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self.environment |= {"KITBAG_DATABASE_URL": url} if url else {}
        os.environ.update(HOME=str(base), **self.environment)
        self.is_shared = bool(url)

    @contextmanager
    def board(self) -> Iterator[Board]:
        os.environ["KITBAG_HOME"] = str(self.home)
        with open_journal(str(self.home)) as journal:
            journal.queue = QUEUE if self.is_shared else ""
            yield Board(journal)

    def create(self, board: Board, count: int, session: str = "bench") -> list[str]:
        options = serialize_options(Options())
        request = TaskRequest(
            agent="Explore", prompt="Find the answer.", options=options, parent_model=f"scripted:{self.script}",
            directory=str(self.work),
        )  # fmt: skip

        async def create_all() -> list[str]:
            names = [os.urandom(6).hex() for _ in range(count)]
            for start in range(0, count, AT_ONCE):
                async with asyncio.TaskGroup() as group:
                    for name in names[start : start + AT_ONCE]:
                        made = board.create(name, "agent", request, root=session, parent="", depth=1, background=True)
                        group.create_task(made)
            return names

        return asyncio.run(create_all())

    @contextmanager
    def workers(self, board: Board, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
        started: list[subprocess.Popen[bytes]] = []
        for number in range(count):
            home = self.base / f"machine{number}" / ".kitbag" if self.is_shared else self.home
            environment = {**self.environment, "KITBAG_HOME": str(home), "HOME": str(home.parent)}
            command = [sys.executable, "-m", "kitbag", "worker", "--idle", "600", "--concurrency", str(CONCURRENCY)]
            command += ["--queue", QUEUE] if self.is_shared else []
            log = (self.base / f"worker{number}.log").open("ab")
            started.append(subprocess.Popen(command, env=environment, cwd=self.work, stdout=log, stderr=log))
        try:
            if self.is_shared:
                pids = {one.pid for one in started}
                wait(board.journal, lambda: pids <= {one.pid for one in read_fleet(board).workers})
            else:  # it is ready when it has done something
                self.run(board, 1)
            yield started
        finally:
            for one in started:
                one.send_signal(signal.SIGCONT)
                one.send_signal(signal.SIGTERM)
                one.wait()

    def run(self, board: Board, count: int) -> None:
        """Until they have ended."""
        names = self.create(board, count, session=os.urandom(4).hex())
        wait_for_ends(board, names)

    def latencies(self, board: Board, count: int) -> list[float]:
        """Seconds from the submission of single tasks until their end is known here."""
        found: list[float] = []
        for _ in range(count):
            begun = time.perf_counter()
            self.run(board, 1)
            found.append(time.perf_counter() - begun)
        return found


def seconds(at: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(at).timestamp()


def wait(journal: Journal, is_so: Any, limit: float = 600.0) -> None:
    end = time.monotonic() + limit
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit("it takes too long")
        journal.wait(journal.last_seq(), 0.2)


def wait_for_ends(board: Board, names: list[str]) -> None:
    left = set(names)

    def is_done() -> bool:
        for name in list(left):
            task = board.get(name)
            if task is not None and task.is_finished:
                assert task.result is not None
                assert (task.status, task.result.turns) == ("completed", 2), task
                left.discard(name)
            elif task is not None:
                return False
        return not left

    wait(board.journal, is_done)


class Dbos:
    """A process that submits, and workers."""

    def __init__(self, python: str, url: str, workers: int) -> None:
        self.processes: list[subprocess.Popen[str]] = []
        for name in ("submitter", *(f"worker{number}" for number in range(workers))):
            command = [python, "-c", DBOS_PROCESS, url, name, str(CONCURRENCY)]
            self.processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            self._read("ready")

    def _read(self, expected: str = "") -> str:
        stream = self.processes[-1 if expected else 0].stdout
        assert stream is not None
        while (line := stream.readline()) and expected and line.strip() != expected:
            pass
        return line

    def run(self, count: int) -> float:
        """Seconds until so many workflows have ended."""
        stream = self.processes[0].stdin
        assert stream is not None
        stream.write(f"{count}\n")
        stream.flush()
        return float(self._read())

    def close(self) -> None:
        for one in self.processes:
            one.kill()
            one.wait()


def show(name: str, value: float, unit: str, more: str = "") -> None:
    print(f"{name:<58} {value:>10,.2f} {unit:<8} {more}", flush=True)


def pause(processes: list[Any]) -> None:
    for one in processes:
        one.send_signal(signal.SIGSTOP)


def resume(processes: list[Any]) -> None:
    for one in processes:
        one.send_signal(signal.SIGCONT)


class Measured:
    """The rounds of one of the two, and what its workers used."""

    def __init__(self, name: str, processes: list[Any]) -> None:
        self.name = name
        self.processes = processes
        self.rates: list[float] = []
        self.ends: list[float] = []
        self._cpu = self._used()
        self._count = 0

    def _used(self) -> float:
        ticks = 0
        for one in self.processes:
            fields = Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def round(self, count: int, run: Any) -> None:
        begun = time.perf_counter()
        run(count)
        self.rates.append(count / (time.perf_counter() - begun))
        self._count += count

    def show(self, found: dict[str, Any]) -> None:
        cpu = (self._used() - self._cpu) / (self._count + len(self.ends))
        rates = f"median {median(self.rates):.1f}, {cpu * 1000:.1f} ms CPU of workers each"
        show(f"{self.name}: best of {len(self.rates)} rounds", max(self.rates), "/s", rates)
        slow = quantiles(self.ends, n=20)[-1]
        show(
            "  one alone, from its submission to its end", median(self.ends) * 1000, "ms", f"95%: {slow * 1000:.0f} ms"
        )
        found[self.name] = {"best": max(self.rates), "median": median(self.rates), "cpu": cpu, "end": median(self.ends)}


def measure(bench: Bench, name: str, workers: int, given: argparse.Namespace, found: dict[str, Any]) -> None:
    """The two take turns: while one is measured, the other is stopped."""
    rounds, count, singles = (2, 60, 5) if given.quick else (5, 200, 20)
    with ExitStack() as stack:
        board = stack.enter_context(bench.board())
        kitbag = Measured(f"Kitbag, {name}, {workers} workers", stack.enter_context(bench.workers(board, workers)))
        bench.run(board, 4 * workers)  # everybody has imported what a task needs
        pause(kitbag.processes)
        stack.callback(resume, kitbag.processes)
        dbos = Dbos(given.dbos, given.dbos_url, workers) if given.dbos and bench.is_shared else None
        other = Measured(f"DBOS, {workers} workers", dbos.processes[1:] if dbos else [])
        if dbos is not None:
            stack.callback(dbos.close)
            dbos.run(20 * workers)
            pause(dbos.processes)
        for _ in range(rounds):
            resume(kitbag.processes)
            kitbag.round(count, lambda number: bench.run(board, number))
            kitbag.ends += bench.latencies(board, singles // rounds)
            pause(kitbag.processes)
            if dbos is not None:
                resume(dbos.processes)
                other.round(count, dbos.run)
                other.ends += [dbos.run(1) for _ in range(singles // rounds)]
                pause(dbos.processes)
        kitbag.show(found)
        if dbos is not None:
            other.show(found)
            best, middle = (100 * f(kitbag.rates) / f(other.rates) for f in (max, median))
            show("  Kitbag beside DBOS, best rounds", best, "%", f"medians: {middle:.0f}%")


def ended_count(board: Board) -> int:
    return int(board.journal.select("SELECT count(*) FROM task_states WHERE finished = 1 AND root = 'crowd'")[0][0])


def measure_queued(bench: Bench, where: str, queued: int, count: int, found: dict[str, Any]) -> None:
    """`count` tasks of a new session, while another session has `queued` that wait."""
    with bench.board() as board:
        begun = time.perf_counter()
        bench.create(board, queued, session="crowd")
        show(f"{where}: creating {queued:,} tasks", queued / (time.perf_counter() - begun), "tasks/s")
        begun = time.perf_counter()
        status = read_fleet(board)
        show(
            f"{where}: fleet status with them", (time.perf_counter() - begun) * 1000, "ms", str(status.queues[0].queued)
        )
        begun = time.perf_counter()
        with bench.workers(board, 1):
            show(f"{where}: until a worker is ready, {queued:,} queued", time.perf_counter() - begun, "s")
            wait(board.journal, lambda: ended_count(board))
            before, begun = ended_count(board), time.perf_counter()
            wait(board.journal, lambda: ended_count(board) >= before + count)
            rate = (ended_count(board) - before) / (time.perf_counter() - begun)
            show(f"{where}: 1 worker, {queued:,} queued", rate, "tasks/s")
            [name] = bench.create(board, 1, session="late")
            wait_for_ends(board, [name])
            task = board.find(name)
            late = seconds(task.started) - seconds(task.created)
            show(f"{where}: start of a task of another session", late * 1000, "ms")
    found[f"{where} queued"] = {"rate": rate, "late": late}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--dbos", metavar="PYTHON", default="")
    parser.add_argument("--queued", type=int, default=0)
    parser.add_argument("--workers", default="1,2,4", help="empty: only what --queued measures")
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args()
    found: dict[str, Any] = {}
    server = Server(settings={"shared_buffers": "128MB"})
    given.dbos_url = server.url(database="dbos").partition("?")[0]
    base = Path(tempfile.mkdtemp(prefix="kitbag-fleet-"))
    try:
        server.run("CREATE DATABASE bench", "CREATE DATABASE crowd", "CREATE DATABASE dbos")
        for workers in map(int, given.workers.split(",") if given.workers else ()):
            (base / f"w{workers}").mkdir()
            bench = Bench(base / f"w{workers}", server.url(database="bench"))
            measure(bench, "PostgreSQL", workers, given, found)
        os.environ.pop("KITBAG_DATABASE_URL", None)
        if given.workers:
            (base / "file").mkdir()
            measure(Bench(base / "file", ""), "SQLite", 1, given, found)
        count = 60 if given.quick else 300
        if given.queued:
            (base / "crowd").mkdir()
            measure_queued(
                Bench(base / "crowd", server.url(database="crowd")), "PostgreSQL", given.queued, count, found
            )
            os.environ.pop("KITBAG_DATABASE_URL", None)
            (base / "filecrowd").mkdir()
            measure_queued(Bench(base / "filecrowd", ""), "SQLite", given.queued, count, found)
    finally:
        server.close()
        shutil.rmtree(base, ignore_errors=True)
    if given.json:
        Path(given.json).write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
