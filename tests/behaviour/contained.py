"""Kitbag homes with a wrong `worker.lock`, and the real program in each of them, in a process namespace of their own.

Run as a program, inside bubblewrap: a signal to everybody would reach nobody else. Prints, as JSON, what each program
printed and which bystanders live. Used by test_signals.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kitbag.agent.session import new_session_id
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import Board
from kitbag.tasks.owner import Owner, this_process
from kitbag.tasks.task import TaskRequest

SECONDS = 60
SCRIPT = {"rules": [{"replies": [{"text": "The answer is 42."}]}]}


class Bystander(NamedTuple):
    process: "subprocess.Popen[bytes]"
    identity: Owner


def record(owner: Any, **more: Any) -> bytes:
    """What a worker writes; its last sign of life is an hour old."""
    return json.dumps({"owner": owner, "version": "0.0.1", "beat": time.monotonic() - 3600, **more}).encode()


def _with_pid(pid: Any) -> Callable[[Bystander], bytes]:
    return lambda bystander: record(msgspec.structs.replace(bystander.identity, pid=pid).to_record())


def _as(**more: Any) -> Callable[[Bystander], bytes]:
    return lambda bystander: record(msgspec.structs.replace(bystander.identity, **more).to_record())


DAMAGED: dict[str, Callable[[Bystander], bytes]] = {
    "pid 0": _with_pid(0),
    "pid -1": _with_pid(-1),
    "a negative group": lambda bystander: record([*bystander.identity.to_record()[:2], -bystander.process.pid, ""]),
    "text": _with_pid("everybody"),
    "a number as text": lambda bystander: record([*bystander.identity.to_record()[:2], str(bystander.process.pid), ""]),
    "true": _with_pid(True),
    "a fraction": _with_pid(2.5),
    "null": _with_pid(None),
    "a huge number": _with_pid(10**40),
    "beyond every process": _with_pid(2**31 - 1),
    "a list": _with_pid([[]]),
    "too few fields": lambda bystander: record(bystander.identity.to_record()[:3]),
    "an owner that is text": lambda _: record("host"),
    "no owner": lambda _: b'{"version": "1", "beat": 1}',
    "a time that is text": lambda bystander: record(bystander.identity.to_record(), beat="soon"),
    "a time that is no number": lambda bystander: record(bystander.identity.to_record(), beat=float("nan")),
    "a huge time": lambda bystander: record(bystander.identity.to_record(), beat=10**400),
    "a huge version": lambda bystander: record(
        bystander.identity.to_record(), version="9" * 5000, beat=time.monotonic()
    ),
    "not an object": lambda _: b"[1, 2, 3]",
    "nested without end": lambda _: b"[" * 9000,
    "not UTF-8": lambda _: b'{"owner": ["\xff\xfe"]}',
    "zeros": lambda _: bytes(300),
    "truncated": lambda bystander: record(bystander.identity.to_record())[:60],
}
"""What can't be a worker's own record."""

ANOTHER: dict[str, Callable[[Bystander], bytes]] = {
    "pid 1": lambda _: record([*this_process().to_record()[:2], 1, _started(1)]),
    "another start": _as(started="1"),
    "no start": _as(started=""),
    "another boot": _as(boot="00000000-0000-0000-0000-000000000000"),
    "another namespace": _as(machine=this_process().machine.replace("pid:[", "pid:[9")),
    "not the holder of the lock": _as(),
    "the process that asks for it": lambda _: record(this_process().to_record()),
    "its process group": _as(),
    "a process that has ended": lambda _: record(_ended().to_record()),
}
"""A record that is whole, and names a process that is not the worker."""


def _started(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _ended() -> Owner:
    with subprocess.Popen(["sleep", "300"]) as process:
        identity = _identity(process)
        process.kill()
    return identity


def _identity(process: "subprocess.Popen[bytes]") -> Owner:
    return msgspec.structs.replace(this_process(), pid=process.pid, started=_started(process.pid))


def _bystander() -> Bystander:
    process = subprocess.Popen(["sleep", "300"], start_new_session=True)
    return Bystander(process, _identity(process))


class House:
    """One home, and what is run there."""

    def __init__(self, base: Path, name: str) -> None:
        self.home = base / name.replace(" ", "-")
        self.workspace = self.home / "workspace"
        self.workspace.mkdir(parents=True)
        (self.home / "state").mkdir()
        self.lock = self.home / "state" / "worker.lock"
        script = self.home / "script.json"
        script.write_text(json.dumps(SCRIPT))
        kept = {key: value for key, value in os.environ.items() if not key.startswith("KITBAG")}
        self.environment = {**kept, "HOME": str(self.home), "KITBAG_HOME": str(self.home), "NO_COLOR": "1"}
        self.environment["KITBAG_MODEL"] = f"scripted:{script}"

    def run(self, *words: str, group: int | None = None) -> list[Any]:
        own = {"start_new_session": True} if group is None else {"process_group": group}
        done = subprocess.run(
            [sys.executable, "-m", "kitbag", *words],
            cwd=self.workspace,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            **own,
        )
        return [done.returncode, done.stdout, done.stderr]

    def put(self) -> None:
        """Work that waits for a worker."""
        with Journal.open(journal_path(str(self.home)), Redactor([])) as journal:
            wish = TaskRequest(agent="Explore", prompt="What?", directory=str(self.workspace))
            made = Board(journal).create(new_session_id(), "agent", wish, root="", parent="", depth=1, background=True)
            asyncio.run(made)


def held(base: Path, name: str) -> dict[str, Any]:
    """Somebody has the lock, and whoever looks at tasks finds this in it."""
    house = House(base, f"held {name}")
    house.put()
    with house.lock.open("wb", buffering=0) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if name == "its process group":  # whose leader has the lock, so that nothing else speaks for it
            leader = subprocess.Popen(["sleep", "300"], process_group=0, pass_fds=[lock.fileno()])
            bystander = Bystander(leader, _identity(leader))
        else:
            bystander = _bystander()
        lock.write({**DAMAGED, **ANOTHER}[name](bystander))
        ran = house.run("tasks", "list", group=bystander.process.pid if name == "its process group" else None)
    return {"ran": [ran], "lives": bystander.process.poll() is None}


def free(base: Path, name: str) -> dict[str, Any]:
    """Nobody has it: a worker is started, and somebody waits for it before it has written anything."""
    house = House(base, f"free {name}")
    bystander = _bystander()
    house.lock.write_bytes({**DAMAGED, **ANOTHER}[name](bystander))
    begun = house.run("agents", "run", "Explore", "What?", "--background")
    ran = [begun, house.run("tasks", "output", begun[1].strip() or "none", "--wait", "50")]
    return {"ran": ran, "lives": bystander.process.poll() is None}


def main(base: str, kind: str, *names: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        run = {"held": held, "free": free}[kind]
        found = dict(zip(names, pool.map(lambda name: run(Path(base), name), names), strict=True))
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(found))


def run_contained(base: Path, kind: str, *names: str) -> dict[str, Any]:
    """All of them, from outside; nothing when nobody was left to answer."""
    words = ["bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--die-with-parent"]
    done = subprocess.run(
        [*words, sys.executable, __file__, str(base), kind, *names],
        capture_output=True,
        text=True,
        timeout=3 * SECONDS,
    )
    return json.loads(done.stdout) if done.stdout.strip() else {}


if __name__ == "__main__":
    main(*sys.argv[1:])
