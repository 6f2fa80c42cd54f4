"""What a call of a tool costs beyond its work: each beside a floor that does the same work bare, in one run.

    python bench/tools.py [--quick]

A call here is what the loop does for one: arguments checked, permission decided, tool run, in an event loop; the record
in the journal is a row of its own. Floor and tool take turns in one process; the columns are medians in elapsed time,
and `CPU` is what the tool took more of it, with all its processes, which says more on a machine that others use too.
Reading, the floor is open, read and splitlines. Searching, it is ripgrep with the same limits, sorted as the tool
sorts; `rg alone` is ripgrep without them. Commands, it is a bare subprocess. Goal: at most 3 ms more, plus the sandbox.
"""

import argparse
import asyncio
import importlib
import itertools
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs

from kitbag.library.registry import Registry
from kitbag.library.scopes import Places
from kitbag.packing.session_skills import SessionSkills
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import SandboxSupport, Workspace
from kitbag.permissions.rules.rule import PermissionRules, parse_rules
from kitbag.sandbox.confine import detect_sandbox
from kitbag.store.journal import Journal
from kitbag.store.redaction import Redactor
from kitbag.tools.base import Tool, ToolContext
from kitbag.tools.files.read import READ
from kitbag.tools.search.glob import GLOB
from kitbag.tools.search.grep import GREP
from kitbag.tools.search.ripgrep import find_ripgrep
from kitbag.tools.search.search_process import MAX_FILE_BYTES

FILES = 10_000
MORE = 3e-3
SANDBOX_MORE = 30e-3
LIMITS = ("--hidden", "--glob=!.git", f"--max-filesize={MAX_FILE_BYTES}")
Work = Callable[[], object]


class Row(NamedTuple):
    what: str
    floor: Work
    ours: Work
    goal: float | None = MORE
    """None: shown to compare with, not a goal."""


class House:
    """A workspace with 10,000 files in 200 folders, and calls of tools in it."""

    def __init__(self, base: Path) -> None:
        self.root = base / "workspace"
        for folder in (self.root / ".git", base / "home/.kitbag"):
            folder.mkdir(parents=True)
        self.workspace = Workspace(
            root=os.path.realpath(self.root), home=str(base / "home"), kitbag_home=str(base / "home/.kitbag")
        )
        self.loop = asyncio.new_event_loop()
        places = Places(self.workspace.root, self.workspace.home, self.workspace.kitbag_home, (self.workspace.root,))
        self._library = Registry(places)

    def fill(self) -> None:
        for number in range(FILES):
            folder = self.root / f"part{number // 500}" / f"piece{number // 50 % 10}"
            folder.mkdir(parents=True, exist_ok=True)
            needle = "needle here\n" if number % 100 == 0 else ""
            text = f"import os\n{f'def f{number}(): return {number}' + chr(10)}" * 20
            (folder / f"file{number}.py").write_text(text + needle)
        # Outside of the folders that are searched.
        aside = self.root / ".aside"
        aside.mkdir()
        (aside / "large.txt").write_text("some words that make up a line of usual length, as it were\n" * 17_000)

    def context(self, held: SandboxSupport) -> ToolContext:
        rules = PermissionRules(parse_rules("Bash(true)", "allow", "bench", "user", self.workspace.kitbag_home))
        permissions = Permissions(self.workspace, "acceptEdits", rules, held)
        return ToolContext(
            workspace=self.workspace,
            directory=self.workspace.root,
            permissions=permissions,
            library=self._library,
            skills=SessionSkills(self._library),
        )

    def call(self, tool: Tool[Any], arguments: dict[str, Any], context: ToolContext) -> Work:
        def work() -> object:
            judgement = context.permissions.decide(tool.name, arguments, context.directory)
            assert judgement.effect == "allow", judgement
            made = structs.replace(context, decision=judgement, call_id="bench")
            outcome = self.loop.run_until_complete(tool.run(tool.parse_arguments(arguments), made))
            assert not outcome.is_error, outcome
            return outcome

        return work

    def ripgrep(self, *words: str) -> Work:
        program = find_ripgrep(self.workspace)
        assert program, "there is no ripgrep"
        return self.bare([program, "--no-config", "--null", *words, "--", "./"])

    def bare(self, words: list[str]) -> Work:
        return lambda: subprocess.run(
            words, check=True, cwd=self.root, env={"PATH": os.environ["PATH"]}, stdin=subprocess.DEVNULL,
            capture_output=True, start_new_session=True,
        )  # fmt: skip


def later(module: str, name: str) -> Tool[Any] | None:
    """A tool that need not be there."""
    try:
        return getattr(importlib.import_module(f"kitbag.tools.{module}"), name)
    except (ImportError, AttributeError) as error:
        print(f"{name} is not measured: {error}")
        return None


def reading(house: House, context: ToolContext) -> list[Row]:
    large = house.root / ".aside/large.txt"

    def bare() -> object:
        with open(large, "rb") as file:
            return file.read().splitlines()

    return [
        Row("Read of 1 MB, its first 2,000 lines", bare, house.call(READ, {"file_path": str(large)}, context)),
        Row(
            "Read of 1 MB, its last 1,000 lines",
            bare,
            house.call(READ, {"file_path": str(large), "offset": 16_001}, context),
        ),
    ]


def searching(house: House, context: ToolContext) -> list[Row]:
    def grep(**arguments: Any) -> Work:
        return house.call(GREP, arguments, context)

    def glob(pattern: str) -> Work:
        return house.call(GLOB, {"pattern": pattern}, context)

    listing = ("--files", "--sortr=modified")
    return [
        Row("Glob of 10,000, all match", house.ripgrep(*listing), glob("**/*.py")),
        Row("  rg --files alone, unsorted", house.ripgrep("--files"), glob("**/*.py"), None),
        Row("Glob of 10,000, 100 match", house.ripgrep("--files"), glob("**/file77*.py")),
        Row("Grep in 10,000, 100 match", house.ripgrep("-l", *LIMITS, "-e", "needle"), grep(pattern="needle")),
        Row("  rg alone", house.ripgrep("-l", "--hidden", "-e", "needle"), grep(pattern="needle"), None),
        Row(
            "Grep in 10,000, their lines",
            house.ripgrep("-n", *LIMITS, "-e", "needle"),
            grep(pattern="needle", output_mode="content"),
        ),
        Row(
            "Grep in 10,000, every line matches",
            house.ripgrep("-l", *LIMITS, "-e", "import"),
            grep(pattern="import", output_mode="content"),
        ),
        Row("Grep in 10,000, all match", house.ripgrep("-l", *LIMITS, "-e", "import"), grep(pattern="import"), None),
    ]


def editing(house: House, context: ToolContext) -> list[Row]:
    edit = later("edit", "EDIT")
    if edit is None:
        return []
    path, other = house.root / "edited.py", house.root / "edited-bare.py"
    text = "def one(): return 1\n" * 500 + "the last line\n"
    for file in (path, other):
        file.write_text(text)
    last = ("the last line", "THE LAST LINE")

    def bare() -> None:
        before = other.read_text()
        fresh = before.replace(*last) if last[0] in before else before.replace(last[1], last[0])
        temporary = Path(f"{other}.tmp")
        temporary.write_text(fresh)
        temporary.rename(other)

    calls = [
        house.call(edit, {"file_path": str(path), "old_string": old, "new_string": new}, context)
        for old, new in (last, last[::-1])
    ]
    turns = itertools.cycle(calls)

    def ours() -> object:
        return next(turns)()

    return [Row("Edit of a file of 10 KB", bare, ours)]


def commands(house: House) -> list[Row]:
    bash = later("bash", "BASH")
    if bash is None:
        return []
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    floor = house.bare([shell, "-c", "true"])
    rows = [
        Row(
            "Bash `true`, no sandbox",
            floor,
            house.call(bash, {"command": "true"}, house.context(SandboxSupport(kind="none"))),
        )
    ]
    held = detect_sandbox()
    if held.kind == "none":
        print(f"Bash in a sandbox is not measured: {held.problem}")
        return rows
    what = f"Bash `true` in the sandbox ({held.kind})"
    confined = house.call(bash, {"command": "true"}, house.context(held))
    return [*rows, Row(what, floor, confined, MORE + SANDBOX_MORE)]


def writing_down(house: House, base: Path) -> list[Row]:
    journal = Journal.open(str(base / "journal.db"), Redactor())
    body = {"result": "some words of a result " * 40, "call": "call-1"}
    target = open(base / "bare.log", "ab", buffering=0)  # noqa: SIM115 - as long as the bench
    data = repr(body).encode()

    def bare() -> None:
        target.write(data)
        os.fdatasync(target.fileno())

    def ours() -> object:
        return house.loop.run_until_complete(journal.write("session:bench", "result", body))

    return [Row("a record in the journal, on the disk", bare, ours)]


def measure(row: Row, rounds: int) -> None:
    for work in (row.floor, row.ours, row.floor, row.ours):
        work()
    floors: list[tuple[float, float]] = []
    costs: list[tuple[float, float]] = []
    for _ in range(rounds):
        for work, times in ((row.floor, floors), (row.ours, costs)):
            begun, used = time.perf_counter(), cpu()
            work()
            times.append((time.perf_counter() - begun, cpu() - used))
    floor, floor_cpu = (statistics.median(one) for one in zip(*floors, strict=True))
    cost, cost_cpu = (statistics.median(one) for one in zip(*costs, strict=True))
    more = cost - floor
    goal = "" if row.goal is None else f"   goal {row.goal * 1e3:g} ms{'' if more <= row.goal else '  MISSED'}"
    numbers = f"{floor * 1e3:9.2f} ms {cost * 1e3:9.2f} ms {more * 1e3:+9.2f} ms {cost / floor:7.2f} x"
    print(f"{row.what:<46} {numbers}{(cost_cpu - floor_cpu) * 1e3:+9.2f} ms{goal}")


def cpu() -> float:
    """Of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 7 if parser.parse_args().quick else 31
    base = Path(tempfile.mkdtemp(prefix="kitbag-bench-"))
    try:
        house = House(base)
        house.fill()
        context = house.context(SandboxSupport(kind="none"))
        rows = [*reading(house, context), *searching(house, context), *editing(house, context), *commands(house)]
        rows += writing_down(house, base)
        print(f"a call: arguments, permission, tool; elapsed, medians of {rounds} rounds that alternate")
        print(f"{'':<46} {'floor':>12} {'ours':>12} {'more':>12} {'ratio':>9} {'CPU':>11}")
        for row in rows:
            measure(row, rounds)
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
