"""The commands as a person or a script uses them: exit codes, streams, JSON, plain text in pipes."""

import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios

import pytest

from conftest import World
from support.waiting import TEST_TIMEOUT, wait_until

LISTINGS = [
    ("skills", "list"),
    ("skills", "list", "--all"),
    ("skills", "search", "x"),
    ("skills", "which", "x"),
    ("skills", "show", "x"),
    ("skills", "validate", "x"),
    ("agents", "list"),
    ("agents", "show", "Explore"),
    ("personas", "list"),
    ("plugins", "list"),
    ("config", "get"),
    ("config", "where"),
    ("doctor",),
]


@pytest.mark.parametrize("listing", LISTINGS, ids=" ".join)
def test_every_listing_is_plain_in_a_pipe_and_has_json(world: World, listing: tuple[str, ...]) -> None:
    world.skill(".kitbag/skills", "x")
    del world.env["NO_COLOR"]
    assert "\x1b" not in world.ok(*listing)
    assert world.json(*listing) is not None


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("skills", "show", "nothing"), 4),
        (("agents", "show", "nothing"), 4),
        (("personas", "show", "nothing"), 4),
        (("plugins", "remove", "nothing"), 4),
        (("plugins", "enable", "nothing"), 4),
        (("skills", "disable", "nothing"), 4),
        (("skills", "list", "--persona", "nobody"), 4),
        (("skills", "list", "--team", "nobody"), 4),
        (("skills", "list", "--dir", "/does/not/exist"), 2),
        (("skills", "set", "x", "sometimes"), 2),
        (("config", "set", "nothing", "1"), 2),
        (("config", "set", "catalog.names", "many"), 2),
        (("config", "set", "catalog.descriptions", "²"), 2),
        (("config", "set", "precedence", "claude", "--project"), 2),
        (("config", "get", "nothing"), 2),
        (("nonsense", "words"), 2),
        (("skills", "validate", "./nowhere/x"), 4),
    ],
)
def test_a_failure_has_its_exit_code_and_says_what_to_do_on_stderr(
    world: World, arguments: tuple[str, ...], code: int
) -> None:
    world.skill(".kitbag/skills", "x")
    done = world.run(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr


def test_with_json_an_error_is_json_too(world: World) -> None:
    done = world.run("skills", "show", "nothing", "--json")
    assert (done.returncode, done.stdout) == (4, "")
    error = json.loads(done.stderr)["error"]
    assert (error["code"], error["problem"]) == (4, "no skill named 'nothing'")


def test_shells_are_told_how_to_complete(world: World) -> None:
    world.env["_KITBAG_COMPLETE"] = "bash_source"
    assert "complete" in world.run().stdout


def test_an_unknown_name_gets_close_ones(world: World) -> None:
    world.skill(".kitbag/skills", "code-review")
    assert "did you mean code-review?" in world.run("skills", "show", "code-reveiw").stderr


def test_doctor_fails_on_errors_and_not_on_warnings(world: World) -> None:
    world.write(".kitbag/skills/x/SKILL.md", "No head.\n")
    assert world.run("doctor").returncode == 0
    world.write(".kitbag/skills/y/SKILL.md", b"\0\0")
    done = world.run("doctor")
    assert done.returncode == 1
    assert "y/SKILL.md: not a text file" in done.stdout
    assert "fix:" in done.stdout


@pytest.mark.parametrize("target", ["x", ".kitbag/skills/x", ".kitbag/skills/x/SKILL.md", ".kitbag/skills"])
def test_validate_takes_names_paths_and_folders(world: World, target: str) -> None:
    world.skill(".kitbag/skills", "x")
    assert world.run("skills", "validate", target).returncode == 0
    done = world.run("skills", "validate", "--portable", target)
    assert (done.returncode, done.stdout.split(":")[0]) == (0, "Valid skill")
    world.write(".kitbag/skills/x/SKILL.md", "---\nname: Y\n---\n")
    done = world.run("skills", "validate", "--portable", target)
    assert done.returncode == 1
    assert "  - Missing required field in frontmatter: description" in done.stderr
    assert world.run("skills", "validate", target).returncode == 1


def test_a_state_is_kept_for_the_user_or_the_project_and_leaves_the_file_as_it_was(world: World) -> None:
    world.skill(".kitbag/skills", "x")
    path = world.write("~/.kitbag/settings.toml", '# mine\nteam = ""  # none\n')
    world.ok("skills", "set", "x", "name-only")
    assert path.read_text().startswith('# mine\nteam = ""  # none\n')
    assert world.json("skills", "show", "x")["state"] == "name-only"
    world.ok("skills", "disable", "x", "--project")
    assert (world.workspace / ".kitbag/settings.toml").exists()
    assert "still off" in world.run("skills", "enable", "x").stderr
    world.ok("skills", "enable", "x", "--project")
    assert world.json("skills", "show", "x")["state"] == "on"


def test_a_damaged_settings_file_is_never_overwritten(world: World) -> None:
    world.skill(".kitbag/skills", "x")
    path = world.write("~/.kitbag/settings.toml", "team = [unfinished\n")
    done = world.run("skills", "disable", "x")
    assert done.returncode == 6
    assert path.read_text() == "team = [unfinished\n"
    report = world.run("doctor", "--json")
    assert [d["line"] for d in json.loads(report.stdout)["diagnostics"] if d["code"] == "setting"] == [1]


def test_settings_show_their_source(world: World) -> None:
    world.ok("config", "set", "catalog.descriptions", "2%")
    rows = {row["key"]: row for row in world.json("config", "get")}
    assert rows["catalog.descriptions"]["value"] == "2%"
    assert rows["catalog.descriptions"]["source"] == str(world.home / ".kitbag" / "settings.toml")
    assert rows["catalog.names"]["source"] == "default"
    assert world.ok("config", "get", "catalog.descriptions") == "2%\n"


def test_a_persona_in_settings_that_does_not_exist_here_is_a_remark_and_not_the_end(world: World) -> None:
    world.skill(".kitbag/skills", "x")
    world.ok("config", "set", "persona", "developer")
    assert "x" in {item["name"] for item in world.json("skills", "list")}
    assert "no persona named 'developer'" in world.ok("doctor")


def test_agents_can_be_switched(world: World) -> None:
    world.ok("agents", "disable", "Explore")
    assert "Explore" not in {item["name"] for item in world.json("agents", "list")}
    assert "Explore" in {item["name"] for item in world.json("agents", "list", "--all")}
    world.ok("agents", "enable", "explore")
    assert "Explore" in {item["name"] for item in world.json("agents", "list")}


def test_the_built_ins_are_as_promised(world: World) -> None:
    agents = {item["name"]: item for item in world.json("agents", "list")}
    look = ["Read", "Glob", "Grep", "WebFetch", "WebSearch"]
    promised = {
        "Explore": ("plan", look, 30),
        "Plan": ("plan", look, 50),
        "Bash": ("default", ["Bash", "Read", "Glob", "Grep"], 30),
        "Review": ("plan", ["Read", "Glob", "Grep", "Bash"], 30),
    }
    for name, (mode, tools, turns) in promised.items():
        found = agents[name]
        assert (found["permission_mode"], found["tools"]["names"], found["max_turns"]) == (mode, tools, turns)
    general = agents["general-purpose"]
    assert (general["permission_mode"], general["tools"]["mode"], general["tools"]["denied"]) == (
        "default",
        "deny",
        ["Task"],
    )
    assert general["max_turns"] == 50
    skills = {item["name"] for item in world.json("skills", "list")}
    assert {"task-executor", "writing-skills", "writing-agents"} <= skills


def test_a_reader_that_leaves_early_is_no_error(world: World) -> None:
    for number in range(400):
        world.skill(".kitbag/skills", f"skill-{number}", description="words " * 100)
    command = f"{sys.executable} -m kitbag skills list --json | head -1"
    done = subprocess.run(["sh", "-c", command], cwd=world.workspace, env=world.env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[\n", "")


def test_in_a_terminal_rows_fit_the_screen_and_are_coloured(world: World) -> None:
    world.skill(".kitbag/skills", "x", description="long " * 100)
    del world.env["NO_COLOR"]
    screen, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "kitbag", "skills", "list"],
        cwd=world.workspace, env={**world.env, "TERM": "xterm"}, stdout=inner, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(inner)
    text = b""
    while True:
        try:
            chunk = os.read(screen, 65536)
        except OSError:
            break
        if not chunk:
            break
        text += chunk
    assert process.wait(TEST_TIMEOUT) == 0
    os.close(screen)
    lines = text.decode().replace("\r\n", "\n").splitlines()
    assert lines[0].startswith("\x1b[1mNAME")
    assert all(len(line.replace("\x1b[1m", "").replace("\x1b[0m", "")) <= 80 for line in lines)
    assert any(line.endswith("…") for line in lines)


def test_ctrl_c_ends_with_130_and_no_traceback(world: World) -> None:
    source = world.outside / "kit"
    world.write("skills/x/SKILL.md", "---\nname: x\ndescription: d\n---\n", base=source)
    lock = world.write("~/.kitbag/plugins/.lock", "")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # so that the program waits
        process = subprocess.Popen(
            [sys.executable, "-m", "kitbag", "plugins", "install", str(source)],
            cwd=world.workspace, env=world.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        wait_until(lambda: str(lock) in open_files(process.pid))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TEST_TIMEOUT)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors


def open_files(pid: int) -> set[str]:
    found: set[str] = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/{pid}/fd/{number}"))
    return found


def test_doctor_sees_a_plugin_that_was_changed_after_it_was_installed(world: World) -> None:
    world.write("skills/x/SKILL.md", "---\nname: x\ndescription: d\n---\nplain\n", base=world.outside / "kit")
    world.ok("plugins", "install", str(world.outside / "kit"))
    assert "plugin-changed" not in world.ok("doctor")
    (world.home / ".kitbag/plugins/kit/skills/x/SKILL.md").write_text("---\nname: x\n---\n!`touch x`\n")
    assert "changed since installation" in world.ok("doctor")


def test_installing_a_plugin_counts_only_what_is_an_agent(world: World) -> None:
    for name, text in (
        ("a.md", "---\nname: a\ndescription: d\n---\nWork.\n"),
        ("README.md", "About."),
        ("x.md", "Text."),
    ):
        world.write(f"agents/{name}", text, base=world.outside / "kit")
    assert world.ok("plugins", "install", str(world.outside / "kit")) == "installed kit: 1 agent\n"


def test_an_output_that_can_t_be_written_is_an_error_in_a_line(world: World) -> None:
    for redirect in (">/dev/full", ">&-"):
        command = f"{sys.executable} -m kitbag skills list {redirect}"
        done = subprocess.run(["sh", "-c", command], cwd=world.workspace, env=world.env, capture_output=True, text=True)
        assert "Traceback" not in done.stderr
        assert "No space left" in done.stderr or redirect == ">&-"


def test_doctor_reads_bodies_and_what_they_require(world: World) -> None:
    world.skill(".kitbag/skills", "x", body="Fine\u200b print.", requires="nowhere")
    found = {(d["code"], d["line"]) for d in world.json("doctor")["diagnostics"]}
    assert {("hidden-characters", 6), ("unknown-name", 4)} <= found


def test_validate_checks_every_skill_that_is_listed(world: World) -> None:
    world.skill(".kitbag/skills", "mine")
    world.write(".kitbag/commands/plain.md", "---\ndescription: Does it.\n---\nDo it: $ARGUMENTS\n")
    world.write(".kitbag/commands/git/tidy.md", "---\ndescription: Tidies.\n---\nTidy.\n")
    world.write(".kitbag/skills/shop/_persona_dev.yaml", "name: dev\ndescription: Develops.\n")
    world.write(".kitbag/skills/shop/core/flat.md", "---\nname: flat\ndescription: Is flat.\n---\nDo it.\n")
    listed = {one["path"] for one in world.json("skills", "list", "--all")}
    done = world.run("skills", "validate", "--json")
    checked = {one["path"]: one for one in json.loads(done.stdout)}
    assert {path.removesuffix("/SKILL.md") for path in listed} == set(checked)
    assert {path for path, one in checked.items() if not one["valid"]} == set()
    assert done.returncode == 0
    portable = world.run("skills", "validate", "--portable")
    assert "not checked: 3 files (commands and flat skills)" in portable.stderr
    world.write(".kitbag/commands/bad.md", "---\ndescription: [\n---\n")
    assert world.run("skills", "validate").returncode == 1


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        (
            {},
            [
                "state on",
                "model sees it in the catalog and can load it",
                "you can invoke it: /x",
                "agents can preload it",
            ],
        ),
        (
            {"disable_model_invocation": "true"},
            [
                "state on",
                "model can't load it: disable-model-invocation is set in its file",
                "you can invoke it: /x",
                "agents can't preload it",
            ],
        ),
        (
            {"user_invocable": "false"},
            [
                "state on",
                "model sees it in the catalog and can load it",
                "you can't invoke it: user-invocable is false in its file",
                "agents can preload it",
            ],
        ),
    ],
)
def test_a_skill_says_what_each_may_do(world: World, fields: dict[str, str], lines: list[str]) -> None:
    world.skill(".kitbag/skills", "x", **fields)
    shown = [" ".join(line.split()) for line in world.ok("skills", "show", "x").splitlines()]
    start = shown.index("state on")
    assert shown[start : start + 4] == lines


def test_a_disabled_skill_says_only_that(world: World) -> None:
    world.skill(".kitbag/skills", "x")
    world.ok("skills", "disable", "x")
    shown = [" ".join(line.split()) for line in world.ok("skills", "show", "x").splitlines()]
    assert "state off: disabled in" in "\n".join(shown)
    assert not [line for line in shown if line.startswith(("model ", "you ", "agents "))]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("task", "list"), "No such command 'task'. Did you mean `kitbag tasks`?"),
        (("zzzzzz", "x"), "No such command 'zzzzzz'."),
        (("--output-format", "json"), "--output-format needs a prompt"),
        (("-p", "x", "--plain"), "--plain applies to the chat"),
    ],
)
def test_what_is_no_command_says_what_to_write_instead(words: tuple[str, ...], said: str) -> None:
    from click.testing import CliRunner

    from kitbag.cli.root import cli

    done = CliRunner().invoke(cli, words)
    assert (done.exit_code, f"Error: {said}" in done.output) == (2, True), done.output


@pytest.mark.parametrize("words", [("skills", "list"), ("config", "list"), ("skills", "list", "--dir", ".")])
def test_a_reader_that_has_gone_ends_every_command_alike(world: World, words: tuple[str, ...]) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    program = [sys.executable, "-m", "kitbag", *words]
    done = subprocess.run(program, cwd=world.workspace, env=world.env, stdout=theirs, stderr=subprocess.PIPE, text=True)
    os.close(theirs)
    assert (done.returncode, "Traceback" in done.stderr) == (141, False), done.stderr


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("kitbag skills sh", "show"),
        ("kitbag tasks ", "watch"),
        ("kitbag skills show --l", "--level"),
        ("kitbag sk", "skills"),
    ],
)
def test_a_shell_completes_commands_below_a_group_too(world: World, line: str, completed: str) -> None:
    world.env |= {"_KITBAG_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    assert f"plain,{completed}" in world.run().stdout.splitlines()


def test_a_message_quotes_the_start_and_end_of_a_long_argument(world: World) -> None:
    long = "x" * 100_000
    for words in (("skills", long), ("--permission-mode", long, "-p", "Hi"), ("-p", "Hi", "--model", long)):
        done = world.run(*words)
        assert done.returncode in (2, 6), words
        assert len(done.stderr) < 5_000, words
        assert "characters omitted" in done.stderr, words


def test_watching_without_tasks_says_so(world: World) -> None:
    world.ok("agents", "run", "Explore", "Hi", "--model", "offline")
    done = world.run("tasks", "watch", cwd=world.outside)
    assert (done.returncode, "no running tasks in" in done.stderr) == (0, True)
