"""D06-D08, D10-D13 and the table of SECURITY 2.1: where paths lead, on real files and links."""

import contextlib
import os
import socket
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import World
from kitbag.permissions.model import Workspace, is_inside
from kitbag.permissions.paths import PathFacts, examine_path, resolve_links
from support.waiting import wait_until


class Place:
    """A workspace `app` with a sibling, a home and a place outside."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.root = base / "w" / "app"
        self.sibling = base / "w" / "app-evil"
        self.home = base / "home"
        self.outside = base / "outside"
        for folder in (self.root / "src", self.sibling, self.home, self.outside):
            folder.mkdir(parents=True)
        (self.sibling / "x").write_text("x")
        (self.outside / "secret").write_text("s")
        (self.root / "src" / "a.py").write_text("a")
        self.workspace = Workspace(root=str(self.root), home=str(self.home), kitbag_home=str(self.home / ".kitbag"))

    def link(self, name: str, target: str | Path) -> Path:
        link = self.root / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
        return link

    def examine(self, path: str | Path, directory: str = "") -> PathFacts:
        return examine_path(str(path), self.workspace, directory)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path.resolve())


def outside(facts: PathFacts) -> bool:
    return not facts.readable and not facts.writable


@pytest.mark.parametrize(
    "path", ["src/a.py", "./src/a.py", "src//a.py", "src/../src/a.py", "src/new.py", "new/deep/x", ".", "", "src/"]
)
def test_what_is_inside_is_readable_and_writable(place: Place, path: str) -> None:
    for spelled in (path, f"{place.root}/{path}", f"//{place.root}//{path}"):
        facts = place.examine(spelled)
        if spelled:
            assert (
                facts.readable,
                facts.writable,
                facts.special_reason,
                facts.control_reason,
                facts.private_reason,
            ) == (
                True,
                True,
                "",
                "",
                "",
            )
            assert facts.requested == facts.resolved == os.path.normpath(f"{place.root}/{path}")


def test_D06_a_sibling_whose_name_begins_the_same_is_outside(place: Place) -> None:
    for path in (
        place.sibling / "x", f"{place.root}/../app-evil/x", f"/{place.sibling}//x", "../app-evil/x", "src/../../app-evil/x", place.sibling,
        f"{place.root}-evil", "..", "/", "../app-evil/new", f"{place.root}/../app-evil",
    ):  # fmt: skip
        facts = place.examine(path)
        assert outside(facts), path
        assert ".." not in facts.requested
        assert not facts.requested.startswith("//")


def test_D06_a_tilde_is_a_home_and_outside(place: Place) -> None:
    assert place.examine("~/x").requested == str(place.home / "x")
    assert place.examine("~").requested == str(place.home)
    assert place.examine("~root/x").requested == "/root/x"
    for path in ("~", "~/x", "~root/x", "~root", "~/../w/app-evil/x", "~nobody-has-this-name/x", "~+", "~-/x", "~1"):
        assert outside(place.examine(path)), path
    assert place.examine("~nobody-has-this-name/x").special_reason
    assert place.examine("./~notes").writable
    assert place.examine("src/~").writable


def test_a_variable_is_no_variable_here(place: Place) -> None:
    facts = place.examine("$HOME/x")
    assert facts.requested == f"{place.root}/$HOME/x"
    assert facts.writable


def test_a_relative_path_starts_where_it_is_told_and_never_opens_that_place(place: Place) -> None:
    assert place.examine("a.py", str(place.root / "src")).resolved == str(place.root / "src/a.py")
    assert place.examine("a.py", "src").resolved == str(place.root / "src/a.py")
    # D13: a directory that a model names is no root.
    assert outside(place.examine("secret", str(place.outside)))
    assert outside(place.examine(".", str(place.outside)))
    assert outside(place.examine("x", ".."))


def test_D07_a_link_to_outside_is_outside_and_both_names_are_known(place: Place) -> None:
    link = place.link("link", place.outside / "secret")
    facts = place.examine("link")
    assert outside(facts)
    assert facts.spellings == (str(link), str(place.outside / "secret"))


def test_D07_every_name_on_the_way_is_known(place: Place) -> None:
    place.link("b", "c")
    place.link("a", "b")
    (place.root / "c").mkdir()
    facts = place.examine("a/x")
    assert facts.spellings == tuple(str(place.root / name / "x") for name in "abc")
    assert facts.writable


def test_D08_a_new_file_below_a_link_to_outside_is_outside(place: Place) -> None:
    place.link("d", place.outside)
    for path in ("d/new.txt", "d/secret", "d", "d/", "d/deep/er/new", "src/../d/new"):
        facts = place.examine(path)
        assert outside(facts), path
        assert is_inside(facts.resolved, str(place.outside))


def test_D10_a_dangling_link_leads_to_what_would_be_created(place: Place) -> None:
    place.link("notes", place.home / ".bashrc")
    place.link("nowhere", place.outside / "not" / "yet")
    facts = place.examine("notes")
    assert (facts.resolved, outside(facts)) == (str(place.home / ".bashrc"), True)
    assert facts.control_reason
    assert place.examine("nowhere").resolved == str(place.outside / "not" / "yet")
    place.link("stays", "src/later")
    assert place.examine("stays").writable


def test_the_parent_of_a_link_is_the_parent_of_its_target_as_for_the_kernel(place: Place) -> None:
    (place.outside / "dir").mkdir()
    place.link("link", place.outside / "dir")
    facts = place.examine("link/../secret")
    assert (facts.requested, facts.resolved) == (str(place.root / "secret"), str(place.outside / "secret"))
    assert outside(facts)
    # The kernel agrees.
    assert os.path.samefile(f"{place.root}/link/../secret", place.outside / "secret")
    (place.root / "src/deep").mkdir()
    place.link("inner", "src/deep")
    assert place.examine("inner/../a.py").resolved == str(place.root / "src/a.py")
    # By its words outside, by its links inside: not taken for inside.
    (place.outside / "back").symlink_to(place.root / "src")
    assert outside(place.examine(f"{place.outside}/back/../src/a.py"))


def test_a_link_from_outside_straight_to_a_file_inside_is_not_inside(place: Place) -> None:
    (place.outside / "in").symlink_to(place.root / "src/a.py")
    assert outside(place.examine(place.outside / "in"))


def test_the_workspace_under_another_name_is_the_workspace(place: Place) -> None:
    (place.base / "alias").symlink_to(place.root.parent)
    (place.base / "direct").symlink_to(place.root)
    for path in ("alias/app/src/a.py", "direct/src/new", "direct/.git/config"):
        facts = place.examine(place.base / path)
        assert facts.writable, path
        assert is_inside(facts.resolved, str(place.root))
    assert place.examine(place.base / "direct/.git/config").control_reason
    assert outside(place.examine(place.base / "alias/app-evil/x"))
    assert outside(place.examine(place.base / "direct/../app-evil/x"))


def test_loops_are_told_and_don_t_hang(place: Place) -> None:
    place.link("one", "two")
    place.link("two", "one")
    place.link("self", "self/self/self")
    for path in ("one", "self", "one/x", "self/x"):
        facts = place.examine(path)
        assert outside(facts)
        assert facts.special_reason


def reads(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.read_text() == "end"
    return False


def test_links_are_followed_as_often_as_the_kernel_does(place: Place) -> None:
    (place.root / "n0").write_text("end")
    for at in range(1, 42):
        place.link(f"n{at}", f"n{at - 1}")
    assert place.examine("n40").readable
    wait_until(lambda: reads(place.root / "n40"))  # the kernel counts links twice when it has to look again
    assert place.examine("n41").special_reason
    with pytest.raises(OSError, match="symbolic links"):
        Path(place.root / "n41").read_text()


def test_long_links_that_lead_back_and_forth_end(place: Place) -> None:
    for at in range(39):
        place.link(f"m{at}", "src/../" * 500 + f"m{at + 1}")
    assert outside(place.examine("m0"))


@pytest.mark.parametrize(
    "path",
    ["a\0b", "\0", ".git/\0", "a/\ud800/b", "\udc2e\udc2e/x", "x" * 300, "x/" * 3000, "/" + "y" * 5000, "src/" + "é" * 200, "~\0", "~\ud800"],
)  # fmt: skip
def test_what_is_no_path_is_told_and_never_raises(place: Place, path: str) -> None:
    for directory in ("", str(place.root), "\0", "\ud800", "x" * 5000):
        facts = place.examine(path, directory)
        assert facts.special_reason
        assert outside(facts)
    assert outside(place.examine("x", "\0"))
    assert outside(place.examine("x", "\ud800"))


def test_an_empty_path_is_told(place: Place) -> None:
    assert place.examine("").special_reason == "the path is empty"


def test_names_that_are_no_text_are_names(place: Place) -> None:
    name = os.fsdecode(b"caf\xe9")
    (place.root / name).write_text("x")
    assert place.examine(name).readable
    # The same bytes, escaped one by one, are the same name: here `.g`, a zero-width non-joiner, `it`.
    assert place.examine(".g\udce2\udc80\udc8cit/config").control_reason


def test_D12_pipes_sockets_and_devices_are_special(place: Place) -> None:
    os.mkfifo(place.root / "pipe")
    listener = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(place.root)  # a socket's path is short
    try:
        listener.bind("sock")
    finally:
        os.chdir(here)
    place.link("zero", "/dev/zero")
    place.link("pipe-link", "pipe")
    for path in ("pipe", "sock", "zero", "pipe-link"):
        facts = place.examine(path)
        assert facts.special_reason, path
        assert outside(facts)
    listener.close()


@pytest.mark.parametrize(
    "path",
    ["/dev/zero", "/dev/fd/0", "/dev/stdin", "/dev/tcp/h/1", "/dev", "/proc/self/environ", "/proc/self/root/etc/passwd", "/proc", "/sys/kernel", "/dev/../proc/1/mem", "//proc/self/environ", "/dev/null/x"],
)  # fmt: skip
def test_D12_the_system_s_insides_are_special(place: Place, path: str) -> None:
    assert place.examine(path).special_reason
    everything = Workspace(root="/", home=str(place.home), kitbag_home=str(place.home / ".kitbag"))
    assert outside(examine_path(path, everything))


def test_D12_the_system_s_insides_are_special_through_links_too(place: Place) -> None:
    place.link("cwd", "/proc/self/cwd")
    place.link("out", "/dev/stdout")
    assert place.examine("cwd").special_reason
    assert place.examine("out").special_reason
    assert place.examine(f"cwd{place.root}/src/a.py").special_reason


def test_dev_null_takes_everything_and_shm_is_a_folder(place: Place) -> None:
    facts = place.examine("/dev/null")
    assert (facts.readable, facts.writable, facts.special_reason) == (True, True, "")
    place.link("void", "/dev/null")
    assert place.examine("void").writable
    (place.outside / "void").symlink_to("/dev/null")
    assert outside(place.examine(place.outside / "void"))
    assert place.examine("/dev/shm/x").special_reason == ""
    assert outside(place.examine("/dev/shm/x"))


def test_other_roots_are_opened_as_the_user_said(place: Place) -> None:
    workspace = msgspec.structs.replace(
        place.workspace, extra_write_roots=(str(place.outside),), extra_read_roots=(str(place.sibling),)
    )
    assert examine_path(str(place.outside / "new"), workspace).writable
    facts = examine_path(str(place.sibling / "x"), workspace)
    assert (facts.readable, facts.writable) == (True, False)
    place.link("d", place.outside)
    assert examine_path("d/new", workspace).writable
    place.link("e", place.sibling)
    facts = examine_path("e/x", workspace)
    assert (facts.readable, facts.writable) == (True, False)


def test_a_root_that_became_a_link_opens_nothing_else(place: Place) -> None:
    also = place.root / "extra"
    also.symlink_to(place.outside)
    workspace = msgspec.structs.replace(place.workspace, extra_write_roots=(str(also),), extra_read_roots=(str(also),))
    assert outside(examine_path(str(also / "secret"), workspace))


def test_D11_control_paths_are_known_by_every_way_to_them(place: Place) -> None:
    (place.root / ".git/hooks").mkdir(parents=True)
    place.link("h", ".git/hooks")
    place.link("deep/g", "../.git")
    place.link("c", ".git/config")
    place.link("later", ".vscode/tasks.json")
    for path in (
        ".git/hooks/pre-commit", "h/pre-commit", "h", "deep/g/config", "c", "later", "src/../.git/config", ".GIT/config", ".vscode/tasks.json",
        "src/../h/post-commit", "deep/g/hooks/x",
    ):  # fmt: skip
        facts = place.examine(path)
        assert facts.control_reason, path
        assert facts.writable, path  # inside all the same: it is the reason that counts
    assert place.examine("post-commit", str(place.root / ".git/hooks")).control_reason
    assert place.examine("post-commit", str(place.root / "h")).control_reason
    assert place.examine("x", ".kitbag").control_reason


def test_the_kitbag_home_is_control_wherever_it_is(place: Place) -> None:
    own = place.root / "state"
    (place.root / "alias").symlink_to("state")
    for kitbag_home in (own, place.root / "alias"):
        workspace = msgspec.structs.replace(place.workspace, kitbag_home=str(kitbag_home))
        assert examine_path("state/settings.toml", workspace).control_reason
        assert examine_path("state", workspace).control_reason
        assert not examine_path("stated", workspace).control_reason
        assert not examine_path("state/worktrees/one/src/a.py", workspace).control_reason
        assert examine_path("state/worktrees/one", workspace).control_reason


def test_programs_in_the_home_are_control(place: Place) -> None:
    assert place.examine("~/bin/git").control_reason
    assert not place.examine("bin/git").control_reason


def test_the_keys_that_setup_keeps_are_private_wherever_the_kitbag_home_is(place: Place) -> None:
    other = msgspec.structs.replace(place.workspace, kitbag_home=str(place.outside / "kit"))
    place.link("notes.toml", place.outside / "kit" / "keys.toml")
    for path in (place.outside / "kit" / "keys.toml", "notes.toml"):
        assert "API keys" in examine_path(str(path), other).private_reason
    assert not examine_path(str(place.outside / "kit" / "settings.toml"), other).private_reason
    assert not place.examine("keys.toml").private_reason


def test_private_files_are_known_through_links(place: Place) -> None:
    (place.root / ".env").write_text("KEY=1")
    place.link("notes.md", ".env")
    place.link("keys", place.home / ".ssh")
    assert place.examine("notes.md").private_reason
    assert place.examine("keys/config").private_reason
    assert not place.examine("src/a.py").private_reason


def test_the_world_of_other_tests_is_examined(world: World) -> None:
    workspace = Workspace(
        root=str(world.workspace.resolve()), home=str(world.home), kitbag_home=str(world.home / ".kitbag")
    )
    assert examine_path(".git/hooks/pre-commit", workspace).control_reason
    assert examine_path("~/.bashrc", workspace).control_reason


PARTS = st.sampled_from(
    ["..", ".", "", "src", "loop", "up", "out", "in", "a.py", "new", ".git", "~", "\0", "\ud800", "x" * 300]
)


@given(parts=st.lists(PARTS, max_size=8), absolute=st.booleans())
def test_it_agrees_with_the_kernel_and_never_raises(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], absolute: bool
) -> None:
    base = tmp_path_factory.getbasetemp().resolve() / "agrees"
    if not base.exists():
        made = Place(base)
        made.link("loop", "loop")
        made.link("up", "..")
        made.link("out", made.outside)
        made.link("in", "src/../src")
    root = base / "w/app"
    workspace = Workspace(root=str(root), home=str(base / "home"), kitbag_home=str(base / "home/.kitbag"))
    path = ("/" if absolute else "") + "/".join(parts)
    facts = examine_path(path, workspace)
    if facts.special_reason:
        return
    if facts.readable:
        assert is_inside(facts.resolved, str(root))
    written = path if path.startswith("/") else f"{root}/{path}"
    if not path.startswith("~") and os.path.exists(written):
        assert os.path.samefile(written, facts.resolved)
        assert facts.resolved == os.path.realpath(written)
    assert resolve_links(facts.resolved).resolved == facts.resolved
