"""Places of missing files are taken and given back; nothing of anybody else's is touched."""

import os
import stat
from pathlib import Path

import pytest

from kitbag.sandbox.placeholders import STAMP, SandboxError, is_placeholder, placeholders


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_file_is_a_socket_a_folder_is_empty_and_both_go_again(tmp_path: Path) -> None:
    missing = [
        str(tmp_path / name) for name in (".mcp.json", ".npmrc", ".claude", ".github/workflows", ".github/hooks")
    ]
    with placeholders(missing, [str(tmp_path)]) as held:
        kinds = {os.path.relpath(one.path, tmp_path): one.kind for one in held}
        assert kinds == {
            ".mcp.json": "file",
            ".npmrc": "file",
            ".claude": "folder",
            ".github": "parent",
            ".github/workflows": "folder",
            ".github/hooks": "folder",
        }
        for path in missing:
            assert is_placeholder(path)
            assert int(os.lstat(path).st_mtime) == STAMP
        assert stat.S_ISSOCK(os.lstat(missing[0]).st_mode)
        with pytest.raises(OSError, match="No such device"):
            os.open(missing[0], os.O_RDONLY)
    assert names(tmp_path) == []


def test_what_lies_in_no_root_is_left_alone(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with placeholders([str(tmp_path / ".npmrc"), str(tmp_path / "root-x/.npmrc"), str(root)], [str(root)]) as held:
        assert held == ()
        assert names(tmp_path) == ["root"]


def test_something_that_is_there_by_now_is_held_and_stays(tmp_path: Path) -> None:
    (tmp_path / ".npmrc").write_text("mine")
    (tmp_path / ".github").write_text("a file")
    with placeholders([str(tmp_path / ".npmrc"), str(tmp_path / ".github/workflows")], [str(tmp_path)]) as held:
        assert {(os.path.basename(one.path), one.kind) for one in held} == {(".npmrc", "there"), (".github", "there")}
    assert names(tmp_path) == [".github", ".npmrc"]
    assert not is_placeholder(str(tmp_path / ".npmrc"))


@pytest.mark.parametrize("path", [".npmrc", ".github/workflows"])
def test_a_link_in_the_way_is_not_followed(tmp_path: Path, path: str) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    root.mkdir()
    elsewhere.mkdir()
    (root / path.split("/")[0]).symlink_to(elsewhere)
    with pytest.raises(SandboxError, match="symbolic link"), placeholders([str(root / path)], [str(root)]):
        pass
    assert names(elsewhere) == []
    assert names(root) == [path.split("/")[0]]


def test_what_is_put_into_a_folder_meanwhile_stays_with_its_folder(tmp_path: Path) -> None:
    with placeholders([str(tmp_path / ".github/workflows"), str(tmp_path / ".claude")], [str(tmp_path)]):
        (tmp_path / ".github/FUNDING.yml").write_text("x")
        (tmp_path / ".claude").chmod(0o755)
        (tmp_path / ".claude/mine").write_text("x")
    assert names(tmp_path) == [".claude", ".claude/mine", ".github", ".github/FUNDING.yml"]


def test_a_second_run_keeps_what_the_first_would_clear(tmp_path: Path) -> None:
    missing = [str(tmp_path / ".mcp.json"), str(tmp_path / ".github/workflows")]
    first, second = placeholders(missing, [str(tmp_path)]), placeholders(missing, [str(tmp_path)])
    held = first.__enter__()
    assert set(second.__enter__()) == set(held)
    first.__exit__(None, None, None)
    assert names(tmp_path) == [".github", ".github/workflows", ".mcp.json"]
    second.__exit__(None, None, None)
    assert names(tmp_path) == []


def test_what_was_left_is_known_and_cleared(tmp_path: Path) -> None:
    missing = [str(tmp_path / name) for name in (".mcp.json", ".claude", ".git/commondir")]
    (tmp_path / ".git").mkdir()
    run = os.fork()
    if run == 0:  # ends without clearing anything
        kept = placeholders(missing, [str(tmp_path)])
        kept.__enter__()
        os._exit(0)
    os.waitpid(run, 0)
    assert names(tmp_path) == [".claude", ".git", ".git/commondir", ".mcp.json"]
    assert all(is_placeholder(path) for path in missing)
    with placeholders(missing, [str(tmp_path)]) as held:
        assert {one.kind for one in held} == {"file", "folder", "same"}
    assert names(tmp_path) == [".git"]


def test_a_folder_that_can_t_be_written_is_an_error_and_not_a_gap(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(SandboxError), placeholders([str(tmp_path / "a/.npmrc")], [str(tmp_path / "a")]):
        pass
    with pytest.raises(SandboxError), placeholders([str(tmp_path / "none/.npmrc")], [str(tmp_path / "none")]):
        pass
    name = str(tmp_path / ("x" * 300))
    with pytest.raises(SandboxError, match="cannot protect"), placeholders([name], [str(tmp_path)]):
        pass
