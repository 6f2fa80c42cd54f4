"""`kitbag permissions run`: what is decided, what is asked, what it runs in, and what its exit status says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import World
from support import needs
from support.terminal_program import TerminalProgram
from support.waiting import TEST_TIMEOUT


@pytest.fixture
def box(world: World) -> World:
    needs.bubblewrap()
    world.write("a.txt", "text\n")
    return world


def run(world: World, *words: str) -> "subprocess.CompletedProcess[str]":
    return world.run("permissions", "run", *words)


def test_a_command_that_only_reads_runs_where_nothing_can_be_written(box: World) -> None:
    done = run(box, "cat a.txt")
    assert (done.returncode, done.stdout) == (0, "text\n")
    assert done.stderr == "ran in: bubblewrap, read-only, no network\n"


def test_what_would_be_asked_is_refused_without_a_terminal_and_says_how(box: World) -> None:
    done = run(box, "touch new")
    assert done.returncode == 6
    assert "--yes" in done.stderr
    assert not (box.workspace / "new").exists()
    done = run(box, "touch new", "--yes")
    assert done.returncode == 0
    assert done.stderr == "ran in: bubblewrap, workspace writable, no network\n"
    assert (box.workspace / "new").exists()


def test_a_yes_does_not_overrule_what_is_denied(box: World) -> None:
    done = run(box, "cat a.txt && touch new", "--yes", "--deny", "Bash(touch:*)")
    assert done.returncode == 6
    assert "Bash(touch:*)" in done.stderr
    assert not (box.workspace / "new").exists()
    assert run(box, "rm a.txt", "--yes", "--permission-mode", "plan").returncode == 6
    assert (box.workspace / "a.txt").exists()


def test_the_exit_status_is_the_commands_own(box: World) -> None:
    assert run(box, "exit 3", "--yes").returncode == 3
    assert run(box, "no-such-program", "--yes").returncode == 127
    assert run(box, "./a.txt", "--yes").returncode == 126
    assert run(box, "kill -9 $$", "--yes").returncode == 137
    done = run(box, "sleep 600", "--yes", "--timeout", "0.3")
    assert done.returncode == 124
    assert "timed out after 0.3 seconds" in done.stderr


def test_plan_mode_is_held_by_the_sandbox_too(box: World) -> None:
    program = "import os; os.path.exists('a.txt'); open('made', 'w')"
    done = run(box, f'python3 -c "{program}"', "--permission-mode", "plan")
    assert done.returncode in (1, 6)
    assert not (box.workspace / "made").exists()
    for option in ("--network", "--profile=workspace"):
        done = run(box, "ls", "--permission-mode", "plan", option)
        assert done.returncode == 2
        assert "plan mode" in done.stderr


@pytest.mark.parametrize("mode", ["acceptEdits", "autonomous"])
def test_D11_no_mode_lets_a_command_make_control_files(box: World, mode: str) -> None:
    commands = [
        "echo x > .mcp.json",
        "mkdir -p .git/hooks && echo x > .git/hooks/pre-commit",
        "cd .git && echo x > config",
        "python3 -c \"open('.mcp.json', 'w'); import os; os.makedirs('.vscode'); open('.vscode/tasks.json', 'w')\"",
        "python3 -c \"open('.git/config', 'w'); open(os.path.expanduser('~/.bashrc'), 'w')\"",
        "sh -c 'd=.claude; mkdir $d; echo x > $d/settings.json'",
    ]
    for text in commands:
        done = run(box, text, "--permission-mode", mode)
        assert done.returncode != 0, text
    assert sorted(os.listdir(box.workspace)) == [".git", "a.txt"]
    assert os.listdir(box.workspace / ".git") == []
    assert os.listdir(box.home) == []


def test_autonomous_runs_commands_with_the_workspace_writable_and_no_network(box: World) -> None:
    done = run(box, "sh -c 'echo x > made'", "--permission-mode", "autonomous")
    assert done.returncode == 0, done.stderr
    assert "workspace writable, no network" in done.stderr
    assert (box.workspace / "made").exists()


def test_json_says_all_of_it(box: World) -> None:
    done = run(box, "git init -q sub 2>/dev/null; echo out; exit 5", "--yes", "--json")
    said = json.loads(done.stdout)
    assert (done.returncode, said["status"], said["output"], said["effect"]) == (5, 5, "out", "ask")
    assert (said["sandbox"], said["network"], said["stopped"], said["cut"]) == ("workspace", False, "", 0)
    assert said["protection"]["kind"] == "bubblewrap"
    assert "denied writing sub/.git" in said["notes"][0]
    done = run(box, "touch x", "--json")
    assert json.loads(done.stderr)["error"]["code"] == 6


def test_a_rule_lets_a_command_write_the_control_path_it_names(box: World) -> None:
    making = "python3 -c \"import os; os.mkdir('.vs' + 'code')\""
    done = run(box, making, "--yes")
    assert (done.returncode, (box.workspace / ".vscode").exists()) == (1, False)
    assert "denied writing .vscode" in done.stderr
    assert "add an Edit rule that names the path" in done.stderr
    done = run(box, making, "--yes", "--allow", "Edit(.vscode/**)")
    assert (done.returncode, (box.workspace / ".vscode").exists()) == (0, True)


def test_at_a_terminal_the_command_waits_for_the_answer_about_a_control_path(box: World) -> None:
    terminal = TerminalProgram(box, "permissions", "run", "git init -q sub && echo made", "--yes")
    terminal.until("> ")
    assert "/.git" in terminal.screen
    terminal.type("y\r")
    assert terminal.end() == 0
    assert "made" in terminal.screen
    assert (box.workspace / "sub/.git/HEAD").exists()


def test_terminal_sequences_and_secrets_don_t_come_through(box: World) -> None:
    box.env |= {"MY_API_KEY": "CANARY_SECRET"}
    done = run(box, r"printf 'a\033]0;evil\007b\n'; env", "--yes")
    assert "CANARY_SECRET" not in done.stdout
    assert done.stdout.startswith("ab\n")
    assert "\x1b" not in done.stdout + done.stderr


def test_at_a_terminal_a_person_is_asked_and_what_was_shown_is_run(box: World) -> None:
    text = "touch new; echo \x1b[2K\u202e\u200b\ntouch second"
    terminal = TerminalProgram(box, "permissions", "run", text)
    terminal.until("> ")
    for shown in ("touch second", "bubblewrap, workspace writable, no network", "U+202E", "U+200B"):
        assert shown in terminal.screen
    assert "\x1b[2K" not in terminal.screen
    terminal.type("n\n\n")
    assert terminal.end() == 6
    assert not (box.workspace / "new").exists()
    terminal = TerminalProgram(box, "permissions", "run", text)
    terminal.until("> ")
    terminal.type("y\n")
    assert terminal.end() == 0, terminal.screen
    assert (box.workspace / "new").exists()
    assert (box.workspace / "second").exists()


@pytest.mark.parametrize("key", ["\x03", "\x04"])
def test_to_leave_the_question_runs_nothing(box: World, key: str) -> None:
    terminal = TerminalProgram(box, "permissions", "run", "touch new")
    terminal.until("> ")
    terminal.type(key)
    assert terminal.end() == 6
    assert not (box.workspace / "new").exists()


def test_where_no_sandbox_runs_nothing_runs(box: World) -> None:
    """The real program, where neither bubblewrap nor sandlock can be used."""
    import sandlock

    package = os.path.dirname(str(sandlock.__file__))
    hide = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", "/dev/null", "/usr/bin/bwrap", "--tmpfs", package]

    def kitbag(*words: str) -> "subprocess.CompletedProcess[str]":
        program = [*hide, sys.executable, "-m", "kitbag", *words]
        return subprocess.run(
            program, cwd=box.workspace, env=box.env, capture_output=True, text=True, timeout=TEST_TIMEOUT
        )

    for words in (("cat a.txt",), ("touch new", "--yes"), ("touch new", "--permission-mode", "autonomous")):
        done = kitbag("permissions", "run", *words)
        assert done.returncode == 6, done.stdout
    done = kitbag("permissions", "run", "touch new", "--yes")
    assert "apt install bubblewrap" in done.stderr
    assert "kitbag[sandbox]" in done.stderr
    assert not (box.workspace / "new").exists()
    report = json.loads(kitbag("doctor", "--json").stdout)["protection"]
    assert (report["kind"], report["holds"]) == ("none", {"read-only": False, "workspace": False})
    assert "sandbox  none: every command needs approval" in kitbag("doctor").stdout


def test_doctor_says_what_protects_you(box: World) -> None:
    report = box.json("doctor")["protection"]
    assert (report["kind"], report["carve_outs"]) == ("bubblewrap", True)
    assert report["holds"] == {"read-only": True, "workspace": True}
    assert report["version"]
    assert f"sandbox  bubblewrap {report['version']}: commands write only inside the workspace" in box.ok("doctor")


def test_system_packages_has_nothing_to_do_where_bubblewrap_is(box: World, tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "scripts/system-packages"
    assert subprocess.run([script], capture_output=True, text=True).stdout == ""
    empty = {"PATH": str(tmp_path)}
    done = subprocess.run(["/bin/sh", script], capture_output=True, text=True, env=empty)
    assert done.returncode == 1
    assert "apt-get install bubblewrap" in done.stderr
