"""What it costs to get from a command line to the first request to a model, beside a floor and beside other agents.

    python bench/startup.py [--quick] [--json FILE] [--peers DIR]

Starts each program as a process of its own against a model server on loopback, with 0, 100 and 1,000 skills of 12 KB,
and stops the clock when the server has read the first request: wall time, CPU and resident memory of the process and
its children. The skills are the user's, and for Kitbag also those of a trusted project. The floor is a client of the
standard library alone that sends the same bytes; bare Python is an interpreter that does nothing.

Other agents are measured where they are found below DIR (default: $KITBAG_BENCH_PEERS, else /tmp/peers):

    npm install --prefix /tmp/peers @openai/codex @anthropic-ai/claude-code

Rounds of all programs alternate; times are the median and the least of them.
"""

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from scan import BODY, make_skills

from kitbag.testing import ModelServer, Rule, Script, Seen, Step

REQUEST = "Say hi."
KITBAG, TRUSTED = "Kitbag", "Kitbag project"
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
FLOOR = """
import http.client, sys
with open(sys.argv[3], "rb") as file:
    body = file.read()
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
connection.request("POST", sys.argv[2], body, {"content-type": "application/json"})
connection.getresponse().read()
"""


class Cost(NamedTuple):
    wall: float
    cpu: float
    memory: int


class Program(NamedTuple):
    name: str
    skills: str
    """Where it looks for the user's skills, below the home."""
    command: Callable[[str, Path], list[str]]
    """From the server's address and the home."""
    environment: tuple[tuple[str, str], ...] = ()
    is_trusted: bool = False
    """The skills are a project's, which `kitbag trust` has to trust once."""


class Bench:
    server: ModelServer

    def __init__(self, base: Path) -> None:
        self.base = base
        self.running = 0
        self.begun = 0.0
        self.cost: Cost | None = None

    def answer(self, _: Seen) -> Step:
        if self.cost is None:
            wall = time.perf_counter() - self.begun
            self.cost = Cost(wall, *_used_by(self.running))
        return Step(text="Hi.")

    def home(self, program: Program, count: int) -> Path:
        """A home with so many skills; the same for all rounds, so that an index may be warm."""
        home = self.base / f"{program.name.replace(' ', '-')}-{count}"
        if not home.exists():
            make_skills(home / program.skills, count, BODY * 2)
            (home / "work" / ".git").mkdir(parents=True)
            if program.is_trusted:
                trust = [str(Path(sys.executable).with_name("kitbag")), "trust", "add", "--yes", str(home / "work")]
                subprocess.run(trust, check=True, capture_output=True, env={**os.environ, "HOME": str(home)})
        return home

    def run(self, program: Program, count: int) -> Cost | None:
        home = self.home(program, count)
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        env = {**kept, "HOME": str(home), **self.server.environment(), **dict(program.environment)}
        self.cost = None
        self.begun = time.perf_counter()
        process = subprocess.Popen(
            program.command(self.server.url, home),
            cwd=home / "work",
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.running = process.pid
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return self.cost


def _used_by(process: int) -> tuple[float, int]:
    """CPU seconds and resident bytes of a process and those it started, now."""
    cpu, memory, waiting = 0.0, 0, [process]
    while waiting:
        one = Path(f"/proc/{waiting.pop()}")
        try:
            fields = (one / "stat").read_text().rpartition(")")[2].split()
            for task in (one / "task").iterdir():
                cpu += int((task / "schedstat").read_text().split()[0]) / 1e9
                waiting += map(int, (task / "children").read_text().split())
            cpu += sum(map(int, fields[13:15])) / TICKS  # children that have ended
            memory += int((one / "statm").read_text().split()[1]) * PAGE
        except OSError:
            continue
    return cpu, memory


def kitbag(_: str, home: Path) -> list[str]:
    script = Path(sys.executable).with_name("kitbag")
    return [str(script), "-p", REQUEST, "--model", "anthropic/claude-sonnet-4-5", "--cwd", str(home / "work")]


def floor(url: str, home: Path) -> list[str]:
    return [sys.executable, "-c", FLOOR, url.rpartition(":")[2], "/v1/messages", str(home / "body.json")]


def peers(folder: Path) -> list[Program]:
    """Their programs themselves, without the script of node that npm puts before them: the fairer opponent."""
    found: list[Program] = []

    def newest(pattern: str) -> str:
        return str(max(folder.glob(pattern), default=""))

    codex = newest("node_modules/@openai/codex-*/vendor/*/bin/codex")
    if codex:

        def run_codex(url: str, home: Path) -> list[str]:
            provider = f'{{name="loop",base_url="{url}/v1",env_key="OPENAI_API_KEY",wire_api="responses"}}'
            options = ["-c", f"model_providers.loop={provider}", "-c", 'model_provider="loop"', "-m", "gpt-5"]
            return [codex, "exec", "--skip-git-repo-check", *options, REQUEST]

        found.append(Program("Codex", ".codex/skills", run_codex))
    claude = newest("node_modules/@anthropic-ai/claude-code-*/claude")
    if claude:
        quiet = ("DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC")
        found.append(
            Program(
                "Claude Code",
                ".claude/skills",
                lambda _url, _home: [claude, "-p", REQUEST, "--model", "claude-sonnet-4-5"],
                tuple((name, "1") for name in quiet),
            )
        )
    return found


class Size(NamedTuple):
    """Characters of a first request."""

    system: int
    tools: int
    messages: int
    described: int = 0
    """Of the system prompt, the descriptions of skills."""
    names: int = 0


def size_of(body: dict[str, object]) -> Size:
    """As text of the same JSON, so that what one protocol calls instructions counts like another's system."""
    system = body.get("system") or body.get("instructions") or ""
    texts = [block["text"] for block in system] if isinstance(system, list) else [str(system)]
    said = json.dumps(body.get("messages") or body.get("input") or [], ensure_ascii=False)
    tools = json.dumps(body.get("tools") or [], ensure_ascii=False, separators=(",", ":"))
    entries = [line[2:].partition(": ") for line in "".join(texts).split("\n") if line.startswith("- skill-")]
    described, names = sum(len(entry[2]) for entry in entries), sum(len(entry[0]) for entry in entries)
    return Size(sum(map(len, texts)), len(tools), len(said), described, names)


def measure(bench: Bench, programs: list[Program], counts: list[int], rounds: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    print(
        f"{'skills':>6} {'program':<14} {'median ms':>9} {'least ms':>9} {'CPU ms':>8} {'RSS MB':>7} "
        f"{'system':>8} {'tools':>7} {'messages':>8}"
    )
    for count in counts:
        sizes: dict[str, Size] = {}
        for program in programs:  # once for caches and indexes, and to see what is sent
            if program.name == "floor":
                continue
            bench.home(program, count)
        time.sleep(2.1)  # an index trusts only files that have settled
        for program in programs:
            if program.name == "floor":
                continue
            for _ in range(2):
                bench.server.requests.clear()
                bench.run(program, count)
            if bench.server.requests:
                first = bench.server.requests[0]
                sizes[program.name] = size_of(first.body)
                if program.name == KITBAG:
                    _same_bytes(bench, programs, count, first.body, first.size)
        costs: dict[str, list[Cost]] = {}
        for _ in range(rounds):
            for program in programs:
                bench.server.requests.clear()
                cost = bench.run(program, count)
                if cost is not None:
                    costs.setdefault(program.name, []).append(cost)
        for program in programs:
            rows.append(_row(program.name, count, costs.get(program.name, []), sizes.get(program.name)))
    return rows


def _same_bytes(bench: Bench, programs: list[Program], count: int, body: object, size: int) -> None:
    [plain] = [program for program in programs if program.name == "floor"]
    data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    if len(data) != size:
        raise SystemExit(f"the floor would send {len(data)} bytes where Kitbag sends {size}")
    (bench.home(plain, count) / "body.json").write_bytes(data)


def _row(name: str, count: int, costs: list[Cost], size: Size | None) -> dict[str, object]:
    if not costs:
        print(f"{count:>6,} {name:<14} sent no request")
        return {"skills": count, "program": name}
    wall, least = median(cost.wall for cost in costs), min(cost.wall for cost in costs)
    cpu, memory = min(cost.cpu for cost in costs), median(cost.memory for cost in costs)
    shown = f"{size.system:>8,} {size.tools:>7,} {size.messages:>8,}" if size else ""
    print(
        f"{count:>6,} {name:<14} {wall * 1e3:>9.0f} {least * 1e3:>9.0f} {cpu * 1e3:>8.0f} {memory / 1e6:>7.0f} {shown}"
    )
    found = {"skills": count, "program": name, "wall": wall, "least": least, "cpu": cpu, "memory": memory}
    return {**found, **(size._asdict() if size else {})}


def bare_python() -> float:
    """CPU seconds, the least of several starts."""
    costs: list[float] = []
    for _ in range(20):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(costs)


def verdicts(rows: list[dict[str, object]], has_peers: bool) -> None:
    by = {(row["program"], row["skills"]): row for row in rows}
    counts = sorted({int(str(row["skills"])) for row in rows})
    none, most = by[KITBAG, counts[0]], by[KITBAG, counts[-1]]
    prompt = int(str(none["system"])) + int(str(none["tools"]))
    added = int(str(most["system"])) + int(str(most["tools"])) - prompt
    print(f"\ncharacters of prompt and tools without skills: {prompt:,} (goal: at most 12,000)")
    described, names = int(str(most["described"])), int(str(most["names"]))
    print(
        f"what {counts[-1]:,} skills add to it: {added:,}: {described:,} of descriptions (goal: at most 8,000), "
        f"{names:,} of names (cap: 24,000), {added - described - names:,} of bullets and line ends"
    )
    bare = bare_python()
    print(f"CPU of bare Python: {bare * 1e3:.0f} ms")
    for count in (counts[0], counts[-1]):
        cpu = float(str(by[TRUSTED, count]["cpu"]))
        print(
            f"CPU to the first request in a trusted project, {count:,} skills: {cpu * 1e3:.0f} ms, {cpu / bare:.0f} x"
        )
    for peer in ("Codex", "Claude Code"):
        for count in (counts[0], counts[-1]):
            if "wall" in by.get((peer, count), {}):
                ratio = float(str(by[KITBAG, count]["wall"])) / float(str(by[peer, count]["wall"]))
                print(f"time to the first request beside {peer}, {count:,} skills: {ratio:.2f} x")
    if not has_peers:
        print("no other agents found; see the head of this file for how to install them")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, 0 and 1,000 skills")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--peers", metavar="DIR", default=os.environ.get("KITBAG_BENCH_PEERS", "/tmp/peers"))
    arguments = parser.parse_args()
    others = peers(Path(arguments.peers))
    programs = [
        Program("floor", "none", floor),
        Program(KITBAG, ".kitbag/skills", kitbag),
        Program(TRUSTED, "work/.kitbag/skills", kitbag, is_trusted=True),
        *others,
    ]
    base = Path(tempfile.mkdtemp(prefix="kitbag-bench-", dir=Path.home()))  # some agents refuse to live in /tmp
    try:
        bench = Bench(base)
        with ModelServer(Script([Rule([bench.answer])])) as server:
            bench.server = server
            counts = [0, 1_000] if arguments.quick else [0, 100, 1_000]
            rows = measure(bench, programs, counts, 5 if arguments.quick else 15)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    verdicts(rows, bool(others))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
