"""One command, bounded in time and output, with nothing of it left; most of it is tried by references (D35)."""

import os
import threading
import time
from pathlib import Path

import msgspec
import pytest

from kitbag.processes import run_process
from kitbag.processes.command_runner import CommandStart, ShellCommand, run_command, run_supervised
from support.clock import Clock
from support.confined import processes_with
from support.waiting import TEST_TIMEOUT


def command(text: str, folder: Path, seconds: float = TEST_TIMEOUT) -> ShellCommand:
    return ShellCommand(
        text=text, directory=str(folder), environment={"PATH": os.environ["PATH"]}, timeout=seconds, max_characters=1000
    )


def test_status_output_and_limits_are_told(tmp_path: Path) -> None:
    ran = run_command(command("echo out; echo err >&2; exit 3", tmp_path))
    assert (ran.text, ran.status, ran.stop_reason, ran.truncated_bytes, ran.notes) == ("out\nerr", 3, "", 0, ())
    ran = run_command(command("head -c 5000 /dev/zero | tr '\\0' x", tmp_path))
    assert (len(ran.text), ran.truncated_bytes) == (1000, 4000)
    assert run_command(command("kill -9 $$", tmp_path)).status == -9
    assert run_command(command("cat", tmp_path)).status == 0


def test_a_prefix_stands_before_the_shell_and_inherits_descriptors(tmp_path: Path) -> None:
    read, write = os.pipe()
    try:
        start = CommandStart(prefix=("/usr/bin/env", "GIVEN=yes"), descriptors=(write,))
        ran = run_supervised(command(f"echo $GIVEN; echo through >&{write}", tmp_path), None, start).command
        assert (ran.text, os.read(read, 100)) == ("yes", b"through\n")
    finally:
        os.close(read)
        os.close(write)


def test_a_prefix_that_is_not_there_is_told(tmp_path: Path) -> None:
    ran = run_supervised(command("true", tmp_path), None, CommandStart(prefix=("/nowhere/bwrap",))).command
    assert (ran.status, ran.text) == (126, "cannot start: No such file or directory")


def test_whoever_sets_its_stop_ends_it_with_all_that_came_of_it(tmp_path: Path) -> None:
    long = f"{90_000 + os.getpid()}.{time.monotonic_ns() % 100_000}"
    stop, heard = threading.Event(), bytearray()

    def hear(chunk: bytes) -> None:
        heard.extend(chunk)
        stop.set()

    text = f"trap '' TERM; (setsid sleep {long} &); env -i setsid sleep {long} > /dev/null 2>&1 & echo on; sleep {long}"
    ran = run_command(msgspec.structs.replace(command(text, tmp_path), stop=stop, on_output=hear))
    assert (ran.stop_reason, bytes(heard)) == ("asked", b"on\n")
    assert processes_with(long) == []
    ran = run_command(msgspec.structs.replace(command("touch made", tmp_path), stop=stop))
    assert (ran.stop_reason, os.listdir(tmp_path)) == ("asked", [])


def test_all_that_is_printed_is_heard_whatever_is_kept(tmp_path: Path) -> None:
    heard = bytearray()
    ran = run_command(msgspec.structs.replace(command("seq 1 50000", tmp_path), on_output=heard.extend))
    assert heard.splitlines()[-1] == b"50000"
    assert len(ran.text) == 1000


def test_what_takes_too_long_is_stopped_with_its_children_and_what_it_printed_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, run_process)
    long = f"{90_000 + os.getpid()}.{time.monotonic_ns() % 100_000}"
    text = f"setsid sleep {long} & trap '' TERM; echo on; sleep {long}"
    ran = run_command(msgspec.structs.replace(command(text, tmp_path, 600), on_output=lambda _: clock.let_pass(600)))
    assert (ran.stop_reason, ran.text) == ("time", "on")
    assert processes_with(long) == []
