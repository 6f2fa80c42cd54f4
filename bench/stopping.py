"""How long stopping takes, from the wish to the end of everything: tests say that it ends, here is when.

    python bench/stopping.py [--rounds N]

A run that waits for its model is ended by a signal; a command that ignores SIGTERM, with children that have left its
session, is cancelled; a background task that runs such a command is stopped. The worst of some rounds, in elapsed time.
The goals are those of docs: two seconds for a run and a tool, three for a task.
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.pop(0)  # some benchmarks are named like folders of tests
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from msgspec import structs

from conftest import World
from kitbag.permissions.model import PermissionDecision
from kitbag.tasks.stop import stop_task
from kitbag.tasks.task_processes import find_task_processes
from kitbag.testing import Fault, ModelServer, Step
from kitbag.tools.shell.bash import BASH
from support.confined import processes_with
from support.headless import interrupted, point, script, start, until
from support.using import Bench
from support.waiting import until_true
from support.workshop import Nursery, call, opened

STUBBORN = (
    "trap '' TERM INT HUP; setsid bash -c 'trap \"\" TERM HUP; sleep {0}' & (setsid sleep {0} &)\n"
    "for i in 1 2 3; do sleep {0} & done; while :; do sleep {0}; done"
)
LONG = str(90_000 + os.getpid())


def a_run(base: Path) -> float:
    world, idle = World(base), Step(text="Hello, you there.", fault=Fault(kind="idle", seconds=3_600))
    with ModelServer(script(idle)) as server:
        point(world, server)
        with start(world, "Hi") as process:
            until(lambda: server.open_streams, process)
            begun = time.perf_counter()
            code, _, _ = interrupted(process, signal.SIGTERM)
            taken = time.perf_counter() - begun
    assert code == 128 + signal.SIGTERM
    return taken


def a_tool(base: Path) -> float:
    async def cancelled() -> float:
        bench = Bench(base)
        judgement = PermissionDecision(
            effect="allow", reason="for a measurement", parts=(), sandbox="none", network=False
        )
        context = structs.replace(bench.context, decision=judgement, session_id="s1", call_id="c1")
        running = asyncio.ensure_future(bench.using(BASH, {"command": STUBBORN.format(LONG)}, context))
        await until_true(lambda: len(processes_with(LONG)) >= 6)
        begun = time.perf_counter()
        running.cancel()
        await asyncio.wait([running])
        return time.perf_counter() - begun

    taken = asyncio.run(cancelled())
    assert processes_with(LONG) == []
    return taken


def a_task(base: Path) -> float:
    nursery = Nursery()
    try:
        with opened(World(base), nursery) as workshop:
            workshop.script(call("Bash", command=STUBBORN.format(LONG)))
            task_id = workshop.put()
            workshop.worker(idle=20)
            workshop.until(lambda: len(find_task_processes(task_id)) >= 4)
            begun = time.perf_counter()
            stopped = asyncio.run(stop_task(workshop.board, workshop.task(task_id), "person"))
            taken = time.perf_counter() - begun
            assert (stopped.report.status, stopped.process_count) == ("cancelled", 0)
            return taken
    finally:
        nursery.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    kinds: list[tuple[str, Callable[[Path], float], float]] = [
        ("a run, by a signal", a_run, 2.0),
        ("a command, cancelled", a_tool, 2.0),
        ("a background task", a_task, 3.0),
    ]
    for name, measure, goal in kinds:
        taken: list[float] = []
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as base:
                taken.append(measure(Path(base).resolve()))
        missed = "" if max(taken) < goal else "  MISSED"
        print(f"{name:<24} {max(taken):6.2f} s   best {min(taken):5.2f} s   goal {goal:g} s{missed}")


if __name__ == "__main__":
    main()
