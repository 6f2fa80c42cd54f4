"""Walking finds exactly what ripgrep lists, and is never led out of the folder."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kitbag.processes.run_process import OpenDirectory
from kitbag.text.no_follow import open_directory, open_file
from kitbag.tools.search.list_files import ListOptions, list_files
from kitbag.tools.search.walk import parent_ignore_rules, walk_files
from support.matrix import examples

RG = f"{os.path.dirname(sys.executable)}/rg"
"""A dependency of ours."""


def files(program: str, place: Path, which: ListOptions) -> list[str]:
    descriptor = open_directory(os.path.realpath(place))
    found: list[str] = []
    try:

        def take(paths: list[str]) -> bool:
            found.extend(paths)
            return True

        listed = list_files(program, OpenDirectory(descriptor, os.path.realpath(place)), which, take, threading.Event())
    finally:
        os.close(descriptor)
    assert not listed.stopped
    return found if not program else sorted(found)  # ripgrep has several threads, and an order only when it sorts


def make(base: Path, paths: dict[str, str]) -> None:
    for path, text in paths.items():
        target = base / path
        if target.is_dir() or any(parent.is_file() for parent in target.parents):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


names = st.sampled_from(["a", "b", "c.log", "d.py", ".h", "build", "x y", "é"])
paths = st.lists(names, min_size=1, max_size=4).map("/".join)
rule = st.sampled_from(
    [
        "a", "b/", "*.log", "!c.log", "/a", "/build/", "build/**", "**/b", "a/**/d.py", "a/*", "!a/b", "*.py", "!/d.py",
        "#", ".*", "!.h", "[ab]", "b?ild", "\\!a", "x\\ y", "é", "b/c.log", "**/build/*.log", "*a*", "a**", "**/",
        "a/", "!a/", "a//b", "[z-a]", "a ", "", "d.py/", "!*",
    ]
)  # fmt: skip


@settings(max_examples=examples(100))
@given(
    tree=st.lists(paths, max_size=14),
    ignored=st.dictionaries(
        st.sampled_from(["", "a/", "b/", "a/b/", "build/"]), st.lists(rule, max_size=5), max_size=3
    ),
    repositories=st.sets(st.sampled_from(["", "a/", "a/b/"]), max_size=2),
    excluded=st.lists(rule, max_size=2),
    start=st.sampled_from(["", "a", "a/b", "build"]),
    hidden=st.booleans(),
)
def test_walking_lists_what_ripgrep_lists(
    tree: list[str],
    ignored: dict[str, list[str]],
    repositories: set[str],
    excluded: list[str],
    start: str,
    hidden: bool,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        for repository in repositories:
            make(base, {f"{repository}.git/info/exclude": "\n".join(excluded), f"{repository}.git/HEAD": ""})
        make(base, {f"{place}.gitignore": "\n".join(rules) + "\n" for place, rules in ignored.items()})
        make(base, dict.fromkeys(tree, "x"))
        place = base / start
        if not place.is_dir():
            return
        by_ripgrep = files(RG, place, ListOptions(include_hidden=hidden))
        by_walking = files("", place, ListOptions(include_hidden=hidden))
        if not hidden:  # a rule that brings something back makes ripgrep show it although it is hidden
            by_ripgrep = [path for path in by_ripgrep if not any(part.startswith(".") for part in path.split("/"))]
        assert sorted(by_walking) == sorted(by_ripgrep)


def test_files_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    make(tmp_path, dict.fromkeys(["b/z", "b.txt", "a", "B", "b/a/x"], ""))
    assert files("", tmp_path, ListOptions(include_hidden=False)) == ["B", "a", "b/a/x", "b/z", "b.txt"]


@pytest.mark.parametrize("program", [RG, ""])
def test_a_folder_that_git_ignores_is_listed_when_it_is_asked_for(tmp_path: Path, program: str) -> None:
    make(tmp_path, {".git/HEAD": "", ".gitignore": "node_modules/\n*.log\n", "node_modules/p/a.js": "", "x.log": ""})
    make(tmp_path, {"node_modules/p/b.log": "", "node_modules/p/.gitignore": "c.js\n", "node_modules/p/c.js": ""})
    assert files(program, tmp_path, ListOptions(include_hidden=False)) == []
    for start in ("node_modules", "node_modules/p"):
        found = files(program, tmp_path / start, ListOptions(include_hidden=False))
        assert [os.path.basename(path) for path in found] == ["a.js", "b.log"]
    assert files(program, tmp_path, ListOptions(include_hidden=False, respect_gitignore=False)) == [
        "node_modules/p/a.js", "node_modules/p/b.log", "node_modules/p/c.js", "x.log",
    ]  # fmt: skip


@pytest.mark.parametrize("program", [RG, ""])
def test_links_pipes_and_what_versions_are_kept_in_are_not_listed(tmp_path: Path, program: str) -> None:
    outside = tmp_path / "outside"
    root = tmp_path / "root"
    make(outside, {"secret": "x"})
    make(root, {"a": "", ".git/config": "", ".hg/x": "", ".hidden/b": "", "odd\nname": "", "deep/er/c": ""})
    (root / "link").symlink_to(outside)
    (root / "file-link").symlink_to(outside / "secret")
    (root / "loop").symlink_to(".")
    os.mkfifo(root / "pipe")
    assert files(program, root, ListOptions(include_hidden=True)) == [".hidden/b", "a", "deep/er/c", "odd\nname"]
    assert files(program, root, ListOptions(include_hidden=False, max_depth=2)) == ["a", "odd\nname"]


@pytest.mark.parametrize("program", [RG, ""])
def test_names_that_are_no_text_are_listed(tmp_path: Path, program: str) -> None:
    (tmp_path / os.fsdecode(b"bad\xff")).write_text("")
    assert [os.fsencode(path) for path in files(program, tmp_path, ListOptions(include_hidden=False))] == [b"bad\xff"]


def test_a_ripgrep_that_does_not_work_is_replaced(tmp_path: Path) -> None:
    make(tmp_path, {"a": ""})
    broken = tmp_path / "rg"
    broken.write_text("not a program")
    broken.chmod(0o755)
    assert files(str(broken), tmp_path, ListOptions(include_hidden=False)) == ["a", "rg"]
    broken.write_text("#!/bin/sh\necho 'unknown option' >&2\nexit 2\n")
    assert files(str(broken), tmp_path, ListOptions(include_hidden=False)) == ["a", "rg"]


def test_a_folder_is_opened_only_where_no_link_is_on_the_way(tmp_path: Path) -> None:
    make(tmp_path, {"real/folder/a": ""})
    (tmp_path / "link").symlink_to("real")
    base = os.path.realpath(tmp_path)
    os.close(open_directory(f"{base}/real/folder"))
    for path in (f"{base}/link/folder", f"{base}/link", f"{base}/real/folder/a", f"{base}/none"):
        with pytest.raises(OSError):
            open_directory(path)


def test_what_is_no_file_any_more_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        for name in ("pipe", "link", "none"):
            with pytest.raises(OSError):
                open_file(name, folder)
    finally:
        os.close(folder)


def test_walking_never_enters_a_folder_that_was_exchanged_for_a_link(tmp_path: Path) -> None:
    outside, root = tmp_path / "outside", tmp_path / "root"
    make(outside, {"secret": ""})
    make(root, {f"d{number}/mine": "" for number in range(20)})
    descriptor = open_directory(os.path.realpath(root))
    try:
        walking = walk_files(descriptor, None, include_hidden=True)
        assert next(walking)[0] == "d0/mine"
        for number in range(1, 20):  # after their kind was looked at
            shutil.rmtree(root / f"d{number}")
            (root / f"d{number}").symlink_to(outside)
        assert list(walking) == []
    finally:
        os.close(descriptor)


def test_hostile_ignore_rules_take_little_time(tmp_path: Path) -> None:
    rules = ["*a" * 200 + "b", " " * 500_000 + "x", "**/" * 300 + "z", "[" * 900, "a" * 100_000, "\\", "!", "/", "**"]
    make(tmp_path, {".git/HEAD": "", ".gitignore": "\n".join([*rules[:-1]] * 50), "a" * 200: "", "b/" * 60 + "c": ""})
    assert len(files("", tmp_path, ListOptions(include_hidden=False))) == 2


def test_the_rules_above_a_folder_are_found_up_to_its_repository(tmp_path: Path) -> None:
    make(tmp_path, {".gitignore": "*.x\n", "repo/.git/HEAD": "", "repo/.gitignore": "*.y\n", "repo/a/b/f.x": ""})
    above, ignored = parent_ignore_rules(os.path.realpath(tmp_path / "repo" / "a" / "b"))
    assert not ignored
    assert above.ignores("f.y", is_folder=False)
    assert not above.ignores("f.x", is_folder=False)


def test_git_itself_agrees(tmp_path: Path) -> None:
    git = shutil.which("git")
    if git is None:
        pytest.skip("there is no git here")
    subprocess.run([git, "init", "-q", str(tmp_path)], check=True)
    rules = "*.log\n!keep.log\n/top\nbuild/\ndocs/**/*.tmp\n\\#odd\n!\\!odd\nspace\\ \ntrail   \n"
    make(tmp_path, {".gitignore": rules, "sub/.gitignore": "!*.log\n*.py\n"})
    tree = ["a.log", "keep.log", "top", "sub/top", "build/x", "sub/build/y", "docs/a/b.tmp", "docs/b.tmp", "#odd"]
    tree += ["!odd", "space ", "trail", "sub/a.log", "sub/a.py", "a.py"]
    make(tmp_path, dict.fromkeys(tree, ""))
    listing = subprocess.run(
        [git, "-C", str(tmp_path), "ls-files", "-co", "--exclude-standard", "-z"], capture_output=True, check=True
    )
    expected = sorted(os.fsdecode(path) for path in listing.stdout.split(b"\0") if path)
    assert sorted(files("", tmp_path, ListOptions(include_hidden=True))) == expected
