"""The bubblewrap sandbox holds: real commands try to get out, and real tripwires tell."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conftest import World
from kitbag.permissions.model import SandboxProfile, Workspace
from kitbag.permissions.paths import examine_path
from kitbag.processes.command_runner import MARKER_VARIABLE, CommandResult, ShellCommand
from kitbag.sandbox import bubblewrap
from kitbag.sandbox.bubblewrap import Bubblewrap
from kitbag.sandbox.confine import SandboxError, run_confined
from kitbag.sandbox.confinement import Confinement
from kitbag.sandbox.control_snapshot import take_snapshot
from kitbag.sandbox.filesystem_view import FilesystemView
from support import needs
from support.confined import GIT_CONFIG, Box, processes_with
from support.matrix import sample
from support.waiting import TEST_TIMEOUT, wait_until


@pytest.fixture
def box(world: World) -> Box:
    needs.bubblewrap()
    return Box(world)


def long_time() -> str:
    """Seconds that no other process sleeps."""
    return f"{90_000 + os.getpid()}.{time.monotonic_ns() % 100_000}"


# --- what a command may do ---------------------------------------------------------------------------------------


def test_a_command_runs_in_the_workspace_and_its_changes_stay(box: Box) -> None:
    ran = box.run("pwd && echo new > made && mkdir -p sub/deep && mv src/a.py sub/b.py && rm -r src && cat made")
    assert (ran.status, ran.text, ran.notes) == (0, f"{box.root}\nnew", ())
    assert (box.root / "made").read_text() == "new\n"
    assert (box.root / "sub/b.py").read_text() == "a = 1\n"
    assert not (box.root / "src").exists()


@pytest.mark.parametrize("profile", ["read-only", "workspace"])
def test_a_workspace_in_shared_memory_can_be_used(tmp_path: Path, profile: SandboxProfile) -> None:
    needs.bubblewrap()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as root:
        (Path(root) / "file").write_text("content")
        workspace = Workspace(root=root, home=str(tmp_path), kitbag_home=str(tmp_path / ".kitbag"))
        command = ShellCommand(
            text="pwd; cat file", directory=root, environment={}, timeout=TEST_TIMEOUT, max_characters=1_000
        )
        ran = run_confined(command, confinement=Confinement(profile=profile), workspace=workspace)
    assert (ran.status, ran.text) == (0, f"{root}\ncontent")


def test_the_status_and_both_outputs_are_the_commands_own(box: Box) -> None:
    ran = box.run("echo out; echo err >&2; exit 7")
    assert (ran.status, sorted(ran.text.split())) == (7, ["err", "out"])
    assert box.run("no-such-program-here").status == 127
    assert box.run("./src/a.py").status == 126
    assert box.run("kill -9 $$").status == 128 + 9


def test_the_temporary_folder_is_the_commands_own_and_gone_afterwards(box: Box) -> None:
    mine = Path("/tmp/kitbag-test-mine")
    assert box.run(f"echo x > {mine} && ls /tmp && test $TMPDIR = /tmp && touch /var/tmp/x").status == 0
    assert not mine.exists()
    assert box.world.write("other", "x", box.root.parent).exists()
    assert box.run(f"ls {box.root.parent}").text.split() == ["home", "outside", "workspace"]


def test_processes_pipes_shared_memory_and_devices_work(box: Box) -> None:
    text = "cat <(echo sub) | tr a-z A-Z; echo x >/dev/null; head -c3 /dev/zero | wc -c; ls -d /dev/shm; : >/dev/shm/x"
    ran = box.run(text)
    assert (ran.status, ran.text.split()) == (0, ["SUB", "3", "/dev/shm"])


def test_git_can_commit_where_only_its_config_and_hooks_are_held(box: Box) -> None:
    shutil.rmtree(box.root / ".git")
    git = ["git", "-c", "init.defaultBranch=main", "-C", str(box.root)]
    subprocess.run([*git, "init", "-q"], check=True)
    person = "-c user.name=a -c user.email=a@b"
    ran = box.run(f"git status --short && git {person} add -A && git {person} commit -qm one && git log --format=%s")
    assert (ran.status, ran.text) == (0, "?? src/\none")
    assert subprocess.run([*git, "status", "--short"], capture_output=True, text=True, check=True).stdout == ""


def test_other_writable_roots_can_be_written(box: Box) -> None:
    other = box.world.outside / "opened"
    other.mkdir()
    box.also_writable = (str(other),)
    assert box.run("echo x > $OUT/opened/new").status == 0
    assert (other / "new").exists()
    assert box.run("echo x > $OUT/opened/.mcp.json").status != 0
    assert box.run("echo x > $OUT/tripwire").status != 0
    assert os.listdir(other) == ["new"]


# --- where it can't write ----------------------------------------------------------------------------------------

OUTSIDE = [
    "echo x > $OUT/tripwire",
    "echo x > $OUT/new",
    "rm -rf $OUT",
    "echo x >> ~/.bashrc",
    "mkdir -p ~/.config/autostart",
    "ln -s $OUT/tripwire link; echo x > link",
    "ln $OUT/tripwire hard && echo x > hard",
    "ln -s $OUT d; echo x > d/new",
    "mv $OUT/tripwire here",
    "echo x > /proc/self/root$OUT/tripwire",
    "for p in /proc/[0-9]*; do echo x > $p/root$OUT/tripwire; echo x > $p/cwd/../outside/tripwire; done",
    "for f in /proc/[0-9]*/fd/*; do echo x > $f/tripwire; done",
    "mount -o remount,rw / ; mount -o remount,rw $OUT; echo x > $OUT/tripwire",
    "umount -l $OUT; umount -l /tmp; echo x > $OUT/tripwire",
    "unshare -Urm sh -c 'mount -o remount,rw,bind $OUT; umount -l $OUT; echo x > $OUT/tripwire'",
    "unshare -Ur sh -c 'chmod 777 $OUT; echo x > $OUT/tripwire'",
    "chmod 777 $OUT; touch -d 2001-01-01 $OUT/tripwire; truncate -s 0 $OUT/tripwire",
    "mkdir new && mount --bind $OUT new; echo x > new/tripwire",
    "chroot /proc/1/root sh -c 'echo x > $OUT/tripwire'",
    "nsenter -t 1 -m sh -c 'echo x > $OUT/tripwire'",
    "nsenter -t 1 -a sh -c 'echo x > $OUT/tripwire'",
    "mknod disk b 254 0; mknod mem c 1 1; cat mem",
    "sudo -n sh -c 'echo x > $OUT/tripwire'; su -c 'echo x > $OUT/tripwire'",
    "kill -9 -1; echo x > $OUT/tripwire",
    "echo x > /etc/kitbag-test; echo x > /usr/kitbag-test; echo x > /sys/kernel/profiling",
    "(exec 3<>/proc/sys/kernel/core_pattern) && echo x > $OUT/tripwire; (exec 3<>/proc/sysrq-trigger) && echo x > $OUT/tripwire",
    "mv ../workspace ../elsewhere; mkdir ../workspace",
]


@pytest.mark.parametrize("text", OUTSIDE)
def test_D10_nothing_outside_the_workspace_changes(box: Box, text: str) -> None:
    around = (box.world.outside, box.world.home)
    before = box.state(*around)
    box.run(text)
    assert box.state(*around) == before
    assert not os.path.exists("/etc/kitbag-test")
    assert not os.path.exists("/usr/kitbag-test")


@pytest.mark.parametrize(
    "text", ["echo x > new", "rm src/a.py", "echo x > src/a.py", "chmod 777 src", "mkdir d", *sample(OUTSIDE, 9)]
)
def test_in_the_read_only_sandbox_nothing_changes_at_all(box: Box, text: str) -> None:
    before = box.state()
    ran = box.run(text, "read-only")
    assert box.state() == before
    assert ran.notes == ()


def test_a_device_made_or_a_file_with_other_rights_gives_nothing(box: Box) -> None:
    ran = box.run(
        "cp /bin/true t && chmod u+s t; mknod d c 1 5; cat d; id -u; grep -E 'CapEff|NoNewPrivs' /proc/self/status"
    )
    assert not (box.root / "d").exists()
    assert "CapEff:\t0000000000000000" in ran.text
    assert "NoNewPrivs:\t1" in ran.text


# --- control paths -----------------------------------------------------------------------------------------------

CONTROL = [
    "echo x > .git/config",
    "echo x >> .git/hooks/pre-commit",
    "mkdir -p .git/hooks && echo x > .git/hooks/pre-commit",
    "mkdir .git/hooks; cd .git/hooks && echo x > post-commit",
    "git config core.fsmonitor 'touch $OUT/tripwire'",
    "git -c core.hooksPath=x config core.pager x; echo x > .git/config.worktree",
    "mkdir evil && cp .git/config evil && echo evil > .git/commondir",
    "rm -rf .git; mv .git old && mkdir -p .git && echo x > .git/config",
    "mv .git x; cp -r x .git; echo x > .git/config",
    "mv .git/config .git/config2; echo x > .git/config",
    "ln -sf /tmp/x .git/config; ln -s /tmp/x .git/hooks; rm .git/config",
    "sub=../workspace; mv $sub/.git $sub/y; echo x > $sub/.git/config",
    "ln .git/config hard && echo x > hard",
    "echo x > .mcp.json",
    "echo x > tmpfile && mv tmpfile .mcp.json",
    "ln -s src/a.py .mcp.json; ln src/a.py .mcp.json",
    "mkdir -p .claude/skills/evil && echo x > .claude/skills/evil/SKILL.md",
    "mkdir d && mv d .claude; mkdir d && mv d .kitbag",
    "mkdir -p .vscode; echo '{}' > .vscode/tasks.json",
    "mkdir -p .github/workflows && echo x > .github/workflows/ci.yml",
    "mkdir -p x/workflows && echo x > x/workflows/ci.yml && mv -T x .github",
    "mv .github moved; mkdir -p .github/workflows; echo x > .github/workflows/ci.yml",
    "echo x > .envrc; echo x > .npmrc; echo x > opencode.json; echo x > .pre-commit-config.yaml",
    "python3 -c \"import os; os.mkdir('.kitbag'); open('.kitbag/settings.toml', 'w').write('x')\"",
    "umount .mcp.json .claude .git/config; rm -rf .mcp.json; echo x > .mcp.json; echo x > .git/config",
    "unshare -Urm sh -c 'umount .git/config; mount -o remount,rw,bind .git/config; echo x > .git/config'",
    "touch -d @1 .mcp.json .claude; chmod 777 .claude; echo x > .claude/settings.json",
]  # fmt: skip


ORDINARY_IN_GIT = (".git/HEAD", ".git/objects", ".git/refs")


def control_state(box: Box) -> dict[str, bytes]:
    """All that is there but ordinary files, and of the repository what makes git run something."""
    found = {os.path.relpath(path, box.root): text for path, text in box.state(box.root).items()}
    return {
        path: text
        for path, text in found.items()
        if path[0] == "." and path != ".github" and not path.startswith(ORDINARY_IN_GIT)
    }


@pytest.mark.parametrize("text", CONTROL)
def test_D11_no_control_path_changes_or_comes_into_being(box: Box, text: str) -> None:
    before = control_state(box)
    box.run(text)
    assert control_state(box) == before
    assert (box.root / ".git/config").read_text() == GIT_CONFIG


@pytest.mark.parametrize("text", sample(CONTROL, 9))
def test_D11_nor_in_a_workspace_that_is_no_repository(box: Box, text: str) -> None:
    shutil.rmtree(box.root / ".git")
    box.run(text)
    assert control_state(box) == {}


@pytest.mark.parametrize("text", sample(CONTROL, 9))
def test_D11_nor_where_all_of_them_are_there_already(box: Box, text: str) -> None:
    for path in (".mcp.json", ".claude/settings.json", ".github/workflows/ci.yml", ".vscode/tasks.json", ".npmrc"):
        box.world.write(path, "mine\n")
    for path in (".envrc", "opencode.json", ".git/hooks/pre-commit", ".kitbag/settings.toml"):
        box.world.write(path, "mine\n")
    before = control_state(box)
    box.run(text)
    assert control_state(box) == before


def test_git_init_makes_no_repository_in_the_workspace(box: Box) -> None:
    shutil.rmtree(box.root / ".git")
    ran = box.run("git init -q . && git config core.fsmonitor x")
    assert ran.status != 0
    assert not (box.root / ".git").exists()


@pytest.mark.parametrize(
    "text",
    [
        "git init -q sub/new",
        "mkdir -p deep/a/b/c/d/e/f && git init -q deep/a/b/c/d/e/f",
        "mkdir -p new && echo 'gitdir: /tmp/x' > new/.git",
        "mkdir -p new && ln -s /tmp/x new/.git",
        "git init -q --bare new",
        "mkdir -p new/objects new/refs && echo 'ref: refs/heads/x' > new/HEAD && echo x > new/config",
        "mkdir -p node_modules/x && git init -q node_modules/x",
        "git clone -q . copy",
        "git init -q /tmp/made && cp -r /tmp/made made",
        "git init -q /tmp/made && mv /tmp/made/.git sub",
    ],
)
def test_no_repository_is_created_at_any_depth(box: Box, text: str) -> None:
    before = take_snapshot([str(box.root)])
    ran = box.run(text)
    assert ran.status != 0
    assert any("git may run commands from it" in note for note in ran.notes)
    assert take_snapshot([str(box.root)]) == before


def test_a_repository_that_was_there_keeps_working_or_is_held_whole(box: Box) -> None:
    near, far = box.root / "near", box.root / "a/b/c/d/e/far"
    for folder in (near, far):
        subprocess.run(["git", "init", "-q", str(folder)], check=True)
    before = box.state(near / ".git/hooks", far / ".git")
    config = (near / ".git/config").read_bytes()
    ran = box.run(
        "for r in near a/b/c/d/e/far; do git -C $r config core.pager x; echo x > $r/.git/hooks/pre-commit; done"
    )
    assert len(ran.notes) == 3
    assert box.state(near / ".git/hooks", far / ".git") == before
    assert (near / ".git/config").read_bytes() == config
    assert box.run("mv a/b moved && mkdir -p a/b/c/d/e/far && cp -r moved/c/d/e/far/.git a/b/c/d/e/far/").status != 0


def test_a_control_path_that_is_a_link_stays_as_it_is(box: Box) -> None:
    box.world.write("shared/x", "x")
    (box.root / ".vscode").symlink_to("shared")
    for text in ("rm .vscode", "mv .vscode gone", "ln -sfn src .vscode", "unlink .vscode", "mv src .vscode"):
        ran = box.run(text)
        assert (os.readlink(box.root / ".vscode"), ran.status != 0) == ("shared", True)
        assert ".vscode" in ran.notes[0]
    shutil.rmtree(box.root / ".git")
    (box.root / ".git").symlink_to("shared")
    with pytest.raises(SandboxError, match="symbolic link"):
        box.run("true")


# --- nothing of ours is in the user's folder, and nobody is hindered ---------------------------------------------


RUN_CONFINED = """
import sys
from kitbag.processes.command_runner import ShellCommand
from kitbag.permissions.model import Workspace
from kitbag.sandbox.confine import run_confined
from kitbag.sandbox.confinement import Confinement
root = sys.argv[1]
run_confined(
    ShellCommand(text=sys.argv[2], directory=root, environment={'PATH': '/usr/bin:/bin'}, timeout=600, max_characters=10),
    confinement=Confinement(profile='workspace'),
    workspace=Workspace(root=root, home=root + '/../home', kitbag_home=root + '/../home/.kitbag'),
)
"""


@pytest.mark.parametrize("with_git", [True, False])
def test_a_command_sees_and_shows_only_what_is_there(box: Box, with_git: bool) -> None:
    if not with_git:
        shutil.rmtree(box.root / ".git")
    before = box.state()
    names = sorted(path.name for path in box.root.iterdir())
    seen: list[set[str]] = []
    ran = run_confined(
        msgspec.structs.replace(
            box.command("ls -A; cat .npmrc; ls -A"),
            on_output=lambda _: seen.append({str(path) for path in box.root.rglob("*")}),
        ),
        confinement=Confinement(profile="workspace"),
        workspace=box.workspace,
    )
    assert ran.text.split() == [*names, "cat:", ".npmrc:", "No", "such", "file", "or", "directory", *names]
    assert seen
    assert all(paths <= set(before) for paths in seen)
    assert box.state() == before


def test_a_kill_leaves_no_file_no_process_and_no_temporary_folder(box: Box) -> None:
    before = box.state()
    scratch = box.world.outside / "tmp"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    for at in range(4):
        arguments = [sys.executable, "-c", RUN_CONFINED, str(box.root), f"touch started; sleep 600.{os.getpid()}"]
        process = subprocess.Popen(arguments, env=environment)
        if at:  # the first is killed while its sandbox is tried or made
            wait_until((box.root / "started").exists)
        else:
            wait_until(lambda: any(scratch.iterdir()))
        process.kill()
        process.wait()
        wait_until(lambda: not processes_with(str(box.root)) and not processes_with(f"600.{os.getpid()}"))
        wait_until(lambda: not any(scratch.iterdir()))
        (box.root / "started").unlink(missing_ok=True)
    scratch.rmdir()
    assert box.state() == before


@pytest.mark.parametrize("with_git", [True, False])
def test_runs_at_the_same_time_don_t_disturb_each_other(box: Box, with_git: bool) -> None:
    if not with_git:
        shutil.rmtree(box.root / ".git")
    before = box.state()
    wrong: list[str] = []

    def work(number: int) -> None:
        for _ in range(3):
            ran = box.run(
                f"echo {number} > n{number}; for i in 1 2 3; do echo x > .mcp.json; mkdir .claude; done; cat n{number}"
            )
            if ran.status or ran.text.splitlines()[-1] != str(number) or len(ran.notes) != 2:
                wrong.append(str(ran))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TEST_TIMEOUT)
    assert wrong == []
    for number in range(4):
        (box.root / f"n{number}").unlink()
    assert box.state() == before


def test_what_the_user_makes_meanwhile_stays(box: Box) -> None:
    shutil.rmtree(box.root / ".git")
    results: list[CommandResult] = []
    text = "touch started; until test -e go; do sleep 0.02; done; echo x > .mcp.json; echo x > .claude/settings.json"
    thread = threading.Thread(target=lambda: results.append(box.run(text)))
    thread.start()
    wait_until((box.root / "started").exists)
    (box.root / ".mcp.json").write_text("mine")
    (box.root / ".claude").mkdir()
    (box.root / ".claude/settings.json").write_text("mine")
    subprocess.run(["git", "init", "-q", str(box.root)], check=True)
    (box.root / "go").touch()
    thread.join(TEST_TIMEOUT)
    assert [len(result.notes) for result in results] == [2]
    assert (box.root / ".mcp.json").read_text() == "mine"
    assert (box.root / ".claude/settings.json").read_text() == "mine"
    assert (box.root / ".git/HEAD").exists()


# --- what it can't see and reach ---------------------------------------------------------------------------------


def test_secrets_of_the_home_are_not_there(box: Box) -> None:
    for path in (".aws/credentials", ".config/gh/hosts.yml", ".kube/config", ".bash_history", ".git-credentials"):
        box.world.write(f"~/{path}", "CANARY_SECRET\n")
    box.world.write("~/.kitbag/settings.toml", "CANARY_SECRET\n")
    box.world.write("~/.kitbag/skills/deploy/run.sh", "echo shown\n")
    for profile in ("read-only", "workspace"):
        ran = box.run(
            "cd; cat .bashrc; find . -type f | xargs cat; grep -r CANARY .; sh .kitbag/skills/deploy/run.sh", profile
        )
        assert "CANARY" not in ran.text
        assert ran.text.startswith("# mine")
        assert ran.text.endswith("shown")


def test_secrets_are_not_there_either_when_the_home_is_the_workspace(box: Box) -> None:
    home = box.world.home
    workspace = Workspace(root=str(home), home=str(home), kitbag_home=f"{home}/.kitbag")
    before = box.state(home)
    command = box.command("cat .ssh/id_rsa .netrc; echo x > .ssh/authorized_keys; echo x > .bashrc; echo x > free")
    ran = run_confined(
        msgspec.structs.replace(command, directory=str(home)),
        confinement=Confinement(profile="workspace"),
        workspace=workspace,
    )
    assert "CANARY" not in ran.text
    (home / "free").unlink()
    assert box.state(home) == before


def test_D46_the_environment_holds_no_secrets(box: Box) -> None:
    secrets = {
        "ANTHROPIC_API_KEY": "CANARY1",
        "GITHUB_TOKEN": "CANARY2",
        "AWS_PROFILE": "CANARY3",
        "SSH_AUTH_SOCK": "CANARY4",
    }
    doors = {"DISPLAY": ":CANARY", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/CANARY", "XDG_RUNTIME_DIR": "/CANARY"}
    command = box.command(
        "env; cat /proc/*/environ", environment={**secrets, **doors, "BASH_ENV": "CANARY", "PLAIN": "kept"}
    )
    ran = run_confined(command, confinement=Confinement(profile="workspace"), workspace=box.workspace)
    assert "CANARY" not in ran.text
    assert "PLAIN=kept" in ran.text
    assert f"HOME={box.world.home}" in ran.text


def test_other_processes_can_t_be_seen_or_ended(box: Box) -> None:
    other = subprocess.Popen(["sleep", "600"])
    try:
        ran = box.run(
            f"ls /proc | grep -c '^[0-9]'; kill -9 {other.pid} && echo killed; ls /proc/{other.pid}/root; kill -9 -1"
        )
        assert "killed" not in ran.text
        assert int(ran.text.split()[0]) < 10
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_socket_outside_can_t_be_reached_wherever_it_lies(box: Box) -> None:
    text = (
        "import socket, sys\n"
        "with socket.socket(socket.AF_UNIX) as one:\n"
        "    one.connect(sys.argv[1].replace('@', chr(0), 1))\n"
    )
    (box.root / "c.py").write_text(text)
    name = f"kitbag-test-{os.getpid()}"
    for place, written in (
        (str(box.world.outside / "d.sock"), ""),
        (str(box.root / "d.sock"), ""),
        (f"\0{name}", f"@{name}"),
    ):
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(place)
            server.listen()
            server.setblocking(False)
            box.run(f"python3 c.py {written or place}", "read-only")
            if place != str(box.root / "d.sock"):
                box.run(f"python3 c.py {written or place}")
            if not written:
                box.run(f"python3 c.py {place}", "read-only", network=True)
            with pytest.raises(BlockingIOError):
                server.accept()


def test_what_listens_in_the_writable_workspace_can_be_talked_to(box: Box) -> None:
    text = "import socket; one = socket.socket(socket.AF_UNIX); one.connect('d.sock')"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(box.root / "d.sock"))
        server.listen()
        assert box.run(f'python3 -c "{text}"').status == 0


def test_no_connection_reaches_a_server_outside_unless_the_network_is_on(box: Box) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        text = f"exec 3<>/dev/tcp/127.0.0.1/{port}"
        for profile in ("read-only", "workspace"):
            assert box.run(text, profile).status != 0
        with pytest.raises(BlockingIOError):
            server.accept()
        assert box.run(text, network=True).status == 0
        server.accept()[0].close()


def test_doors_that_no_namespace_closes_are_refused(box: Box) -> None:
    text = (
        "import ctypes, errno, fcntl, os, socket\n"
        "for family in (40, 38, 17):\n"
        " try: socket.socket(family, socket.SOCK_STREAM if family != 38 else socket.SOCK_SEQPACKET); print('made', family)\n"
        " except OSError as e: print(family, e.errno)\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "machine = os.uname().machine\n"
        "for number in ((425, 250, 321) if machine == 'x86_64' else (425, 219, 280)):\n"
        " print('call', libc.syscall(number, 0, 0, 0, 0, 0), ctypes.get_errno() in (errno.EPERM, errno.ENOSYS))\n"
        "socket.socket(); socket.socket(socket.AF_INET6); socket.socketpair()\n"
    )
    (box.root / "c.py").write_text(text)
    ran = box.run("python3 c.py")
    assert ran.status == 0, ran.text
    assert "made" not in ran.text
    assert ran.text.count("call -1 True") == 3


# --- time, output, processes -------------------------------------------------------------------------------------


def test_D35_too_long_too_much_no_input(box: Box) -> None:
    assert box.run("sleep 600", seconds=0.5).stop_reason == "time"
    ran = box.run("head -c 3000000 /dev/zero | tr '\\0' x")
    assert (len(ran.text), ran.truncated_bytes) == (20_000, 2_980_000)
    assert box.run("cat; echo read").text == "read"
    assert box.run(r"printf 'a\033[31mb\033[0m\xff'").text == "ab�"


@pytest.mark.parametrize(
    "text",
    [
        "sleep LONG & echo done",
        "nohup sleep LONG >/dev/null 2>&1 & echo done",
        "setsid -f sleep LONG; echo done",
        "env -i setsid -f sleep LONG; echo done",
        "(trap '' TERM HUP INT; sleep LONG) & echo done",
        "setsid sh -c 'setsid -f env -i sleep LONG & sleep LONG' & echo done",
    ],
)
def test_D52_nothing_lives_on_after_the_command(box: Box, text: str) -> None:
    long = long_time()
    ran = box.run(text.replace("LONG", long))
    assert (ran.text, ran.stop_reason) == ("done", "")
    assert processes_with(long) == []
    assert box.run(f"{text}; exec sleep LONG".replace("LONG", long), seconds=0.5).stop_reason == "time"
    assert processes_with(long) == []


def test_D52_it_ends_when_kitbag_is_killed(box: Box) -> None:
    long = long_time()
    text = f"touch started; env -i setsid sleep {long}"
    program = [sys.executable, "-m", "kitbag", "permissions", "run", text, "--yes"]
    process = subprocess.Popen(program, cwd=box.root, env=box.world.env, stdin=subprocess.DEVNULL)
    wait_until((box.root / "started").exists)
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not processes_with(long))


def test_an_interrupt_ends_it_and_leaves_nothing(box: Box) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    before, long = box.state(), long_time()
    with pytest.raises(KeyboardInterrupt):
        run_confined(
            box.command(f"sleep {long}"),
            interrupt,
            confinement=Confinement(profile="workspace"),
            workspace=box.workspace,
        )
    wait_until(lambda: not processes_with(long))
    assert box.state() == before


# --- when the sandbox itself fails -------------------------------------------------------------------------------


@pytest.fixture
def vanishing(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """For the first five looks there is a socket that is gone when the sandbox is made; all looks so far."""
    looks: list[None] = []
    look = bubblewrap.build_view

    def with_gone(*given: Any) -> FilesystemView:
        looks.append(None)
        view = look(*given)
        gone = ("/usr/share/kitbag-test/gone.sock",) if len(looks) <= 5 else ()
        return msgspec.structs.replace(view, hidden_files=(*view.hidden_files, *gone))

    monkeypatch.setattr(bubblewrap, "build_view", with_gone)
    return looks


def test_what_goes_away_while_the_sandbox_is_made_keeps_no_command_from_running(
    box: Box, vanishing: list[None]
) -> None:
    ran = box.run("echo x >> ran; cat ran")
    assert (ran.text, ran.status, len(vanishing)) == ("x", 0, 6)


def test_what_goes_away_meanwhile_makes_no_sandbox_a_weaker_one(box: Box, vanishing: list[None]) -> None:
    found, problem = bubblewrap.detect_bubblewrap()
    vanishing.extend([None] * 5)
    assert (found, problem) == bubblewrap.detect_bubblewrap()


def test_a_sandbox_that_can_t_be_made_is_no_result_of_the_command(box: Box) -> None:
    found, _ = bubblewrap.detect_bubblewrap()
    assert found is not None
    marker = box.root / "ran"
    wrong = [
        msgspec.structs.replace(found, program="/bin/false"),
        msgspec.structs.replace(found, options=("--no-such-option",)),
        Bubblewrap(program="/nowhere", version="0.8.0", options=(), guards=True),
    ]
    for one in wrong:
        with pytest.raises(SandboxError):
            bubblewrap.run_in_bubblewrap(
                one, box.command(f"touch {marker}"), None, Confinement(profile="workspace"), box.workspace
            )
    assert not marker.exists()
    gone = msgspec.structs.replace(box.command("true"), directory=str(box.root / "nowhere"))
    with pytest.raises(SandboxError):
        run_confined(gone, confinement=Confinement(profile="workspace"), workspace=box.workspace)


def test_the_whole_file_system_is_no_workspace(box: Box) -> None:
    everything = msgspec.structs.replace(box.workspace, root="/")
    with pytest.raises(SandboxError, match="root directory"):
        run_confined(box.command("true"), confinement=Confinement(profile="workspace"), workspace=everything)


def test_a_bubblewrap_that_commands_can_write_is_not_used(box: Box) -> None:
    found, _ = bubblewrap.detect_bubblewrap()
    assert found is not None
    own = box.root / "bwrap"
    shutil.copy(found.program, own)
    with pytest.raises(SandboxError, match="can write"):
        bubblewrap.run_in_bubblewrap(
            msgspec.structs.replace(found, program=str(own)),
            box.command("true"),
            None,
            Confinement(profile="workspace"),
            box.workspace,
        )


def test_a_folder_given_by_a_model_opens_nothing(box: Box) -> None:
    """D13: the roots are the workspace's, wherever the command starts."""
    command = msgspec.structs.replace(box.command("echo x > tripwire; echo x > new"), directory=str(box.world.outside))
    before = box.state(box.world.outside)
    ran = run_confined(command, confinement=Confinement(profile="workspace"), workspace=box.workspace)
    assert ran.status != 0
    assert box.state(box.world.outside) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_it_holds_for_an_ordinary_user_too() -> None:
    needs.bubblewrap()
    with tempfile.TemporaryDirectory() as base:  # pytest keeps its own closed to others
        os.chmod(base, 0o755)
        box = Box(World(Path(base)))
        for path in (box.root, *box.root.rglob("*")):
            os.chown(path, 65534, 65534)
        check_as_nobody(box)


def check_as_nobody(box: Box) -> None:
    script = (
        "import concurrent.futures, ctypes, encodings.idna, json, os, random, secrets, shutil, socket, subprocess, sys, tempfile\n"
        "from kitbag.sandbox import bubblewrap as b\n"
        "from kitbag.processes.command_runner import ShellCommand\n"
        "from kitbag.permissions.model import Workspace\n"
        "from kitbag.sandbox.confinement import Confinement\n"
        "sys.executable = '/usr/bin/python3'\n"  # root's own may be out of reach
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "found, why = b.detect_bubblewrap()\n"
        "assert found, why\n"
        "root = sys.argv[1]\n"
        "text = 'id -u; echo y > made && cat made; echo x > .mcp.json; echo x > .git/config; mkdir .claude; sudo -n true && echo root'\n"
        "environment = {'PATH': '/usr/bin:/bin'}\n"
        "command = ShellCommand(text=text, directory=root, environment=environment, timeout=30, max_characters=1000)\n"
        "ran = b.run_in_bubblewrap(found, command, None, Confinement(profile='workspace'), Workspace(root=root, home=root + '/../home', kitbag_home='/nowhere'))\n"
        "print(ran.text, ran.notes)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(box.root)], capture_output=True, text=True, timeout=TEST_TIMEOUT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("65534\ny\n")
    assert "root" not in done.stdout
    assert (box.root / ".git/config").read_text() == GIT_CONFIG
    assert sorted(os.listdir(box.root)) == [".git", "made", "src"]


def test_commands_are_given_as_they_are(box: Box) -> None:
    ran = run_confined(
        ShellCommand(
            text="printf '%s' \"$ODD\" '\t' \"it's\"",
            directory=str(box.root),
            environment={"ODD": "a\nb\udcff", "PATH": "/usr/bin:/bin"},
            timeout=10,
            max_characters=100,
        ),
        confinement=Confinement(profile="read-only"),
        workspace=box.workspace,
    )
    assert ran.text == "a\nb�\tit's"


def test_no_library_of_the_workspace_is_loaded_by_what_confines(box: Box) -> None:
    """Somebody who works on libraries has such a variable, and a command could put one there for the next."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    source = box.world.write("evil.c", "", box.world.outside)
    source.write_text(
        "#include <fcntl.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
        '__attribute__((constructor)) void run(void) { close(open(getenv("EVIL"), O_CREAT | O_WRONLY, 0600)); }\n'
    )
    library = box.root / "lib/evil.so"
    library.parent.mkdir()
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    canary = box.world.canary
    command = box.command("true", environment={"LD_PRELOAD": str(library), "EVIL": str(canary)})
    run_confined(command, confinement=Confinement(profile="workspace"), workspace=box.workspace)
    assert not canary.exists()
    subprocess.run(["true"], env=dict(command.environment), check=True)
    assert canary.exists()


def test_D10_a_link_that_a_command_made_leads_no_other_tool_outside(box: Box) -> None:
    assert box.run("ln -s ~/.bashrc notes && ln -s $OUT folder").status == 0
    for path in ("notes", "folder/new", "folder/tripwire"):
        assert not examine_path(path, box.workspace).writable


@pytest.mark.xfail(strict=True, reason="with the network on, abstract sockets are the machine's: they belong to it")
def test_an_abstract_socket_can_t_be_reached_with_the_network_on(box: Box) -> None:
    name = f"kitbag-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{name}")
        server.listen()
        text = f"import socket; one = socket.socket(socket.AF_UNIX); one.connect(chr(0) + '{name}')"
        assert box.run(f'python3 -c "{text}"', network=True).status != 0


def test_marks_of_outer_commands_are_passed_on(box: Box) -> None:
    command = box.command(f"echo ${MARKER_VARIABLE}", environment={MARKER_VARIABLE: "outer"})
    ran = run_confined(command, confinement=Confinement(profile="read-only"), workspace=box.workspace)
    assert re.fullmatch("outer:[0-9a-f]{24}", ran.text)


def test_where_no_proc_can_be_mounted_there_is_none_rather_than_the_machines(box: Box) -> None:
    """As in many containers, where a part of /proc is covered."""
    probe = "import json, sys\nfrom kitbag.sandbox import bubblewrap as b\nprint(json.dumps(b.detect_bubblewrap()))\n"
    outer = [
        "bwrap",
        "--unshare-user",
        "--unshare-pid",
        "--dev-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--tmpfs",
        "/proc/driver",
    ]
    done = subprocess.run([*outer, sys.executable, "-c", probe], capture_output=True, text=True, timeout=TEST_TIMEOUT)
    if done.returncode:
        pytest.skip(f"no sandbox in a sandbox here: {done.stderr}")
    (_, _, options), problem = json.loads(done.stdout)
    assert options[-2:] == ["--tmpfs", "/proc"]
    assert problem == "/proc is not available to commands"
    found, _ = bubblewrap.detect_bubblewrap()
    assert found is not None
    empty = msgspec.structs.replace(found, options=tuple(options))
    ran = bubblewrap.run_in_bubblewrap(
        empty, box.command("ls /proc; echo x > made; cat made"), None, "workspace", False, box.workspace
    )
    assert (ran.status, ran.text) == (0, "x")


def test_no_descriptor_of_ours_is_left_open_for_the_command(box: Box) -> None:
    assert box.run(
        "echo /proc/self/fd/* | tr ' ' '\\n' | sed 's|.*/||' | sort -n | head -3; ls /proc/self/fd | wc -l"
    ).text.split() == ["0", "1", "2", "4"]


def test_what_can_t_be_a_command_is_not_run(box: Box) -> None:
    for text in ("touch ran\0", "touch ran; " + "x" * 3_000_000):
        with pytest.raises(SandboxError):
            box.run(text)
    assert not (box.root / "ran").exists()


@pytest.mark.xfail(strict=True, reason="a read-only mount does not keep anybody from writing into a named pipe on it")
def test_a_named_pipe_outside_can_t_be_written(box: Box) -> None:
    pipe = box.world.outside / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        box.run("echo x > $OUT/pipe", seconds=5)
        assert os.read(reader, 10) == b""
    finally:
        os.close(reader)


@pytest.mark.parametrize("profile", ["workspace", "read-only"])
def test_settings_of_the_kernel_can_t_be_opened_for_writing_even_by_root(box: Box, profile: SandboxProfile) -> None:
    # `<>` opens without writing, so that this harms nothing where it fails.
    ran = box.run("find /proc -maxdepth 3 -not -path '/proc/[0-9]*' -type f | while read -r f; do"
                  ' if (exec 3<>"$f") 2>/dev/null; then echo "open: $f"; fi; done; ls /proc/sys/kernel | head -n 1', profile)  # fmt: skip
    assert "open:" not in ran.text
    assert ran.text.strip(), "there must be something to try"
