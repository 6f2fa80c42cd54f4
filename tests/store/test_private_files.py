"""State is the user's alone, whole or not at all, and never behind a link."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kitbag.store import private_files
from kitbag.store.private_files import StoreError
from support.disk import Disk
from support.waiting import TEST_TIMEOUT


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_files_are_0600_in_directories_of_0700_whatever_the_umask(tmp_path: Path) -> None:
    code = (
        "import os, sys; os.umask(0)\n"
        "from kitbag.store import private_files\n"
        "private_files.write(sys.argv[1], 'state/deep/file', b'x')\n"
        "os.close(private_files.acquire_lock(sys.argv[1], 'state/lock'))\n"
    )
    home = tmp_path / "home"
    subprocess.run([sys.executable, "-c", code, str(home)], check=True, timeout=TEST_TIMEOUT)
    assert {mode(path) for path in (home, home / "state", home / "state/deep")} == {0o700}
    assert {mode(path) for path in (home / "state/deep/file", home / "state/lock")} == {0o600}


def test_a_directory_that_others_could_enter_is_closed_and_the_base_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    before = mode(tmp_path)
    private_files.write(str(tmp_path), "state/file", b"x")
    assert (mode(tmp_path / "state"), mode(tmp_path)) == (0o700, before)


def test_a_file_is_replaced_whole_and_nothing_is_left_over(tmp_path: Path) -> None:
    base = str(tmp_path)
    assert private_files.read(base, "a/file") is None
    private_files.write(base, "a/file", b"one")
    private_files.write(base, "a/file", b"two")
    assert private_files.read(base, "a/file") == b"two"
    assert os.listdir(tmp_path / "a") == ["file"]


def test_a_file_is_whole_on_the_disk_before_it_takes_the_old_one_s_place(tmp_path: Path, disk: Disk) -> None:
    private_files.write(str(tmp_path), "folder/file", b"one")
    private_files.write(str(tmp_path), "folder/file", b"three")
    steps = disk.steps(tmp_path / "folder/file", tmp_path / "folder")
    assert steps[-3:] == ["file synced", "file renamed", "folder synced"]


def test_nothing_is_written_read_or_locked_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"theirs")
    base = tmp_path / "base"
    base.mkdir()
    (base / "folder").symlink_to(outside)
    (base / "link").symlink_to(outside / "file")
    (base / "dangling").symlink_to(outside / "new")
    for path in ("folder/file", "link", "dangling", "folder/new/deep"):
        with pytest.raises(StoreError):
            private_files.write(str(base), path, b"mine")
        with pytest.raises(StoreError):
            private_files.acquire_lock(str(base), path)
    for path in ("folder/file", "link"):
        with pytest.raises(StoreError):
            private_files.read(str(base), path)
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {"file": b"theirs"}


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/x"])
def test_a_path_stays_below_its_base(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError):
        private_files.write(str(tmp_path / "base"), path, b"x")
    assert not (tmp_path / "x").exists()


def test_a_pipe_in_place_of_a_file_holds_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="not a regular file"):
        private_files.read(str(tmp_path), "pipe")


def test_a_full_disk_is_a_clear_error_and_leaves_the_old_file(tmp_path: Path) -> None:
    private_files.write(str(tmp_path), "file", b"old")
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "from kitbag.store import private_files\n"
        "try: private_files.write(sys.argv[1], 'file', b'x' * 5000)\n"
        "except private_files.StoreError as error: print(error.problem, '|', error.fix)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "File too large" in done.stdout
    assert private_files.read(str(tmp_path), "file") == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_directory_that_can_t_be_written_to_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot use"):
        private_files.write(str(tmp_path / "file"), "x", b"")


def test_one_holds_a_lock_and_the_others_wait_or_give_up(tmp_path: Path) -> None:
    base = str(tmp_path)
    taken: list[int] = []
    with private_files.hold_lock(base, "a/lock"):
        with pytest.raises(StoreError, match="another Kitbag"), private_files.hold_lock(base, "a/lock", timeout=0.05):
            pass
        waiting = threading.Thread(target=lambda: taken.append(private_files.acquire_lock(base, "a/lock")))
        waiting.start()
    waiting.join(TEST_TIMEOUT)
    assert len(taken) == 1
    os.close(taken[0])
    with (
        private_files.hold_lock(base, "a/lock", shared=True),
        private_files.hold_lock(base, "a/lock", timeout=0, shared=True),
        pytest.raises(StoreError),
    ):
        private_files.acquire_lock(base, "a/lock", timeout=0)


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    code = (
        "import sys; from kitbag.store import private_files\n"
        "private_files.acquire_lock(sys.argv[1], 'lock'); print('held', flush=True); sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(StoreError):
        private_files.acquire_lock(str(tmp_path), "lock", timeout=0)
    process.kill()
    process.communicate(timeout=TEST_TIMEOUT)
    os.close(private_files.acquire_lock(str(tmp_path), "lock"))


def test_what_is_set_aside_keeps_its_bytes_and_never_takes_another_s_name(tmp_path: Path) -> None:
    for number, data in enumerate((b"one", b"two"), 1):
        private_files.write(str(tmp_path), "file", data)
        aside = private_files.set_aside(str(tmp_path), "file")
        assert aside == str(tmp_path / f"file.damaged-{number}")
    assert (tmp_path / "file.damaged-1").read_bytes() == b"one"
    assert (tmp_path / "file.damaged-2").read_bytes() == b"two"
    assert not (tmp_path / "file").exists()


def test_a_new_name_of_what_is_set_aside_is_on_the_disk(tmp_path: Path, disk: Disk) -> None:
    (tmp_path / "file").write_bytes(b"one")
    private_files.set_aside(str(tmp_path), "file")
    steps = disk.steps(tmp_path / "file.damaged-1", tmp_path)
    assert steps == ["file.damaged-1 renamed", f"{tmp_path.name} synced"]
