"""What the sandbox costs: the same commands confined and bare, in alternating rounds of one run; the best of each.

    python bench/sandbox.py [--quick]

The floor for `true` is a bare subprocess, for the rest Kitbag's command runner without a sandbox. The build renders,
compresses and writes files, a quarter of a millisecond each; empty files are the worst case. Goals apply to the best
round.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kitbag.permissions.model import SandboxProfile, Workspace
from kitbag.processes.command_runner import CommandResult, ShellCommand, run_command
from kitbag.sandbox.confine import detect_sandbox, run_confined
from kitbag.sandbox.confinement import Confinement

START_GOAL = 35e-3
BUILD_GOAL = 1.10
COMMITTED = 500
COMPILED = 150
UNPACKED = 2_000
GIT = "git -c user.name=Bench -c user.email=bench@example.com -c gc.auto=0"

BUILD = """
import hashlib, os, sys, zlib

for number in range(int(sys.argv[1])):
    lines = [f"def function_{number}_{line}(value): return value * {line} + {number}" for line in range(150)]
    text = chr(10).join(lines).encode()
    data = hashlib.sha256(text).digest() + zlib.compress(text, 6)
    if number % 500 == 0:
        os.mkdir(f"out/part{number // 500}")
    path = f"out/part{number // 500}/module{number}.o"
    written = path + ".tmp" if number % 10 == 0 else path
    with open(written, "wb") as file:
        file.write(data)
    if written != path:
        os.rename(written, path)
"""
EMPTY = """
import os, sys, threading

count, threads = int(sys.argv[1]), int(sys.argv[2])

def create(first):
    for number in range(first, count, threads):
        os.close(os.open(f"out/{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))

others = [threading.Thread(target=create, args=(first,)) for first in range(1, threads)]
for thread in others:
    thread.start()
create(0)
for thread in others:
    thread.join()
"""
Prepare = Callable[[Path], None]


class Row(NamedTuple):
    what: str
    command: str
    prepare: Prepare
    """Fills a new folder for one round; its time does not count."""
    created: int
    """How many files `out` must contain afterwards, to prove that the command did its work."""
    goal: float | None = None


class Folder:
    """A new workspace folder and its home, and commands in it."""

    def __init__(self, base: Path, name: str) -> None:
        self.root = base / name / "workspace"
        home = base / name / "home"
        for folder in (self.root, home):
            folder.mkdir(parents=True)
        self._workspace = Workspace(root=str(self.root), home=str(home), kitbag_home=str(home / ".kitbag"))

    def command(self, text: str) -> ShellCommand:
        return ShellCommand(
            text=text, directory=str(self.root), environment=dict(os.environ), timeout=1_800, max_characters=20_000
        )

    def confined(self, text: str, profile: SandboxProfile = "workspace") -> CommandResult:
        return run_confined(
            self.command(text), confinement=Confinement(profile=profile), workspace=self._workspace
        )  # fmt: skip

    def bare(self, text: str) -> CommandResult:
        return run_command(self.command(text))

    def git_init(self) -> None:
        subprocess.run(["git", "init", "-q", str(self.root)], check=True, stderr=subprocess.DEVNULL)


def measure_start(base: Path, rounds: int) -> None:
    plain, repository = Folder(base, "plain"), Folder(base, "repository")
    repository.git_init()
    # A small project: control files and folders are what the sandbox searches for and mounts.
    for folder in (plain, repository):
        (folder.root / "src").mkdir()
        (folder.root / "src/main.py").write_text("print(1)\n")
        (folder.root / ".npmrc").write_text("x=1\n")

    def floor() -> None:
        subprocess.run(["/bin/bash", "-c", "true"], check=True, cwd=plain.root)

    def starting(folder: Folder, profile: SandboxProfile) -> Callable[[], None]:
        def start() -> None:
            result = folder.confined("true", profile)
            assert result.status == 0, result

        return start

    works = {
        "bare bash -c true": floor,
        "workspace, no git": starting(plain, "workspace"),
        "workspace, git": starting(repository, "workspace"),
        "read-only, no git": starting(plain, "read-only"),
        "read-only, git": starting(repository, "read-only"),
    }
    times: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 2):
        for name, work in works.items():
            begun = time.perf_counter()
            work()
            if number >= 2:  # the first rounds start the supervisor's server and fill caches
                times[name].append(time.perf_counter() - begun)
    print(f"`true`, {rounds} rounds{'':<17} {'median':>10} {'best':>10} {'median more':>13} {'best more':>11}")
    floors = times.pop("bare bash -c true")
    print(f"{'bare bash -c true':<34} {statistics.median(floors) * 1e3:7.1f} ms {min(floors) * 1e3:7.1f} ms")
    for name, found in times.items():
        median, best = statistics.median(found), min(found)
        more, least = median - statistics.median(floors), best - min(floors)
        verdict = f"goal {START_GOAL * 1e3:g} ms{'' if least <= START_GOAL else '  MISSED'}"
        numbers = f"{median * 1e3:7.1f} ms {best * 1e3:7.1f} ms {more * 1e3:+10.1f} ms {least * 1e3:+8.1f} ms"
        print(f"{name:<34} {numbers}   {verdict}")


def with_program(program: str) -> Prepare:
    def prepare(root: Path) -> None:
        (root / "out").mkdir()
        (root / "program.py").write_text(program)

    return prepare


def with_files_to_commit(root: Path) -> None:
    for number in range(COMMITTED):
        folder = root / "out" / f"part{number // 50}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file{number}.py").write_text(f"def f{number}(): return {number}\n" * 40)
    subprocess.run(["git", "init", "-q", str(root)], check=True, stderr=subprocess.DEVNULL)


def with_archive(root: Path) -> None:
    for number in range(UNPACKED):
        folder = root / "out" / f"part{number // 100}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"file{number}.txt").write_text(f"line {number}\n" * 200)
    subprocess.run(["tar", "cf", "archive.tar", "out"], check=True, cwd=root)
    (root / "out").rename(root / "packed")


def with_sources(root: Path) -> None:
    (root / "out").mkdir()
    body = "int f{0}(int a) {{ int s = 0; for (int i = 0; i < a; i++) s += i * {0}; return s; }}\n"
    for number in range(COMPILED):
        text = "#include <stdio.h>\n#include <stdlib.h>\n" + "".join(body.format(at) for at in range(20))
        (root / f"file{number}.c").write_text(text)


def rows(files: int) -> list[Row]:
    python = f"{sys.executable} -I -S program.py {files}"
    compiled = Row(
        f"cc -c of {COMPILED} files",
        'for f in *.c; do cc -O1 -c "$f" -o "out/${f%.c}.o" || exit 1; done',
        with_sources,
        COMPILED,
        BUILD_GOAL,
    )
    return [
        *([compiled] if shutil.which("cc") else []),
        Row(f"build of {files:,} files", python, with_program(BUILD), files, BUILD_GOAL),
        Row(f"{files:,} empty files, 1 thread", f"{python} 1", with_program(EMPTY), files),
        Row(f"{files:,} empty files, 4 threads", f"{python} 4", with_program(EMPTY), files),
        Row(
            f"git add and commit of {COMMITTED} files",
            f'{GIT} add -A && {GIT} commit -q -m all && test -z "$({GIT} status --porcelain)"',
            with_files_to_commit,
            COMMITTED,
        ),
        Row(f"tar x of {UNPACKED:,} files", "tar xf archive.tar", with_archive, UNPACKED),
    ]


def measure(row: Row, base: Path, rounds: int) -> None:
    bare: list[float] = []
    confined: list[float] = []
    for number in range(rounds):
        # Whoever goes second finds warmer caches and a busier disk; so they take turns.
        turns = [(Folder.bare, bare), (Folder.confined, confined)]
        for run, times in turns if number % 2 == 0 else turns[::-1]:
            # Nothing is deleted before the end: ext4 searches long for inodes that were not freed just before.
            folder = Folder(base, f"{row.what}, {number}, {run.__name__}")
            row.prepare(folder.root)
            begun = time.perf_counter()
            result = run(folder, row.command)
            times.append(time.perf_counter() - begun)
            assert (result.status, result.notes) == (0, ()), result
            created = sum(len(files) for _, _, files in os.walk(folder.root / "out"))
            assert created == row.created, f"{row.what}: {created} files"
    ratio = min(confined) / min(bare)
    each = (min(confined) - min(bare)) / row.created * 1e6
    goal = "" if row.goal is None else f"   goal {row.goal:.2f}{'' if ratio <= row.goal else '  MISSED'}"
    numbers = f"{min(bare):8.3f} s {min(confined):8.3f} s {ratio:8.2f} x {each:+8.0f} µs"
    print(f"{row.what:<34} {numbers}{goal}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and 2,000 files instead of 10,000")
    quick = parser.parse_args().quick
    support = detect_sandbox()
    if support.kind == "none":
        print(f"nothing to measure: {support.problem}; {support.fix}")
        sys.exit(1)
    loads = " ".join(f"{load:.1f}" for load in os.getloadavg())
    print(f"{support.kind} {support.version}, {os.cpu_count()} CPUs, load {loads}")
    base = Path(tempfile.mkdtemp(prefix="kitbag-bench-")).resolve()
    try:
        measure_start(base, 15 if quick else 51)
        rounds = 3 if quick else 5
        print(f"\nbest of {rounds:<26} {'bare':>10} {'sandboxed':>10} {'ratio':>10} {'per file':>11}")
        for row in rows(2_000 if quick else 10_000):
            measure(row, base, rounds)
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
