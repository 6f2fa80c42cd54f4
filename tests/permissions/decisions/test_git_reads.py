"""Files that git commands read from history, the index and the work tree, decided like Read of the same file."""

import subprocess
from pathlib import Path

import pytest

from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.git_index import read_index
from permissions.deciding import ASKING, git, permissions

DENY = ("Read(./.env)", "Read(./secrets/**)")
NAMING = [
    "git show HEAD:.env", "git show HEAD:./.env", "git show @:.env", "git show :.env", "git show :0:.env", "git show main:.env",
    "git show 'stash@{0}:.env'", "git cat-file -p HEAD:.env", "git cat-file blob HEAD:.env", "git cat-file -p {id}", "git show {id}",
    "git unpack-file {id}", "git diff -- .env", "git diff .env", "git diff HEAD -- .env", "git diff --no-index /dev/null .env",
    "git log -p -- .env", "git log -p .env", "git log -L1,2:.env", "git grep x -- .env", "git grep x HEAD -- .env", "git archive HEAD .env",
    "git blame .env", "git annotate .env", "git blame HEAD -- .env", "git checkout HEAD -- .env", "git restore --source=HEAD .env",
    "git show HEAD -- '.e*'", "git log -p -- ':/.env'", "git log -p -- ':(top).env'", "git log -p -- ':(icase).ENV'", "git -C src show HEAD:.env",
    "cd src && git show HEAD:.env", "git --no-pager show HEAD:.env", "timeout 5 git show HEAD:.env", "bash -c 'git show HEAD:.env'",
    "git stash show -p -- .env", "git difftool HEAD -- .env", "git format-patch -1 --stdout -- .env", "cd src && git show HEAD:../.env",
    "cd src && git log -p -- ../.env",
]  # fmt: skip
SHOWING = [
    "git diff", "git diff HEAD~1", "git show", "git show HEAD", "git log -p", "git log --patch -3", "git stash show -p", "git diff --cached",
    "git diff -- ':!src'", "git diff HEAD -- .", "git archive HEAD", "git format-patch -1 --stdout", "git fast-export --all", "git reflog -p",
    "git cat-file --batch", "echo HEAD:.env | git cat-file --batch", "git cat-file --batch-all-objects --batch", "git log -p -- secrets",
    "git log -p -- 'secr*'", "git diff-tree -p HEAD",
]  # fmt: skip
EVERYDAY = [
    "git status", "git diff --stat", "git show --stat HEAD", "git log --oneline -5", "git log --stat", "git stash list", "git ls-files",
    "git ls-tree -r HEAD", "git show HEAD:src/a.py", "git diff -- src/a.py", "git diff src", "git log -p -- src/a.py", "git blame src/a.py",
    "git cat-file -t HEAD", "git cat-file -p HEAD", "git diff --name-only", "git show HEAD -- src", "git show :src/a.py",
]  # fmt: skip


def tracked(tmp_path: Path, *, ignored: bool = False) -> str:
    """A repository with secrets; returns the object id of `.env`."""
    root = Path(permissions(tmp_path).workspace.root)
    for path in (".env", "secrets/x"):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text("TOKEN=1\n")
    if ignored:
        (root / ".gitignore").write_text(".env\nsecrets\n")
    git(root, "init", "-q", "-b", "main", ".")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    done = subprocess.run(["git", "hash-object", ".env"], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def effect(made: Permissions, command: str) -> str:
    return made.decide("Bash", {"command": command}).effect


@pytest.mark.parametrize("command", NAMING)
def test_a_file_that_git_reads_is_decided_like_read(tmp_path: Path, command: str) -> None:
    command = command.replace("{id}", tracked(tmp_path)[:10])
    for mode in ASKING:
        assert effect(permissions(tmp_path, mode), command) == "ask"
        assert effect(permissions(tmp_path, mode, allow=("Bash(git *)", "Bash(timeout *)")), command) == "ask"
        assert effect(permissions(tmp_path, mode, deny=DENY, allow=("Bash",)), command) == "deny"
    for mode in ("plan", "autonomous"):
        assert effect(permissions(tmp_path, mode), command) == "deny"


@pytest.mark.parametrize("command", SHOWING)
def test_a_command_that_may_show_a_denied_tracked_file_needs_approval(tmp_path: Path, command: str) -> None:
    tracked(tmp_path)
    assert effect(permissions(tmp_path, deny=DENY, allow=("Bash",)), command) != "allow"
    decision = permissions(tmp_path, "autonomous", deny=DENY).decide("Bash", {"command": command})
    assert decision.effect == "deny"
    assert {part.rule for part in decision.parts if part.effect == "deny"} & {*DENY}


@pytest.mark.parametrize("command", EVERYDAY)
def test_commands_that_show_no_denied_file_need_no_approval(tmp_path: Path, command: str) -> None:
    tracked(tmp_path)
    assert effect(permissions(tmp_path, deny=DENY), command) == "allow"


@pytest.mark.parametrize(
    "command", ["git diff", "git show HEAD", "git log -p", "git diff --cached", "git stash show -p"]
)
def test_denied_files_that_git_does_not_track_cost_no_approval(tmp_path: Path, command: str) -> None:
    tracked(tmp_path, ignored=True)
    assert effect(permissions(tmp_path, deny=DENY), command) == "allow"
    assert effect(permissions(tmp_path, deny=DENY), "git show HEAD:.env") == "deny"


def test_an_object_that_no_tracked_file_has_needs_approval_where_files_are_denied(tmp_path: Path) -> None:
    tracked(tmp_path, ignored=True)
    assert effect(permissions(tmp_path, deny=DENY), "git cat-file -p 0123456789") == "ask"
    assert effect(permissions(tmp_path), "git cat-file -p 0123456789") == "allow"


def test_a_rule_that_names_the_file_in_history_allows_it(tmp_path: Path) -> None:
    tracked(tmp_path)
    assert effect(permissions(tmp_path, allow=("Bash(git show HEAD:.env)",)), "git show HEAD:.env") == "allow"


@pytest.mark.parametrize("version", ["2", "3", "4"])
@pytest.mark.parametrize("hashes", ["sha1", "sha256"])
def test_the_index_is_read_as_git_lists_it(tmp_path: Path, version: str, hashes: str) -> None:
    git(tmp_path, "init", "-q", f"--object-format={hashes}", ".")
    for name in ("a", "dir/a b", "dir/ab/c", "dir/abc", "é"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    git(tmp_path, "add", "-A")
    git(tmp_path, "update-index", "--index-version", version)
    if version == "3":
        (tmp_path / "later").write_text("x")
        git(tmp_path, "add", "-N", "later")
    listed = subprocess.run(["git", "ls-files", "-sz"], cwd=tmp_path, check=True, capture_output=True, text=True)
    lines = [line.partition("\t") for line in listed.stdout.split("\0") if line]
    entries = read_index(str(tmp_path / ".git"))
    assert entries is not None
    assert [(entry.path, entry.object_id) for entry in entries] == [(path, head.split()[1]) for head, _, path in lines]


def test_a_damaged_index_is_not_guessed_at(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", ".")
    (tmp_path / "a").write_text("x")
    git(tmp_path, "add", "-A")
    data = (tmp_path / ".git/index").read_bytes()
    for damaged in (b"", b"DIRC", data[:50], b"X" + data[1:], data[:8] + b"\xff\xff\xff\xff" + data[12:]):
        (tmp_path / ".git/index").write_bytes(damaged)
        assert not read_index(str(tmp_path / ".git"))
