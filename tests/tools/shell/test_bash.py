"""Bash with real shells: alone, and in the real bubblewrap with a tripwire around it."""

import asyncio
import contextlib
import json
import os
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from msgspec import structs

from conftest import World
from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.messages import Text
from kitbag.permissions.model import PermissionDecision, SandboxProfile, SandboxSupport
from kitbag.processes import command_runner, run_process
from kitbag.testing import Step
from kitbag.tools.base import ToolContext, ToolOutput
from kitbag.tools.delegation import DelegationRequest, TaskReport, TaskStopResult
from kitbag.tools.shell.bash import BASH, MAX_COMMAND_BYTES, MAX_TIMEOUT_MS, NO_OUTPUT
from support import needs
from support.clock import Clock
from support.confined import processes_with
from support.house import House
from support.matrix import sample
from support.using import Bench, text_of
from support.waiting import until_true, wait_until

BESIDE = ("none", "read-only", "workspace")
"""Every sandbox, and none."""


class Shell:
    """Runs commands one after another, as the loop does: the directory of one is where the next starts."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.root = bench.root
        self.told: list[str] = []
        bench.write("src/deep/a.py", "a = 1\n")
        (bench.outside / "tripwire").write_text("untouched\n")
        self.directory = str(bench.root)

    def context(
        self, sandbox: SandboxProfile = "none", network: bool = False, mode: PermissionMode = "default", **more: Any
    ) -> ToolContext:
        made = self.bench.allowing(mode=mode, **more)
        judgement = PermissionDecision(effect="allow", reason="for a test", parts=(), sandbox=sandbox, network=network)
        return structs.replace(
            made, decision=judgement, directory=self.directory, session_id="s1", call_id="c1", progress=self.told.append
        )

    def run(
        self, command: str, sandbox: SandboxProfile = "none", context: ToolContext | None = None, **arguments: Any
    ) -> ToolOutput:
        outcome = self.bench.use(BASH, context or self.context(sandbox), command=command, **arguments)
        self.directory = outcome.new_directory or self.directory
        return outcome

    def says(self, command: str, sandbox: SandboxProfile = "none", **arguments: Any) -> str:
        return text_of(self.run(command, sandbox, **arguments))

    def tripwire(self) -> list[str]:
        return [path.name + ":" + path.read_text() for path in sorted(self.bench.outside.iterdir())]


@pytest.fixture
def shell(bench: Bench) -> Shell:
    return Shell(bench)


@pytest.fixture(params=BESIDE)
def sandbox(request: pytest.FixtureRequest) -> SandboxProfile:
    if request.param != "none":
        needs.bubblewrap()
    return request.param


@pytest.fixture
def long() -> str:
    """Seconds to sleep that no other process sleeps."""
    return f"{90_000 + os.getpid()}.{time.monotonic_ns() % 1_000_000}"


# --- what it answers --------------------------------------------------------------------------------------------


def test_output_of_both_kinds_comes_in_order_and_a_person_gets_a_summary(shell: Shell) -> None:
    done = shell.run("echo out; echo err >&2; echo again")
    assert (text_of(done), done.summary, done.details, done.is_error) == (
        "out\nerr\nagain",
        "exit 0, 3 lines",
        "out\nerr\nagain",
        False,
    )
    done = shell.run("true")
    assert (text_of(done), done.summary, done.details) == (NO_OUTPUT, "exit 0, no output", "")


@pytest.mark.parametrize(
    ("command", "first"),
    [
        ("echo so; exit 3", "Exit code 3"),
        ("false", "Exit code 1"),
        ("no-such-program", "Exit code 127"),
        ("kill -9 $$", "Exit code 137 (SIGKILL)"),
        ("kill 0", "Exit code 143 (SIGTERM)"),
        ("kill -9 0", "Exit code 137 (SIGKILL)"),
        ("sh -c 'kill -SEGV $$'", "Exit code 139 (SIGSEGV)"),
    ],
)
def test_a_failure_names_its_code_first_and_the_signal(shell: Shell, command: str, first: str) -> None:
    done = shell.run(command)
    assert done.is_error
    assert text_of(done).splitlines()[0] == first


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("grep nothing src/deep/a.py", "no matches"),
        ("cd src && grep -rn nothing .", "no matches"),
        ("cat src/deep/a.py | grep nothing", "no matches"),
        ("ls; grep nothing src/deep/a.py", "no matches"),
        ("diff src/deep/a.py /dev/null", "the inputs differ"),
        ("[ -f missing ]", "the condition is false"),
        ("test -d missing", "the condition is false"),
        ("[[ a = b ]]", "the condition is false"),
        ("command -v no-such-program", "none found"),
    ],
)
def test_a_code_that_is_an_answer_is_no_failure(shell: Shell, command: str, answer: str) -> None:
    done = shell.run(command)
    assert not done.is_error
    assert f"[Exit code 1: {answer}.]" in text_of(done)


@pytest.mark.parametrize(
    "command",
    [
        "sh -c 'exit 1' && grep x src/deep/a.py",
        "(exit 1) && grep x src/deep/a.py",
        "grep nothing src/deep/a.py; sh -c 'exit 1'",
        "! grep a src/deep/a.py",
        "set -o pipefail; sh -c 'exit 1' | grep -c a src/deep/a.py",
        "set -e; false; grep a src/deep/a.py",
        "grep a missing",
        "if true; then sh -c 'exit 1'; fi",
        "f() { return 1; }; f",
        "python3 -c 'raise SystemExit(1)'",
    ],
)
def test_what_may_have_failed_is_a_failure(shell: Shell, command: str) -> None:
    done = shell.run(command)
    assert done.is_error, text_of(done)
    assert text_of(done).startswith("Exit code ")


# --- what it is given -------------------------------------------------------------------------------------------


def test_a_command_is_given_no_secret_no_input_no_terminal_and_no_program_that_asks(
    shell: Shell, sandbox: SandboxProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "canary-secret-1")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("EDITOR", "vim")
    text = shell.says("env; cat; read line; echo read $?; ls /dev/tty 2>&1 < /dev/tty || echo no terminal", sandbox)
    lines = text.splitlines()
    assert "canary" not in text
    assert "MY_API_KEY" not in text
    for line in ("TERM=dumb", "PAGER=cat", "GIT_PAGER=cat", "GIT_TERMINAL_PROMPT=0", "EDITOR=true", "GIT_EDITOR=true"):
        assert line in lines
    assert {"KITBAG_SESSION_ID=s1", "CLAUDE_SESSION_ID=s1", f"PWD={shell.root}"} <= set(lines)
    assert any(line.startswith("KITBAG_COMMAND_ID=") for line in lines)
    assert {"read 1", "no terminal"} <= set(lines)


def test_D18_nothing_but_the_directory_is_kept_for_the_next_command(shell: Shell) -> None:
    shell.run("export A=1; B=2; f() { echo f; }; alias ls=f; set -e; trap 'echo trapped' EXIT; umask 077; cd src")
    after = shell.says("echo ${A-no} ${B-no} ${OLDPWD-no}; type f; alias; umask; false; echo went on")
    assert after.splitlines()[0] == "no no no"
    assert "trapped" not in after
    assert "not found" in after
    assert "alias" not in after
    assert after.endswith("went on")


# --- the directory ----------------------------------------------------------------------------------------------


def test_the_directory_of_a_command_is_where_the_next_starts(shell: Shell, sandbox: SandboxProfile) -> None:
    assert "now in src" in shell.run("cd src && ls", sandbox).summary
    assert shell.says("pwd", sandbox) == f"{shell.root}/src"
    done = shell.run("cd deep; exit 3", sandbox)
    assert (done.is_error, done.new_directory) == (True, f"{shell.root}/src/deep")
    assert shell.run("pushd .. > /dev/null; false", sandbox).new_directory == f"{shell.root}/src"
    assert shell.run("cd ..; no-such-program", sandbox).new_directory == str(shell.root)


def test_outside_the_workspace_nothing_starts(shell: Shell, sandbox: SandboxProfile) -> None:
    for place in ("/", "/etc", str(shell.bench.outside), ".."):
        done = shell.run(f"cd {place} && echo there", sandbox)
        if "there" in text_of(done):  # in a sandbox not every place is to be seen
            assert f"[Working directory is still {shell.root}: " in text_of(done)
        assert done.new_directory == ""
    (shell.root / "link").symlink_to(shell.bench.outside)
    assert shell.run("cd link; true", sandbox).new_directory == ""


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("(cd src)", 0),
        ("cd missing", 1),
        ("cd src; trap 'echo mine' EXIT", 0),
        ("cd src; exec true", 0),
        ("cd src; kill -9 $$", 137),
        ("echo no cd here", 0),
        ("mkdir gone; cd gone; rmdir ../gone; exit 5", 5),
    ],
)
def test_where_it_is_not_known_the_directory_stays(shell: Shell, command: str, status: int) -> None:
    done = shell.run(command)
    assert done.new_directory == ""
    assert done.summary.startswith(f"exit {status},")


@pytest.mark.parametrize(
    "command",
    [
        "cd src; echo )",
        "cd src\nno-such-program\necho )",
        "cd src; set -eux; false",
        "cd src; trap 'echo debug' DEBUG; true",
        "cd src; echo $LINENO; f() { echo $LINENO; }\nf; echo $# $0",
        "cd src; set -u; echo $unset",
        "# cd\necho 'cd'",
        'cat <<E\ncd\nE\necho "x',
    ],
)
def test_to_watch_the_directory_changes_nothing_that_a_command_prints(shell: Shell, command: str) -> None:
    given = {"PATH": os.environ["PATH"]}
    alone = command_runner.run_command(
        command_runner.ShellCommand(
            text=command, directory=str(shell.root), environment=given, timeout=30, max_characters=9_000
        )
    )
    done = shell.run(command)
    assert alone.text in text_of(done)
    assert done.summary.startswith(f"exit {alone.status}, {alone.text.count(chr(10)) + 1} line")


def test_a_directory_that_is_gone_or_leads_out_is_left_for_the_root(shell: Shell) -> None:
    for spoil in ("rm -r src", f"rm -r src; ln -s {shell.bench.outside} src"):
        shell.bench.write("src/deep/a.py")
        shell.directory = str(shell.root / "src" / "deep") if "ln" not in spoil else str(shell.root / "src")
        os.system(f"cd {shell.root} && {spoil}")
        done = shell.run("touch new")
        assert done.is_error
        assert "did not run" in text_of(done)
        assert done.new_directory == str(shell.root)
        assert shell.says("pwd") == str(shell.root)
        with contextlib.suppress(OSError):
            (shell.root / "src").unlink()
    assert shell.tripwire() == ["tripwire:untouched\n"]
    shutil.rmtree(shell.root)
    assert "no longer exists" in shell.says("ls")


# --- output -----------------------------------------------------------------------------------------------------


def test_of_a_long_output_the_middle_is_left_out_and_it_is_said_how_much(shell: Shell) -> None:
    done = shell.run("seq 1 200000; echo FAILED; exit 1")
    text = text_of(done)
    lines = text.splitlines()
    assert len(text) <= 30_000
    assert lines[:3] == ["Exit code 1", "1", "2"]
    assert lines[lines.index("FAILED") - 1] == "200000"
    left = next(line for line in lines if "omitted ..." in line)
    shown = [line for line in lines if line.isdigit()]
    assert left.startswith(f"[... {200_000 - len(shown):,} lines (")
    assert done.truncation == left[5:].partition(" omitted")[0] + " omitted from the middle of the output"
    assert done.summary == "exit 1, 200,001 lines"


def test_what_fits_is_whole_and_one_endless_line_is_cut(shell: Shell) -> None:
    done = shell.run("seq 1 5000")
    assert text_of(done).splitlines() == [str(number) for number in range(1, 5_001)]
    assert done.truncation == ""
    done = shell.run("head -c 3000000 /dev/zero | tr '\\0' x; echo end")
    assert len(text_of(done)) <= 30_000
    assert "xend\n" in text_of(done)
    assert done.truncation == "3.0 MB omitted from the middle of the output"


def test_D35_output_without_end_is_stopped(
    shell: Shell, sandbox: SandboxProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_runner, "MAX_OUTPUT_BYTES", 1 << 22)
    done = shell.run("yes", sandbox)
    assert done.is_error
    assert text_of(done).startswith("Stopped after printing ")
    assert len(text_of(done)) <= 30_000


def test_output_is_plain_text_in_which_nothing_hides(shell: Shell) -> None:
    printed = r"printf 'a\377b \033[31mred\033[0m \033]0;title\007x\r\nB\bb\000c \u202eturned \u200bhidden\n'"
    assert shell.says(printed) == "a\ufffdb red x\nbc [U+202E]turned [U+200B]hidden"


def test_of_a_progress_bar_the_last_state_stays(shell: Shell) -> None:
    text = shell.says(r"for i in $(seq 0 5 100); do printf '\r%3d%%' $i; done; printf '\r\033[Kdone\n'; echo more")
    assert text.splitlines()[:2] == ["done", "more"]
    assert "21 overwritten lines" in text
    assert shell.says(r"printf 'one\r\ntwo\r\r\n'") == "one\ntwo"


def test_what_is_no_text_is_not_shown_at_length(shell: Shell) -> None:
    done = shell.run("head -c 200000 /dev/urandom")
    assert len(text_of(done)) < 1_000
    assert "binary" in done.truncation
    assert "größe" in shell.says("printf 'gr\\xc3\\xb6\\xc3\\x9fe'")


def test_who_watches_is_told_the_last_line_each_second(shell: Shell) -> None:
    def hear(text: str) -> None:
        shell.told.append(text)
        if "step" in text:
            shell.bench.write("go")

    context = structs.replace(shell.context(), progress=hear)
    shell.run("printf 'step 1\\nstep 2\\r'; until [ -e go ]; do sleep 0.02; done", context=context)
    assert shell.told[-1].endswith(" s: step 2"), shell.told


# --- the end ----------------------------------------------------------------------------------------------------


def test_what_takes_too_long_is_stopped_and_says_what_it_printed(
    shell: Shell, sandbox: SandboxProfile, long: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch, run_process)

    def hear(text: str) -> None:
        if "begun" in text:
            clock.let_pass(600)

    context = structs.replace(shell.context(sandbox), progress=hear)
    done = shell.run(f"echo begun; cd src; trap '' TERM; sleep {long}", context=context, timeout=600_000)
    lines = text_of(done).splitlines()
    assert lines[:2] == ["Timed out after 600 s.", "begun"]
    assert any("run_in_background" in line for line in lines)
    assert (done.is_error, done.new_directory) == (True, "")
    assert processes_with(long) == []


@pytest.mark.parametrize(
    "command",
    sample(
        [
            "sleep {long} & echo done",
            "setsid sleep {long} & echo done",
            "(setsid sleep {long} > /dev/null 2>&1 < /dev/null &); sleep 0.1; echo done",
            "setsid bash -c 'trap \"\" TERM HUP INT; sleep {long}; sleep {long}' & sleep 0.1; echo done",
            "(env -i setsid sleep {long} > /dev/null 2>&1 &); sleep 0.1; echo done",
            "nohup sleep {long} > /dev/null 2>&1 & disown; echo done",
            "f() {{ sleep {long} & [ $1 -gt 4 ] || {{ f $(($1 + 1)) & f $(($1 + 1)) & }}; }}; f 0; sleep 0.2; echo done",
            "sleep {long} & exec >&- 2>&-; echo done > done",
            "sleep {long} & kill -9 $$",
        ],
        4,
    ),
)
def test_nothing_is_left_of_a_command_and_nothing_holds_it(
    shell: Shell, sandbox: SandboxProfile, command: str, long: str
) -> None:
    text = shell.says(command.format(long=long), sandbox)
    assert processes_with(long) == []
    if "echo done" in command and "> done" not in command:
        assert "done" in text
        assert "[Background processes that the command started were stopped." in text


def test_D60_cancelling_ends_all_of_it(shell: Shell, sandbox: SandboxProfile, long: str) -> None:
    command = (
        f"trap '' TERM INT HUP; setsid bash -c 'trap \"\" TERM HUP; sleep {long}' & (setsid sleep {long} &)\n"
        f"for i in 1 2 3 4 5; do sleep {long} & done; while :; do sleep {long}; done"
    )

    async def cancelled() -> None:
        running = asyncio.ensure_future(shell.bench.using(BASH, {"command": command}, shell.context(sandbox)))
        await until_true(lambda: len(processes_with(long)) >= 8)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancelled())
    assert processes_with(long) == []
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == "kitbag-command"])


def test_what_is_cancelled_before_it_begins_does_not_begin(shell: Shell) -> None:
    async def cancelled() -> None:
        running = asyncio.ensure_future(shell.bench.using(BASH, {"command": "touch made"}, shell.context()))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(cancelled())
    assert not (shell.root / "made").exists()


# --- the sandbox ------------------------------------------------------------------------------------------------


def test_the_read_only_sandbox_writes_and_reaches_nothing_and_says_why(shell: Shell) -> None:
    needs.bubblewrap()
    done = shell.run(f"touch made; touch {shell.bench.outside}/made; exec 3<>/dev/tcp/1.1.1.1/53", "read-only")
    assert done.is_error
    assert text_of(done).endswith("[Sandbox: bubblewrap, read-only, no network]")
    assert not (shell.root / "made").exists()
    assert shell.tripwire() == ["tripwire:untouched\n"]
    assert "[Sandbox: " in shell.says("touch made || true", "read-only")
    assert "[Sandbox: " not in shell.says("ls", "read-only")


def test_the_sandbox_of_the_workspace_writes_there_and_nowhere_else(shell: Shell) -> None:
    needs.bubblewrap()
    wires = f"{shell.bench.outside}/tripwire ~/.bashrc ../made .git/config .mcp.json"
    done = shell.run(f"echo x > src/new; for f in {wires}; do echo evil > $f; done", "workspace")
    assert text_of(done).endswith("[Sandbox: bubblewrap, workspace writable, no network]")
    assert (shell.root / "src/new").read_text() == "x\n"
    assert shell.tripwire() == ["tripwire:untouched\n"]
    assert not (shell.root / ".mcp.json").exists()
    assert not (shell.root.parent / "made").exists()
    assert list(shell.bench.home.iterdir()) == [shell.bench.home / ".kitbag"]


def test_what_the_sandbox_denied_is_told_to_model_and_person(shell: Shell) -> None:
    needs.bubblewrap()
    done = shell.run("mkdir sub; cd sub; git init -q", "workspace")
    note = "the sandbox denied writing sub/.git: `.git`: git may run commands from it"
    assert note in text_of(done)
    assert note in done.summary
    assert note in done.details


@pytest.mark.parametrize("mode", ["plan", "autonomous"])
def test_modes_that_need_a_sandbox_run_nothing_without_whatever_the_judgement_says(
    shell: Shell, mode: PermissionMode
) -> None:
    done = shell.run("touch made", context=shell.context("none", mode=mode))
    assert done.is_error
    assert "did not run" in text_of(done)
    assert not (shell.root / "made").exists()


def test_without_a_judgement_only_what_needs_no_answer_runs(shell: Shell) -> None:
    assert shell.run("touch made", context=structs.replace(shell.context(), decision=None)).is_error
    assert not (shell.root / "made").exists()
    allowed = structs.replace(shell.context(allow="Bash(touch:*)"), decision=None)
    assert not shell.run("touch made", context=allowed).is_error


def test_a_sandbox_that_does_not_run_is_an_error_and_the_command_is_not_run(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kitbag.sandbox import confine as module

    nothing = SandboxSupport(kind="none", problem="bubblewrap is not installed", fix="install it")
    monkeypatch.setattr(module, "_detect", lambda: (nothing, None))
    for profile in ("read-only", "workspace"):
        done = shell.run("touch made", profile)
        assert text_of(done).startswith("Error: the command did not run: no sandbox is available: bubblewrap")
    assert not (shell.root / "made").exists()


# --- taking it back, the background, bad input --------------------------------------------------------------------


class Kept:
    """What is asked to keep."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    async def record(self, call_id: str, path: str, before: bytes | None, after: bytes | None) -> None:
        raise AssertionError

    @contextlib.asynccontextmanager
    async def record_command(self, call_id: str, named: tuple[str, ...] = ()) -> AsyncIterator[None]:
        self.calls.append(f"before {call_id}")
        try:
            yield
        finally:
            self.calls.append(f"after {call_id}")


def test_what_may_change_the_workspace_is_kept_around_and_what_only_reads_is_not(shell: Shell) -> None:
    for command, kept in (
        ("touch made", True),
        ("python3 -c 1", True),
        ("cat src/deep/a.py > copy", True),
        ("touch made; exit 3", True),
        ("ls; cat src/deep/a.py", False),
    ):
        changes = Kept()
        shell.run(command, context=structs.replace(shell.context(), change_recorder=changes))
        assert changes.calls == (["before c1", "after c1"] if kept else []), command
    needs.bubblewrap()
    changes = Kept()
    shell.run("make all", context=structs.replace(shell.context("read-only"), change_recorder=changes))
    assert changes.calls == []
    shell.run("touch made", context=structs.replace(shell.context("workspace"), change_recorder=changes))
    assert changes.calls == ["before c1", "after c1"]


class Delegating:
    """Takes commands for the background."""

    end_notice = "You will be notified when it ends."

    def __init__(self) -> None:
        self.given = ("", "", "", -1.0)

    async def start_command(
        self,
        command: str,
        description: str,
        directory: str,
        seconds: float,
        judgement: PermissionDecision,
        started_by: tuple[str, str] = ("", ""),
    ) -> TaskReport:
        self.given = (command, description, directory, seconds)
        return TaskReport(id="t7", name="Bash", status="running", is_finished=False)

    def facts(self, agent: str, resume: str) -> tuple[tuple[str, str], ...]:
        raise AssertionError

    async def start(self, errand: DelegationRequest, progress: Callable[[str], None]) -> TaskReport:
        raise AssertionError

    async def report(self, task_id: str, seconds: float, offset: int = 0) -> TaskReport:
        raise AssertionError

    async def stop(self, task_id: str) -> TaskStopResult:
        raise AssertionError


def test_work_in_the_background_is_handed_over_or_refused(shell: Shell) -> None:
    done = shell.run("make serve", run_in_background=True)
    assert done.is_error
    assert "Run it in the foreground with a timeout" in text_of(done)
    delegation = Delegating()
    given = structs.replace(shell.context(), delegation=delegation)
    done = shell.run("make serve", context=given, run_in_background=True, description="Serves.")
    assert "TaskOutput" in text_of(done)
    assert "t7" in done.summary
    assert delegation.given == ("make serve", "Serves.", str(shell.root), 0.0)
    shell.run("make serve", context=given, run_in_background=True, timeout=5_000)
    assert delegation.given == ("make serve", "", str(shell.root), 5.0)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"command": ""},
        {"command": 3},
        {"command": ["ls"]},
        {"command": "ls", "timeout": 0},
        {"command": "ls", "timeout": -1},
        {"command": "ls", "timeout": MAX_TIMEOUT_MS + 1},
        {"command": "ls", "timeout": "5"},
        {"command": "x" * 1_000_000},
        {"command": "ls", "cwd": "/etc"},
        {"command": "ls", "run_in_background": "yes"},
    ],
)
def test_D58_wrong_arguments_are_told_before_anything_runs(arguments: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        BASH.parse_arguments(arguments)


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (" \n\t", "command is empty"),
        ("ls \0 x", "NUL"),
        ("echo \ud800", "U+D800"),
        ("echo " + "ä" * (MAX_COMMAND_BYTES // 2), "Save it to a file"),
    ],
)
def test_a_command_that_no_shell_can_be_given_is_told(shell: Shell, command: str, problem: str) -> None:
    done = shell.run(command)
    assert done.is_error
    assert problem in text_of(done)


def test_the_longest_command_runs(shell: Shell) -> None:
    word = "x" * (MAX_COMMAND_BYTES - 40)
    assert shell.says(f"cd src; echo {word} | wc -c").splitlines()[0] == str(len(word) + 1)


def test_a_command_that_can_t_be_started_is_told(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    many = "y" * 120_000
    for number in range(40):
        monkeypatch.setenv(f"MANY_{number}", many)
    done = shell.run("true")
    assert done.is_error
    assert "Argument list too long" in text_of(done)


def test_the_description_is_short() -> None:
    assert len(BASH.description) < 700
    assert not BASH.read_only


# --- in the loop ------------------------------------------------------------------------------------------------


@pytest.fixture
def house(world: World, monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setenv("HOME", str(world.home))
    monkeypatch.delenv("KITBAG_HOME", raising=False)
    world.write("tripwire", "untouched\n", world.outside)
    world.write("~/.bashrc", "# mine\n")
    (world.workspace / "src").mkdir()
    return House(world)


def results(house: House, commands: list[str], **options: Any) -> list[str]:
    """What a model that runs these is told, one after another."""
    calls = [((f"c{at}", "Bash", json.dumps({"command": command})),) for at, command in enumerate(commands)]
    house.ask("Do it.", steps=[*(Step(calls=call) for call in calls), "Done."], **options)
    assert house.agent is not None
    return [
        "".join(part.text for part in result.content if isinstance(part, Text))
        for message in house.agent.session.messages()
        for result in message.results
    ]


def test_D13_a_session_stays_in_its_workspace_wherever_a_command_goes(house: House) -> None:
    needs.bubblewrap()
    root = str(house.world.workspace.resolve())
    told = results(house, ["cd src", "pwd", f"cd {house.world.outside}; touch evil", "pwd"], mode="autonomous")
    assert told[1] == told[3] == f"{root}/src"
    assert results(house, ["pwd"], mode="autonomous", resume=house.session)[-1] == f"{root}/src"
    assert sorted(os.listdir(house.world.outside)) == ["tripwire"]


def test_D20_a_hostile_model_writes_only_where_it_may(house: House) -> None:
    needs.bubblewrap()
    outside = house.world.outside
    targets = [
        "> ~/.bashrc",
        ">> ~/.bashrc",
        ">| ~/.bashrc",
        f"&> {outside}/tripwire",
        f"<> {outside}/new",
        "> .git/config",
    ]
    commands = [f"echo evil {target}" for target in [*targets, "> /dev/tcp/127.0.0.1/9"]]
    told = results(house, [*commands, "echo fine > ok.txt"], mode="acceptEdits", only_tools=("Bash(echo:*)",))
    assert all(text.startswith("Error: Bash is not allowed") for text in told[:-1])
    assert (house.world.workspace / "ok.txt").read_text() == "fine\n"
    assert (house.world.home / ".bashrc").read_text() == "# mine\n"
    assert sorted(os.listdir(outside)) == ["tripwire"]
    assert (outside / "tripwire").read_text() == "untouched\n"
    assert os.listdir(house.world.workspace / ".git") == []


def test_D23_in_plan_mode_no_command_changes_anything(house: House) -> None:
    needs.bubblewrap()
    evil = f"open('made', 'w'); open('{house.world.outside}/made', 'w')"
    told = results(house, [f'python3 -c "{evil}"', "touch made", "ls"], mode="plan")
    assert "Read-only file system" in told[0]
    assert told[0].endswith("[Sandbox: bubblewrap, read-only, no network]")
    assert told[1].startswith("Error: Bash is not allowed: plan mode is read-only")
    assert told[2] == "src"
    assert sorted(os.listdir(house.world.outside)) == ["tripwire"]
