"""Processes that were left behind are found by what they carry, and nobody else's are touched."""

import os
import subprocess
import time

import pytest

from kitbag.processes.descendants import MARKER_VARIABLE, DescendantTracker
from support.confined import processes_with
from support.waiting import wait_until


@pytest.fixture
def long() -> str:
    return f"{90_000 + os.getpid()}.{time.monotonic_ns() % 1_000_000}"


def start(leash: DescendantTracker, text: str) -> "subprocess.Popen[bytes]":
    process = subprocess.Popen(
        ["/bin/bash", "-c", text],
        env={"PATH": os.environ["PATH"], MARKER_VARIABLE: leash.marker_value("outer")},
        pass_fds=leash.descriptors,
        start_new_session=True,
    )
    leash.track(process.pid)
    process.wait()
    return process


@pytest.mark.parametrize(
    "text",
    [
        "(setsid sleep {long} &)",
        "(env -i setsid sleep {long} > /dev/null 2>&1 &)",
        "(setsid bash -c 'exec 70<&-; sleep {long}' &)",
        "(setsid sleep {long} & setsid sleep {long} & (setsid setsid sleep {long} &))",
    ],
    ids=["in a session of its own", "without its environment", "without the file", "many"],
)
def test_whoever_keeps_one_of_the_two_marks_is_ended(text: str, long: str) -> None:
    leash = DescendantTracker()
    start(leash, text.format(long=long))
    wait_until(lambda: processes_with(long))
    leash.end_all()
    assert processes_with(long) == []


def test_what_does_not_carry_the_mark_lives_on(long: str) -> None:
    others = [DescendantTracker(), DescendantTracker(with_file=False)]
    for other in others:
        start(other, f"(setsid sleep {long} &)")
    wait_until(lambda: len(processes_with(long)) == 2)
    leash = DescendantTracker()
    start(leash, "true")
    begun = subprocess.Popen(["sleep", long])
    try:
        wait_until(lambda: len(processes_with(long)) == 3)  # a process has no arguments for a moment
        leash.end_all()
        assert len(processes_with(long)) == 3
    finally:
        begun.kill()
        begun.wait()
        for other in others:
            other.end_all()
    assert processes_with(long) == []


def test_it_does_not_end_the_one_who_holds_it() -> None:
    leash = DescendantTracker()
    forked = subprocess.Popen(["sleep", "600"])  # started while the file is open here
    leash.end_all()
    assert forked.poll() is None
    forked.kill()
    forked.wait()
    leash.close()
    leash.close()
