"""D11: what the sandbox has to hold still, in real repositories."""

import os
import subprocess
from pathlib import Path

import pytest

from kitbag.permissions.model import Workspace
from kitbag.sandbox.protected_paths import MAX_DEPTH, MAX_DIRECTORIES, ControlPaths, find_control_paths
from support.waiting import TEST_TIMEOUT


def git(*arguments: str, cwd: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "HOME": str(cwd),
    }
    environment |= {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *arguments],
        cwd=cwd,
        env=environment,
        check=True,
        capture_output=True,
        timeout=TEST_TIMEOUT,
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path.resolve() / "app"
    root.mkdir()
    return root


def look(root: Path, **more: tuple[str, ...]) -> ControlPaths:
    return find_control_paths(
        Workspace(root=str(root), home=str(root.parent / "home"), kitbag_home=str(root.parent / "home/.kitbag"), **more)
    )


def below(root: Path, paths: tuple[str, ...]) -> set[str]:
    return {os.path.relpath(path, root) for path in paths}


def test_in_a_repository_only_what_makes_git_run_something_is_held(root: Path) -> None:
    git("init", cwd=root)
    found = look(root)
    assert {".git/hooks", ".git/config"} <= below(root, found.existing)
    assert below(root, found.pinned) == {".git"}
    assert ".git" not in below(root, found.existing)
    assert ".git/objects" not in below(root, found.existing)
    assert below(root, found.repositories) == {".git"}


def test_an_empty_git_folder_can_become_a_repository(root: Path) -> None:
    (root / ".git").mkdir()
    assert below(root, look(root).repositories) == {".git"}


def test_what_exists_further_down_is_found_and_what_stands_above_it_is_pinned(root: Path) -> None:
    for path in (
        ".vscode/tasks.json",
        "packages/a/.npmrc",
        "packages/a/.CLAUDE/x",
        "one/two/three/.mcp.json",
        "x/.github/workflows/ci.yml",
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    (root / "packages/b").mkdir()
    git("init", cwd=root / "packages/b")
    found = look(root)
    assert below(root, found.existing) >= {
        ".vscode", "packages/a/.npmrc", "packages/a/.CLAUDE", "one/two/three/.mcp.json", "x/.github/workflows", "packages/b/.git/hooks", "packages/b/.git/config",
    }  # fmt: skip
    assert "packages/b/.git" in below(root, found.repositories)
    assert below(root, found.pinned) >= {
        "packages",
        "packages/a",
        "packages/b",
        "packages/b/.git",
        "one/two/three",
        "x/.github",
    }
    assert ".vscode" not in below(root, found.pinned)


def test_worktrees_submodules_and_separate_git_directories_are_found(root: Path) -> None:
    git("init", "--separate-git-dir", str(root / "meta"), "work", cwd=root)
    git("init", "--bare", "bare", cwd=root)
    library = root.parent / "library"
    library.mkdir()
    git("init", cwd=library)
    git("commit", "--allow-empty", "-m", "x", cwd=library)
    git("init", cwd=root)
    git("submodule", "add", str(library), "very/deep/down/in/sub", cwd=root)
    git("commit", "-m", "x", cwd=root)
    git("worktree", "add", "tree", cwd=root)
    existing = below(root, look(root).existing)
    assert {
        "work/.git",
        "meta/config",
        "meta/hooks",
        "bare/config",
        "bare/hooks",
        "very/deep/down/in/sub/.git",
        "tree/.git",
    } <= existing
    assert {".git/modules", ".git/worktrees", ".gitmodules"} <= existing


def test_a_git_file_that_points_outside_adds_nothing_outside(root: Path) -> None:
    git("init", "--separate-git-dir", str(root.parent / "meta"), str(root), cwd=root)
    found = look(root)
    assert str(root / ".git") in found.existing
    assert all(
        path.startswith(f"{root}/")
        for kind in (found.existing, found.links, found.pinned, found.repositories)
        for path in kind
    )


def test_links_are_named_apart_with_what_they_lead_to(root: Path) -> None:
    (root / "shared").mkdir()
    (root / ".claude").symlink_to("shared")
    (root / ".vscode").symlink_to(root.parent)
    (root / ".husky").symlink_to("nowhere")
    (root / ".idea").symlink_to(".")
    found = look(root)
    assert {".claude", ".vscode", ".husky", ".idea"} == below(root, found.links)
    assert below(root, found.existing) == {"shared"}


def test_every_writable_root_is_looked_at_and_the_kitbag_home_too(root: Path) -> None:
    other = root.parent / "other"
    (other / ".vscode").mkdir(parents=True)
    home = root.parent / "home"
    (home / ".kitbag").mkdir(parents=True)
    (home / ".bashrc").touch()
    found = look(root, extra_write_roots=(str(other), str(home)))
    assert {f"{other}/.vscode", f"{home}/.kitbag", f"{home}/.bashrc"} <= set(found.existing)


def test_the_look_is_bounded(root: Path) -> None:
    deep = root / "/".join("d" * (MAX_DEPTH + 1))
    for path in (deep / ".vscode", root / "node_modules/a/.vscode", root / ".venv/x/.vscode"):
        path.mkdir(parents=True)
    for at in range(MAX_DIRECTORIES * 3):
        (root / "many" / f"f{at}").mkdir(parents=True)
    crowd = root / "a-crowd"
    crowd.mkdir()
    for at in range(2100):
        (crowd / f"f{at}").touch()
    (crowd / ".mcp.json").touch()
    assert below(root, look(root).existing) == {"a-crowd/.mcp.json"}


def test_hostile_content_neither_blocks_nor_raises(root: Path) -> None:
    os.mkfifo(root / ".git")
    (root / ".gitmodules").write_bytes(
        b'\xffpath = ../../../etc\npath = "a b"\n' + b"path = x\n" * 10_000 + b"\0path = \0\n"
    )
    (root / "sub").mkdir()
    (root / "sub/.git").write_text("gitdir: \0\n")
    found = look(root)
    assert {".git", ".gitmodules", "sub/.git"} <= below(root, found.existing)
    assert (
        find_control_paths(Workspace(root="/nowhere/at/all", home="/nowhere", kitbag_home="/nowhere/k")).existing == ()
    )
