"""Git in hostile repositories: no program of the repository's choice runs before a person or a rule approves."""

import os
import subprocess
from pathlib import Path

import pytest

from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import Effect
from kitbag.sandbox.git_environment import git_environment
from permissions.deciding import git, permissions

UNAPPROVED: tuple[PermissionMode, ...] = ("plan", "default", "acceptEdits")
READING = [
    "git status", "git status --short --ignored", "git diff", "git diff --stat HEAD", "git diff --cached", "git log -p", "git log --oneline -3",
    "git show", "git show --stat HEAD", "git blame a.py", "git ls-files -m", "git grep x", "git describe --always --dirty", "git stash list",
    "git diff-files", "git diff-index HEAD", "git log --format=%H", "git reflog", "git branch -a", "git rev-parse HEAD",
]  # fmt: skip


def repository(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    git(path, "init", "-q", ".")
    (path / "a.py").write_text("x\n")
    (path / ".gitattributes").write_text("*.py diff=x filter=x merge=x\n")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "first")
    (path / "a.py").write_text("y\n")
    return path


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def payload(base: Path) -> tuple[Path, str]:
    """A program that leaves a marker."""
    marker, program = base / "marker", base / "payload"
    program.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
    program.chmod(0o755)
    return marker, str(program)


def hostile_settings(config: Path, program: str, *settings: str) -> None:
    for setting in settings:
        section, _, key = setting.rpartition(".")
        name, _, subsection = section.partition(".")
        title = f'{name} "{subsection}"' if subsection else name
        append(config, f"[{title}]\n\t{key} = {program}\n")


def run_if_allowed(made: Permissions, command: str, base: Path) -> Effect:
    """Run it as it would be run, without the sandbox, which would hide the marker."""
    decision = made.decide("Bash", {"command": command})
    if decision.effect == "allow":
        assert decision.hardens_git
        environment = {"PATH": os.environ["PATH"], "HOME": str(base), "GIT_PAGER": "cat", "GIT_CONFIG_NOSYSTEM": "1"}
        environment |= git_environment(read_only=decision.sandbox == "read-only")
        subprocess.run(
            ["bash", "-c", command],
            cwd=made.workspace.root,
            env=environment,
            check=False,
            capture_output=True,
            timeout=30,
        )
    return decision.effect


DISABLED = [
    "core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "core.askPass", "core.alternateRefsCommand", "core.gitProxy",
    "gpg.program", "gpg.ssh.program", "gpg.x509.program", "pager.log", "pager.status", "pager.diff", "pager.branch", "sequence.editor",
]  # fmt: skip
NAMED = [
    "diff.external", "diff.x.textconv", "diff.x.command", "filter.x.clean", "filter.x.process", "DIFF.x.TextConv", "filter.a]b.clean",
]  # fmt: skip


@pytest.mark.parametrize("mode", UNAPPROVED)
def test_settings_that_the_environment_disables_run_nothing_and_need_no_approval(
    tmp_path: Path, mode: PermissionMode
) -> None:
    made = permissions(tmp_path, mode)
    root = repository(Path(made.workspace.root))
    marker, program = payload(tmp_path)
    hostile_settings(root / ".git/config", program, *DISABLED)
    append(root / ".git/config", "[log]\n\tshowSignature = true\n")
    for name in ("post-index-change", "pre-auto-gc", "reference-transaction", "fsmonitor-watchman"):
        (root / f".git/hooks/{name}").parent.mkdir(exist_ok=True)
        (root / f".git/hooks/{name}").symlink_to(program)
    for command in READING:
        assert run_if_allowed(made, command, tmp_path) == "allow", command
    assert not marker.exists()
    git(root, "status")
    assert marker.exists()  # without our settings it runs


@pytest.mark.parametrize("setting", NAMED)
def test_a_repository_that_names_programs_needs_approval(tmp_path: Path, setting: str) -> None:
    root = repository(Path(permissions(tmp_path).workspace.root))
    marker, program = payload(tmp_path)
    hostile_settings(root / ".git/config", program, setting)
    for mode in UNAPPROVED:
        for command in READING:
            assert run_if_allowed(permissions(tmp_path, mode), command, tmp_path) != "allow", command
    assert not marker.exists()


@pytest.mark.parametrize(
    ("setting", "command"),
    [
        ("merge.x.driver", "git merge-tree a b"), ("filter.x.smudge", "git cat-file --filters HEAD:a.py"), ("tar.x.command", "git archive HEAD"),
        ("remote.origin.uploadpack", "git ls-remote origin"), ("difftool.x.cmd", "git difftool"),
    ],
)  # fmt: skip
def test_plan_mode_runs_no_program_that_another_git_command_would_run(
    tmp_path: Path, setting: str, command: str
) -> None:
    made = permissions(tmp_path, "plan")
    root = repository(Path(made.workspace.root))
    hostile_settings(root / ".git/config", "./evil", setting)
    assert made.decide("Bash", {"command": command}).effect == "deny"
    assert made.decide("Bash", {"command": "git status"}).effect == "allow" or setting == "tar.x.command"


def test_the_reason_names_the_setting_and_its_file(tmp_path: Path) -> None:
    made = permissions(tmp_path)
    root = repository(Path(made.workspace.root))
    hostile_settings(root / ".git/config", "./evil", "filter.x.clean")
    reason = made.decide("Bash", {"command": "git status"}).reason
    assert reason == f"the configuration of the git repository can run programs: clean = ./evil in {root}/.git/config"


def test_a_rule_for_the_command_approves_the_programs_of_the_repository(tmp_path: Path) -> None:
    made = permissions(tmp_path, allow=("Bash(git status:*)",))
    root = repository(Path(made.workspace.root))
    hostile_settings(root / ".git/config", "./evil", "filter.x.clean")
    decision = made.decide("Bash", {"command": "git status"})
    assert (decision.effect, decision.hardens_git) == ("allow", False)
    assert made.decide("Bash", {"command": "git diff"}).effect == "ask"


def hidden_config(root: Path, way: str, program: str) -> None:
    if way == "include":
        (root / "evil.cfg").write_text(f'[filter "x"]\n clean = {program}\n')
        append(root / ".git/config", "[include]\n\tpath = ../evil.cfg\n")
    elif way == "includeIf":
        (root / "evil.cfg").write_text(f'[filter "x"] clean={program}\n')
        append(root / ".git/config", '[includeIf "gitdir:**"] path = "../evil.cfg"\n')
    elif way == "worktree config":
        append(root / ".git/config", "[extensions]\n\tworktreeConfig = true\n")
        hostile_settings(root / ".git/config.worktree", program, "filter.x.clean")
    elif way == "odd syntax":
        append(root / ".git/config", f'[filter "x"] CLEAN="{program}" ; x\n')
    elif way == "old syntax":
        append(root / ".git/config", f"[filter.x]clean={program}\n")


@pytest.mark.parametrize("way", ["include", "includeIf", "worktree config", "odd syntax", "old syntax"])
def test_programs_are_found_however_the_configuration_names_them(tmp_path: Path, way: str) -> None:
    made = permissions(tmp_path)
    root = repository(Path(made.workspace.root))
    marker, program = payload(tmp_path)
    hidden_config(root, way, program)
    assert run_if_allowed(made, "git status", tmp_path) == "ask"
    git(root, "status")
    assert marker.exists()


@pytest.mark.parametrize(
    "command",
    [
        "cd vendor.git && git status", "git -C vendor.git log", "cd vendor.git/objects && git log", "git -C vendor.git -C objects log",
        "GIT_DIR=vendor.git git log", "git --git-dir=vendor.git log", "git --git-dir vendor.git --work-tree . status",
        "cd src && git -C ../vendor.git show", "(cd vendor.git; git log)", "pushd vendor.git && git log", "env GIT_DIR=vendor.git git log",
        "timeout 5 git -C vendor.git log", "git -C $X log", "bash -c 'cd vendor.git && git log'",
    ],
)  # fmt: skip
def test_a_bare_repository_in_the_workspace_runs_nothing_without_approval(tmp_path: Path, command: str) -> None:
    for mode in UNAPPROVED:
        made = permissions(tmp_path, mode)
        root = Path(made.workspace.root)
        marker, program = payload(tmp_path)
        if not (root / "vendor.git").exists():
            repository(root)
            git(root, "clone", "-q", "--bare", ".", "vendor.git")
            (root / "vendor.git/config").write_text(
                f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = {root}\n\tfsmonitor = {program}\n"
                f'[filter "x"]\n\tclean = {program}\n[alias]\n\tx = !{program}\n'
            )
        assert run_if_allowed(made, command, tmp_path) != "allow" or mode == "plan"
        assert not marker.exists(), mode


@pytest.mark.parametrize("nested", ["submodule", "absorbed", "embedded"])
def test_nested_repositories_that_git_enters_are_checked_too(tmp_path: Path, nested: str) -> None:
    made = permissions(tmp_path)
    root = repository(Path(made.workspace.root))
    marker, program = payload(tmp_path)
    inner = repository(root / "inner")
    if nested == "absorbed":
        git(root, "-c", "advice.addEmbeddedRepo=false", "submodule", "-q", "add", "./inner", "inner")
        git(root, "submodule", "-q", "absorbgitdirs")
    else:
        git(root, "-c", "advice.addEmbeddedRepo=false", "add", "inner")
    git(root, "commit", "-qm", "nested")
    config = root / ".git/modules/inner/config" if nested == "absorbed" else inner / ".git/config"
    assert run_if_allowed(made, "git status", tmp_path) == "allow"
    hostile_settings(config, program, "filter.x.clean")
    (inner / "a.py").write_text("z\n")
    assert run_if_allowed(made, "git status", tmp_path) == "ask"
    assert not marker.exists()
    git(root, "status")
    assert marker.exists()
    assert run_if_allowed(made, "git -C inner status", tmp_path) == "ask"


def test_an_alias_that_runs_a_command_needs_approval_in_plan_mode(tmp_path: Path) -> None:
    made = permissions(tmp_path, "plan")
    root = repository(Path(made.workspace.root))
    _, program = payload(tmp_path)
    append(root / ".git/config", f'[alias]\n\tst = "!{program}"\n')
    assert made.decide("Bash", {"command": "git st"}).effect == "deny"
    assert made.decide("Bash", {"command": "git status"}).effect == "allow"


def test_git_lfs_and_ordinary_settings_need_no_approval(tmp_path: Path) -> None:
    made = permissions(tmp_path)
    root = repository(Path(made.workspace.root))
    append(
        root / ".git/config",
        '[filter "lfs"]\n\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n\tprocess = git-lfs filter-process\n'
        '[remote "origin"]\n\turl = https://example.com/x\n[alias]\n\tst = status\n[branch "main"]\n\tremote = origin\n',
    )
    assert made.decide("Bash", {"command": "git status"}).effect == "allow"


def test_configuration_that_blocks_or_loops_is_read_safely(tmp_path: Path) -> None:
    made = permissions(tmp_path)
    root = repository(Path(made.workspace.root))
    append(root / ".git/config", "[include]\n\tpath = config\n\tpath = fifo\n")
    os.mkfifo(root / ".git/fifo")
    assert made.decide("Bash", {"command": "git status"}).effect == "ask"


def test_autonomous_mode_keeps_hooks_and_disables_the_monitor(tmp_path: Path) -> None:
    decision = permissions(tmp_path, "autonomous").decide("Bash", {"command": "git commit -m x"})
    assert decision.hardens_git
    variables = git_environment(read_only=False)
    keys = {value for name, value in variables.items() if name.startswith("GIT_CONFIG_KEY_")}
    assert "core.fsmonitor" in keys
    assert not keys & {"core.hooksPath", "safe.bareRepository"}
