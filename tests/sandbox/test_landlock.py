"""The sandlock sandbox: nothing outside is written, secrets are not read, nothing is reached, nothing lives on."""

import os
import socket
import subprocess
import sys
import time

import pytest

from conftest import World
from kitbag.permissions.model import SandboxProfile
from kitbag.processes.command_runner import CommandResult
from kitbag.sandbox.confine import SandboxError
from kitbag.sandbox.confinement import Confinement
from kitbag.sandbox.landlock import run_in_landlock
from support import needs
from support.confined import Box, processes_with
from support.waiting import TEST_TIMEOUT


class Landlocked(Box):
    def run(
        self, text: str, profile: SandboxProfile = "workspace", *, network: bool = False, seconds: float = TEST_TIMEOUT
    ) -> CommandResult:
        return run_in_landlock(
            self.command(text, seconds), None, Confinement(profile=profile, network=network), self.workspace
        )


@pytest.fixture
def box(world: World) -> Landlocked:
    needs.sandlock()
    return Landlocked(world)


def test_a_command_writes_in_the_workspace_and_its_scratch_folder_only(box: Landlocked) -> None:
    around = (box.world.home, box.world.outside)
    before = box.state(*around)
    ran = box.run("echo new > made; echo x > $TMPDIR/x && cat $TMPDIR/x; echo $TMPDIR; exit 3")
    scratch = ran.text.split()[-1]
    assert (ran.status, ran.text.split()[0]) == (3, "x")
    assert (box.root / "made").read_text() == "new\n"
    assert not os.path.exists(scratch)
    for text in (
        "echo x > $OUT/tripwire",
        "rm -rf $OUT ~",
        "ln -s $OUT d; echo x > d/new",
        "ln $OUT/tripwire h; echo x > h",
    ):
        box.run(text)
    box.run("unshare -Urm sh -c 'echo x > $OUT/tripwire'; echo x > /proc/1/root$OUT/tripwire; ")
    assert box.state(*around) == before


def test_read_only_writes_nowhere(box: Landlocked) -> None:
    before = box.state()
    ran = box.run(
        "echo x > new; rm src/a.py; mkdir d; chmod 777 src/a.py; touch -d @1 src/a.py; echo x > /dev/null && cat src/a.py",
        "read-only",
    )
    assert ran.text.endswith("a = 1")
    assert box.state() == before


def test_secrets_are_not_read_in_files_or_in_the_environment(box: Landlocked) -> None:
    box.world.write("~/.kitbag/settings.toml", "CANARY\n")
    box.world.write("~/.kitbag/skills/x/run.sh", "echo shown\n")
    ran = box.run(
        "cat ~/.ssh/id_rsa ~/.netrc ~/.kitbag/settings.toml; ln ~/.netrc n; cat n; sh ~/.kitbag/skills/x/run.sh"
    )
    assert "CANARY" not in ran.text
    assert ran.text.endswith("shown")
    command = box.command("env; cat /proc/*/environ", environment={"GITHUB_TOKEN": "CANARY", "PLAIN": "kept"})
    ran = run_in_landlock(command, None, Confinement(profile="workspace"), box.workspace)
    assert "CANARY" not in ran.text
    assert "PLAIN=kept" in ran.text


def test_nothing_is_reached_unless_the_network_is_on(box: Landlocked) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(box.world.outside / "d.sock"))
        for one in (server, local):
            one.listen()
            one.setblocking(False)
        text = f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]}"
        assert box.run(text).status != 0
        unix = "import socket, os; socket.socket(socket.AF_UNIX).connect(os.environ['OUT'] + '/d.sock')"
        assert box.run(f'python3 -c "{unix}"').status != 0
        for one in (server, local):
            with pytest.raises(BlockingIOError):
                one.accept()
        assert box.run(text, network=True).status == 0


@pytest.mark.parametrize(
    "text", ["env -i setsid -f sleep LONG; echo done", "nohup sleep LONG >/dev/null 2>&1 & echo done"]
)
def test_nothing_lives_on(box: Landlocked, text: str) -> None:
    long = f"{90_000 + os.getpid()}.{time.monotonic_ns() % 100_000}"
    assert box.run(text.replace("LONG", long)).text == "done"
    assert processes_with(long) == []
    assert box.run(f"{text}; sleep LONG".replace("LONG", long), seconds=0.5).stop_reason == "time"
    assert processes_with(long) == []


def test_an_end_by_a_signal_is_no_success(box: Landlocked) -> None:
    assert box.run("kill -9 $$").status == 128 + 9


def test_a_sandbox_that_can_t_be_made_is_no_result_of_the_command(box: Landlocked) -> None:
    box.also_writable = (str(box.world.outside / "nowhere"),)
    with pytest.raises(SandboxError, match="could not create the sandbox"):
        box.run("touch ran")
    assert not (box.root / "ran").exists()
    box.also_writable = ("/",)
    with pytest.raises(SandboxError, match="root directory"):
        box.run("true")


def test_nothing_of_the_workspace_is_imported_by_what_confines(box: Landlocked) -> None:
    for name in ("json.py", "kitbag/__init__.py", "sandlock.py", "sitecustomize.py"):
        box.world.write(name, f"open({str(box.world.canary)!r}, 'w')\n")
    command = box.command("true", environment={"PYTHONPATH": str(box.root), "LD_LIBRARY_PATH": str(box.root)})
    assert run_in_landlock(command, None, Confinement(profile="workspace"), box.workspace).status == 0
    assert not box.world.canary.exists()


def test_where_bubblewrap_is_missing_sandlock_holds_what_only_reads(box: Landlocked) -> None:
    """The real program, in a place where bubblewrap can't be started."""
    needs.bubblewrap()
    hide = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", "/dev/null", os.path.realpath("/usr/bin/bwrap")]
    program = [*hide, sys.executable, "-m", "kitbag"]

    def kitbag(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*program, *words], cwd=box.root, env=box.world.env, capture_output=True, text=True, timeout=TEST_TIMEOUT
        )

    done = kitbag("permissions", "run", "cat src/a.py")
    assert (done.returncode, done.stdout) == (0, "a = 1\n"), done.stderr
    assert "sandlock, read-only, no network" in done.stderr
    assert kitbag("permissions", "run", "python3 -c 1", "--permission-mode", "autonomous").returncode == 6
    done = kitbag("permissions", "run", "python3 -c 1 > new", "--yes")
    assert done.returncode == 0, done.stderr
    assert "control files not protected" in done.stderr
    assert '"kind": "sandlock"' in kitbag("doctor", "--json").stdout
