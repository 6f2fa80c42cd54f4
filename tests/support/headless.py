"""The real `kitbag -p` in a process of its own, against a scripted model on loopback."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from conftest import World
from kitbag.testing import ModelServer, Rule, Script, Step
from support.waiting import TEST_TIMEOUT, wait_until

PROTOCOLS = {
    "anthropic": ("anthropic/claude-sonnet-4-5", {}),
    "chat": ("openai/gpt-5", {}),
    "responses": ("openai/gpt-5", {"providers.openai": 'protocol = "responses"'}),
}


def script(*steps: Any) -> Script:
    return Script([Rule([Step(text=step) if isinstance(step, str) else step for step in steps])])


def reads(call_id: str = "c1", path: str = "a.txt", **more: Any) -> Step:
    return Step(calls=((call_id, "Read", json.dumps({"file_path": path, **more})),))


def point(world: World, server: ModelServer, protocol: str = "anthropic") -> None:
    """Every program that is run in this world finds this model."""
    model, settings = PROTOCOLS[protocol]
    world.env |= server.environment()
    world.env["KITBAG_MODEL"] = model
    if settings:
        text = "".join(f"[{table}]\n{line}\n" for table, line in settings.items())
        world.write("~/.kitbag/settings.toml", text)


def ask(world: World, *arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    return world.run("-p", *arguments, stdin=stdin)


def answer(world: World, *arguments: str, stdin: str = "") -> dict[str, Any]:
    done = ask(world, *arguments, "--output-format", "json", stdin=stdin)
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "code": done.returncode, "stderr": done.stderr}


def start(world: World, *arguments: str, program: str = "", **more: Any) -> "subprocess.Popen[str]":
    """`program`: text that runs Kitbag with something changed."""
    words = ["-c", program] if program else ["-m", "kitbag"]
    options: dict[str, Any] = {
        "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **more
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, *words, "-p", *arguments], cwd=world.workspace, **{"env": world.env, **options}
    )


def until(condition: Callable[[], object], process: "subprocess.Popen[str] | None" = None) -> None:
    def look() -> bool:
        ended = process is not None and process.poll() is not None
        found = bool(condition())  # what was true at its end counts
        assert found or not ended, f"it ended: {process.communicate() if process is not None else ''}"
        return found

    wait_until(look)


def interrupted(process: "subprocess.Popen[str]", number: int = signal.SIGINT) -> tuple[int, str, str]:
    """The exit code, and what was said."""
    process.send_signal(number)
    said, problem = process.communicate(timeout=TEST_TIMEOUT)
    return process.returncode, said, problem


def children_of(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def alive(mark: str) -> list[int]:
    """Processes that have this word among their arguments."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if mark.encode() in file.read():
                        found.append(int(name))
            except OSError:
                continue
    return found
