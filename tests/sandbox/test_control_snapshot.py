"""Control paths are found at any depth, also by a second look; which of the new ones a command created."""

import os
import subprocess
from pathlib import Path

from kitbag.sandbox.control_snapshot import find_created, take_snapshot


def found(root: Path) -> set[str]:
    return {os.path.relpath(path, root) for path in take_snapshot([str(root)]).paths}


def test_repositories_are_found_with_and_without_a_git_folder(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "a/b/c/d/e")], check=True)
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "bare")], check=True)
    (tmp_path / "file").mkdir()
    (tmp_path / "file/.git").write_text("gitdir: x")
    (tmp_path / "case/.GIT").mkdir(parents=True)
    (tmp_path / "no/HEAD").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")
    assert found(tmp_path) == {"a/b/c/d/e/.git", "bare/HEAD", "file/.git", "case/.GIT"}


def test_a_second_look_sees_what_came_and_went(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    assert found(tmp_path) == set()
    (tmp_path / "a/b/.git").mkdir()
    assert found(tmp_path) == {"a/b/.git"}
    os.utime(tmp_path / "a/b", (1, 1))
    (tmp_path / "a/b/.git").rename(tmp_path / "a/.git")
    os.utime(tmp_path / "a/b", (1, 1))
    os.utime(tmp_path / "a", (1, 1))
    assert found(tmp_path) == {"a/.git"}
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "a").mkdir()
    assert found(tmp_path) == {"c/.git"}


def test_all_kinds_of_control_paths_are_found_but_not_in_package_directories(tmp_path: Path) -> None:
    for path in ("a/.envrc", "x/.github/workflows/ci.yml", "node_modules/p/.npmrc", "node_modules/q/.git/HEAD"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    assert found(tmp_path) == {"a/.envrc", "x/.github/workflows", "node_modules/q/.git"}


def test_what_is_new_and_was_not_allowed_is_found(tmp_path: Path) -> None:
    before = take_snapshot([str(tmp_path)])
    (tmp_path / ".envrc").touch()
    (tmp_path / ".npmrc").touch()
    after = take_snapshot([str(tmp_path)])
    assert find_created(before, after, [str(tmp_path / ".npmrc")]) == [str(tmp_path / ".envrc")]
    assert len(find_created(before, after, [])) == 2
