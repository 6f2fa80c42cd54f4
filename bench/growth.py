"""How the time of commands and turns grows with what is stored, as a table and as a plot.

    python bench/growth.py [--tasks 500 5000 50000] [--messages 500 4000] [--svg FILE] [--keep DIR]

Two curves: commands in a home with so many tasks and sessions (20 kB each), and one turn in a session with so many
messages. Each is the least CPU time of several runs, of the process and its children, beside the same with one task or
a new session.
"""

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from kitbag.agent.session import Session
from kitbag.agent.session_records import SessionHeader
from kitbag.messages import Message, Text, ToolCall, ToolResult, Usage
from kitbag.models.scripted import Rule, Script, Scripted, Step
from kitbag.runtime.agent import Agent, Options
from kitbag.store.journal import Journal, JournalEntry, journal_path
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import Board
from kitbag.tasks.version import kitbag_version

COMMANDS = {
    "tasks list": ["tasks", "list"],
    "sessions list": ["sessions", "list"],
    "--continue": ["--continue", "-p", "Hi", "--model", "offline"],
    "submit a task": ["agents", "run", "Explore", "What?", "--background", "--model", "offline"],
}
RUNS = 3
SHORT = "ok "
"""Short, so that a long session is not compacted."""
FILLER = "The quick brown fox jumps over the lazy dog. "


def records(number: int, directory: str) -> Iterator[JournalEntry]:
    """A task with its session, and a session of the user's."""
    task = f"{number:012x}"
    wish = {"agent": "Explore", "prompt": FILLER * 20, "description": f"task {number}", "directory": directory}
    created = {
        "id": task, "kind": "agent", "agent": "Explore", "description": f"task {number}", "root": f"s{task}",
        "parent": "", "depth": 1, "background": True, "directory": directory, "version": kitbag_version(), "owner": [],
    }  # fmt: skip
    owner = ["elsewhere/pid:[1]", "boot", 1, "1"]
    yield JournalEntry(f"task/{task}", "wish", wish)
    yield JournalEntry("tasks", "created", created)
    yield JournalEntry("tasks", "begun", {"id": task, "run": 1, "owner": owner, "again": False})
    for session, of_task in ((task, task), (f"s{task}", "")):
        header = {"directory": directory, "model": "offline", "mode": "default", "task": of_task, "started": "2026"}
        said = {"message": {"role": "user", "parts": [{"type": "text", "text": f"Question {number}"}]}}
        answer = {"message": {"role": "assistant", "parts": [{"type": "text", "text": FILLER * 90}]}, "cost": 0.01}
        end = {"status": "completed", "turns": 1, "cost": 0.01, "about": f"Question {number}", "error": ""}
        yield JournalEntry(f"session/{session}", "session", header)
        yield JournalEntry(f"session/{session}", "prompt", {"entries": [{"text": FILLER * 100}], "made_for": {}})
        yield JournalEntry(f"session/{session}", "user", said)
        yield JournalEntry(f"session/{session}", "reply", answer)
        yield JournalEntry(f"session/{session}", "ended", end)
    yield JournalEntry("tasks", "ended", {"id": task, "run": 1, "status": "completed", "text": "Done."})
    yield JournalEntry("tasks", "notified", {"id": task, "run": 1})


def fill(home: str, first: int, count: int, directory: str) -> None:
    with Journal.open(journal_path(home), Redactor()) as journal:
        Board(journal).all()
        for start in range(first, count, 500):
            numbers = range(start, min(start + 500, count))
            journal.append_all([entry for number in numbers for entry in records(number, directory)])


def cpu_seconds(arguments: list[str], home: str, directory: str) -> tuple[float, float]:
    """CPU and wall time of the fastest run."""
    found: list[tuple[float, float]] = []
    environment = os.environ | {"KITBAG_HOME": home}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for _ in range(RUNS):
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        command = [sys.executable, "-P", "-m", "kitbag", *arguments]
        done = subprocess.run(command, env=environment, cwd=directory, capture_output=True, check=False)
        wall = time.monotonic() - begun
        if done.returncode not in (0, 1):
            sys.exit(f"{arguments}: {done.stderr.decode()}")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall))
    return min(found)


async def long_session(journal: Journal, name: str, directory: str, count: int) -> None:
    session = Session(journal, name)
    await session.start(SessionHeader(directory=directory, model="scripted", mode="default"))
    for number in range(count // 4):
        await session.add_user([Text(f"Question {number}. {SHORT * 3}")])
        call = ToolCall(id=f"call{number}", name="Read", arguments={"path": "a.txt"})
        await session.add_reply(Message("assistant", (Text(SHORT), call)), Usage(input=10, output=5), 0.0, "m")
        await session.record_result(ToolResult(call_id=call.id, content=(Text(SHORT * 20),)))
        await session.add_reply(Message("assistant", (Text(SHORT * 5),)), Usage(input=10, output=5), 0.0, "m")


async def turn_seconds(home: str, directory: str, name: str) -> float:
    os.environ["KITBAG_HOME"] = home
    steps = [Step(text="Fine.")] * (RUNS + 2)
    options = Options(directory=directory, resume=name)
    fastest = 1e9
    async with Agent(options=options, provider=Scripted(Script([Rule(steps)]))) as agent:
        for number in range(RUNS + 1):
            begun = time.process_time()
            async with agent.run("And now?") as run:
                async for _ in run:
                    pass
            if run.ended.status != "completed":
                sys.exit(f"a turn ended with {run.ended}")
            if number:
                fastest = min(fastest, time.process_time() - begun)
    return fastest


Curve = dict[str, list[tuple[int, float]]]


def draw(path: str, plots: list[tuple[str, str, Curve]]) -> None:
    """Milliseconds over counts, one panel per plot with its legend below, as SVG."""
    width, height, left, panel_height = 560, 240, 64, 340
    parts: list[str] = []
    colors = ("#4269d0", "#b07d00", "#d1495b", "#2a8f7b")
    for panel, (title, unit, curves) in enumerate(plots):
        top = panel * panel_height + 40
        most = max(count for points in curves.values() for count, _ in points) or 1
        highest = max(seconds for points in curves.values() for _, seconds in points) * 1.15
        parts.append(f'<text x="{left}" y="{top - 14}" font-weight="bold">{title}, by {unit}</text>')
        for share in (0.25, 0.5, 0.75, 1.0):
            y = top + height - share * height
            label = f"{share * highest * 1000:.3g} ms"
            parts.append(f'<path d="M{left} {y}h{width}" stroke="#ddd"/>')
            parts.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{label}</text>')
        parts.append(f'<path d="M{left} {top}V{top + height}H{left + width}" fill="none" stroke="#888"/>')
        for share in (0.0, 0.5, 1.0):
            x, y = left + share * width, top + height + 18
            parts.append(f'<text x="{x}" y="{y}" text-anchor="middle">{share * most:,.0f}</text>')
        for number, (name, points) in enumerate(curves.items()):
            color = colors[number % len(colors)]
            at = [(left + count / most * width, top + height - value / highest * height) for count, value in points]
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>' for x, y in at]
            x = left + number * width / 4
            parts.append(f'<text x="{x}" y="{top + height + 42}" fill="{color}" font-weight="bold">{name}</text>')
    size = f'width="{left + width + 40}" height="{len(plots) * panel_height + 10}"'
    start = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-size="12" font-family="sans-serif">'
    Path(path).write_text(f'{start}<rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n')


def show(title: str, curves: Curve) -> None:
    counts = [count for count, _ in next(iter(curves.values()))]
    print(f"\n{title:<32}" + "".join(f"{count:>12,}" for count in counts))
    for name, points in curves.items():
        print(f"{name:<32}" + "".join(f"{value * 1000:>9.0f} ms" for _, value in points))


def measure_commands(counts: list[int], keep: str) -> Curve:
    curves: Curve = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        home, directory = keep or f"{folder}/home", f"{folder}/work"
        os.makedirs(directory)
        filled = 0
        for count in [1, *counts]:
            fill(home, filled, count, directory)
            filled = count
            size = os.path.getsize(journal_path(home)) / 1e6
            print(f"{count:,} tasks and {2 * count:,} sessions: {size:,.0f} MB")
            for name, arguments in COMMANDS.items():
                cpu, wall = cpu_seconds(arguments, home, directory)
                print(f"  {name}: {cpu:.2f} s CPU, {wall:.2f} s")
                curves[name].append((count, cpu))
    return curves


def measure_turns(counts: list[int]) -> Curve:
    curves: Curve = {"one turn": []}
    with tempfile.TemporaryDirectory() as folder:
        for count in [4, *counts]:
            home = f"{folder}/home{count}"
            with Journal.open(journal_path(home), Redactor()) as journal:
                asyncio.run(long_session(journal, f"long{count}", folder, count))
            curves["one turn"].append((count, asyncio.run(turn_seconds(home, folder, f"long{count}"))))
    return curves


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, nargs="*", default=[500, 5_000, 50_000])
    parser.add_argument("--messages", type=int, nargs="*", default=[500, 2_000, 4_000])
    parser.add_argument("--svg", default="")
    parser.add_argument("--keep", default="", help="a new directory for the home, which is kept")
    options = parser.parse_args()
    plots: list[tuple[str, str, Curve]] = []
    if options.messages:
        plots.append(("CPU time of one turn", "messages", measure_turns(options.messages)))
    if options.tasks:
        plots.append(("CPU time of a command", "tasks", measure_commands(options.tasks, options.keep)))
    for title, unit, curves in plots:
        show(f"{title}, by {unit}", curves)
    if options.svg:
        draw(options.svg, plots)


if __name__ == "__main__":
    main()
