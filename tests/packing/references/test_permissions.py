"""Who may read, run or learn what while packing: trust, rules, modes and the sandbox, through the real program too."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import World
from kitbag.library.scopes import Scope
from kitbag.packing.references.permissions import ReferencePermissions
from kitbag.packing.references.policy import (
    ReferenceDecision,
    ReferenceDeniedError,
    ReferenceSource,
    ReferenceUntrustedError,
)
from kitbag.packing.references.resolve import resolve_references
from kitbag.permissions.rules.load import PermissionFlags
from kitbag.permissions.trust.workspace_trust import check_trust, trust_workspace
from kitbag.sandbox.confine import detect_sandbox
from kitbag.settings import load_settings
from support.inserted_files import without_fences
from support.waiting import TEST_TIMEOUT, read_some

SKILL = ".kitbag/skills/x/SKILL.md"
YES = ("--allow-commands",)


def rights(world: World, cwd: Path | None = None, **options: Any) -> ReferencePermissions:
    places = world.places(cwd)
    return ReferencePermissions(places, load_settings(places.kitbag_home, places.project_dirs), **options)


def source(world: World, text: str, scope: Scope = "user", path: str = SKILL) -> ReferenceSource:
    workspace = str(world.workspace)
    return ReferenceSource(text=text, path=f"{workspace}/{path}", scope=scope, base=workspace, root=workspace)


def trust(world: World) -> None:
    places = world.places()
    trust_workspace(places, check_trust(places))


def project_skill(world: World, body: str) -> None:
    world.skill(".kitbag/skills", "x", body=body)
    world.write(".kitbag/tasks/T1.json", json.dumps({"id": "T1", "title": "Do it"}))


def pack(world: World, *options: str) -> "subprocess.CompletedProcess[str]":
    return world.run("pack", "T1", "--skills", "x", *options)


# --- trust -----------------------------------------------------------------------------------------------------------


def test_D05_trust_then_a_changed_command_is_refused_and_changed_prose_is_not(world: World) -> None:
    project_skill(world, "Prose.\n\n!`echo one`\n")
    assert pack(world, *YES).returncode == 13
    world.ok("trust", "--yes")
    done = pack(world, *YES)
    assert (done.returncode, "\none\n" in done.stdout) == (0, True)
    file = world.workspace / SKILL
    file.write_text(file.read_text().replace("Prose.", "Other words."))
    assert pack(world, *YES).returncode == 0
    file.write_text(file.read_text().replace("echo one", "touch $CANARY"))
    done = pack(world, *YES)
    assert (done.returncode, "has changed" in done.stderr) == (13, True)
    assert "kitbag trust" in done.stderr
    assert "--trust-workspace" in done.stderr
    assert not world.canary.exists()


def test_D03_trust_for_one_run_is_kept_nowhere_and_rules_still_hold(world: World) -> None:
    project_skill(world, "!`echo one`\n")
    assert pack(world, "--trust-workspace", *YES).returncode == 0
    assert not (world.home / ".kitbag/trust.json").exists()
    assert pack(world, *YES).returncode == 13
    assert pack(world, "--trust-workspace", *YES, "--deny", "Bash(echo:*)").returncode == 6
    assert pack(world, "--trust-workspace", *YES, "--permission-mode", "locked").returncode == 6


def test_plain_text_of_an_untrusted_workspace_is_packed(world: World) -> None:
    world.write("docs/a.md", "the spec")
    project_skill(world, "Read @docs/a.md and {{TASK_ID}}, not `!`touch $CANARY``.")
    done = pack(world)
    assert (done.returncode, "Read the spec and T1" in without_fences(done.stdout)) == (
        0,
        True,
    )


def test_a_project_can_t_say_that_it_is_trusted_or_allow_itself_anything(world: World) -> None:
    rules = '[permissions]\nmode = "autonomous"\nallow = ["Bash"]\n'
    world.write(".kitbag/settings.toml", f"trusted = true\nallow_commands = true\n{rules}")
    project_skill(world, "!`touch made`\n")
    assert pack(world).returncode == 13
    world.ok("trust", "--yes")
    done = pack(world)
    assert (done.returncode, "interactive terminal" in done.stderr) == (6, True)
    assert not (world.workspace / "made").exists()


def test_a_trusted_project_s_own_rules_tighten(world: World) -> None:
    world.write(".kitbag/settings.toml", '[permissions]\ndeny = ["Bash(echo:*)", "Read(docs/secret.md)"]\n')
    world.write("docs/secret.md", "hidden")
    project_skill(world, "!`echo one`\n")
    world.ok("trust", "--yes")
    assert pack(world, *YES).returncode == 6
    project_skill(world, "@docs/secret.md")
    done = pack(world)
    assert (done.returncode, "denied by a rule" in done.stderr) == (6, True)


def test_what_trust_would_not_change_is_told_first(world: World) -> None:
    project_skill(world, "!`echo one`\n\n!`curl https://x.test`\n")
    done = pack(world, "--deny", "Bash(curl:*)", *YES)
    assert (done.returncode, "denied by a rule" in done.stderr) == (6, True)


def test_a_command_that_came_in_after_the_look_is_not_run(world: World) -> None:
    project_skill(world, "!`echo one`\n")
    trust(world)
    policy = rights(world, allow_commands=True)
    assert resolve_references(source(world, "!`echo one`", "project"), {}, policy).text == "one"
    with pytest.raises(ReferenceUntrustedError):
        resolve_references(source(world, "!`echo one` !`touch $CANARY`", "project"), {}, policy)
    with pytest.raises(ReferenceUntrustedError):
        resolve_references(source(world, "!`echo one`", "project", "task.md"), {}, policy)


def test_a_directory_inside_the_workspace_stays_the_workspace_s(world: World) -> None:
    project_skill(world, "!`echo one`\n")
    done = pack(world, "--dir", str(world.workspace), *YES)
    assert done.returncode == 13
    world.skill("kit", "y", body="!`echo two`")
    (world.workspace / "kit").rename(world.outside / "kit")
    done = world.run("pack", "T1", "--skills", "y", "--dir", str(world.outside / "kit"), *YES)
    assert (done.returncode, "two" in done.stdout) == (0, True)


def test_a_task_s_commands_are_covered_only_where_trust_looks(world: World) -> None:
    world.write("job.md", "# Job\n\n!`echo from-job`\n")
    world.write(".kitbag/tasks/T2.md", "# T2\n\n!`echo from-task`\n")
    assert world.run("pack", "T2", *YES).returncode == 13
    world.ok("trust", "--yes")
    assert "from-task" in world.ok("pack", "T2", *YES)
    assert world.run("pack", "job.md", *YES).returncode == 13
    assert "from-job" in world.ok("pack", "job.md", "--trust-workspace", *YES)


# --- rules and modes -------------------------------------------------------------------------------------------------


def decide(world: World, text: str, scope: Scope = "user", **options: Any) -> ReferenceDecision:
    return rights(world, **options).command(text, source(world, f"!`{text}`", scope))


def test_D34_the_scope_of_the_file_decides(world: World) -> None:
    verdicts = {
        scope: decide(world, "touch made", scope).verdict for scope in ("user", "built-in", "project", "plugin")
    }
    assert verdicts == {"user": "ask", "built-in": "ask", "project": "untrusted", "plugin": "deny"}
    yes = {"allow_commands": True, "trust_workspace": True, "given": PermissionFlags(allow=("Bash",))}
    verdicts = {
        scope: decide(world, "touch made", scope, **yes).verdict for scope in ("user", "built-in", "project", "plugin")
    }
    assert verdicts == {"user": "allow", "built-in": "allow", "project": "allow", "plugin": "deny"}


@pytest.mark.skipif(not detect_sandbox().supports("read-only"), reason="no sandbox is available")
def test_what_only_reads_needs_no_answer_and_runs_where_nothing_can_be_written(world: World) -> None:
    world.write("a.txt", "content")
    policy = rights(world)
    assert resolve_references(source(world, "!`cat a.txt`"), {}, policy).text == "content"
    with pytest.raises(ReferenceDeniedError, match="interactive terminal"):
        resolve_references(source(world, "!`touch b.txt`"), {}, policy)


@pytest.mark.skipif(not detect_sandbox().supports("workspace"), reason="no sandbox with carve-outs runs here")
def test_what_a_person_allows_runs_in_the_workspace_s_sandbox(world: World) -> None:
    (world.workspace / ".git/hooks").mkdir()
    inside = "echo x > made; (echo x > .git/hooks/pre-commit) 2>/dev/null; (echo x > $CANARY) 2>/dev/null; echo done"
    done = resolve_references(
        source(world, f"!`{inside}`"), {}, rights(world, allow_commands=True), workspace=str(world.workspace)
    )
    assert "done" in done.text
    assert (world.workspace / "made").exists()
    assert not (world.workspace / ".git/hooks/pre-commit").exists()
    assert not world.canary.exists()


@pytest.mark.parametrize("mode", ["plan", "locked", "autonomous"])
def test_modes_that_never_ask_deny_what_would_be_asked(world: World, mode: str) -> None:
    options: dict[str, Any] = {"given": PermissionFlags(mode=mode), "allow_commands": True, "trust_workspace": True}
    assert rights(world, **options).environment("PLAIN", source(world, "${PLAIN}")).verdict == "deny"
    named = rights(world, **options, allow_environment=frozenset(("PLAIN",)))
    assert named.environment("PLAIN", source(world, "${PLAIN}")).verdict == "allow"
    assert (
        decide(
            world, "git push", given=PermissionFlags(mode=mode, ask=("Bash(git push:*)",)), allow_commands=True
        ).verdict
        == "deny"
    )


def test_D23_a_plan_runs_no_command_that_changes_anything(world: World) -> None:
    done = world.skill("~/.kitbag/skills", "x", body="!`touch made`")
    world.write(".kitbag/tasks/T1.json", json.dumps({"id": "T1", "title": "Do it"}))
    assert pack(world, "--permission-mode", "plan", *YES).returncode == 6
    assert not (world.workspace / "made").exists()
    assert done.exists()


def test_allow_commands_answers_questions_and_beats_no_denial(world: World) -> None:
    world.write("~/.kitbag/settings.toml", '[permissions]\ndeny = ["Bash(touch:*)"]\nask = ["Bash(mkdir:*)"]\n')
    assert decide(world, "env touch made", allow_commands=True).verdict == "deny"
    assert decide(world, "mkdir made", allow_commands=True).verdict == "allow"
    assert decide(world, "mkdir made").verdict == "ask"


@pytest.mark.parametrize("name", ["API_KEY", "GITHUB_TOKEN", "AWS_REGION"])
def test_D32_secrets_are_refused_whatever_is_allowed(world: World, name: str) -> None:
    policy = rights(world, allow_environment=frozenset((name,)), trust_workspace=True)
    for scope in ("user", "project", "built-in", "extra", "plugin"):
        assert policy.environment(name, source(world, f"${{{name}}}", scope)).verdict == "deny"


def test_rules_about_files_hold_for_references(world: World) -> None:
    for name in ("docs/a.md", "docs/b.md", "docs/c.md"):
        world.write(name, "text")
    (world.workspace / "link.md").symlink_to("docs/a.md")
    world.write("~/.kitbag/settings.toml", '[permissions]\ndeny = ["Read(docs/a.md)"]\nask = ["Read(docs/b.md)"]\n')
    policy = rights(world)
    for path in ("docs/a.md", "link.md", "./docs/../docs/a.md"):
        with pytest.raises(ReferenceDeniedError, match="denied by a rule"):
            resolve_references(source(world, f"@{path}"), {}, policy)
    with pytest.raises(ReferenceDeniedError, match="interactive terminal"):
        resolve_references(source(world, "@docs/b.md"), {}, policy)
    asked = resolve_references(source(world, "@docs/b.md"), {}, policy, ask=lambda _: True)
    assert without_fences(asked.text) == "text"
    assert without_fences(resolve_references(source(world, "@docs/c.md"), {}, policy).text) == "text"
    assert "[omitted: 1 files" in resolve_references(source(world, "@docs/{a,c}.md"), {}, policy).text


def test_in_locked_mode_a_file_needs_a_rule(world: World) -> None:
    world.write("docs/a.md", "text")
    with pytest.raises(ReferenceDeniedError):
        resolve_references(source(world, "@docs/a.md"), {}, rights(world, given=PermissionFlags(mode="locked")))
    allowed = PermissionFlags(mode="locked", allow=("Read(docs/**)",))
    done = resolve_references(source(world, "@docs/a.md"), {}, rights(world, given=allowed))
    assert without_fences(done.text) == "text"


def test_what_was_not_judged_is_not_run(world: World) -> None:
    from kitbag.processes.command_runner import ShellCommand

    policy = rights(world, allow_commands=True)
    policy.command("rm -rf /", source(world, "!`rm -rf /`", "plugin"))
    with pytest.raises(KeyError):
        policy.run(ShellCommand(text="rm -rf /", directory="/", environment={}, timeout=1, max_characters=100), None)


# --- all at once, and only when it is needed ---------------------------------------------------------------------------


def test_D29_one_refusal_anywhere_and_nothing_has_run(world: World) -> None:
    world.skill("~/.kitbag/skills", "one", body="!`echo x > made`")
    world.skill("~/.kitbag/skills", "two", body="${API_KEY}")
    world.write("~/.kitbag/tasks/x", "")
    world.write("T1.md", "# T\n\nWords.\n")
    done = world.run("pack", "T1.md", "--skills", "one,two", *YES)
    assert done.returncode == 6
    assert not (world.workspace / "made").exists()


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 6)])
def test_D29_on_a_terminal_one_question_lists_everything(world: World, answer: str, code: int) -> None:
    world.skill("~/.kitbag/skills", "one", body="!`echo x > made`")
    world.skill("~/.kitbag/skills", "two", body="!`touch \t\u202emade2` ${PLAIN}")
    world.write("T1.md", "# T\n\nWords.\n")
    world.env["PLAIN"] = "plain value"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kitbag", "pack", "T1.md", "--skills", "one,two"], cwd=world.workspace, env=world.env,
        stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, start_new_session=True, text=True,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while b"[y/N]" not in shown:
        shown += read_some(ours)
    assert not (world.workspace / "made").exists()
    assert all(part in shown for part in (b"echo x > made", b"\\t[U+202E]made2", b"PLAIN"))
    assert shown.count(b"[y/N]") == 1
    os.write(ours, f"{answer}\n".encode())
    out = process.communicate(timeout=TEST_TIMEOUT)[0]
    os.close(ours)
    assert process.returncode == code
    assert (world.workspace / "made").exists() == (code == 0)
    assert ("plain value" in out) == (code == 0)


def test_packing_plain_text_loads_no_parser_tries_no_sandbox_and_looks_at_no_workspace(world: World) -> None:
    world.write("docs/a.md", "the spec")
    project_skill(world, "Read @docs/a.md.")
    code = (
        "import sys; sys.argv = ['kitbag', 'pack', 'T1', '--skills', 'x']\n"
        "from kitbag.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        "heavy = ('tree_sitter', 'kitbag.sandbox.confine', 'kitbag.permissions.trust.workspace_trust', 'kitbag.shell.analysis')\n"
        "sys.stderr.write('LOADED ' + repr([name for name in heavy if name in sys.modules]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=world.workspace,
        env=world.env,
        capture_output=True,
        text=True,
        timeout=TEST_TIMEOUT,
    )
    assert done.stderr.endswith("LOADED []"), done.stderr
    assert "the spec" in done.stdout


def test_children_are_asked_about_the_same_thing_once(world: World) -> None:
    from kitbag.packing.pack import Packer, PackOptions
    from kitbag.packing.task_sources import load_task

    world.skill("~/.kitbag/skills", "x", body="!`echo x >> made`")
    questions: list[int] = []

    def ask(requests: tuple[Any, ...]) -> bool:
        questions.append(len(requests))
        return True

    packer = Packer(world.registry(), ask=ask)
    for name in ("A", "B"):
        world.write(f"{name}.md", f"# {name}\n\nWords.\n")
        task, _ = load_task(str(world.workspace / f"{name}.md"), packer.source())
        packer.pack(task, PackOptions(skills=("x",)))
    assert questions == [1]
    assert (world.workspace / "made").read_text() == "x\nx\n"
