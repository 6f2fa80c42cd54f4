"""SECURITY.md D10, D11, D18, D23, D35 and the sandbox itself: what a command can do, whatever was decided about it.

Every command here is run by the real program in the real bubblewrap, with things around it that must not change.
"""

import json
import os
import shlex
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from behaviour.acting import on_path, permissions
from behaviour.commands import CONTROL
from conftest import World
from support import needs


@pytest.fixture
def box(world: World) -> World:
    needs.bubblewrap()
    world.write("src/a.py", "a = 1\n")
    world.write(".git/HEAD", "ref: refs/heads/main\n")
    world.write(".git/config", "[core]\n\trepositoryformatversion = 0\n")
    (world.workspace / ".git/objects").mkdir()
    world.write("tripwire", "untouched\n", world.outside)
    world.write("~/.bashrc", "# mine\n")
    world.write("~/.ssh/id_rsa", "CANARY_SECRET_SSH\n")
    world.write("~/.netrc", "CANARY_SECRET_NETRC\n")
    world.write("~/.aws/credentials", "CANARY_SECRET_AWS\n")
    world.write("~/.kitbag/settings.toml", "# CANARY_SECRET_SETTINGS\n")
    return world


def run(world: World, command: str, *options: str, mode: str = "autonomous") -> "subprocess.CompletedProcess[str]":
    return world.run("permissions", "run", command, "--permission-mode", mode, *options)


def agreed(world: World, command: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """As when a person said yes."""
    return run(world, command, "--yes", *options, mode="default")


def python(text: str) -> str:
    """A program that no analysis sees through."""
    return f"python3 -c {shlex.quote(text)}"


def everything(*folders: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            content = os.readlink(path).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
            found[str(path)] = oct(path.lstat().st_mode).encode() + content
    return found


TRY_ALL = """
import os, sys
done = []
for path in sys.argv[1:]:
    path = os.path.expanduser(path)
    for attempt in (lambda: os.makedirs(os.path.dirname(path) or ".", exist_ok=True), lambda: open(path, "a").write("evil"),
                    lambda: os.chmod(path, 0o777), lambda: os.rename(path, path + ".moved"), lambda: os.unlink(path),
                    lambda: os.symlink("/etc/passwd", path), lambda: os.link("src/a.py", path), lambda: os.rename("src", path),
                    lambda: os.truncate(path, 0), lambda: os.utime(path, (1, 1)), lambda: os.mkfifo(path)):
        try:
            attempt()
            done.append(path)
        except OSError:
            pass
"""


def test_D10_a_link_that_a_command_made_leads_nobody_out(box: World) -> None:
    before = everything(box.home, box.outside)
    assert agreed(box, f"ln -s ~/.bashrc notes; ln -s {box.outside} folder").returncode == 0
    assert os.readlink(box.workspace / "notes") == str(box.home / ".bashrc")
    for mode, effect in (("acceptEdits", "ask"), ("autonomous", "deny")):
        made = permissions(box, mode)
        for path in ("notes", "folder/new", "folder/tripwire"):
            assert on_path(made, "Write", path).effect == effect, path
    for command in (
        "echo evil > notes",
        "echo evil >> folder/tripwire",
        "touch folder/new",
        python("open('notes', 'a').write('evil'); open('folder/new', 'w')"),
    ):
        run(box, command)
        run(box, command, "--yes", mode="default")
    assert everything(box.home, box.outside) == before


def fingerprint(path: Path) -> object:
    if not os.path.lexists(path):
        return None
    return everything(path) if path.is_dir() else (path.lstat().st_mode, path.read_bytes())


def test_D11_no_program_changes_or_makes_a_control_path(box: World) -> None:
    # In a workspace that is not the home, files that only shells of a home start with are ordinary for the sandbox; of
    # a repository only what makes git run something is held, so that commits work.
    free = {".git", ".git/info/attributes", ".bashrc", ".bash_profile", ".profile", ".zshrc", ".zshenv", ".inputrc"}
    top = [path for path in CONTROL if path.startswith(".") or "/" not in path]
    names = [
        *top,
        ".git/commondir",
        ".git/config.worktree",
        ".git/worktrees/x/config",
        ".git/modules/x/config",
        ".GIT/config",
    ]
    held = [name for name in names if name not in free]

    def found() -> dict[str, object]:
        return {name: fingerprint(box.workspace / name) for name in held}

    before = everything(box.home, box.outside), found()
    box.write("src/try.py", TRY_ALL)
    reached = [path for path in CONTROL if path.startswith("~")]
    done = run(box, f"python3 src/try.py {' '.join([*names, *reached])} {box.outside}/tripwire {box.outside}/new")
    assert done.returncode == 0, done.stderr
    assert everything(box.home, box.outside) == before[0]
    assert found() == before[1]
    assert (box.workspace / ".git/HEAD").read_text() == "ref: refs/heads/main\n"


def test_D11_nor_makes_a_new_one_deeper_down(box: World) -> None:
    for name in ("src/.envrc", "src/.mcp.json"):
        done = run(box, python(f"open({name!r}, 'w').write('touch x')"))
        assert (done.returncode, name in done.stdout + done.stderr) == (1, True)
    assert sorted(os.listdir(box.workspace / "src")) == ["a.py"]


def test_D18_nothing_of_one_call_is_there_in_the_next(box: World) -> None:
    first = "export EVIL=1 PATH=/evil:$PATH; alias ls=id; trap 'touch ../src/x' EXIT; cd src; umask 0; ls() { id; }; declare -x PAGER=id; set -o noglob; echo $PWD"
    assert agreed(box, first).stdout == f"{box.workspace}/src\n"
    done = agreed(box, 'echo "[$EVIL]"; type -t ls; echo $PWD; echo $PATH; trap; umask; echo $-')
    lines = done.stdout.splitlines()
    assert lines[:3] == ["[]", "file", str(box.workspace)]
    assert not lines[3].startswith("/evil")
    assert lines[4] != "0000"
    assert "f" not in lines[5]
    for option in (
        {"BASH_ENV": "src/env"},
        {"ENV": "src/env"},
        {"BASH_FUNC_ls%%": "() { touch src/made; }"},
        {"PROMPT_COMMAND": "touch src/made"},
    ):
        box.write("src/env", "touch src/made\n")
        box.env |= option
        run(box, "ls")
        assert not (box.workspace / "src/made").exists(), option


def test_D23_in_plan_mode_a_program_changes_and_reaches_nothing(box: World) -> None:
    before = everything(box.workspace, box.home, box.outside)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        port = server.getsockname()[1]
        box.write("src/try.py", TRY_ALL)
        before = everything(box.workspace, box.home, box.outside)
        for command in (
            "python3 src/try.py src/a.py new .git/config /tmp/x ~/.bashrc", "git add . ; git commit -m x", "make", "sh -c 'echo x > made'",
            python(f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"),
        ):  # fmt: skip
            run(box, command, "--yes", mode="plan")
            run(box, command, "--yes", "--allow", "Bash", "--allow", "Edit", mode="plan")
        with pytest.raises(BlockingIOError):
            server.accept()
    assert everything(box.workspace, box.home, box.outside) == before


def test_D35_a_command_is_bounded_and_leaves_nothing_behind(box: World) -> None:
    flood = json.loads(agreed(box, "head -c 50000000 /dev/zero | tr '\\0' x", "--json").stdout)
    assert len(flood["output"]) <= 1_000_000
    assert flood["cut"] >= 49_000_000
    done = agreed(box, r"printf 'a\377\033[31mb\033]0;x\007\xc3\x28'; exit 3")
    assert done.returncode == 3
    assert not {"\x1b", "\x07"} & set(done.stdout)
    assert agreed(box, "cat; wc -c").stdout.split() == ["0"]
    mark = f"kitbag-left-{os.getpid()}"
    started = f"(setsid bash -c 'exec -a {mark} sleep 300' &) ; bash -c 'trap \"\" TERM; exec -a {mark} sleep 300' & sleep 300"
    late = agreed(box, started, "--timeout", "1")
    assert (late.returncode, "timed out after 1 seconds" in late.stderr) == (124, True)
    found = [name for name in os.listdir("/proc") if name.isdigit() and _is_running(name, mark)]
    assert found == []


def _is_running(pid: str, mark: str) -> bool:
    try:
        return mark.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def test_the_network_is_reached_only_when_it_is_allowed(box: World) -> None:
    accepted: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            try:
                while True:
                    connection, _ = server.accept()
                    accepted.append(connection.recv(10))
                    connection.close()
            except OSError:
                pass

        threading.Thread(target=serve, daemon=True).start()
        connect = python(
            f"import socket; s = socket.create_connection(('127.0.0.1', {port}), 5); s.sendall(b'hi'); s.recv(1)"
        )
        assert run(box, connect).returncode != 0
        assert run(box, f"exec 3<>/dev/tcp/127.0.0.1/{port}; echo hi >&3", "--yes", mode="default").returncode != 0
        assert accepted == []
        assert run(box, connect, "--network").returncode == 0
        assert accepted == [b"hi"]
        box.write("~/.kitbag/settings.toml", '[sandbox]\nnetwork = "on"\n')
        assert run(box, connect).returncode == 0
        assert run(box, connect, mode="plan").returncode != 0
        server.shutdown(socket.SHUT_RDWR)


def test_secrets_and_other_processes_are_not_there(box: World) -> None:
    secret = "CANARY_SECRET_PROCESS"
    with subprocess.Popen(["sleep", "60"], env={**box.env, "SOME_TOKEN": secret}) as other:
        command = (
            "cat ~/.ssh/id_rsa ~/.netrc ~/.aws/credentials ~/.kitbag/settings.toml /etc/shadow; ls -la ~/.ssh ~/.aws; "
            f"cat /proc/{other.pid}/environ /proc/*/environ; kill {other.pid}; ps aux"
        )
        for mode in ("autonomous", "plan", "default"):
            done = run(box, command, "--yes", mode=mode)
            assert "CANARY_SECRET" not in done.stdout + done.stderr, mode
        done = run(
            box, python(f"import os; print(open(os.path.expanduser('~/.netrc')).read()); os.kill({other.pid}, 9)")
        )
        assert "CANARY_SECRET" not in done.stdout
        assert other.poll() is None
        other.kill()


@pytest.mark.xfail(reason="private files are asked for by name; a command that reads a whole folder reads those in it")
def test_a_search_of_the_workspace_leaves_private_files_out(box: World) -> None:
    box.write(".env", "PASSWORD=hunter2hunter2\n")
    assert box.run("permissions", "run", "cat .env").returncode == 6
    assert "hunter2" not in run(box, "grep -r PASSWORD .", mode="default").stdout


@pytest.mark.xfail(
    reason="a rule against reading holds for paths that are named; the sandbox shows a program all of the workspace"
)
def test_a_program_can_t_read_what_a_rule_denies(box: World) -> None:
    box.write("secrets/a", "hidden words\n")
    denied = ("--deny", "Read(./secrets/**)")
    assert run(box, "cat secrets/a", *denied).returncode == 6
    assert (
        "hidden"
        not in run(box, python("import os; print(open(os.path.join('secr' + 'ets', 'a')).read())"), *denied).stdout
    )


@pytest.mark.xfail(reason="the sandbox hides known secrets, not the rest of the disk: programs need the system's files")
def test_a_program_can_t_read_outside_the_workspace(box: World) -> None:
    assert run(box, "cat /etc/passwd").returncode == 6
    assert "root" not in run(box, python("print(open('/etc/' + 'passwd').read())")).stdout
