"""The guard of a sandboxed command: what it denies, asks and lets through, and that no trick gets past it."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import msgspec
import pytest

from conftest import World
from kitbag.processes import run_process
from kitbag.processes.command_runner import CommandResult
from kitbag.processes.limits import CommandLimits
from kitbag.sandbox import bubblewrap
from kitbag.sandbox.confine import run_confined
from kitbag.sandbox.confinement import Confinement
from kitbag.sandbox.control_snapshot import take_snapshot
from kitbag.sandbox.quarantine import list_quarantine
from support import needs
from support.clock import Clock
from support.confined import Box
from support.matrix import sample

PYTHON = os.path.realpath(sys.executable)
"""An environment in /tmp is hidden in the sandbox."""


@pytest.fixture
def box(world: World) -> Box:
    needs.bubblewrap()
    found = Box(world)
    shutil.rmtree(found.root / ".git")
    return found


def run(box: Box, text: str, **more: object) -> CommandResult:
    confinement = msgspec.structs.replace(Confinement(profile="workspace"), **more)
    return run_confined(box.command(text), confinement=confinement, workspace=box.workspace)


def python(text: str) -> str:
    return f"{PYTHON} -c '{text}'"


def answering(reason: str, asked: list[str]) -> object:
    def answer(path: str) -> "Future[str]":
        asked.append(path)
        future: Future[str] = Future()
        future.set_result(reason)
        return future

    return answer


# --- what is denied ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    sample([
        "echo x > .envrc",
        "echo x > src/deep.txt; mkdir -p src/a/b; cd src/a/b; echo x > .npmrc",
        "mkdir .vscode",
        "mkdir -p .github/workflows",
        "mkdir t; mv t .github",
        "cd src && mkdir ../.husky",
        "touch x; mv x .envrc",
        "touch x; ln x .envrc",
        "ln -s /etc/passwd .envrc",
        "ln -s .envrc y; echo x > y",
        "mknod .envrc p",
        "mkdir .ENVRC",
        "echo x > $'.env\\u200brc'",
        "echo x > $PWD/../workspace/.envrc",
        "mkdir -p build/x/.claude; mv build/x y",
        "cp -r /tmp . ; mkdir /tmp/.idea; cp -r /tmp/.idea .",
        "mkdir o; cd o; mkdir objects; echo x > HEAD",
        python('import os; os.open(".envrc", os.O_CREAT | os.O_WRONLY, dir_fd=os.open("/", os.O_PATH)) '
               'if os.chdir("/") else os.open(".envrc", os.O_CREAT, dir_fd=os.open(os.environ["PWD"], os.O_RDONLY))'),
        "echo x > /proc/self/cwd/.envrc",
        "ln -s /proc/self/cwd/.envrc y; echo x > y",
        "mkdir /tmp/d; ln -s d/.envrc /tmp/y; rmdir /tmp/d; ln -s $PWD /tmp/d; echo x > /tmp/y",
        "ln -s ../other/.envrc y; mkdir a other; mv y a/y; echo x > a/y",
        "mkdir .cargo; ln -s /proc/self/cwd/config y; cd .cargo; echo x > ../y",
        "mkdir -p node_modules/.vscode/.git",
        "mkdir -p deep/er/.github; cd deep/er/.github; mkdir workflows",
        python('import os; f = os.open(".", os.O_TMPFILE | os.O_WRONLY); '
               'os.link(f"/proc/self/fd/{f}", ".envrc", follow_symlinks=True)'),
    ], 13),
)  # fmt: skip
def test_no_control_path_is_created(box: Box, text: str) -> None:
    before = take_snapshot([str(box.root)]).paths
    ran = run(box, text)
    new = take_snapshot([str(box.root)]).paths - before
    assert {path for path in new if "/build/" not in path} == set()
    assert ran.status != 0 or ran.notes


def test_a_link_of_the_repository_that_leads_to_a_control_path_creates_none(box: Box) -> None:
    (box.root / "log.txt").symlink_to(".envrc")
    (box.root / "more.txt").symlink_to("log.txt")
    ran = run(box, "echo x > log.txt; echo x >> ./more.txt; cd src; echo x > ../log.txt; mv ../log.txt z; echo x > z")
    assert not (box.root / ".envrc").exists()
    assert ".envrc" in ran.notes[0]


def test_the_note_names_the_path_and_the_rule(box: Box) -> None:
    ran = run(box, "mkdir .vscode")
    assert ran.notes == ("the sandbox denied writing .vscode: `.vscode`: editors may run commands from it",)
    assert "Operation not permitted" in ran.text


def test_packages_may_bring_control_files_but_no_repository(box: Box) -> None:
    ran = run(box, "mkdir -p node_modules/p && cd node_modules/p && echo x > .npmrc && mkdir .vscode && cat .npmrc")
    assert (ran.text, ran.notes) == ("x", ())
    assert run(box, "git init -q node_modules/p").notes


def test_a_name_of_its_own_is_no_control_path(box: Box) -> None:
    text = "echo a > envrc; mkdir git .github config hooks; echo b > .github/x; touch HEAD; mv hooks h; echo x > /tmp/.envrc"
    ran = run(box, f"{text}; git init -q /tmp/r && echo done")
    assert (ran.status, ran.notes) == (0, ())


@pytest.mark.parametrize(
    ("family", "address"),
    [
        ("AF_INET", '("127.0.0.1", 0)'),
        ("AF_INET6", '("::1", 0)'),
        ("AF_UNIX", '"\\0abstract"'),
        ("AF_UNIX", '""'),
        ("AF_UNIX", '"server.sock"'),
        ("AF_NETLINK", "(0, 0)"),
    ],
)
def test_a_program_can_bind_a_socket(box: Box, family: str, address: str) -> None:
    """`npm`, test servers and anything that lists network interfaces do."""
    kind = "SOCK_RAW" if family == "AF_NETLINK" else "SOCK_STREAM"
    box.world.write("bind.py", f"import socket as s\ns.socket(s.{family}, s.{kind}).bind({address})\nprint('bound')\n")
    ran = run(box, f"{PYTHON} bind.py")
    assert (ran.text.strip(), ran.status, ran.notes) == ("bound", 0, ())


def test_control_paths_that_are_not_mounted_stay_as_they_are(box: Box) -> None:
    """Too deep or too many to mount, or made by the user while the command runs."""
    deep = "a/b/c/d/e"
    for path in (".vscode/tasks.json", ".github/workflows/ci.yml", ".npmrc"):
        box.world.write(f"{deep}/{path}", "mine\n")
    before = box.state()
    run(box, f"cd {deep}; echo x > .vscode/tasks.json; cd .vscode; echo x > tasks.json; rm tasks.json; touch new")
    run(box, f"touch o; rm o; echo x > {deep}/.github/workflows/ci.yml; rm {deep}/.npmrc; rm -rf {deep}/.vscode")
    assert box.state() == before


# --- approvals ---------------------------------------------------------------------------------------------------


def test_what_is_approved_while_it_runs_works(box: Box) -> None:
    asked: list[str] = []
    ran = run(box, "git init -q . && git status --short && mkdir -p .github/workflows && echo x > .github/workflows/ci.yml",
              on_question=answering("", asked))  # fmt: skip
    assert ran.status == 0, ran.text
    assert asked == [f"{box.root}/.git", f"{box.root}/.github/workflows"]
    assert (box.root / ".git/HEAD").exists()
    assert (box.root / ".github/workflows/ci.yml").read_text() == "x\n"


def test_an_existing_control_path_is_writable_once_it_is_approved(box: Box) -> None:
    box.world.write(".vscode/settings.json", "old\n")
    asked: list[str] = []
    ran = run(box, "echo new > .vscode/settings.json; mkdir .vscode/more; echo no > .envrc",
              on_question=lambda path: answering("" if "vscode" in path else "no", asked)(path))  # type: ignore[operator] # fmt: skip
    assert asked == [f"{box.root}/.vscode", f"{box.root}/.envrc"]
    assert (box.root / ".vscode/settings.json").read_text() == "new\n"
    assert (box.root / ".vscode/more").is_dir()
    assert ran.notes == ("the sandbox denied writing .envrc: no",)


def test_what_was_approved_before_needs_no_question(box: Box) -> None:
    box.world.write(".vscode/settings.json", "old\n")
    paths = (f"{box.root}/.vscode/settings.json", f"{box.root}/.envrc")
    ran = run(box, "echo new > .vscode/settings.json; echo x > .envrc; echo x > .vscode/other", allowed=paths)
    assert (box.root / ".vscode/settings.json").read_text() == "new\n"
    assert (box.root / ".envrc").read_text() == "x\n"
    assert not (box.root / ".vscode/other").exists()
    assert len(ran.notes) == 1


def test_time_that_an_answer_takes_does_not_count(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, run_process)

    def ask(_: str) -> "Future[str]":
        clock.let_pass(7_200)
        answer: Future[str] = Future()
        answer.set_result("")
        return answer

    confinement = Confinement(profile="workspace", on_question=ask)
    command = box.command("mkdir .vscode && echo done", 3_600)
    ran = run_confined(command, confinement=confinement, workspace=box.workspace)
    assert (ran.text, ran.stop_reason) == ("done", "")


# --- programs that try to get past it ----------------------------------------------------------------------------

FLIP_A_NAME = """
import ctypes, os, threading
libc = ctypes.CDLL(None)
name = ctypes.create_string_buffer(b"./aaaaaa", 16)
stop = False
def flip():
    while not stop:
        ctypes.memmove(name, b"./.envrc", 9)
        ctypes.memmove(name, b"./aaaaaa", 9)
thread = threading.Thread(target=flip)
thread.start()
for _ in range(1500):
    descriptor = libc.open(name, os.O_CREAT | os.O_WRONLY, 0o644)
    if descriptor >= 0:
        os.close(descriptor)
stop = True
"""

FLIP_SHARED_MEMORY = """
import ctypes, mmap, os
libc = ctypes.CDLL(None)
shared = mmap.mmap(-1, 4096)
name = (ctypes.c_char * 16).from_buffer(shared)
name.raw = b"./aaaaaa".ljust(16, bytes(1))
if os.fork() == 0:
    while True:
        ctypes.memmove(name, b"./.envrc", 9)
        ctypes.memmove(name, b"./aaaaaa", 9)
for _ in range(1500):
    descriptor = libc.open(name, os.O_CREAT | os.O_WRONLY, 0o644)
    if descriptor >= 0:
        os.close(descriptor)
"""

FLIP_FROM_PROC = """
import ctypes, mmap, os
libc = ctypes.CDLL(None)
shared = mmap.mmap(-1, 4096)
name = (ctypes.c_char * 32).from_buffer(shared)
name.raw = b"/proc/self/comm".ljust(32, bytes(1))
if os.fork() == 0:
    while True:
        ctypes.memmove(name, b"./.envrc" + bytes(8), 16)
        ctypes.memmove(name, b"/proc/self/comm" + bytes(1), 16)
while True:
    descriptor = libc.open(name, os.O_CREAT | os.O_WRONLY, 0o644)
    if descriptor >= 0:
        os.close(descriptor)
"""

SWAP_A_DIRECTORY = """
import os
os.mkdir("/tmp/free")
if os.fork() == 0:
    while True:
        for target in ("/tmp/free", "src"):
            os.symlink(target, "d.new")
            os.rename("d.new", "d")
for _ in range(2000):
    try:
        os.close(os.open("d/.envrc", os.O_CREAT | os.O_WRONLY))
    except OSError:
        pass
"""


@pytest.mark.parametrize("program", [FLIP_A_NAME, FLIP_SHARED_MEMORY, SWAP_A_DIRECTORY])
def test_no_race_leaves_a_control_path(box: Box, program: str) -> None:
    box.world.write("race.py", program)
    run(box, f"{PYTHON} race.py")
    assert not list(box.root.rglob(".envrc"))


def test_a_name_that_changes_under_the_check_ends_the_command(box: Box) -> None:
    """Only calls in /proc and on pipes are left to the kernel after the check."""
    box.world.write("race.py", FLIP_FROM_PROC)
    ran = run(box, f"{PYTHON} race.py; echo survived")
    assert "survived" not in ran.text
    assert any("changed a file name" in note for note in ran.notes)
    assert not list(box.root.rglob(".envrc"))


def test_what_a_program_with_threads_does_has_the_results_of_the_kernel(box: Box, tmp_path: Path) -> None:
    """Its calls are run by the supervisor; every result, mode and content is as without a sandbox."""
    box.world.write("ops.py", OPERATIONS)
    confined = run(box, f"mkdir in && cd in && {PYTHON} ../ops.py")
    (tmp_path / "free").mkdir()
    free = subprocess.run([PYTHON, str(box.root / "ops.py")], cwd=tmp_path / "free", capture_output=True, text=True)
    assert confined.text.splitlines() == free.stdout.splitlines()
    assert len(confined.text.splitlines()) > 40


OPERATIONS = r"""
import os, threading
hold = threading.Event()
threading.Thread(target=hold.wait, daemon=True).start()
O = os
def show(what, work):
    try:
        result = work()
        if isinstance(result, int) and what.startswith("open"):
            os.close(result)
            result = "ok"
    except OSError as error:
        result = error.errno
    print(what, result)
def opened(name, flags, mode=0o666):
    show(f"open {name} {flags:o} {mode:o}", lambda: os.open(name, flags, mode))
for mask in (0o022, 0o077, 0):
    os.umask(mask)
    opened(f"a{mask}", O.O_CREAT | O.O_WRONLY)
    opened(f"b{mask}", O.O_CREAT | O.O_RDWR | O.O_EXCL, 0o755)
    show(f"mkdir {mask}", lambda: os.mkdir(f"d{mask}", 0o3777))
opened("a18", O.O_CREAT | O.O_EXCL | O.O_WRONLY)
opened("d18", O.O_WRONLY)
opened("d18", O.O_CREAT | O.O_WRONLY)
opened("d18", O.O_RDWR | O.O_DIRECTORY)
opened("missing/x", O.O_CREAT | O.O_WRONLY)
opened("a18/x", O.O_CREAT | O.O_WRONLY)
opened("", O.O_CREAT | O.O_WRONLY)
opened("x/", O.O_CREAT | O.O_WRONLY)
opened("n" * 300, O.O_CREAT | O.O_WRONLY)
opened("/".join(["d18"] + ["."] * 1500) + "/deep", O.O_CREAT | O.O_WRONLY)
opened("/".join(["."] * 3000), O.O_CREAT | O.O_WRONLY)
opened(b"\xff\xfe", O.O_CREAT | O.O_WRONLY) if False else show("bytes", lambda: os.close(os.open(b"\xff\xfe", O.O_CREAT | O.O_WRONLY)))
os.symlink("a18", "l1"); os.symlink("nowhere", "l2"); os.symlink("l3", "l3"); os.symlink("d18", "l4")
opened("l1", O.O_WRONLY | O.O_TRUNC)
opened("l1", O.O_WRONLY | O.O_NOFOLLOW)
opened("l2", O.O_CREAT | O.O_EXCL | O.O_WRONLY)
opened("l2", O.O_CREAT | O.O_WRONLY)
opened("l3", O.O_CREAT | O.O_WRONLY)
opened("l4/in", O.O_CREAT | O.O_WRONLY)
opened(".", O.O_TMPFILE | O.O_RDWR)
opened("/dev/null", O.O_WRONLY)
opened("/dev/stdout", O.O_WRONLY)
opened("/proc/self/comm", O.O_WRONLY)
show("append", lambda: (open("log", "a").write("1"), open("log", "a").write("2"), open("log").read()))
show("rename", lambda: os.rename("log", "log2"))
show("rename over", lambda: os.rename("log2", "a18"))
show("rename missing", lambda: os.rename("gone", "x"))
show("rename dir onto file", lambda: os.rename("d63", "a18"))
show("rename file onto dir", lambda: os.rename("a18", "d63"))
show("rename into itself", lambda: os.rename("d63", "d63/x"))
show("rename dir", lambda: os.rename("d63", "d64"))
show("link", lambda: os.link("a18", "hard"))
show("link again", lambda: os.link("a18", "hard"))
show("link dir", lambda: os.link("d64", "hard2"))
show("link of link", lambda: os.link("l1", "hard3", follow_symlinks=False))
show("symlink", lambda: os.symlink("t" * 200, "l5"))
show("symlink again", lambda: os.symlink("x", "l5"))
show("truncate", lambda: os.truncate("a18", 1))
show("truncate missing", lambda: os.truncate("gone", 1))
show("truncate dir", lambda: os.truncate("d64", 1))
show("fifo", lambda: os.mkfifo("fifo", 0o640))
show("node", lambda: os.mknod("node", 0o600))
show("mkdir again", lambda: os.mkdir("d64"))
show("mkdir root", lambda: os.mkdir("/"))
show("mkdir dot", lambda: os.mkdir("."))
show("mkdir dots", lambda: os.mkdir("d64/.."))
show("rename dot", lambda: os.rename("d64/.", "q"))
show("rename slash", lambda: os.rename("d64/", "d66/"))
show("rename slash back", lambda: os.rename("d66", "d64"))
show("rename file slash", lambda: os.rename("a18/", "q"))
show("symlink root", lambda: os.symlink("x", "/"))
show("mkdir slash", lambda: os.mkdir("d65/"))
show("mkdir deep", lambda: os.makedirs("p/q/r/s"))
d = os.open("d64", os.O_RDONLY)
show("openat", lambda: os.close(os.open("via", os.O_CREAT | os.O_WRONLY, 0o604, dir_fd=d)))
show("mkdirat", lambda: os.mkdir("viad", 0o711, dir_fd=d))
show("renameat", lambda: os.rename("via", "via2", src_dir_fd=d, dst_dir_fd=d))
show("bad dirfd", lambda: os.open("via", os.O_CREAT | os.O_WRONLY, dir_fd=999))
for folder, folders, files in sorted(os.walk(".")):
    for name in sorted(folders + files):
        path = os.path.join(folder, name)
        state = os.lstat(path)
        if not os.path.islink(path):
            print(os.fsencode(path), oct(state.st_mode), state.st_size if os.path.isfile(path) else "", state.st_nlink)
"""


# --- without a guard ---------------------------------------------------------------------------------------------


def test_without_a_guard_new_control_paths_are_moved_to_the_quarantine(box: Box) -> None:
    found, _ = bubblewrap.detect_bubblewrap()
    assert found is not None
    bare = msgspec.structs.replace(found, guards=False)
    command, confinement = box.command("echo x > .envrc; echo y > kept"), Confinement(profile="workspace")
    ran = bubblewrap.run_in_bubblewrap(bare, command, None, confinement, box.workspace)
    (moved,) = list_quarantine(box.workspace.kitbag_home)
    assert (moved.path, moved.command) == (f"{box.root}/.envrc", command.text)
    assert moved.id in ran.notes[0]
    assert sorted(os.listdir(box.root)) == ["kept", "src"]


# --- limits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["workspace", "read-only"])
def test_a_fork_bomb_ends_and_names_its_limit(box: Box, profile: str) -> None:
    limits = CommandLimits(processes=60)
    ran = run(box, ":(){ :|:& };:; sleep 1000", profile=profile, limits=limits)
    assert ran.notes == ("stopped: the command used more than 60 processes (setting `sandbox.max_processes`)",)


def test_processes_that_have_ended_do_not_count(box: Box) -> None:
    ran = run(box, "for i in $(seq 150); do /bin/true; done; echo done", limits=CommandLimits(processes=20))
    assert (ran.text, ran.notes) == ("done", ())


def test_memory_and_files_are_limited(box: Box) -> None:
    ran = run(box, python("x = bytearray(300 << 20); import time; time.sleep(1000)"),
              limits=CommandLimits(memory=150 << 20))  # fmt: skip
    assert ran.notes == ("stopped: the command used more than 150 MB of memory (setting `sandbox.max_memory`)",)
    ran = run(box, "head -c 3000000 /dev/zero > big", limits=CommandLimits(file_size=1 << 20))
    assert ran.notes == ("stopped: the command used a file larger than 1 MB (setting `sandbox.max_file_size`)",)
    ran = run(box, "head -c 3000000 /dev/zero > /tmp/big", limits=CommandLimits(memory=2 << 20))
    assert ran.status != 0
