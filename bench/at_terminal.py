"""What the chat costs a person: the wait for the prompt, for a key to appear, for a question to leave, and the work
of the machine while an answer streams in, beside other agents at the same terminal.

    python bench/at_terminal.py [--quick] [--json FILE] [--peers DIR]

Each program runs in a pseudo-terminal of 80x24 against one model server on loopback. The floor is a bare
prompt_toolkit prompt, which starts nothing and asks nobody. Other agents are measured where they are found below DIR
(default: $KITBAG_BENCH_PEERS, else /tmp/peers; see bench/startup.py). Rounds alternate; times are medians.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from kitbag.testing import ModelServer, Rule, Script, Step

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from chat.pseudo_terminal import ENTER, PseudoTerminal

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
PARAGRAPH = "The **quick** brown fox jumps over the `lazy` dog, again and again, until the line is full of words.\n\n"
ANSWER = PARAGRAPH * 60 + "```python\n" + "value = compute(value) + 1\n" * 60 + "```\n\nTHE-END\n"
MODEL = "anthropic/claude-sonnet-4-5"
FLOOR = """
import asyncio
from prompt_toolkit import PromptSession
async def main():
    session = PromptSession("> ", bottom_toolbar="READY")
    while True:
        await session.prompt_async()
asyncio.run(main())
"""


class Program(NamedTuple):
    name: str
    ready: str
    """What stands on the screen when one can type."""
    command: list[str]
    environment: dict[str, str]
    answers: bool = True


class Cost(NamedTuple):
    ready: float
    key: float
    """Until a typed character is on the screen."""
    asked: float
    """From Enter to the request at the server."""
    stream: float
    """CPU seconds for the answer."""
    idle: float
    """CPU seconds in each second of doing nothing."""
    memory: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", default="", metavar="FILE")
    parser.add_argument("--peers", default=os.environ.get("KITBAG_BENCH_PEERS", "/tmp/peers"), metavar="DIR")
    given = parser.parse_args()
    rounds = 2 if given.quick else 7
    # In small pieces, as a model says it.
    with (
        ModelServer(Script([Rule([Step(text=ANSWER)] * 40)]), chunk=64) as server,
        tempfile.TemporaryDirectory() as base,
    ):
        programs = found_programs(given.peers, server, Path(base))
        costs: dict[str, list[Cost]] = {program.name: [] for program in programs}
        for number in range(rounds):
            for program in programs:
                costs[program.name].append(measure(program, server, Path(base)))
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    print(f"{'':14}{'prompt':>10}{'key':>9}{'asked':>9}{'answer':>11}{'idle':>9}{'memory':>10}")
    table: dict[str, dict[str, float]] = {}
    for name, found in costs.items():
        row = Cost(*(median(values) for values in zip(*found, strict=True)))
        table[name] = row._asdict()
        print(
            f"{name:14}{row.ready * 1000:7.0f} ms{row.key * 1000:6.0f} ms{row.asked * 1000:6.0f} ms"
            f"{row.stream * 1000:7.0f} CPU{row.idle * 1000:6.1f} ‰{row.memory / 2**20:7.0f} MB"
        )
    if given.json:
        Path(given.json).write_text(json.dumps(table, indent=2))


def found_programs(peers: str, server: ModelServer, base: Path) -> list[Program]:
    common = {"PATH": os.environ["PATH"], **server.environment()}
    programs = [
        Program("bare prompt", "READY", [sys.executable, "-c", FLOOR], common, answers=False),
        Program(
            "kitbag",
            "/help",
            [sys.executable, "-m", "kitbag"],
            {**common, "KITBAG_MODEL": MODEL},
        ),
    ]
    bin_folder = Path(peers) / "node_modules" / ".bin"
    if (bin_folder / "claude").exists():
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
        programs.append(Program("Claude Code", "? for shortcuts", [str(bin_folder / "claude")], {**common, **quiet}))
    if (bin_folder / "codex").exists():
        programs.append(Program("Codex", "for shortcuts", [str(bin_folder / "codex")], common))
    return programs


def measure(program: Program, server: ModelServer, base: Path) -> Cost:
    home, work = base / program.name.replace(" ", "-"), base / "work"
    home.mkdir(exist_ok=True)
    work.mkdir(exist_ok=True)
    settle(program.name, home, work, server.url)
    begun = time.perf_counter()
    with PseudoTerminal(program.command, str(work), {**program.environment, "HOME": str(home)}) as terminal:
        ready = waited(lambda: program.ready in terminal.text(), terminal, begun)
        keys = [waited_for_key(terminal, "qxzwv"[at]) for at in range(5)]
        asked = stream = 0.0
        if program.answers:
            before, requests = cpu_of(terminal.process.pid), len(server.requests)
            begun = time.perf_counter()
            terminal.type(ENTER)
            # Codex and Claude Code also ask for titles and the like; the question is what is meant.
            asked = waited(
                lambda: any(b"qxzwv" in request.raw for request in server.requests[requests:]), terminal, begun
            )
            terminal.until(lambda: "THE-END" in terminal.all(), 60)
            stream = cpu_of(terminal.process.pid) - before
        terminal.until_quiet(1.0)
        before, begun = cpu_of(terminal.process.pid), time.perf_counter()
        terminal.until_quiet(3.0)
        idle = (cpu_of(terminal.process.pid) - before) / (time.perf_counter() - begun)
        return Cost(ready, median(keys), asked, stream, idle, memory_of(terminal.process.pid))


def settle(name: str, home: Path, work: Path, url: str) -> None:
    """What these programs ask once is answered before."""
    if name == "Claude Code":
        settled = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        known = {"approved": ["test-key-anthropic"], "rejected": []}
        state = {"hasCompletedOnboarding": True, "customApiKeyResponses": known, "projects": {str(work): settled}}
        (home / ".claude.json").write_text(json.dumps(state))
    if name == "Codex":
        (home / ".codex").mkdir(exist_ok=True)
        (home / ".codex" / "config.toml").write_text(
            f'model = "gpt-5"\nmodel_provider = "loop"\n[model_providers.loop]\nname = "loop"\n'
            f'base_url = "{url}/v1"\nenv_key = "OPENAI_API_KEY"\nwire_api = "responses"\n'
            f'[projects."{work}"]\ntrust_level = "trusted"\n'
        )


def waited(condition: Callable[[], object], terminal: PseudoTerminal, begun: float) -> float:
    terminal.until(condition, 60)
    return time.perf_counter() - begun


def waited_for_key(terminal: PseudoTerminal, key: str) -> float:
    before = terminal.text().count(key)
    begun = time.perf_counter()
    terminal.type(key)
    while terminal.text().count(key) <= before:
        time.sleep(0.0005)
    return time.perf_counter() - begun


def family(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        for thread in Path(f"/proc/{one}/task").glob("*/children"):
            found += [int(child) for child in thread.read_text().split()]
    return found


def cpu_of(pid: int) -> float:
    total = 0
    for one in family(pid):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def memory_of(pid: int) -> int:
    return sum(int(Path(f"/proc/{one}/statm").read_text().split()[1]) * PAGE for one in family(pid))


if __name__ == "__main__":
    main()
