"""Agents run sandboxed commands in a folder that the user works in too, while Kitbag is killed at random moments.

    python bench/sandbox_soak.py [--seconds N] [--seed N]

Starts Kitbag only as a program. The user's process knows what it wrote; with inotify it sees what others create, change
or remove. Checks leftover processes, temporary files and exit statuses too. Prints violations and exits with 1.
"""

import argparse
import contextlib
import ctypes
import json
import os
import random
import re
import secrets
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

AGENTS = 2
GRACE = 15.0
"""Seconds in which the processes and temporary files of a killed run must be gone; they need milliseconds."""
MAX_EVIDENCE = 4
"""Violations of each kind that are printed; the file has all."""
MAX_REPORTS = 5
"""Violations that are recorded for one path."""
GOT_PAST_STATUS = 41
"""The status of a command that got past the sandbox."""

# --- what agents run ------------------------------------------------------------------------------------------------

ORDINARY = """
import os, shutil, sys, time
area, older = sys.argv[2:4]
shutil.rmtree(older, ignore_errors=True)
os.makedirs(area + "/deep/er")
for number in range(60):
    path = f"{area}/deep/file{number}.txt"
    with open(path, "w") as file:
        file.write("first")
    with open(path, "a") as file:
        file.write(" second")
    if number % 3 == 0:
        os.rename(path, f"{area}/deep/er/renamed{number}.txt")
    elif number % 3 == 1:
        os.unlink(path)
    else:
        os.truncate(path, 5)
    time.sleep(0.005)
os.rename(area + "/deep", area + "/moved")
os.symlink("moved/er", area + "/link")
os.link(area + "/moved/file2.txt", area + "/hard.txt")
left = sorted(os.listdir(area + "/moved"))
assert left == sorted(["er", *(f"file{number}.txt" for number in range(2, 60, 3))]), left
assert open(area + "/hard.txt").read() == "first"
assert len(os.listdir(area + "/link")) == 20
"""
# Every attempt must fail, whether the user has such a file at the moment or not.
ATTACK = """
import os, shutil, subprocess, sys, threading, time
area, removals = sys.argv[2], sys.argv[3] == "removals"
won = []

def attempt(what, work, *arguments):
    try:
        work(*arguments)
    except OSError:
        return
    won.append(what)

def write(path):
    with open(path, "w") as file:
        file.write("from the command")

def write_in(folder, name):
    descriptor = os.open(folder or ".", os.O_PATH | os.O_DIRECTORY)
    try:
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=descriptor))
    finally:
        os.close(descriptor)

def prepare(name):
    write(f"{area}/{name}")
    return f"{area}/{name}"

def through_link(target, name):
    os.symlink(os.path.abspath(target), f"{area}/{name}")
    write(f"{area}/{name}")

def bare_repository(folder):
    os.makedirs(folder)
    write(folder + "/HEAD")
    os.mkdir(folder + "/objects")

def carried():
    os.makedirs(area + "/node_modules/pack")
    write(area + "/node_modules/pack/.npmrc")
    os.rename(area + "/node_modules/pack", area + "/pack")

def round_of_attempts(number):
    for name in (".envrc", ".npmrc", ".mcp.json", "sub/.npmrc", "sub/deep/.envrc", ".pre-commit-config.yaml"):
        attempt(f"write {name}", write, name)
        attempt(f"rename to {name}", os.rename, prepare(f"plain{number}"), name)
        attempt(f"link to {name}", os.link, prepare(f"plain{number}"), name)
        attempt(f"write {name} through a link", through_link, name, f"link{number}-{name.replace('/', '-')}")
        attempt(f"link from {name}", os.link, name, f"{area}/linked{number}-{name.replace('/', '-')}")
        if removals:
            attempt(f"remove {name}", os.unlink, name)
            attempt(f"move {name} away", os.rename, name, f"{area}/stolen{number}")
    for name in (".vscode", ".husky", "sub/.git", f"{area}/.git", f"{area}/.vscode"):
        attempt(f"mkdir {name}", os.mkdir, name)
        os.makedirs(f"{area}/folder{number}", exist_ok=True)
        attempt(f"rename a folder to {name}", os.rename, f"{area}/folder{number}", name)
    attempt("mkdir .github/workflows", os.makedirs, ".github/workflows")
    for folder in (".vscode", ".github/workflows", "repo-0/.git/hooks", "pack-1/.vscode"):
        attempt(f"write in {folder}", write, folder + "/x")
        attempt(f"write in {folder} by its descriptor", write_in, folder, "x")
        attempt(f"write in {folder} from above", write_in, os.path.dirname(folder), os.path.basename(folder) + "/y")
    attempt("write .npmrc in the area", write, f"{area}/sub/.npmrc")
    attempt("write hooks", write, f"{area}/../../.git/hooks/pre-commit")

os.makedirs(area + "/sub")
round_of_attempts(0)
attempt("bare repository", bare_repository, area + "/bare")
attempt("control file carried along", carried)
for folder in (".", "sub", "repo-0", area + "/repo"):
    had = os.path.exists(folder + "/.git")
    subprocess.run(["git", "init", "-q", folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if folder.startswith(area) and os.path.exists(folder + "/.git"):
        won.append("git init")
threads = [threading.Thread(target=round_of_attempts, args=(number,)) for number in range(1, 5)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for number in range(5, 10):
    time.sleep(0.05)
    round_of_attempts(number)
if won:
    print("got past the sandbox:", sorted(set(won)))
    sys.exit(41)
"""
# Threads and /dev/null, as builds with cargo, go or node have them.
COMPILE = """
import hashlib, os, subprocess, sys, threading, time
area = sys.argv[2]

def compile(first):
    for number in range(first, 80, 4):
        data = hashlib.sha256(str(number).encode()).hexdigest() * 50
        path = f"{area}/module{number}.o"
        with open(path + ".tmp", "w") as file:
            file.write(data)
        os.rename(path + ".tmp", path)
        with open("/dev/null", "w") as file:
            file.write(data)
        time.sleep(0.01)
    subprocess.run(["true"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)

threads = [threading.Thread(target=compile, args=(first,)) for first in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert len(os.listdir(area)) == 80
"""
BUILD = """
mark=$1 area=$2 status=$3
mkdir -p "$area" || exit 31
(exec -a "$mark" sleep 300) &
(exec -a "$mark" setsid sleep 300) &
nohup bash -c 'trap "" TERM; sleep 300; :' "$mark" > /dev/null 2>&1 &
(setsid bash -c 'sleep 300; :' "$mark" &)
PYTHON steps/compile.py "$mark" "$area" || exit 32
rm "$area"/module1*.o || exit 33
exit "$status"
"""
WAIT = """
(exec -a "$1" sleep 300) &
bash -c 'sleep 300; :' "$1"
"""
# What a killed git leaves (index.lock) makes the next one fail; that is git's business.
COMMIT = """
mkdir -p "$2" && echo "$2" > "$2/file.txt" && echo more > "$2/other.txt" || exit 31
rm -f .git/index.lock .git/HEAD.lock .git/refs/heads/*.lock
git add "$2"
git -c user.name=Soak -c user.email=soak@example.com -c gc.auto=0 commit -q -m "$2"
echo x > .git/config && exit 41
git config core.pager evil && exit 41
exit 0
"""
STEPS = {
    "ordinary.py": ORDINARY,
    "attack.py": ATTACK,
    "compile.py": COMPILE,
    "build.sh": BUILD,
    "wait.sh": WAIT,
    "commit.sh": COMMIT,
}

# --- inotify --------------------------------------------------------------------------------------------------------

MODIFY, ATTRIBUTES, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x2, 0x4, 0x40, 0x80, 0x100, 0x200
OVERFLOW, IGNORED, ONLY_DIRECTORIES, IS_DIRECTORY = 0x4000, 0x8000, 0x1000000, 0x40000000
EVENT_NAMES = {
    MODIFY: "modified",
    ATTRIBUTES: "attributes changed",
    MOVED_FROM: "moved away",
    MOVED_TO: "moved here",
    CREATE: "created",
    DELETE: "deleted",
}
EVENT = struct.Struct("iIII")


class Watch:
    """Every change in a tree, as (event, path relative to its root)."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._paths: dict[int, str] = {}
        self.overflows = 0
        self._add("")

    def _add(self, relative: str) -> None:
        """Watch a folder and all below it; for one that was renamed, learn its new name."""
        mask = MODIFY | ATTRIBUTES | MOVED_FROM | MOVED_TO | CREATE | DELETE | ONLY_DIRECTORIES
        path = os.path.join(self._root, relative)
        number: int = self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), mask)
        if number < 0:
            return  # it is gone again
        self._paths[number] = relative
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    self._add(os.path.join(relative, entry.name))

    def drain(self) -> Iterator[tuple[int, str]]:
        while True:
            try:
                data = os.read(self._descriptor, 1 << 18)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                number, mask, _, length = EVENT.unpack_from(data, at)
                name = os.fsdecode(data[at + EVENT.size : at + EVENT.size + length].rstrip(b"\0"))
                at += EVENT.size + length
                if mask & OVERFLOW:
                    self.overflows += 1
                elif mask & IGNORED:
                    self._paths.pop(number, None)
                elif name and number in self._paths:
                    path = os.path.join(self._paths[number], name)
                    if mask & IS_DIRECTORY and mask & (CREATE | MOVED_TO):
                        self._add(path)
                    yield mask & ~IS_DIRECTORY, path


# --- the user -------------------------------------------------------------------------------------------------------

CONTROL_FILES = (
    ".npmrc",
    ".envrc",
    ".mcp.json",
    ".pre-commit-config.yaml",
    ".vscode/settings.json",
    ".github/workflows/ci.yml",
    "sub/.npmrc",
    "sub/deep/.envrc",
    "pack-0/.npmrc",
    "pack-1/.vscode/tasks.json",
)
ORDINARY_FILES = ("README.md", "notes.txt", "user/one.txt", "user/two.txt", "sub/main.py", "sub/deep/other.py")
REPOSITORIES = ("repo-0", "repo-1")
LASTING = ("steps", "sub", "sub/deep")
REMOVABLE = (".vscode", ".github", "pack-0", "pack-1", "user", *REPOSITORIES)
CONTROL_NAMES = frozenset((".npmrc", ".envrc", ".mcp.json", ".vscode", ".git", ".husky", ".pre-commit-config.yaml"))
GIT_CONTROL_NAMES = frozenset(("hooks", "config", "config.worktree", "commondir", "modules", "worktrees"))


def is_users(path: str) -> bool:
    """Whether only the user may create or change it."""
    parts = path.split("/")
    if parts[0].startswith("out-"):
        # Installed packages may contain control files; agents prepare one there.
        control = any(part in CONTROL_NAMES for part in parts)
        return control and "node_modules" not in parts
    if path == ".github" or path in REPOSITORIES:
        return False  # folders without meaning of their own, which commands may create
    if parts[0] == ".git" and len(parts) > 1:
        return parts[1] in GIT_CONTROL_NAMES  # commands may commit
    # `git init` in a repository of the user starts with a lock file, and fails.
    return parts[-2:] != [".git", "config.lock"]


class User:
    """Works in the folder, and knows what it must look like: nobody else may write the user's paths."""

    def __init__(self, base: Path, name: str, seed: int, with_git: bool) -> None:
        self.root = str(base / name)
        self.random = random.Random(seed)
        self._log = open(base / f"{name}.user.jsonl", "a", buffering=1)  # noqa: SIM115 - as long as the process
        self._violations = open(base / "violations.jsonl", "a", buffering=1)  # noqa: SIM115
        self.expected: dict[str, bytes | None] = {}
        """By path: its content, or None for a folder."""
        self.actions = self.events = self.polls = self.found = 0
        self._reported: Counter[str] = Counter()
        for folder in LASTING:
            os.makedirs(f"{self.root}/{folder}")
        for number in range(AGENTS):
            os.makedirs(f"{self.root}/out-{number}")
        for step, text in STEPS.items():
            Path(f"{self.root}/steps/{step}").write_text(text.replace("PYTHON", f"{sys.executable} -I -S"))
        if with_git:
            self._git_init(".")
        self.expected = self.read_tree()
        self.watch = Watch(self.root)

    # --- acting

    def act(self) -> None:
        """One random action. Only its own paths may change meanwhile."""
        choice = self.random.random()
        existing = sorted({*CONTROL_FILES, *ORDINARY_FILES} & self.expected.keys())
        if choice < 0.08:
            repository = self.random.choice(REPOSITORIES)
            self._do("git init", [repository], lambda: self._git_init(repository))
        elif choice < 0.18:
            folder = self.random.choice(REMOVABLE)
            self._do("remove folder", [folder], lambda: shutil.rmtree(f"{self.root}/{folder}", ignore_errors=True))
        elif choice < 0.40 and existing:
            path = self.random.choice(existing)
            self._do("delete", [path], lambda: os.unlink(f"{self.root}/{path}"))
        elif choice < 0.46 and existing:
            path, other = self.random.choice(existing), f"kept-{self.random.randrange(3)}.txt"
            self._do("rename", [path, other], lambda: os.rename(f"{self.root}/{path}", f"{self.root}/{other}"))
        else:
            path = self.random.choice(CONTROL_FILES if self.random.random() < 0.75 else ORDINARY_FILES)
            way = self.random.choice(("write", "append", "replace"))
            folder = path.partition("/")[0] if "/" in path else path
            temporary = f"{path}.{self.actions}.tmp"
            # Folders on the way may have to be created.
            touched = [path, temporary, *([folder] if folder not in LASTING else [])]
            self._do(way, touched, lambda: self._write(way, path, temporary))

    def _do(self, action: str, touched: list[str], work: Any) -> None:
        self.check_events(())
        self.actions += 1
        self._write_log(action=action, paths=touched, begins=time.time())
        try:
            work()
        except OSError as error:  # nobody else may make the user's own actions fail
            self.violation("the user's action failed", touched[0], f"{action}: {error}")
        self.check_events(tuple(touched))
        actual = self.read_tree()
        for path in {*actual, *self.expected}:
            if any(path == one or path.startswith(f"{one}/") for one in touched):
                if path in actual:
                    self.expected[path] = actual[path]
                else:
                    self.expected.pop(path, None)
        self._write_log(action=action, ends=time.time())

    def _write(self, way: str, path: str, temporary: str) -> None:
        full, text = f"{self.root}/{path}", f"# {path} by the user, action {self.actions}\n"
        os.makedirs(os.path.dirname(full), exist_ok=True)
        if way == "replace":
            Path(f"{self.root}/{temporary}").write_text(text)
            os.rename(f"{self.root}/{temporary}", full)
            written = text
        else:
            before = self.expected.get(path) if way == "append" else b""
            with open(full, "a" if way == "append" else "w") as file:
                file.write(text)
            written = (before or b"").decode() + text
        if Path(full).read_text() != written:
            self.violation("the user's file has other content", path, f"right after the user's {way}")

    def _git_init(self, folder: str) -> None:
        subprocess.run(
            ["git", "init", "-q", f"{self.root}/{folder}"], check=False, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def _write_log(self, **values: Any) -> None:
        self._log.write(json.dumps({"number": self.actions, **values}) + "\n")

    # --- checking

    def read_tree(self) -> dict[str, bytes | None]:
        """All the user's paths, or what others have created in their place, and control paths anywhere."""
        found: dict[str, bytes | None] = {}
        pending = [""]
        while pending:
            folder = pending.pop()
            try:
                entries = list(os.scandir(os.path.join(self.root, folder)))
            except OSError:
                continue  # an agent has removed its folder
            for entry in entries:
                path = os.path.join(folder, entry.name)
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_users(path):
                    found[path] = None if is_folder else _content(entry)
                if is_folder and not path.startswith((".git/objects", ".git/refs", ".git/logs")):
                    pending.append(path)
        return found

    def check_events(self, touched: tuple[str, ...]) -> None:
        """`touched`: what the user has changed since the last check."""
        for event, path in self.watch.drain():
            self.events += 1
            if is_users(path) and not any(path == one or path.startswith(f"{one}/") for one in touched):
                what = EVENT_NAMES.get(event, hex(event))
                self.violation(f"{what} by someone else", path, _describe(f"{self.root}/{path}"))

    def check_tree(self) -> None:
        """Nothing changes on the user's side meanwhile, so every difference is someone else's."""
        self.polls += 1
        actual = self.read_tree()
        for path, content in actual.items():
            if path not in self.expected:
                self.violation("a path that the user did not create", path, _describe(f"{self.root}/{path}"))
            elif content != self.expected[path]:
                self.violation("the user's file has other content", path, repr(content)[:200])
        gone = self.expected.keys() - actual.keys()
        for path in gone:
            if os.path.dirname(path) not in gone:
                self.violation("the user's path is gone", path, repr(self.expected[path])[:200])
        self.expected = actual

    def violation(self, what: str, path: str, detail: str) -> None:
        self.found += 1
        self._reported[path] += 1
        if self._reported[path] <= MAX_REPORTS:
            self._violations.write(json.dumps({"at": time.time(), "what": what, "path": path, "detail": detail}) + "\n")

    def work_until(self, stopped: Any) -> None:
        next_tree = 0.0
        next_action = 0.0
        while not select.select([stopped], [], [], self.random.uniform(0.001, 0.01))[0]:
            now = time.monotonic()
            self.check_events(())
            if now >= next_tree:
                self.check_tree()
                next_tree = time.monotonic() + 0.03
            if now >= next_action:
                self.act()
                next_action = time.monotonic() + self.random.choice((0.0, 0.01, 0.05, 0.2, 0.4))
        self.check_events(())
        self.check_tree()


def _content(entry: "os.DirEntry[str]") -> bytes:
    try:
        if entry.is_symlink():
            return b"link to " + os.fsencode(os.readlink(entry.path))
        with open(entry.path, "rb") as file:
            return file.read(4096)
    except OSError as error:
        return f"unreadable: {error.strerror}".encode()


def _describe(path: str) -> str:
    try:
        state = os.lstat(path)
    except OSError:
        return "gone again"
    kind = "folder" if os.path.isdir(path) else f"{state.st_size} bytes"
    text = ""
    with contextlib.suppress(OSError):
        text = repr(Path(path).read_bytes()[:100])
    return f"{kind}, mode {state.st_mode & 0o7777:o}, changed {state.st_ctime:.3f} {text}"


def run_user(base: Path, name: str, seed: int, with_git: bool) -> None:
    user = User(base, name, seed, with_git)
    print("ready", flush=True)
    user.work_until(sys.stdin)
    counts = {"actions": user.actions, "events": user.events, "polls": user.polls, "found": user.found}
    print(json.dumps({**counts, "overflows": user.watch.overflows}), flush=True)


# --- agents and their end -------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Run:
    kind: str
    command: str
    output: Path
    begun: float
    process: "subprocess.Popen[bytes]"
    killed_at: float = 0.0
    ended: float = 0.0

    @property
    def was_killed(self) -> bool:
        return self.process.returncode == -signal.SIGKILL and bool(self.killed_at)

    def describe(self) -> str:
        end = f"{self.ended:.3f}" if self.ended else "now"
        killed = f", killed at {self.killed_at:.3f}" if self.killed_at else ""
        return f"{self.kind} {self.begun:.3f}..{end} status {self.process.returncode}{killed}: {self.command}"


@dataclass(kw_only=True)
class Soak:
    """One round: a folder, its agents, and what they may leave behind."""

    base: Path
    name: str
    with_git: bool
    removals: bool
    marker: str
    chance: random.Random
    until: float
    runs: list[Run] = field(default_factory=list[Run])
    running: dict[int, Run] = field(default_factory=dict[int, Run])
    lock: threading.Lock = field(default_factory=threading.Lock)
    first_seen: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def temporary(self) -> Path:
        return self.base / "tmp"

    def violation(self, what: str, path: str, detail: str) -> None:
        line = json.dumps({"at": time.time(), "what": what, "path": path, "detail": detail}) + "\n"
        with self.lock, open(self.base / "violations.jsonl", "a") as file:
            file.write(line)

    def agent(self, number: int, seed: int) -> None:
        chosen = random.Random(seed)
        count = 0
        while time.monotonic() < self.until:
            count += 1
            kind, command, options, expected = self._command(chosen, number, count)
            run = self._start(number, count, kind, command, options)
            run.process.wait()
            run.ended = time.time()
            with self.lock:
                del self.running[number]
            status = run.process.returncode
            if not run.was_killed and status != expected:
                text = run.output.read_text(errors="replace")[-1500:]
                what = "got past the sandbox" if status == GOT_PAST_STATUS else f"exit status, not {expected}"
                self.violation(what, f"status {status}", f"{run.describe()}\n{text}")

    def _command(self, chosen: random.Random, number: int, count: int) -> tuple[str, str, list[str], int]:
        """Kind, command, options of Kitbag and expected status. Parts of names are hidden from the permission rules,
        which would deny these commands before they reach the sandbox: scripts do the work."""
        area, older = f"out-{number}/r{count}", f"out-{number}/r{count - 4}"
        python = f"{sys.executable} -I -S"
        kinds = ["ordinary", "attack", "attack", "build", "build", "inline", "wait", "fails"]
        kinds += ["commit", "commit"] if self.with_git else []
        kind = chosen.choice(kinds)
        if kind == "ordinary":
            return kind, f"{python} steps/ordinary.py {self.marker} {area} {older}", [], 0
        if kind == "attack":
            removals = "removals" if self.removals else "none"
            return kind, f"{python} steps/attack.py {self.marker} {area} {removals}", [], 0
        if kind == "build":
            status = chosen.choice((0, 0, 7))
            return kind, f"bash steps/build.sh {self.marker} {area} {status}", [], status
        if kind == "wait":
            return kind, f"bash steps/wait.sh {self.marker}", ["--timeout", "1"], 124
        if kind == "commit":
            return kind, f"bash steps/commit.sh {self.marker} {area}", [], 0
        if kind == "fails":
            return kind, f": {self.marker}; ls {area}/missing", [], 2
        made, copied = f"echo one > {area}/a && cp {area}/a {area}/b", f"mv {area}/b {area}/c && echo two >> {area}/a"
        return kind, f"mkdir -p {area} && {made} && {copied} && rm {area}/c && sleep 0.2 && : {self.marker}", [], 0

    def _start(self, number: int, count: int, kind: str, command: str, options: list[str]) -> Run:
        output = self.base / "runs" / f"{self.name}-{number}-{count}.txt"
        words = [sys.executable, "-m", "kitbag", "permissions", "run", command, "--yes"]
        home = self.base / "home"
        environment = {
            "PATH": os.environ["PATH"],
            "LC_ALL": "C.UTF-8",
            "HOME": str(home),
            "KITBAG_HOME": str(home / ".kitbag"),
            "TMPDIR": str(self.temporary),
            "PYTHONSAFEPATH": "1",  # the folder that commands write to is the current one
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),  # to test another checkout
        }
        with open(output, "wb") as file:
            process = subprocess.Popen(
                [*words, "--permission-mode", "autonomous", *options], cwd=self.base / self.name, env=environment,
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        run = Run(kind=kind, command=command, output=output, begun=time.time(), process=process)
        with self.lock:
            self.runs.append(run)
            self.running[number] = run
        return run

    def killer(self) -> None:
        while time.monotonic() < self.until:
            time.sleep(self.chance.uniform(0.05, 2.5))
            with self.lock:
                victims = [run for run in self.running.values() if not run.killed_at]
                if victims:
                    run = self.chance.choice(victims)
                    run.killed_at = time.time()
                    run.process.send_signal(signal.SIGKILL)

    # --- what is left

    def check_left(self, own: set[int]) -> dict[str, str]:
        """Processes and temporary files that no run has any more; a violation if they stay. `own`: our children."""
        left: dict[str, str] = {}
        with self.lock:
            own = own | {run.process.pid for run in self.running.values()}
        for pid in orphans(own):
            left[f"process {pid}"] = command_line(pid)
        if not self.running:
            for pid in processes_with(self.marker):
                left[f"process {pid}"] = command_line(pid)
        for entry in os.listdir(self.temporary):
            left[f"temporary file {entry}"] = _describe(str(self.temporary / entry))
        now = time.monotonic()
        self.first_seen = {name: self.first_seen.get(name, now) for name in left}
        for name, since in self.first_seen.items():
            if now - since > GRACE:
                self.violation(f"left for {GRACE:g} seconds", name, left[name])
                self.first_seen[name] = float("inf")
        return left


def orphans(own: set[int]) -> list[int]:
    """Children that others have started: we are their subreaper. Those that have ended are reaped."""
    found: list[int] = []
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            for pid in map(int, Path(f"/proc/self/task/{thread}/children").read_text().split()):
                if pid in own:
                    continue
                with contextlib.suppress(OSError):
                    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                    if state == "Z":
                        os.waitpid(pid, os.WNOHANG)
                    else:
                        found.append(pid)
    return found


def processes_with(marker: str) -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal() and marker in command_line(int(name))]


def command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


# --- rounds ---------------------------------------------------------------------------------------------------------


def run_round(base: Path, name: str, seconds: float, seed: int, removals: bool) -> dict[str, Any]:
    with_git = name == "git"
    words = [sys.executable, __file__, "--act-as-user", str(base), name, "--seed", str(seed)]
    user = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert user.stdin is not None
    assert user.stdout is not None
    if user.stdout.readline() != "ready\n":
        raise RuntimeError("the user's process did not start")
    soak = Soak(
        base=base,
        name=name,
        with_git=with_git,
        removals=removals,
        marker=f"soak{secrets.token_hex(6)}",
        chance=random.Random(seed + 1),
        until=time.monotonic() + seconds,
    )
    threads = [threading.Thread(target=soak.agent, args=(number, seed + 10 + number)) for number in range(AGENTS)]
    threads.append(threading.Thread(target=soak.killer))
    for thread in threads:
        thread.start()
    next_progress = time.monotonic() + 5
    while any(thread.is_alive() for thread in threads):
        soak.check_left({user.pid})
        if user.poll() is not None:
            soak.violation("the user's process ended", name, f"status {user.returncode}")
            break
        if time.monotonic() >= next_progress:
            next_progress += 5
            print(f"{name:<6} {progress(soak)}", flush=True)
        time.sleep(0.1)
    for thread in threads:
        thread.join()
    # Grace passes only for what is left, so a clean end takes no time.
    deadline = time.monotonic() + GRACE + 1
    while soak.check_left({user.pid}) and time.monotonic() < deadline:
        time.sleep(0.1)
    user.stdin.close()
    counts = json.loads(user.stdout.read() or "{}")
    user.wait()
    statuses = Counter("killed" if run.was_killed else run.kind for run in soak.runs)
    return {"runs": soak.runs, "statuses": statuses, **counts}


def progress(soak: Soak) -> str:
    killed = sum(run.was_killed for run in soak.runs)
    left = max(0.0, soak.until - time.monotonic())
    found = len(read_violations(soak.base))
    load = os.getloadavg()[0]
    return f"{left:4.0f} s left, {len(soak.runs)} runs, {killed} killed, {found} violations, load {load:.1f}"


def read_violations(base: Path) -> list[dict[str, Any]]:
    with contextlib.suppress(FileNotFoundError):
        return [json.loads(line) for line in (base / "violations.jsonl").read_text().splitlines()]
    return []


def print_evidence(base: Path, violations: list[dict[str, Any]], runs: list[Run]) -> None:
    """A few violations of each kind, with the runs of that moment and what the user did to the same path."""
    kinds = Counter(found["what"] for found in violations)
    shown: Counter[str] = Counter()
    logs = [line for log in base.glob("*.user.jsonl") for line in log.read_text().splitlines()]
    for found in violations:
        what, path, at = found["what"], found["path"], found["at"]
        shown[what] += 1
        if shown[what] > MAX_EVIDENCE:
            continue
        print(f"\nVIOLATION at {at:.3f}: {what}: {path}\n  {found['detail']}")
        for run in runs:
            if run.begun <= at <= run.ended + 0.2 and run.command not in found["detail"]:
                print(f"  run {run.describe()}")
        for line in logs:
            when = re.search(r'"begins": ([0-9.]+)', line)
            if when and -1 < at - float(when[1]) < 0.2 and path.partition("/")[0] in line:
                print(f"  user {line}")
    print(f"\nby kind, at most {MAX_REPORTS} for each path:")
    for what, count in kinds.most_common():
        print(f"{count:5} x {what}")
    for record in (base / "home/.kitbag/quarantine").glob("*/record.json"):
        print(f"in quarantine: {record.read_text()[:300]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60, help="for both rounds together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-removals", action="store_true", help="commands don't try to remove control files")
    parser.add_argument("--act-as-user", nargs=2, metavar=("BASE", "NAME"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.act_as_user:
        base, name = options.act_as_user
        return run_user(Path(base), name, options.seed, name == "git")
    set_subreaper = 36
    ctypes.CDLL(None).prctl(set_subreaper, 1, 0, 0, 0)
    base = Path(tempfile.mkdtemp(prefix="sandbox-soak-")).resolve()
    for folder in ("home", "tmp", "runs"):
        (base / folder).mkdir()
    results = [
        run_round(base, name, options.seconds / 2, options.seed, not options.no_removals) for name in ("plain", "git")
    ]
    violations = read_violations(base)
    runs = [run for result in results for run in result["runs"]]
    if violations:
        print_evidence(base, violations, runs)
    for name, result in zip(("plain", "git"), results, strict=True):
        print(f"{name}: {dict(sorted(result['statuses'].items()))}, inotify queue overflows {result.get('overflows')}")
    counts = {key: sum(result.get(key, 0) for result in results) for key in ("actions", "events", "polls")}
    killed = sum(run.was_killed for run in runs)
    summary = (
        f"{len(runs)} runs, {killed} of them killed, {counts['actions']} actions of the user, {counts['events']:,} file"
        f" events, {counts['polls']} comparisons, load {os.getloadavg()[0]:.1f}"
    )
    if violations:
        print(f"FAILED: {len(violations)} violations; {summary}; see {base}")
        sys.exit(1)
    shutil.rmtree(base)
    print(f"PASSED: no violations; {summary}")
    return None


if __name__ == "__main__":
    main()
