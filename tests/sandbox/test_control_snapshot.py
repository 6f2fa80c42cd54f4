"""New repositories are found at any depth, also by a second look, and put out of force; links are put back."""

import os
import subprocess
from pathlib import Path

from kitbag.sandbox.repositories import disable_repositories, find_repositories, read_links, restore_links


def found(root: Path) -> set[str]:
    return {os.path.relpath(path, root) for path in find_repositories([str(root)])}


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


def test_what_is_disarmed_is_still_there_under_another_name(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "a")], check=True)
    (tmp_path / "a/.git.held-by-kitbag").write_text("older")
    said = disable_repositories([str(tmp_path / "a/.git")], [str(tmp_path)])
    assert len(said) == 1
    assert "a/.git was renamed to .git.held-by-kitbag-1" in said[0]
    assert (tmp_path / "a/.git.held-by-kitbag-1/HEAD.held-by-kitbag").exists()
    assert found(tmp_path) == set()


def test_no_link_leads_the_renaming_elsewhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    subprocess.run(["git", "init", "-q", str(outside)], check=True)
    (tmp_path / "root").mkdir()
    (tmp_path / "root/a").symlink_to(outside)
    said = disable_repositories([str(tmp_path / "root/a/.git")], [str(tmp_path / "root")])
    assert "could not be renamed" in said[0]
    assert (outside / ".git/HEAD").exists()


def test_links_are_put_back_and_what_took_their_place_is_kept(tmp_path: Path) -> None:
    for name in ("same", "gone", "other", "file"):
        (tmp_path / name).symlink_to("target")
    before = read_links(str(tmp_path / name) for name in ("same", "gone", "other", "file", "never"))
    (tmp_path / "gone").unlink()
    (tmp_path / "other").unlink()
    (tmp_path / "other").symlink_to("/etc")
    (tmp_path / "file").unlink()
    (tmp_path / "file").write_text("theirs")
    said = restore_links(before)
    assert len(said) == 3
    assert {os.readlink(tmp_path / name) for name in ("same", "gone", "other", "file")} == {"target"}
    assert (tmp_path / "file.held-by-kitbag").read_text() == "theirs"
