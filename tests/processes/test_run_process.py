"""Threads that stop when they are told, and processes that are always ended."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Generator

import pytest

from kitbag.processes import run_process as running
from kitbag.processes.run_process import OpenDirectory, ProcessResult, StdinFeed, run_in_thread, run_process
from support.clock import Clock
from support.confined import processes_with
from support.using import children
from support.waiting import TEST_TIMEOUT, until_true, wait_until


@pytest.fixture
def here() -> Generator[OpenDirectory, None, None]:
    descriptor = os.open("/", os.O_RDONLY)
    yield OpenDirectory(descriptor, "/")
    os.close(descriptor)


def run(
    here: OpenDirectory,
    script: str,
    seconds: float = TEST_TIMEOUT,
    enough: int = 1 << 30,
    heard: Callable[[], None] = lambda: None,
) -> tuple[ProcessResult, bytes]:
    taken = bytearray()

    def take(chunk: bytes) -> bool:
        taken.extend(chunk)
        heard()
        return len(taken) < enough

    return run_process([sys.executable, "-c", script], here, take, threading.Event(), seconds), bytes(taken)


def test_output_errors_and_status_of_a_process_are_told(here: OpenDirectory) -> None:
    script = "import sys, os; print(os.getcwd(), dict(os.environ).get('PATH')); sys.stderr.write('oh'); sys.exit(3)"
    ended, output = run(here, script)
    assert (ended, output) == (ProcessResult(3, "oh"), b"/ None\n")


def test_a_process_that_takes_too_long_is_ended(here: OpenDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, running)
    script = "import time; print('begun', flush=True); time.sleep(1000)"
    ended, output = run(here, script, seconds=600, heard=lambda: clock.let_pass(600))
    assert (ended.stop_reason, output) == ("time", b"begun\n")
    assert not children()


def test_a_process_that_prints_without_end_is_ended_when_there_is_enough(here: OpenDirectory) -> None:
    ended, output = run(
        here, "import sys\nwhile True: sys.stdout.write('x' * 9999); sys.stderr.write('y' * 9999)", enough=1 << 20
    )
    assert ended.stop_reason == "enough"
    assert len(output) >= 1 << 20
    assert len(ended.errors) <= 1 << 16
    assert not children()


def test_a_process_can_not_hold_us_by_closing_its_output(here: OpenDirectory) -> None:
    ended, _ = run(here, "import os, time; os.close(1); os.close(2); time.sleep(1000)", seconds=1)
    assert ended.status < 0
    assert not children()


def test_what_a_process_leaves_running_is_ended_with_it_and_can_not_hold_us(here: OpenDirectory) -> None:
    long = f"{90_000 + os.getpid()}.{time.monotonic_ns() % 100_000}"
    script = f"import subprocess; subprocess.Popen(['/bin/sleep', '{long}']); print('done')"
    ended, output = run(here, script)
    assert (ended, output) == (ProcessResult(0, ""), b"done\n")
    wait_until(lambda: not processes_with(long))


def test_what_is_fed_arrives_and_a_reader_that_leaves_stops_the_writer(here: OpenDirectory) -> None:
    def write(target: int) -> None:
        for _ in range(1 << 20):
            os.write(target, b"x" * 1_000)

    taken = bytearray()
    with StdinFeed(write) as feed:
        script = "import sys; print(len(sys.stdin.buffer.read(5000)))"
        ended = run_process(
            [sys.executable, "-c", script], here, lambda chunk: not taken.extend(chunk), threading.Event(), TEST_TIMEOUT, feed.readable
        )  # fmt: skip
    assert (ended.status, bytes(taken)) == (0, b"5000\n")


def test_cancelling_waits_until_the_work_has_stopped() -> None:
    begun, ended = threading.Event(), threading.Event()

    def work(stop: threading.Event) -> None:
        begun.set()
        stop.wait()
        ended.set()
        raise OSError("nobody is interested any more")

    async def cancelled() -> None:
        running = asyncio.ensure_future(run_in_thread(work))
        await until_true(begun.is_set)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert ended.is_set()

    asyncio.run(cancelled())


def test_what_the_work_raises_is_raised() -> None:
    def work(_: threading.Event) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(run_in_thread(work))
