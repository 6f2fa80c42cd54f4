"""D08-D10, D12: what is opened is what was judged, also while others change the folders."""

import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kitbag.permissions.model import Workspace
from kitbag.permissions.paths import examine_path
from kitbag.permissions.safe_open import (
    DirectoryEntry,
    SafeOpenError,
    make_directory,
    open_for_reading,
    read_directory,
    remove_file,
    write_file,
)
from support.matrix import rounds
from support.waiting import TEST_TIMEOUT


class Place:
    def __init__(self, base: Path) -> None:
        self.root = base / "ws"
        self.outside = base / "outside"
        self.home = base / "home"
        for folder in (self.root / "d", self.outside, self.home):
            folder.mkdir(parents=True)
        self.workspace = Workspace(root=str(self.root), home=str(self.home), kitbag_home=str(self.home / ".kitbag"))

    def write(self, path: str, data: bytes = b"new", mode: int | None = None, expected: str = "") -> None:
        write_file(path, data, self.workspace, mode=mode, expected_resolved=expected)

    def read(self, path: str, expected: str = "") -> bytes:
        descriptor = open_for_reading(path, self.workspace, expected_resolved=expected)
        try:
            return os.read(descriptor, 1000)
        finally:
            os.close(descriptor)

    def everything(self, folder: Path) -> list[str]:
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path.resolve())


def test_files_are_written_read_and_replaced_with_nothing_left_over(place: Place) -> None:
    place.write("d/a.txt", b"one")
    place.write(f"{place.root}/d/a.txt", b"two")
    place.write("new/deep/b.txt", b"three")
    assert place.read("d/a.txt") == b"two"
    assert place.read("new/deep/b.txt") == b"three"
    assert place.everything(place.root) == ["d", "d/a.txt", "new", "new/deep", "new/deep/b.txt"]


def test_a_file_keeps_its_mode_and_a_new_one_gets_the_usual_one(place: Place) -> None:
    script = place.root / "run.sh"
    script.write_text("x")
    script.chmod(0o750)
    place.write("run.sh")
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    secret = place.root / "secret"
    secret.write_text("x")
    secret.chmod(0o4600)
    place.write("secret")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    place.write("new", mode=0o700)
    assert stat.S_IMODE((place.root / "new").stat().st_mode) == 0o700
    (place.root / "usual").touch()
    place.write("plain")
    assert (place.root / "plain").stat().st_mode == (place.root / "usual").stat().st_mode


def test_a_file_keeps_its_owner_where_that_is_possible(place: Place) -> None:
    if os.geteuid():
        pytest.skip("only root can give files away")
    (place.root / "f").write_text("x")
    os.chown(place.root / "f", 65534, 65534)
    place.write("f")
    found = (place.root / "f").stat()
    assert (found.st_uid, found.st_gid) == (65534, 65534)


def test_another_name_of_the_same_file_outside_keeps_its_content(place: Place) -> None:
    (place.outside / "x").write_text("old")
    os.link(place.outside / "x", place.root / "x")
    place.write("x", b"changed")
    assert (place.outside / "x").read_text() == "old"


def test_readers_see_the_old_or_the_new_content_and_nothing_between(place: Place) -> None:
    one, two = b"1" * 300_000, b"2" * 300_000
    place.write("f", one)
    done = threading.Event()
    seen: set[bytes] = set()

    def watch() -> None:
        while not done.is_set():
            seen.add((place.root / "f").read_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for at in range(200):
        place.write("f", two if at % 2 else one)
    done.set()
    watcher.join(TEST_TIMEOUT)
    assert seen <= {one, two}


def test_links_that_stay_inside_are_followed_and_stay_links(place: Place) -> None:
    (place.root / "real").mkdir()
    (place.root / "real/f").write_text("old")
    (place.root / "dir").symlink_to("real")
    (place.root / "file").symlink_to("dir/f")
    (place.root / "later").symlink_to("real/later")
    assert place.read("file") == b"old"
    assert place.read("dir/f") == b"old"
    place.write("file", b"new")
    place.write("later", b"made")
    assert (place.root / "file").is_symlink()
    assert (place.root / "real/f").read_bytes() == b"new"
    assert (place.root / "real/later").read_bytes() == b"made"


def test_D08_nothing_is_made_or_changed_below_a_link_to_outside(place: Place) -> None:
    (place.outside / "existing").write_text("old")
    (place.root / "l").symlink_to(place.outside)
    for action in (
        lambda: place.write("l/new.txt"),
        lambda: place.write("l/existing"),
        lambda: place.write("l/deep/new"),
        lambda: make_directory("l/folder", place.workspace),
        lambda: remove_file("l/existing", place.workspace),
        lambda: place.read("l/existing"),
        lambda: read_directory("l", place.workspace),
    ):
        with pytest.raises(SafeOpenError, match="outside the workspace") as error:
            action()
        assert str(place.outside) in error.value.problem
        assert error.value.exit_code == 6
    assert place.everything(place.outside) == ["existing"]
    assert (place.outside / "existing").read_text() == "old"


def test_D10_a_planted_link_is_not_written_through(place: Place) -> None:
    start = place.home / ".bashrc"
    start.write_text("mine")
    (place.root / "notes").symlink_to(start)
    (place.root / "missing").symlink_to(place.home / ".profile")
    for path in ("notes", "missing"):
        with pytest.raises(SafeOpenError):
            place.write(path)
    assert start.read_text() == "mine"
    assert not (place.home / ".profile").exists()


def test_D11_control_paths_are_not_written_unless_somebody_decided_it(place: Place) -> None:
    (place.root / ".git/hooks").mkdir(parents=True)
    (place.root / "h").symlink_to(".git/hooks")
    for path in (".git/hooks/pre-commit", "h/pre-commit", ".vscode/tasks.json", ".GIT/config", ".kitbag/settings.toml"):
        with pytest.raises(SafeOpenError, match="protected"):
            place.write(path)
        with pytest.raises(SafeOpenError, match="protected"):
            remove_file(path, place.workspace)
        with pytest.raises(SafeOpenError, match="protected"):
            make_directory(path, place.workspace)
    assert place.everything(place.root / ".git") == ["hooks"]
    facts = examine_path("h/pre-commit", place.workspace)
    place.write("h/pre-commit", expected=facts.resolved)
    assert (place.root / ".git/hooks/pre-commit").exists()


def test_a_place_outside_that_was_decided_about_is_used_exactly(place: Place) -> None:
    target = str(place.outside / "sub/allowed")
    place.write("whatever", b"yes", expected=target)
    assert place.read("whatever", expected=target) == b"yes"
    assert read_directory("", place.workspace, expected_resolved=str(place.outside / "sub")) == [
        DirectoryEntry("allowed", "file")
    ]
    # Since the decision, the folder was exchanged for a link to somewhere else.
    (place.outside / "sub").rename(place.outside / "moved")
    (place.outside / "sub").symlink_to(place.home)
    for action in (
        lambda: place.write("whatever", expected=target),
        lambda: place.read("whatever", expected=target),
        lambda: read_directory("", place.workspace, expected_resolved=str(place.outside / "sub")),
        lambda: make_directory("", place.workspace, expected_resolved=target),
        lambda: remove_file("", place.workspace, expected_resolved=target),
    ):
        with pytest.raises(SafeOpenError, match="link"):
            action()
    # Or the file itself was.
    (place.root / "f").symlink_to(place.home / "x")
    for action in (
        lambda: place.write("f", expected=f"{place.root}/f"),
        lambda: place.read("f", expected=f"{place.root}/f"),
    ):
        with pytest.raises(SafeOpenError, match="link"):
            action()
    assert place.everything(place.home) == []


# Exchanges two names at once, so that there is no moment without either, for as long as its parent wants.
SWAPPER = """
import ctypes, os, sys
exchange = ctypes.CDLL(None, use_errno=True).renameat2
one, two = os.fsencode(sys.argv[1]), os.fsencode(sys.argv[2])
print("failed" if exchange(-100, one, -100, two, 2) else "swapping", flush=True)
while os.getppid() == int(sys.argv[3]):
    for _ in range(1000):
        exchange(-100, one, -100, two, 2)
"""


def swapping(one: Path, two: Path, work: Callable[[], object], times: int) -> int:
    """How often `work` succeeded while another process kept exchanging the two."""
    command = [sys.executable, "-I", "-c", SWAPPER, str(one), str(two), str(os.getpid())]
    succeeded = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as swapper:
        assert swapper.stdout is not None
        try:
            if swapper.stdout.readline() != "swapping\n":
                pytest.skip("this system can't exchange names")
            for _ in range(times):
                try:
                    work()
                    succeeded += 1
                except SafeOpenError:
                    pass
        finally:
            swapper.kill()
    return succeeded


def test_D09_no_write_gets_out_while_a_folder_is_swapped_for_a_link(place: Place) -> None:
    (place.root / "trap").symlink_to(place.outside)
    succeeded = swapping(place.root / "d", place.root / "trap", lambda: place.write("d/f"), rounds(2000, 200))
    assert place.everything(place.outside) == []
    assert succeeded > 0
    assert not [name for name in place.everything(place.root) if name.endswith(".tmp")]


def test_D09_no_write_gets_out_while_a_folder_above_is_swapped(place: Place) -> None:
    (place.root / "d/sub").mkdir()
    (place.outside / "sub").mkdir()
    (place.root / "trap").symlink_to(place.outside)
    swapping(place.root / "d", place.root / "trap", lambda: place.write("d/sub/more/f"), rounds(2000, 200))
    assert place.everything(place.outside) == ["sub"]


def test_D09_no_write_reaches_a_control_path_by_a_swap(place: Place) -> None:
    (place.root / ".git/hooks").mkdir(parents=True)
    (place.root / "trap").symlink_to(".git/hooks")
    swapping(place.root / "d", place.root / "trap", lambda: place.write("d/pre-commit"), rounds(2000, 200))
    assert place.everything(place.root / ".git") == ["hooks"]


def test_D09_a_decision_for_one_file_reads_writes_and_removes_no_other_one(place: Place) -> None:
    (place.outside / "f").write_text("secret")
    (place.root / "d/f").write_text("plain")
    (place.root / "trap").symlink_to(place.outside)
    expected = f"{place.root}/d/f"
    seen: set[bytes] = set()
    swapping(
        place.root / "d", place.root / "trap", lambda: seen.add(place.read("d/f", expected=expected)), rounds(2000, 200)
    )
    assert seen <= {b"plain"}
    swapping(
        place.root / "d",
        place.root / "trap",
        lambda: remove_file("d/f", place.workspace, expected_resolved=expected),
        500,
    )
    assert (place.outside / "f").read_text() == "secret"


def test_D09_the_last_part_swapped_for_a_link_is_not_followed(place: Place) -> None:
    (place.outside / "f").write_text("secret")
    (place.root / "f").write_text("plain")
    (place.root / "trap").symlink_to(place.outside / "f")
    seen: set[bytes] = set()
    swapping(place.root / "f", place.root / "trap", lambda: seen.add(place.read("f")), rounds(2000, 200))
    assert seen <= {b"plain"}
    swapping(place.root / "f", place.root / "trap", lambda: place.write("f"), rounds(2000, 200))
    assert (place.outside / "f").read_text() == "secret"


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder", "device-link", "device"])
def test_D12_what_is_no_file_is_neither_read_nor_written(place: Place, kind: str) -> None:
    path = place.root / "x"
    expected = str(path)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        listener = socket.socket(socket.AF_UNIX)
        here = os.getcwd()
        os.chdir(place.root)
        try:
            listener.bind("x")
        finally:
            os.chdir(here)
            listener.close()
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
        expected = "/dev/zero" if kind == "device" else expected
    before = os.lstat(expected)
    for action in (
        lambda: place.read("x"),
        lambda: place.read("x", expected=expected),
        lambda: place.write("x"),
        lambda: place.write("x", expected=expected),
    ):
        with pytest.raises(SafeOpenError):
            action()
    assert os.lstat(expected).st_ino == before.st_ino
    assert os.lstat(expected).st_mode == before.st_mode


def test_dev_null_is_never_replaced(place: Place) -> None:
    for expected in ("", "/dev/null"):
        with pytest.raises(SafeOpenError):
            place.write("/dev/null", expected=expected)
    assert stat.S_ISCHR(os.lstat("/dev/null").st_mode)


def test_D12_a_huge_file_opens_at_once_and_its_size_is_known(place: Place) -> None:
    with open(place.root / "huge", "wb") as file:
        file.truncate(5 << 30)
    descriptor = open_for_reading("huge", place.workspace)
    assert os.fstat(descriptor).st_size == 5 << 30
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)


def test_the_process_s_environment_is_not_opened(place: Place) -> None:
    with pytest.raises(SafeOpenError):
        place.read("/proc/self/environ")
    (place.root / "env").symlink_to("/proc/self/environ")
    with pytest.raises(SafeOpenError):
        place.read("env")


@pytest.mark.parametrize(
    "path",
    ["", "/", ".", "..", "\0", "\ud800", "x" * 5000, "x" * 300, "a.txt/b", "nothing/there", "d/../../outside/x", "~/x"],
)
def test_what_can_t_be_used_is_told_and_nothing_else_is_raised(place: Place, path: str) -> None:
    place.write("a.txt")
    for action in (lambda: place.read(path), lambda: remove_file(path, place.workspace)):
        with pytest.raises(SafeOpenError):
            action()
    if path not in ("nothing/there",):
        with pytest.raises(SafeOpenError):
            place.write(path)
    for expected in ("\0", "relative", "/x\0/y", "/\ud800", f"{place.root}/d/../a.txt", f"{place.root}/..", "/"):
        with pytest.raises(SafeOpenError):
            place.read("", expected=expected)
    assert place.everything(place.outside) == []


def test_a_slash_at_the_end_is_a_folder(place: Place) -> None:
    with pytest.raises(SafeOpenError):
        place.write("new/")
    make_directory("new/", place.workspace)
    assert (place.root / "new").is_dir()


def test_folders_are_made_and_listed(place: Place) -> None:
    make_directory("x/y/z", place.workspace)
    make_directory("x/y/z", place.workspace)
    place.write("x/f")
    (place.root / "x/l").symlink_to("f")
    os.mkfifo(place.root / "x/p")
    assert read_directory("x", place.workspace) == [
        DirectoryEntry("f", "file"),
        DirectoryEntry("l", "link"),
        DirectoryEntry("p", "other"),
        DirectoryEntry("y", "directory"),
    ]
    with pytest.raises(SafeOpenError):
        make_directory("x/f/g", place.workspace)
    with pytest.raises(SafeOpenError):
        make_directory("x/f", place.workspace)
    with pytest.raises(SafeOpenError):
        read_directory("x/f", place.workspace)


def test_removing_a_link_leaves_what_it_leads_to(place: Place) -> None:
    (place.outside / "x").write_text("stays")
    (place.root / "l").symlink_to(place.outside / "x")
    remove_file("l", place.workspace)
    place.write("f")
    remove_file("d/../f", place.workspace)
    assert place.everything(place.root) == ["d"]
    assert (place.outside / "x").exists()
    with pytest.raises(SafeOpenError):
        remove_file("d", place.workspace)


def test_roots_that_may_only_be_read_are_not_written(place: Place) -> None:
    (place.outside / "x").write_text("old")
    reader = msgspec.structs.replace(place.workspace, extra_read_roots=(str(place.outside),))
    os.close(open_for_reading(str(place.outside / "x"), reader))
    with pytest.raises(SafeOpenError):
        write_file(str(place.outside / "x"), b"new", reader)
    writer = msgspec.structs.replace(place.workspace, extra_write_roots=(str(place.outside),))
    write_file(str(place.outside / "x"), b"new", writer)
    assert (place.outside / "x").read_text() == "new"


def test_a_read_only_file_stays_as_it_is_for_one_who_may_not_write_it(place: Place) -> None:
    """In a process of its own, because root may write everything."""
    (place.root / "f").write_text("old")
    (place.root / "f").chmod(0o444)
    program = (
        "import os, sys\n"
        "from kitbag.permissions.safe_open import SafeOpenError, write_file\n"
        "from kitbag.permissions.model import Workspace\n"
        "root = sys.argv[1]\n"
        "if os.geteuid() == 0:\n"
        "    os.chown(root, 65534, 65534); os.chown(root + '/f', 65534, 65534); os.chdir(root)\n"
        "    os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try:\n"
        "    write_file(root + '/f', b'new', Workspace(root=root, home='/nowhere', kitbag_home='/nowhere/k'))\n"
        "except SafeOpenError as error:\n"
        "    print(error.problem)\n"
    )
    for parent in (place.root, *place.root.parents):
        if parent.owner() == "root" and not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)
        if str(parent) == "/tmp":
            break
    done = subprocess.run(
        [sys.executable, "-c", program, str(place.root)], capture_output=True, text=True, timeout=TEST_TIMEOUT
    )
    assert "read-only" in done.stdout, done.stderr
    assert (place.root / "f").read_text() == "old"


def test_no_descriptor_is_left_open(place: Place) -> None:
    place.write("f")
    (place.root / "l").symlink_to(place.outside)

    def use_everything() -> None:
        place.read("f")
        place.write("deep/er/f")
        read_directory("d", place.workspace)
        for path in ("l/x", "f/x", "d", "nothing"):
            with pytest.raises(SafeOpenError):
                place.read(path)

    use_everything()
    before = len(os.listdir("/proc/self/fd"))
    use_everything()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_failed_write_leaves_the_old_file_and_nothing_else(place: Place) -> None:
    place.write("f", b"old")
    program = (
        "import resource, signal, sys\n"
        "from kitbag.permissions.safe_open import SafeOpenError, write_file\n"
        "from kitbag.permissions.model import Workspace\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n"
        "    write_file(sys.argv[1] + '/f', b'x' * 5000, Workspace(root=sys.argv[1], home='/nowhere', kitbag_home='/nowhere/k'))\n"
        "except SafeOpenError as error:\n"
        "    print(error.problem)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(place.root)], capture_output=True, text=True, timeout=TEST_TIMEOUT
    )
    assert "too large" in done.stdout, done.stderr
    assert place.everything(place.root) == ["d", "f"]
    assert place.read("f") == b"old"
