"""What finding skills costs, beside the least it could cost, in one run.

    python bench/scan.py [--quick] [--json FILE]

For 10, 100, 1,000 and 10,000 skills of about 6 KB with a six-key head: a bare loop that lists, opens, reads and
splits; Kitbag's scan and catalog without its index; a bare loop that only stats files whose paths it knows, and one
that lists them first; Kitbag with a warm index. Then what a process costs: import and `kitbag skills list` beside
bare Python; and what 30,000 folders without skills cost beside `os.walk`. Times are the least of several rounds, each
in a process of its own; memory is what the process grew by.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HEAD = """---
name: skill-{n:05d}
description: Reviews part {n} of a change for correctness and style and explains what to mend. Use when somebody asks for a review of code, a diff or a pull request.
version: 1.2.0
license: Apache-2.0
allowed-tools: Read, Grep, Bash(git log:*)
tags: review, quality
---
"""  # noqa: E501
BODY = "Read the change as a whole before you judge a line of it, and say what you did not read.\n" * 62

# Each runs in a fresh interpreter: argv is the folder of skills and the Kitbag home.
PROGRAMS = {
    "bare read": """
def work():
    heads = []
    for entry in os.scandir(folder):
        with open(entry.path + "/SKILL.md", encoding="utf-8") as file:
            text = file.read()
        _, head, body = text.split("---", 2)
        heads.append(head)
    return heads
""",
    "bare stat": """
paths = [entry.path + "/SKILL.md" for entry in os.scandir(folder)]
def work():
    for path in paths:
        os.stat(path)
""",
    "list and stat": """
def work():
    for entry in os.scandir(folder):
        os.stat(entry.path + "/SKILL.md")
""",
    "kitbag cold": """
from kitbag.library.registry import Registry
from kitbag.library.scopes import Places
from kitbag.packing.catalog import render_skills
import kitbag.library.index, kitbag.library.discover
def work():
    registry = Registry(Places("/", "/nowhere", home, ()), extra=[folder], use_index=False)
    return registry, render_skills(registry.visible_skills()).text
""",
    "kitbag warm": """
from kitbag.library.registry import Registry
from kitbag.library.scopes import Places
from kitbag.packing.catalog import render_skills
import kitbag.library.index, kitbag.library.discover
def work():
    registry = Registry(Places("/", "/nowhere", home, ()), extra=[folder])
    return registry, render_skills(registry.visible_skills()).text
""",
}
FOLDERS = 30_000
FOLDER_PROGRAMS = {
    "os.walk": """
def work():
    return sum(1 for _ in os.walk(folder))
""",
    "skills": """
from kitbag.library.discover import scan_root
from kitbag.library.scan_budget import ScanBudget
from kitbag.library.scopes import Root
def work():
    budget = ScanBudget(1e9)
    budget.start()
    return scan_root(Root(folder, "skills", "user", "kitbag", (1, 0)), budget=budget)
""",
    "agents": """
from kitbag.library.item_files import find_agent_files
from kitbag.library.scan_budget import ScanBudget
from kitbag.library.scopes import Root
def work():
    budget = ScanBudget(1e9)
    budget.start()
    return find_agent_files(Root(folder, "agents", "user", "kitbag", (1, 0)), [], budget=budget)
""",
}
PROGRAMS |= FOLDER_PROGRAMS
FRAME = """
import gc, os, sys, time
folder, home = sys.argv[1:3]
{program}
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
before = resident()
wall, cpu = time.perf_counter(), time.process_time()
kept = work()
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
gc.collect()
print(wall, cpu, resident() - before)
"""


def make_skills(folder: Path, count: int, body: str = BODY) -> None:
    for n in range(count):
        skill = folder / f"skill-{n:05d}"
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text(HEAD.format(n=n) + body)


def measure(program: str, folder: Path, home: Path, rounds: int) -> tuple[float, float, float]:
    """Least wall and CPU seconds, and the memory that was kept, in bytes."""
    code = FRAME.format(program=PROGRAMS[program])
    runs: list[tuple[float, ...]] = []
    for _ in range(rounds):
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder), str(home)], capture_output=True, text=True, check=True
        )
        runs.append(tuple(map(float, done.stdout.split())))
    wall, cpu, memory = (min(run[at] for run in runs) for at in range(3))
    return wall, cpu, memory


def process_cpu(command: list[str], cwd: Path, env: dict[str, str], rounds: int) -> float:
    least = 1e9
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=cwd, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return least


def scans(base: Path, counts: list[int], rounds: int) -> list[dict[str, float]]:
    rows: list[dict[str, float]] = []
    print(f"{'skills':>7} {'program':<14} {'wall ms':>9} {'CPU ms':>9} {'us/skill':>9} {'ratio':>7} {'memory MB':>10}")
    for count in counts:
        folder, home = base / f"skills-{count}", base / f"home-{count}"
        make_skills(folder, count)
        settle = os.stat(folder).st_ctime + 3
        while os.path.getctime(touch(base)) < settle:  # an index trusts only files that have settled
            pass
        measure("kitbag warm", folder, home, 1)
        found: dict[str, tuple[float, float, float]] = {}
        for program in PROGRAMS.keys() - FOLDER_PROGRAMS.keys():
            found[program] = measure(program, folder, home, rounds)
        for program, floor in (
            ("bare read", "bare read"),
            ("kitbag cold", "bare read"),
            ("bare stat", "bare stat"),
            ("list and stat", "bare stat"),
            ("kitbag warm", "bare stat"),
        ):
            wall, cpu, memory = found[program]
            ratio = cpu / found[floor][1]
            shown = "" if program == floor else f"{ratio:6.2f}x"
            print(
                f"{count:>7,} {program:<14} {wall * 1e3:>9.2f} {cpu * 1e3:>9.2f} {cpu / count * 1e6:>9.2f}"
                f" {shown:>7} {memory / 1e6:>10.1f}"
            )
            rows.append(
                {"skills": count, "program": program, "wall": wall, "cpu": cpu, "memory": memory, "ratio": ratio}
            )
    return rows


def touch(base: Path) -> str:
    path = base / "clock"
    path.write_text("")
    return str(path)


def processes(base: Path, rounds: int) -> list[dict[str, float]]:
    workspace, home = base / "workspace", base / "process-home"
    make_skills(workspace / ".kitbag" / "skills", 100)
    env = {**os.environ, "HOME": str(home), "KITBAG_HOME": str(home / ".kitbag")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    script = Path(sys.executable).with_name("kitbag")
    commands = {
        "bare Python": [sys.executable, "-c", "pass"],
        "import kitbag": [sys.executable, "-c", "import kitbag"],
        "import click": [sys.executable, "-c", "import click"],
        "kitbag skills list, 100 skills": [str(script), "skills", "list"],
        "kitbag skills list --json": [str(script), "skills", "list", "--json"],
    }
    rows: list[dict[str, float]] = []
    floor = 0.0
    print(f"\n{'process':<34} {'CPU ms':>8} {'ratio':>7}")
    for name, command in commands.items():
        process_cpu(command, base, env, 2) if not workspace.exists() else process_cpu(command, workspace, env, 2)
        cpu = process_cpu(command, workspace, env, rounds)
        floor = floor or cpu
        print(f"{name:<34} {cpu * 1e3:>8.1f} {cpu / floor:>6.2f}x")
        rows.append({"program": name, "cpu": cpu, "ratio": cpu / floor})
    return rows


def folders(base: Path, rounds: int) -> list[dict[str, float]]:
    """Without skills; without a limit of time, so that the ratio is that of the whole search."""
    top = base / "folders"
    for n in range(FOLDERS // 31):
        for below in range(30):
            (top / f"d{n % 31}" / f"e{n}" / f"f{below}").mkdir(parents=True)
    rows: list[dict[str, float]] = []
    floor = 0.0
    print(f"\n{FOLDERS:,} folders {'wall ms':>21} {'CPU ms':>9} {'ratio':>7}")
    for program in FOLDER_PROGRAMS:
        wall, cpu, _ = measure(program, top, base, rounds)
        floor = floor or cpu
        print(f"{program:<22} {wall * 1e3:>12.1f} {cpu * 1e3:>9.1f} {cpu / floor:>6.2f}x")
        rows.append({"program": program, "wall": wall, "cpu": cpu, "ratio": cpu / floor})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="up to 1,000 skills, fewer rounds")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    arguments = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="kitbag-bench-"))
    try:
        counts = [10, 100, 1_000] if arguments.quick else [10, 100, 1_000, 10_000]
        found = {"scan": scans(base, counts, 3 if arguments.quick else 7)}
        found["process"] = processes(base, 10 if arguments.quick else 25)
        found["folders"] = folders(base, 3 if arguments.quick else 7)
    finally:
        shutil.rmtree(base)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
