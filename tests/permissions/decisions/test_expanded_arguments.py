"""What a command receives after expansion is decided like what is written: for git, behind xargs and in `$(...)`."""

from pathlib import Path

import pytest

from permissions.deciding import git, permissions


def effect(base: Path, command: str, deny: tuple[str, ...] = ()) -> str:
    return permissions(base, deny=deny).decide("Bash", {"command": command}).effect


def make_repository(base: Path) -> Path:
    permissions(base)
    root = base / "w" / "app"
    (root / ".git" / "hooks").rmdir()
    (root / ".git").rmdir()
    git(root, "init", "-q")
    (root / ".env").write_text("TOKEN=1\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "x")
    return root


@pytest.mark.parametrize(
    "command",
    [
        "git show HEAD:.env",
        "git show HEAD:{.env,ok.txt}",
        "x=.env; git show HEAD:$x",
        "x=HEAD:.env; git show $x",
        "for f in .env; do git show HEAD:$f; done",
        "for r in HEAD; do git show $r:.env; done",
        "git show $(git rev-parse HEAD):.env",
        "x=.env; git cat-file -p HEAD:$x",
        "x=HEAD:.env; git diff HEAD:ok.txt $x",
        "git diff -- [.]env",
        "git log -p -- [.]env",
        "git grep '' -- [.]env",
        "x='[.]env'; git diff -- \"$x\"",
    ],
)
def test_git_shows_no_secret_that_an_expansion_names(tmp_path: Path, command: str) -> None:
    make_repository(tmp_path)
    assert effect(tmp_path, command) == "ask"
    assert effect(tmp_path, "x=ok.txt; git show HEAD:$x") == "allow"


@pytest.mark.parametrize("command", ["git log -p", "x=-p; git log $x", "for o in -p; do git log $o; done"])
def test_an_expanded_option_that_shows_changes_counts_for_rules(tmp_path: Path, command: str) -> None:
    make_repository(tmp_path)
    assert effect(tmp_path, command, deny=("Read(.env)",)) == "ask"


def test_a_glob_does_not_turn_a_file_name_into_a_revision(tmp_path: Path) -> None:
    (make_repository(tmp_path) / "HEAD:.env").write_text("")
    assert effect(tmp_path, "git show HEAD:*") == "ask"


@pytest.mark.parametrize("name", ["a .env b.py", "--files0-from=x.py", "it's.py", "*.py"])
@pytest.mark.parametrize(
    "command", ["find . -name '*.py' | xargs wc -l", "cat $(find . -name '*.py')", "git ls-files | xargs head -1"]
)
def test_names_of_files_that_would_be_other_words_need_approval(tmp_path: Path, name: str, command: str) -> None:
    root = make_repository(tmp_path)
    git(root, "rm", "-q", "--cached", ".env")
    assert effect(tmp_path, command) == "allow"
    (root / "src" / name).write_text("")
    assert effect(tmp_path, command) == "ask"


def test_names_with_spaces_are_one_word_if_they_are_separated_by_nul(tmp_path: Path) -> None:
    (make_repository(tmp_path) / "src" / "a b.py").write_text("")
    assert effect(tmp_path, "find . -name '*.py' -print0 | xargs -0 cat") == "allow"


@pytest.mark.parametrize("command", ["git ls-files | xargs cat", "cat $(git ls-files)", "grep -rl T . | xargs cat"])
def test_tracked_or_found_secrets_are_not_printed_unasked(tmp_path: Path, command: str) -> None:
    make_repository(tmp_path)
    assert effect(tmp_path, command) == "ask"


def test_names_of_files_are_no_expression_for_test(tmp_path: Path) -> None:
    make_repository(tmp_path)
    assert effect(tmp_path, "test $(git ls-files)") == "ask"


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("rustup show", "rust-toolchain.toml"),
        ("rustup --version", "rust-toolchain"),
        ("rspec --version", ".rspec"),
        ("rubocop --version", ".rubocop"),
        ("dotnet --version", "global.json"),
    ],
)
def test_a_query_that_runs_code_of_the_workspace_needs_approval(tmp_path: Path, command: str, file: str) -> None:
    assert effect(tmp_path, command) == "allow"
    (tmp_path / "w" / "app" / file).write_text("")
    assert effect(tmp_path, command) == "ask"


@pytest.mark.parametrize("command", ["pytest --version", "tox --version", "flake8 --version", "tsort .env"])
def test_what_imports_code_or_reads_a_secret_needs_approval(tmp_path: Path, command: str) -> None:
    assert effect(tmp_path, command) == "ask"
