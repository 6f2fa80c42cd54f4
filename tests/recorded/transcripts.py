"""Runs of the real program that are compared with what it printed before, so that a change that should change nothing
is seen to.

A transcript is a text file: `$ kitbag skills list` is a command, lines after it are what it printed (`! ` on standard
error) and `[1]` its exit code where that is not 0. `RECORD=1 pytest tests/recorded` writes what it prints now.
"""

import contextlib
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import kitbag
from kitbag.tasks.worker_lock import read_worker_record
from support.forked import Forkserver
from support.waiting import wait_until

HERE: Final = Path(__file__).parent
EXAMPLES: Final = HERE.parents[1] / "examples"
BASE: Final = Path("/tmp/kitbag-recorded")
"""The same for every run: paths are in prompts, whose tokens are counted."""
RECORD: Final = "RECORD" in os.environ
_CHANGING: Final = (
    (re.compile(re.escape(os.path.dirname(kitbag.__file__))), "PACKAGE"),
    # Each second of a command; on a busy machine, any takes one.
    (re.compile(r'^\{"type": "tool_progress", "call_id": "\w+", "text": "\d+ s(: .*)?"\}\n', re.MULTILINE), ""),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+\d\d:\d\d)?"), "TIME"),
    (re.compile(r"\b20\d\d-\d\d-\d\d\b"), "DATE"),
    # Before durations: `1234567d` is an id. It may also be all letters.
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "ID"),
    (re.compile(r"\b([0-9a-f]{12}|[0-9a-f]{8})\b"), "ID"),
    (re.compile(r"\b\d+ (s|seconds?|min|minutes?|h|hours?|days?) ago\b"), "AGO"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|[smhd])\b( \d+ ?[smh]\b)*"), "DURATION"),
    (re.compile(r'"(seconds|duration_ms|duration|elapsed)": ?[\d.]+'), r'"\1": DURATION'),
    (re.compile(r"\bprocess \d+|\bpid \d+"), "process PID"),
    (re.compile(r'"pid": ?\d+'), '"pid": PID'),
    (re.compile(r"bubblewrap \d[\d.]+"), "bubblewrap VERSION"),
    (re.compile(r'("kind": "bubblewrap",\s+"version": )"[\d.]+"'), r'\1"VERSION"'),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
)
_COUNTED: Final = (
    (re.compile(r'"(input|tokens|shown|provider|ours|residual|bytes|result_tokens)": \d+'), r'"\1": COUNT'),
    (re.compile(r"\b[\d,]+ (?:of 128,000 )?tokens\b"), "COUNT tokens"),
    (re.compile(r"\b[\d,.]+ [kM]B (sessions and tasks|undo data|task output)"), r"SIZE \1"),
)
"""How long a text is that ids stand in."""


class Ran(NamedTuple):
    command: str
    code: int
    stdout: str
    stderr: str

    def __str__(self) -> str:
        lines = [f"$ {self.command}", *(f"  {line}".rstrip() for line in self.stdout.splitlines())]
        lines += [f"! {line}".rstrip() for line in self.stderr.splitlines()]
        return "\n".join([*lines, *([f"[{self.code}]"] if self.code else [])])


class Recording:
    """A copy of the sample workspace, a home, and commands that are run there one after another."""

    def __init__(self, name: str, forkserver: Forkserver) -> None:
        self.base = BASE / name
        self.home, self.workspace = self.base / "home", self.base / "shop"
        self._forkserver = forkserver
        # Nothing of this machine: a background task is recorded with the environment that it started in.
        self.env = {"HOME": str(self.home), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "TZ": "UTC"}
        self.env |= {"NO_COLOR": "1", "COLUMNS": "100", "OLLAMA_HOST": "127.0.0.1:9"}

    def begin(self) -> None:
        shutil.rmtree(self.base, ignore_errors=True)
        self.home.mkdir(parents=True)
        shutil.copytree(EXAMPLES / "workspace", self.workspace)
        shutil.copytree(EXAMPLES / "plugins", self.base / "examples/plugins")
        shutil.copy(HERE / "script.json", self.base)
        date = "2026-01-01T00:00:00Z"
        identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a"}
        identity |= {"GIT_COMMITTER_EMAIL": "a@b", "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "SHOP-1: the shop"]):
            subprocess.run(["git", *words], cwd=self.workspace, env={**self.env, **identity}, check=True)

    def run(self, command: str) -> Ran:
        words = [self._meant(word) for word in shlex.split(command)]
        stdin = ""
        if "<<<" in words:
            at = words.index("<<<")
            words, stdin = words[:at], words[at + 1]
        if words[0] == "set":
            name, _, value = words[1].partition("=")
            self.env[name] = value
            return Ran(command, 0, "", "")
        if words[0] == "wait-for":
            wait_until(lambda: self._listed("tasks", "list", "--all")[0]["status"] == words[1])
            return Ran(command, 0, "", "")
        assert words[0] == "kitbag"
        done = self._forkserver.run(words[1:], str(self.workspace), self.env, stdin)
        with_ids = "KITBAG_MODEL" in self.env
        printed = [normal(text, with_ids=with_ids) for text in (done.stdout, done.stderr)]
        return Ran(command, done.returncode, *printed)

    def _meant(self, word: str) -> str:
        """TASK and QUESTION are the newest ones."""
        if word == "TASK":
            return self._listed("tasks", "list", "--all")[0]["id"]
        if word == "QUESTION":
            return self._listed("permissions", "pending")[0]["id"]
        return word.replace("$EXAMPLES", str(self.base / "examples"))

    def _listed(self, *words: str) -> list[dict[str, Any]]:
        done = self._forkserver.run([*words, "--json"], str(self.workspace), self.env)
        return json.loads(done.stdout)

    def end_worker(self) -> None:
        lock = self.home / ".kitbag/state/worker.lock"
        found = read_worker_record(str(self.home / ".kitbag")) if lock.exists() else None
        if found is not None and found.owner.pid != os.getpid() and found.owner.check_alive():
            os.kill(found.owner.pid, signal.SIGKILL)
            wait_until(lambda: not found.owner.check_alive())

    def save_home(self, archive: Path) -> None:
        """Without a worker, and with nothing of this machine in it."""
        self.end_worker()
        with contextlib.closing(sqlite3.connect(self.home / ".kitbag/state/journal.db")) as database, database:
            [trigger] = database.execute("SELECT sql FROM sqlite_master WHERE name = 'records_stay'").fetchone()
            database.execute("DROP TRIGGER records_stay")
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            names = (
                (os.path.dirname(kitbag.__file__), "/usr/lib/kitbag"),
                (socket.gethostname(), "machine"),
                (boot, "1"),
            )
            for ours, neutral in names:
                database.execute("UPDATE records SET body = replace(body, ?, ?)", (ours, neutral))
            database.execute(trigger)
        with tarfile.open(archive, "w:gz") as file:
            file.add(self.home / ".kitbag", ".kitbag", filter=lambda one: None if one.name.endswith(".lock") else one)

    def open_home(self, archive: Path) -> None:
        with tarfile.open(archive) as file:
            file.extractall(self.home, filter="fully_trusted")


@contextlib.contextmanager
def recording(name: str, forkserver: Forkserver) -> Iterator[Recording]:
    BASE.mkdir(exist_ok=True)
    with open(BASE / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another checkout may run its tests at the same time
        made = Recording(name, forkserver)
        made.begin()
        try:
            yield made
        finally:
            made.end_worker()
            shutil.rmtree(made.base)


def commands(transcript: Path) -> list[str]:
    """Comments and blank lines between them stay where they are."""
    return [line for line in transcript.read_text().splitlines() if line.startswith(("$ ", "#"))]


def normal(text: str, *, with_ids: bool) -> str:
    for pattern, name in (*_CHANGING, *(_COUNTED if with_ids else ())):
        text = pattern.sub(name, text)
    return text


def replay(transcript: Path, here: Recording, before_each: Callable[[], None] = lambda: None) -> str:
    blocks: list[str] = []
    for line in commands(transcript):
        before_each()
        blocks.append(line if line.startswith("#") else str(here.run(line[2:])))
    return "\n".join(blocks) + "\n"
