"""Commands under a supervisor: nothing of them outlives their end or the end of Kitbag."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kitbag.processes import supervised
from kitbag.processes.command_runner import ShellCommand, run_command
from kitbag.processes.supervised import scratch_directory, start_supervised
from support.confined import processes_with
from support.waiting import TEST_TIMEOUT, wait_until

DROPS_EVERYTHING = """
import os, sys
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.closerange(0, 1000)
os.execve("/bin/sleep", ["sleep", sys.argv[1]], {})
"""


def long_time() -> str:
    return f"{90_000 + os.getpid()}.{time.monotonic_ns() % 100_000}"


def command(text: str, folder: Path) -> ShellCommand:
    return ShellCommand(
        text=text,
        directory=str(folder),
        environment={"PATH": os.environ["PATH"]},
        timeout=TEST_TIMEOUT,
        max_characters=999,
    )


def test_a_process_that_drops_everything_is_ended_with_its_command(tmp_path: Path) -> None:
    (tmp_path / "drop.py").write_text(DROPS_EVERYTHING)
    long = long_time()
    waiting = f"until pgrep -f 'sleep {long}' > pid; do :; done"
    ran = run_command(command(f"{sys.executable} drop.py {long}; {waiting}; echo ended", tmp_path))
    assert (ran.text, ran.status) == ("ended", 0)
    assert (tmp_path / "pid").read_text()
    assert processes_with(long) == []


def test_a_killed_kitbag_takes_its_command_and_scratch_directories_along(tmp_path: Path) -> None:
    long = long_time()
    script = (
        "import os, sys\n"
        "from kitbag.processes.command_runner import ShellCommand, run_command\n"
        "from kitbag.processes.supervised import scratch_directory\n"
        "with scratch_directory() as place:\n"
        "    open(place + '/x', 'w').close()\n"
        f"    run_command(ShellCommand(text='touch started; sleep {long}', directory=sys.argv[1],\n"
        "                environment=dict(os.environ), timeout=600, max_characters=10))\n"
    )
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], env=environment)
    wait_until((tmp_path / "started").exists)
    assert len(list(scratch.iterdir())) == 1
    process.kill()
    process.wait()
    wait_until(lambda: not processes_with(long) and not list(scratch.iterdir()))


def test_a_scratch_directory_is_private_and_gone_at_the_end() -> None:
    with scratch_directory() as place:
        assert os.stat(place).st_mode & 0o777 == 0o700
        Path(place, "deep").mkdir()
    assert not os.path.exists(place)


def test_a_killed_server_is_replaced(tmp_path: Path) -> None:
    assert run_command(command("echo one", tmp_path)).text == "one"
    process = supervised._server._process
    assert process is not None
    process.kill()
    process.wait()
    assert run_command(command("echo two", tmp_path)).text == "two"


def test_a_killed_supervisor_leaves_nothing_running(tmp_path: Path) -> None:
    long = long_time()
    ran = run_command(command(f"sleep {long} & touch started; kill -9 $PPID; sleep {long}", tmp_path))
    assert ran.status == -9
    wait_until(lambda: processes_with(long) == [])


def test_what_can_t_be_started_is_an_error_and_leaves_no_descriptor(tmp_path: Path) -> None:
    run_command(command("true", tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    assert run_command(command("true", tmp_path / "nowhere")).text == "cannot start: No such file or directory"
    with pytest.raises(OSError):
        start_supervised(["/bin/true"], directory="/", environment={}, descriptors=(987,))
    assert len(os.listdir("/proc/self/fd")) == before
