"""Signals: only to a process that was checked after it was pinned, never to ourselves, to everybody or to init."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kitbag.processes import signals
from kitbag.processes.process_table import (
    HIGHEST_PID,
    ancestor_pids,
    child_pids,
    has_file_open,
    is_pid,
    process_info,
    process_user,
)
from kitbag.processes.signals import has_child_exited, kill_child, send_signal, signal_child_group
from support.waiting import wait_until

Process = "subprocess.Popen[bytes]"


def anybody(_: int) -> str:
    return ""


def nobody(_: int) -> str:
    return "is not the one"


@pytest.fixture
def process() -> Iterator[Any]:
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as started:
        yield started
        started.kill()


@pytest.mark.parametrize("value", [0, -1, -2, True, False, None, 2.0, "7", "", [7], HIGHEST_PID + 1, 2**31, 10**40])
def test_what_is_not_the_number_of_one_process_is_no_pid_and_is_never_signalled(value: object) -> None:
    assert not is_pid(value)
    assert "not a valid" in send_signal(value, signal.SIGKILL, anybody)


def test_this_process_its_group_its_ancestors_and_init_are_never_signalled() -> None:
    for pid in {1, os.getpid(), os.getppid(), os.getpgrp(), *ancestor_pids()}:
        assert is_pid(pid)
        assert send_signal(pid, signal.SIGCONT, anybody).startswith("is ")
    assert os.getppid() in ancestor_pids()
    assert os.getpid() not in ancestor_pids()


def test_one_that_is_detached_may_end_whoever_started_it() -> None:
    code = (
        "import os, signal; from kitbag.processes.signals import send_signal; pid = os.getppid()\n"
        "print(send_signal(pid, signal.SIGCONT, lambda _: ''))\n"
        "print(send_signal(pid, signal.SIGCONT, lambda _: '', spare_ancestors=False))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, start_new_session=True)
    refused, sent = done.stdout.splitlines()
    assert "ancestor" in refused, done.stderr
    assert sent == ""


def test_who_it_is_is_asked_when_the_process_is_pinned(process: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[int] = []
    opened = os.pidfd_open
    monkeypatch.setattr(os, "pidfd_open", lambda pid: pinned.append(pid) or opened(pid))

    def check(pid: int) -> str:
        assert pinned == [pid]
        return "is not the one"

    assert send_signal(process.pid, signal.SIGKILL, check) == "is not the one"
    assert process.poll() is None
    assert send_signal(process.pid, signal.SIGKILL, anybody) == ""
    assert process.wait() == -signal.SIGKILL
    assert send_signal(process.pid, signal.SIGKILL, anybody) == "has ended"


def test_one_that_ends_while_it_is_asked_who_it_is_is_not_mixed_up_with_another(process: Any) -> None:
    def check(_: int) -> str:
        process.kill()
        process.wait()
        return ""

    assert send_signal(process.pid, signal.SIGKILL, check) == "has ended"


def test_where_there_is_no_pidfd_it_is_asked_all_the_same(process: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    assert send_signal(process.pid, signal.SIGKILL, nobody) == "is not the one"
    assert process.poll() is None
    assert send_signal(process.pid, signal.SIGTERM, anybody) == ""
    assert process.wait() == -signal.SIGTERM


def test_a_thread_is_no_process() -> None:
    code = (
        "import sys, threading, time\n"
        "threading.Thread(target=lambda: (print(threading.get_native_id(), flush=True), time.sleep(300))).start()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert send_signal(int(other.stdout.readline()), signal.SIGKILL, anybody) == "has ended"
        assert other.poll() is None
        other.kill()
    own: list[str] = []
    thread = threading.Thread(
        target=lambda: own.append(send_signal(threading.get_native_id(), signal.SIGCONT, anybody))
    )
    thread.start()
    thread.join()
    assert "Kitbag itself" in own[0]


def has_ended(pid: int) -> bool:
    info = process_info(pid)
    return info is None or info.has_ended


def test_a_group_is_signalled_as_long_as_its_leader_is_a_child_that_was_not_waited_for() -> None:
    with subprocess.Popen(
        ["sh", "-c", "sleep 300 & echo $!; exit 0"], stdout=subprocess.PIPE, start_new_session=True
    ) as leader:
        assert leader.stdout is not None
        member = int(leader.stdout.readline())
        while not has_child_exited(leader.pid):
            pass
        signal_child_group(leader.pid, signal.SIGKILL)
        assert leader.stdout.read() == b"", "nobody holds it any more"
        assert leader.wait() == 0
        wait_until(lambda: has_ended(member))  # it closes its files a moment before
        with pytest.raises(ChildProcessError):
            has_child_exited(leader.pid)


def test_the_group_of_what_is_no_child_of_ours_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, _: sent.append(pid))
    for pid in (0, 1, -1, os.getpgrp(), os.getppid(), HIGHEST_PID + 1):
        signal_child_group(pid, signal.SIGKILL)
    with subprocess.Popen(["true"], start_new_session=True) as ended:
        ended.wait()
    signal_child_group(ended.pid, signal.SIGKILL)
    assert sent == []


def test_children_end_with_their_groups_and_what_is_detached_goes_on(process: Any) -> None:
    with (
        subprocess.Popen(["sleep", "300"]) as in_our_group,
        subprocess.Popen(["sleep", "300"], start_new_session=True) as detached,
    ):
        signals.detach(detached)
        assert {process.pid, in_our_group.pid, detached.pid} <= child_pids()
        for child in (process, in_our_group, detached):
            kill_child(child.pid)
        kill_child(os.getppid())
        assert process.wait() == -signal.SIGKILL
        assert in_our_group.wait() == -signal.SIGKILL
        assert detached.poll() is None
        detached.kill()


def test_what_the_system_says_about_a_process(process: Any, tmp_path: Any) -> None:
    mine, other = process_info(os.getpid()), process_info(process.pid)
    assert mine is not None
    assert other is not None
    assert (other.parent, other.has_ended) == (os.getpid(), False)
    assert int(mine.started) <= int(other.started)
    assert process_user(process.pid) == os.geteuid()
    path = tmp_path / "held"
    with path.open("w"):
        assert has_file_open(os.getpid(), str(path))
        assert has_file_open(process.pid, str(path)) is False
    assert has_file_open(os.getpid(), str(path)) is False
    process.kill()
    process.wait()
    assert (process_info(process.pid), process_user(process.pid), has_file_open(process.pid, str(path))) == (
        None,
        None,
        False,
    )


def test_without_proc_ps_says_it(process: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kitbag.processes.process_table._has_proc", lambda: False)
    from kitbag.processes.process_table import _run_ps

    if not (found := _run_ps(process.pid)):
        pytest.skip("there is no ps")
    assert (int(found[5]), int(found[7])) == (os.getpid(), os.geteuid())
    assert found[6][0] in "SRD"  # on a busy machine it may not have gone to sleep yet
    process.kill()
    process.wait()
    assert _run_ps(process.pid) == []
