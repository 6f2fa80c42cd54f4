"""What delegated work costs beyond the model's own time, each beside a floor of the same run.

    python bench/tasks.py [--quick] [--json FILE]

The model is scripted and the journal is real. Measured are: an agent started in front, from the call to the next
request, beside a turn with a tool that only reads; a step that is durable, beside a bare commit of SQLite; 1,000 agents
in the background at once in one worker, beside the same requests in a bare task group; how soon TaskOutput tells of an
end; and how soon 1,000 tasks go on whose worker was killed with -9, beside their first beginning.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from kitbag.agent.turn_limits import Limits
from kitbag.assembly.parent_context import ParentContext
from kitbag.messages import Message, Text, ToolCall, Usage
from kitbag.models.provider import ModelReply, ModelRequest, StreamItem
from kitbag.runtime.agent import Agent, Options
from kitbag.store.journal import Journal, journal_path
from kitbag.store.journal_file import JournalFile
from kitbag.store.journal_opening import open_journal_file
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import Board
from kitbag.tasks.delegation import TaskDelegation
from kitbag.tasks.stored_options import serialize_options
from kitbag.tasks.task import TaskRequest, TaskResult
from kitbag.tasks.worker import Worker

AN_AGENT = "## Your Task"
SMALL = Usage(input=1_000, output=50)
PAGE = os.sysconf("SC_PAGE_SIZE")
ENDER = """
import asyncio, sys, time
from kitbag.store.journal import Journal
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import Board
from kitbag.tasks.task import TaskResult

async def main():
    with Journal.open(sys.argv[1], Redactor()) as journal:
        board = Board(journal)
        for task_id in sys.argv[2:]:
            sys.stdin.readline()
            await board.finish(task_id, 1, TaskResult(status="completed", text=str(time.monotonic())))
            print(time.monotonic(), flush=True)

asyncio.run(main())
"""
Row = tuple[str, float, str, float]
"""What, how much, of what, and how often the floor; 0 where there is none."""


def now() -> tuple[float, float]:
    return time.process_time(), time.perf_counter()


def show(rows: list[Row]) -> list[Row]:
    for what, value, unit, ratio in rows:
        print(f"{what:<66} {value:>9,.2f} {unit:<4}" + (f" {ratio:>8.1f} x" if ratio else ""))
    print()
    return rows


class House:
    """A home, a folder to work in and a journal of its own."""

    def __init__(self, base: Path) -> None:
        self.work = base / "work"
        self.kitbag = base / ".kitbag"
        self.script = base / "script.json"
        self.work.mkdir(parents=True)
        os.environ.update(HOME=str(base), KITBAG_HOME=str(self.kitbag))
        for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "KITBAG_MODEL", "OLLAMA_HOST"):
            os.environ.pop(name, None)
        self.say(0.0)
        self.journal_path = journal_path(str(self.kitbag))

    def journal(self) -> "Watched":
        return Watched(open_journal_file(self.journal_path), Redactor())

    def say(self, delay: float) -> None:
        self.script.write_text(json.dumps({"replies": [{"text": "The answer is 42.", "delay": delay}]}))

    async def begin(self, board: Board, count: int) -> list[str]:
        """Puts so many tasks on the board."""
        names = [os.urandom(6).hex() for _ in range(count)]
        options = serialize_options(Options())
        common: dict[str, Any] = {"parent_model": f"scripted:{self.script}", "directory": str(self.work)}
        async with asyncio.TaskGroup() as group:
            for name in names:
                wish = TaskRequest(agent="Explore", prompt="Find the answer.", options=options, **common)
                made = board.create(name, "agent", wish, root="bench", parent="", depth=1, background=True)
                group.create_task(made)
        return names


class Watched(Journal):
    """Keeps the time that is spent waiting until something is durable."""

    def __init__(self, file: JournalFile, redactor: Redactor) -> None:
        super().__init__(file, redactor)
        self.waits: list[float] = []

    async def _submit(self, batch: Any) -> Any:
        begun = time.perf_counter()
        try:
            return await super()._submit(batch)
        finally:
            self.waits.append(time.perf_counter() - begun)


# --- in front ----------------------------------------------------------------------------------------------------


class Chief:
    """Starts an agent and calls a tool that only reads, by turns, and keeps the time of each."""

    name = "scripted"

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.said = 0
        self.ended: tuple[float, float] | None = None
        self.tool = ""
        self.spent: dict[str, list[tuple[float, float]]] = {"Task": [], "ListLoadedSkills": []}
        self.until_asked: list[float] = []

    async def close(self) -> None:
        return None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        cpu, clock = now()
        if AN_AGENT in request.system[-1].text:
            self.until_asked.append(clock - self.ended[1] if self.ended else 0.0)
            yield ModelReply(message=Message("assistant", (Text("The answer is 42."),)), stop="end", usage=SMALL)
            return
        if self.ended is not None:
            self.spent[self.tool].append((cpu - self.ended[0], clock - self.ended[1]))
        self.said += 1
        self.tool = "Task" if self.said % 2 else "ListLoadedSkills"
        given = {"subagent_type": "Explore", "prompt": f"Find {self.said}."} if self.said % 2 else {}
        parts: tuple[Any, ...] = (Text("Working."),)
        if self.said <= self.turns:
            parts = (*parts, ToolCall(id=f"call-{self.said}", name=self.tool, arguments=given))
        reply = ModelReply(message=Message("assistant", parts), stop="tools" if len(parts) > 1 else "end", usage=SMALL)
        self.ended = now()
        yield reply


async def in_front(house: House, count: int) -> list[Row]:
    chief = Chief(2 * count)
    options = Options(directory=str(house.work), limits=Limits(), mode="plan")  # it starts agents without a question
    with contextlib.closing(house.journal()) as journal:
        async with Agent(provider=chief, options=options, journal=journal) as agent, agent.run("Begin.") as run:
            before = len(journal.waits)
            ended = await run.wait()
            if ended.status != "completed":
                raise SystemExit(f"{ended.status}: {ended.error}")
        waits = journal.waits[before:]
    agents, plain = chief.spent["Task"][1:], chief.spent["ListLoadedSkills"][1:]  # the first one imports
    rows: list[Row] = []
    for at, how in enumerate(("CPU", "by the clock")):
        for name, chosen in (("median", median), ("least", min)):
            of_agent, floor = chosen(one[at] for one in agents), chosen(one[at] for one in plain)
            rows.append((f"an agent in front, {how}, {name}", of_agent * 1e3, "ms", of_agent / floor))
            rows.append(("  a turn with a tool that only reads", floor * 1e3, "ms", 0))
    rows.append(("from the call to its agent's first request, median", median(chief.until_asked) * 1e3, "ms", 0))
    rows.append(("  of all this, waiting for a durable step, median", median(waits) * 1e3, "ms", 0))
    return rows


# --- a durable step ----------------------------------------------------------------------------------------------


async def durable_step(house: House, count: int) -> list[Row]:
    body = {"text": "forty words of an answer " * 10}
    with contextlib.closing(house.journal()) as journal:
        await journal.write("bench", "warm", body)
        journal.waits.clear()
        bare = list[float]()
        with contextlib.closing(_bare_database(house.work / "bare.db")) as database:
            for _ in range(count):  # by turns, so that both meet the same disk
                await journal.write("bench", "alone", body)
                begun = time.perf_counter()
                database.execute("INSERT INTO records (stream, body) VALUES (?, ?)", ("bench", json.dumps(body)))
                bare.append(time.perf_counter() - begun)
        alone = median(journal.waits)
        begun = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(1_000):
                group.create_task(journal.write("bench", "together", body))
        together = (time.perf_counter() - begun) / 1_000
    floor = median(bare)
    return [
        ("a durable step, alone", alone * 1e3, "ms", alone / floor),
        ("  a commit of SQLite, alone", floor * 1e3, "ms", 0),
        ("a durable step, of 1,000 at once", together * 1e3, "ms", together / floor),
    ]


def _bare_database(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE records (seq INTEGER PRIMARY KEY, stream TEXT, body TEXT)")
    return database


# --- many at once ------------------------------------------------------------------------------------------------


class Gate:
    """Answers when so many have asked: until then, all of them are there at once."""

    name = "scripted"

    def __init__(self, count: int) -> None:
        self.count = count
        self.asked = 0
        self.full = asyncio.Event()
        self.at: tuple[float, float] = (0.0, 0.0)
        self.memory = 0
        self.request: ModelRequest | None = None

    async def close(self) -> None:
        return None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        self.asked += 1
        self.request = request
        if self.asked == self.count:
            self.at, self.memory = now(), _memory()
            self.full.set()
        await self.full.wait()
        yield ModelReply(message=Message("assistant", (Text("The answer is 42."),)), stop="end", usage=SMALL)


class GatedWorker(Worker):
    gate: Gate

    def _load_setup(self, wish: TaskRequest) -> ParentContext:
        return msgspec.structs.replace(super()._load_setup(wish), provider=self.gate)


async def many_at_once(house: House, count: int) -> list[Row]:
    with contextlib.closing(house.journal()) as journal:
        board = Board(journal)
        await _served(house, journal, board, 1)  # imports, and the first request
        gate, begun, ended, memory = await _served(house, journal, board, count)
        bare = Gate(count)
        assert gate.request is not None
        request = gate.request
        bare_begun = now()
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(_ask(bare, request))
        bare_ended = now()
        unfinished = board.unfinished()
        if unfinished:
            raise SystemExit(f"{len(unfinished)} tasks have not ended")
    floor, wall, cpu = bare_ended[1] - bare_begun[1], ended[1] - begun[1], ended[0] - begun[0]
    return [
        (f"{count:,} agents in the background, all at once, by the clock", wall, "s", wall / floor),
        ("  the same requests in a bare task group", floor, "s", 0),
        ("  until all of them have asked the model", gate.at[1] - begun[1], "s", 0),
        ("for each agent, CPU", cpu / count * 1e3, "ms", cpu / (bare_ended[0] - bare_begun[0])),
        ("agents that begin, ask and end in a second", count / wall, "", 0),
        ("for each agent, memory while it waits for the model", (gate.memory - memory) / count / 1e3, "kB", 0),
    ]


async def _served(
    house: House, journal: Watched, board: Board, count: int
) -> tuple[Gate, tuple[float, float], tuple[float, float], int]:
    await house.begin(board, count)
    said: list[tuple[float, float]] = []
    worker = GatedWorker(journal, idle_seconds=0.0, max_concurrent=count, log=lambda _: said.append(now()))
    worker.gate = Gate(count)
    gc.collect()
    memory, begun = _memory(), now()
    await worker.serve()
    await worker.close()
    return worker.gate, begun, said[-1], memory


async def _ask(model: Gate, request: ModelRequest) -> None:
    async for _ in model.stream(request):
        pass


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


# --- how soon an end is told -------------------------------------------------------------------------------------


async def told(house: House, count: int) -> list[Row]:
    with house.journal() as journal:
        board = Board(journal)
        names = await house.begin(board, 2 * count)
        for name in names:
            await board.claim(board.find(name))
        options = Options(directory=str(house.work))
        async with Agent(f"scripted:{house.script}", options=options, journal=journal) as agent:
            delegation = TaskDelegation(agent.parent_context, "bench")
            here = [await _told_here(board, delegation, name) for name in names[:count]]
            there = await _told_there(house, delegation, names[count:])
    return [
        ("TaskOutput after an end that the same process wrote, median", median(here) * 1e3, "ms", 0),
        ("TaskOutput after an end that another process wrote, median", median(there) * 1e3, "ms", 0),
        ("  the longest", max(there) * 1e3, "ms", 0),
    ]


async def _told_here(board: Board, delegation: TaskDelegation, name: str) -> float:
    waiting = asyncio.create_task(delegation.report(name, 60))
    await asyncio.sleep(0.02)
    await board.finish(name, 1, TaskResult(status="completed", text="Done."))
    begun = time.perf_counter()
    report = await waiting
    assert report.is_finished
    return time.perf_counter() - begun


async def _told_there(house: House, delegation: TaskDelegation, names: list[str]) -> list[float]:
    command = [sys.executable, "-c", ENDER, house.journal_path, *names]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    found: list[float] = []
    for name in names:
        waiting = asyncio.create_task(delegation.report(name, 60))
        await asyncio.sleep(0.02)
        process.stdin.write(b"\n")
        written = asyncio.create_task(process.stdout.readline())
        assert (await waiting).is_finished
        told_at = time.monotonic()
        found.append(told_at - float(await written))
    await process.wait()
    return [max(one, 0.0) for one in found]


# --- after kill -9 -----------------------------------------------------------------------------------------------


async def recovery(house: House, count: int) -> list[Row]:
    with house.journal() as journal:
        board = Board(journal)
        house.say(600.0)
        names = await house.begin(board, count)
        first = _worker(count)
        try:
            begun = time.perf_counter()
            started = await _until(board, first, lambda: _asking(journal, names)) - begun
        finally:
            os.kill(first.pid, signal.SIGKILL)
            first.wait()
        house.say(0.0)
        second = _worker(count)
        try:
            begun = time.perf_counter()
            own = second.pid
            claimed = await _until(board, second, lambda: all(_is_of(board, name, own) for name in names)) - begun
            ended = await _until(board, second, lambda: not board.unfinished()) - begun
        finally:
            second.kill()
            second.wait()
        wrong = [task for task in (board.find(name) for name in names) if task.status != "completed"]
        if wrong:
            first = wrong[0]
            raise SystemExit(f"{len(wrong)} tasks were not recovered, the first as {first.status}: {first.result}")
    return [
        (f"kill -9 of a worker with {count:,} tasks, until all have begun again", claimed, "s", claimed / started),
        ("  until all have ended", ended, "s", ended / started),
        ("  their first beginning, until all have asked the model", started, "s", 0),
    ]


def _worker(at_once: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "kitbag", "worker", "--at-once", str(at_once), "--idle", "60"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _asking(journal: Journal, names: list[str]) -> bool:
    return all((last := journal.last(f"session/{name}")) is not None and last.kind == "user" for name in names)


def _is_of(board: Board, name: str, process: int) -> bool:
    task = board.find(name)
    return task.is_finished or (task.owner is not None and task.owner.pid == process)


async def _until(board: Board, worker: "subprocess.Popen[bytes]", is_so: Callable[[], bool]) -> float:
    deadline = time.monotonic() + 600
    while not is_so():
        if worker.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the worker ended with {worker.returncode}, or took too long")
        await board.wait_for_change(0.05)
        await asyncio.sleep(0.05)
    return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer agents")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    arguments = parser.parse_args()
    many, few = (100, 20) if arguments.quick else (1_000, 100)
    parts: list[tuple[Any, int]] = [
        (many_at_once, many), (in_front, few), (durable_step, few), (told, 10), (recovery, many),
    ]  # fmt: skip
    base = Path(tempfile.mkdtemp(prefix="kitbag-bench-"))
    rows: list[Row] = []
    try:
        for number, (part, count) in enumerate(parts):
            rows += show(asyncio.run(part(House(base / str(number)), count)))
    finally:
        shutil.rmtree(base)
    if arguments.json:
        found = [dict(zip(("what", "value", "unit", "times"), row, strict=True)) for row in rows]
        Path(arguments.json).write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
