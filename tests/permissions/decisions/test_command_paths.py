"""Globs, loops, directories and removals: decided by the files that exist when the command is decided."""

import os
from pathlib import Path

import pytest

from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.permissions.decisions.command_paths import MAX_RESTORABLE_BYTES
from kitbag.permissions.decisions.file_globs import MAX_MATCHES
from kitbag.permissions.model import PermissionDecision
from permissions.deciding import SANDLOCK, permissions


def decide(
    base: Path, command: str, mode: PermissionMode = "default", *, deny: tuple[str, ...] = (), background: bool = False
) -> PermissionDecision:
    arguments = {"command": command, **({"run_in_background": True} if background else {})}
    return permissions(base, mode, deny=deny).decide("Bash", arguments)


def reason(base: Path, command: str, mode: PermissionMode = "default", *, deny: tuple[str, ...] = ()) -> str:
    """Why it is not allowed; empty if it is."""
    decision = decide(base, command, mode, deny=deny)
    return "" if decision.effect == "allow" else decision.reason


@pytest.fixture
def root(tmp_path: Path) -> Path:
    permissions(tmp_path)  # makes the workspace
    return tmp_path / "w" / "app"


def test_a_glob_is_read_unasked_in_the_read_only_sandbox(tmp_path: Path, root: Path) -> None:
    decision = decide(tmp_path, "wc -l src/*.py *.txt")
    assert (decision.effect, decision.sandbox, decision.network) == ("allow", "read-only", False)


@pytest.mark.parametrize("command", ["cat .e*", "cat .en?", "cat .[de]nv", "cat .*", "for f in .*; do cat $f; done"])
def test_a_glob_that_matches_a_private_file_asks(tmp_path: Path, root: Path, command: str) -> None:
    assert reason(tmp_path, command.replace("env", "nothing")) == "" or "*" in command
    (root / ".env").write_text("KEY=x\n")
    assert reason(tmp_path, command)


def test_a_glob_obeys_rules_for_each_file_that_it_matches(tmp_path: Path, root: Path) -> None:
    (root / "src" / "secret.py").write_text("x")
    assert decide(tmp_path, "cat src/*.py", deny=("Read(src/secret.py)",)).effect == "deny"
    assert decide(tmp_path, "cat src/a*.py", deny=("Read(src/secret.py)",)).effect == "allow"


def test_a_glob_that_matches_a_link_out_of_the_workspace_asks(tmp_path: Path, root: Path) -> None:
    os.symlink(tmp_path / "outside", root / "src" / "out.py")
    assert "outside the workspace" in reason(tmp_path, "cat src/*.py")


def test_a_file_name_that_would_be_an_option_asks(tmp_path: Path, root: Path) -> None:
    (root / "-o").write_text("x")
    assert "read as an option" in reason(tmp_path, "sort *")
    assert reason(tmp_path, "sort ./*") == ""
    assert reason(tmp_path, "echo *") == ""


def test_a_file_name_that_an_unquoted_variable_would_split_asks(tmp_path: Path, root: Path) -> None:
    (root / "src" / "a .env").write_text("x")
    assert "split" in reason(tmp_path, "for f in src/*; do cat $f; done")
    assert reason(tmp_path, 'for f in src/*.py; do cat "$f"; done') == ""


def test_a_glob_that_matches_too_many_files_asks(tmp_path: Path, root: Path) -> None:
    (root / "many").mkdir()
    for number in range(MAX_MATCHES + 1):
        (root / "many" / f"f{number}").touch()
    assert "too many files" in reason(tmp_path, "cat many/*")


def test_a_variable_has_every_value_that_the_text_gives_it(tmp_path: Path, root: Path) -> None:
    (root / ".env").write_text("KEY=x\n")
    assert reason(tmp_path, 'f=ok.txt; cat "$f"') == ""
    assert reason(tmp_path, 'f=ok.txt; if true; then f=.env; fi; cat "$f"')
    assert reason(tmp_path, 'f=.env; (f=ok.txt); cat "$f"')
    assert reason(tmp_path, 'for d in src; do ls "$d"/x; done') == ""
    assert "outside" in reason(tmp_path, 'false && d=src; ls "$d"/x')
    assert "outside" in reason(tmp_path, '(d=src); ls "$d"/x; d=src; ls "$d"/x')
    assert reason(tmp_path, 'read f < ok.txt; cat "$f"') == "an argument is only known at run time"


def test_a_command_after_a_cd_that_may_fail_is_decided_for_both_directories(tmp_path: Path, root: Path) -> None:
    (root / ".env").write_text("KEY=x\n")
    assert reason(tmp_path, "cd src; ls") == ""
    assert reason(tmp_path, "cd src; cat .env")
    assert "outside" in reason(tmp_path, "cd /etc; cat passwd")
    assert "outside" in reason(tmp_path, "cd ..; ls")


def test_files_behind_xargs_are_those_below_the_directory_that_is_searched(tmp_path: Path, root: Path) -> None:
    (root / ".env").write_text("KEY=x\n")
    for command in (
        "find . -name '*.py' | xargs cat",
        "find . -type f | xargs wc -l",
        "git ls-files | grep -v test | head -3 | xargs -n 2 head -5",
        "grep -rl x src | xargs -r sed -n 1p",
    ):
        assert reason(tmp_path, command) == "", command
    for command in (
        "find . -type f | xargs cat",
        "find . -name '.e*' | xargs cat",
        "find . -name '*.py' -o -name .env | xargs cat",
        "find . -name '*.pem' | xargs head",
        "find .. -name '*.py' | xargs cat",
        "ls -A | xargs cat",
        "find . -name '*.py' | xargs sort -o x",
        "find . -name '*.py' | xargs sh",
        "find . -name '*.py' | xargs -I{} cat {}",
        "cat ok.txt | xargs cat",
    ):
        assert reason(tmp_path, command), command
    assert decide(tmp_path, "find . -name '*.py' | xargs cat", deny=("Read(.env)",)).effect != "allow"
    os.symlink(root / ".env", root / "src" / "link.py")
    assert reason(tmp_path, "find . -name '*.py' | xargs cat")
    assert reason(tmp_path, "find . -name '*.py' | xargs wc -l") == ""


def test_secrets_of_the_environment_are_not_printed_unasked(tmp_path: Path) -> None:
    assert reason(tmp_path, 'echo "$PATH" ${HOME} $USER') == ""
    for command in (
        'echo "$GITHUB_TOKEN"',
        "cat <<< ${DB_PASSWORD:0:3}",
        "cat <<E\n$API_KEY\nE",
        'x=$API_KEY; echo "$x"',
    ):
        assert "may hold a secret" in reason(tmp_path, command), command


def test_a_program_that_a_file_of_the_workspace_can_redirect_asks(tmp_path: Path, root: Path) -> None:
    assert reason(tmp_path, "cargo --version") == ""
    (root / "rust-toolchain.toml").write_text("[toolchain]\npath = 'evil'\n")
    assert "can make it run programs" in reason(tmp_path, "cargo --version")
    assert "can make it run programs" in reason(tmp_path, "cd src && cargo tree")


def test_processes_are_listed_unasked_only_where_others_are_hidden(tmp_path: Path) -> None:
    assert reason(tmp_path, "ps aux | grep node") == ""
    without = permissions(tmp_path, protection=SANDLOCK).decide("Bash", {"command": "ps aux"})
    assert without.reason == "shows processes and connections of this machine"


def test_only_files_that_undo_restores_are_removed_unasked(tmp_path: Path, root: Path) -> None:
    decision = decide(tmp_path, "rm src/a.py", "acceptEdits")
    assert (decision.effect, decision.sandbox) == ("allow", "workspace")
    assert [part.path for part in decision.parts if part.path] == [str(root.resolve() / "src" / "a.py")]
    with open(root / "large", "wb") as file:
        file.truncate(MAX_RESTORABLE_BYTES + 1)
    assert "too large" in reason(tmp_path, "rm large", "acceptEdits")
    assert decide(tmp_path, "rm src/a.py", "acceptEdits", background=True).effect == "ask"
    assert decide(tmp_path, "rm src/a.py", "default").effect == "ask"
    for command in ("rm -r src", "rm src/*", "rm ../x", "rm .git/HEAD", "rm .npmrc", 'rm "$x"', "rm /etc/hosts"):
        assert decide(tmp_path, command, "acceptEdits").effect == "ask", command


@pytest.mark.parametrize(
    "command",
    [
        "chmod +x ok.txt",
        "chmod 755 ok.txt",
        "chmod u+rw,go-w ok.txt",
        "git add ok.txt",
        "git add -A",
        "git mv ok.txt b.txt",
    ],
)
def test_edits_inside_the_workspace_are_accepted(tmp_path: Path, command: str) -> None:
    assert decide(tmp_path, command, "acceptEdits").effect == "allow"
    assert decide(tmp_path, command, "default").effect == "ask"
    assert decide(tmp_path, command, "plan").effect == "deny"


@pytest.mark.parametrize(
    "command",
    ["chmod u+s ok.txt", "chmod 4755 ok.txt", "chmod -R 777 .", "chmod +x ../x", "chmod +x .git/hooks/x", "git add -f .",
     "git add .env", "git add -p", "git mv ok.txt .npmrc", "chmod 000 ok.txt", "git add /etc/hosts"],
)  # fmt: skip
def test_edits_that_reach_further_ask(tmp_path: Path, command: str) -> None:
    assert decide(tmp_path, command, "acceptEdits").effect == "ask"
