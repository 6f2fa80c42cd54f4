"""A look at a workspace: what is in it, what is not looked at, and what differs between two looks."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from kitbag.agent.undo.change_records import PathChange
from kitbag.agent.undo.snapshot import (
    MAX_FILE_BYTES,
    SnapshotLimitError,
    SnapshotLimits,
    WorkspaceSnapshot,
    diff_snapshots,
    take_snapshot,
)
from kitbag.agent.undo.snapshot_cache import SnapshotCache
from kitbag.store.content_store import ContentStore

LONG_AGO = 1_700_000_000


class Place:
    def __init__(self, base: Path) -> None:
        self.root = base / "w"
        (self.root / ".git" / "info").mkdir(parents=True)
        self.kept = ContentStore(str(base / "home"))

    def write(self, path: str, text: str = "x", *, old: bool = True) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        if old:
            os.utime(target, (LONG_AGO, LONG_AGO))
        return target

    def look(
        self, known: WorkspaceSnapshot | None = None, *, same_rules: bool = False, limits: SnapshotLimits | None = None
    ) -> WorkspaceSnapshot:
        with self.kept.open_writer() as keep:
            rules = known.ignore_rules if known is not None and same_rules else None
            seen = known.files if known is not None else {}
            return take_snapshot([str(self.root)], keep, seen, ignore_rules=rules, limits=limits or SnapshotLimits())

    def names(self, look: WorkspaceSnapshot) -> list[str]:
        return sorted(os.path.relpath(path, self.root) for path in look.files)

    def changes(self, act: Callable[[], object]) -> list[PathChange]:
        before = self.look()
        act()
        return diff_snapshots(before, self.look(before, same_rules=True))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_files_links_and_folders_are_seen_and_their_contents_kept(place: Place) -> None:
    place.write("a/b.txt", "text")
    place.write("empty", "")
    (place.root / "hollow").mkdir()
    (place.root / "link").symlink_to("/nowhere")
    look = place.look()
    assert place.names(look) == ["a", "a/b.txt", "empty", "hollow", "link"]
    held = {name: look.files[str(place.root / name)].state for name in place.names(look)}
    assert place.kept.get(held["a/b.txt"].digest) == b"text"
    assert place.kept.get(held["link"].digest) == b"/nowhere"
    assert held["hollow"].kind == "folder"


def test_what_git_ignores_and_keeps_for_itself_is_not_looked_at(place: Place) -> None:
    place.write(".gitignore", "*.log\n/build/\n")
    place.write(".git/info/exclude", "private\n")
    for name in ("x.log", "build/y", "sub/build/z", "private", ".git/config", "sub/.git/config", "sub/kept.log"):
        place.write(name)
    assert place.names(place.look()) == [".gitignore", "sub", "sub/build", "sub/build/z", "sub/kept.log"]


def test_pipes_and_sockets_are_passed_over(place: Place) -> None:
    os.mkfifo(place.root / "pipe")
    assert place.names(place.look()) == []


def test_a_link_is_not_followed_out_of_the_workspace(place: Place, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (place.root / "way").symlink_to(tmp_path)
    assert place.names(place.look()) == ["way"]


def test_kitbags_own_folder_is_left_out(place: Place) -> None:
    own = place.write(".kitbag/state/x").parent.parent
    with place.kept.open_writer() as keep:
        look = take_snapshot([str(place.root)], keep, {}, exclude=[str(own)])
    assert place.names(look) == []


def test_what_has_not_changed_is_not_read_again(place: Place) -> None:
    place.write("a")
    first = place.look()
    assert first.files_read == 1
    os.utime(place.root / "a", (LONG_AGO, LONG_AGO))  # which changes a time that nobody can set
    settled = first.files[str(place.root / "a")]._replace(settled=True)
    stamp = (settled.stamp[0], settled.stamp[1], os.stat(place.root / "a").st_ctime_ns, settled.stamp[3])
    known = msgspec.structs.replace(first, files={**first.files, str(place.root / "a"): settled._replace(stamp=stamp)})
    assert place.look(known).files_read == 0


def test_a_change_right_after_the_look_that_leaves_the_same_times_is_seen(place: Place) -> None:
    """Files that have changed just now are read again: a clock does not tell two changes in one tick apart."""
    target = place.write("a", "one", old=False)
    before = place.look()
    target.write_text("two")
    status = os.stat(target)
    path = str(target)
    same_times = (before.files[path].stamp[0], status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    before.files[path] = before.files[path]._replace(stamp=same_times)
    [change] = diff_snapshots(before, place.look(before, same_rules=True))
    assert (change.before, change.after) != (None, None)


def test_what_came_went_and_changed(place: Place) -> None:
    for name in ("changed", "gone", "stays", "rights"):
        place.write(name, name)

    def act() -> None:
        place.write("changed", "other")
        (place.root / "gone").unlink()
        (place.root / "rights").chmod(0o700)
        (place.root / "new").mkdir()
        os.utime(place.root / "stays")

    found = {os.path.relpath(change.path, place.root): change for change in place.changes(act)}
    assert sorted(found) == ["changed", "gone", "new", "rights"]
    assert found["gone"].after is None
    assert found["new"].before is None
    states = (found["rights"].before, found["rights"].after)
    assert [state.mode for state in states if state is not None] == [0o644, 0o700]


def test_new_ignore_rules_make_nothing_look_deleted(place: Place) -> None:
    place.write("a.log")
    assert [os.path.basename(c.path) for c in place.changes(lambda: place.write(".gitignore", "*.log"))] == [
        ".gitignore"
    ]


def test_rules_that_are_gone_make_nothing_look_created(place: Place) -> None:
    place.write(".gitignore", "*.log\n")
    place.write("sub/a.log")
    place.write("sub/x")
    found = place.changes((place.root / ".gitignore").unlink)
    assert [os.path.basename(change.path) for change in found] == [".gitignore"]


def test_a_file_that_is_older_than_the_command_is_marked_unless_it_was_seen_elsewhere(place: Place) -> None:
    place.write(".gitignore", "*.secret\n")
    place.write("a.secret")
    place.write("b")

    def act() -> None:
        os.rename(place.root / "a.secret", place.root / "a.bak")
        os.rename(place.root / "b", place.root / "c")
        (place.root / "new").write_text("new")

    found = {
        os.path.basename(change.path): change.predates_command for change in place.changes(act) if change.before is None
    }
    assert found == {"a.bak": True, "c": False, "new": False}


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_can_no_longer_be_read_does_not_look_empty(place: Place) -> None:
    place.write("closed/a")
    closed = place.root / "closed"
    found = place.changes(lambda: closed.chmod(0))
    closed.chmod(0o755)
    assert [change.path for change in found] == [str(closed)]


def test_what_is_too_big_is_told_apart_and_not_kept(place: Place) -> None:
    big = place.root / "big"
    with open(big, "wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    [change] = place.changes(lambda: os.truncate(big, MAX_FILE_BYTES + 2))
    assert change.before is not None
    assert change.before.digest.startswith("~")
    assert place.kept.get(change.before.digest) is None
    assert place.kept.digests() == set()


def test_names_that_are_no_text(place: Place) -> None:
    name = os.fsdecode(b"\xff\n\x1b[31m \xe2\x80\xae")
    found = place.changes(lambda: (place.root / name).write_text("x"))
    assert [os.path.basename(change.path) for change in found] == [name]


class TestLimits:
    def test_too_many_files(self, place: Place) -> None:
        for at in range(4):
            place.write(f"f{at}")
        with pytest.raises(SnapshotLimitError, match="more than 3 files") as raised:
            place.look(limits=SnapshotLimits(files=3))
        assert raised.value.partial is None

    def test_too_many_bytes(self, place: Place) -> None:
        place.write("f", "x" * (1 << 20))
        with pytest.raises(SnapshotLimitError, match="0 MB"):
            place.look(limits=SnapshotLimits(bytes=1_000))

    def test_too_little_time_says_how_far_it_came(self, place: Place) -> None:
        place.write("f")
        with pytest.raises(SnapshotLimitError, match="takes longer than") as raised:
            place.look(limits=SnapshotLimits(seconds=-1))
        assert raised.value.partial is not None

    def test_counting_reads_and_keeps_nothing(self, place: Place) -> None:
        place.write("f", "x" * 1_000)
        with place.kept.open_writer() as keep:
            take_snapshot([str(place.root)], keep, {}, only_count=True)
            with pytest.raises(SnapshotLimitError, match="MB"):
                take_snapshot([str(place.root)], keep, {}, only_count=True, limits=SnapshotLimits(bytes=999))
            with pytest.raises(SnapshotLimitError) as raised:
                take_snapshot([str(place.root)], keep, {}, only_count=True, limits=SnapshotLimits(seconds=-1))
        assert raised.value.partial is None
        assert place.kept.digests() == set()

    def test_a_very_deep_folder_ends_somewhere(self, place: Place) -> None:
        folder = os.open(place.root, os.O_RDONLY)
        for _ in range(300):
            os.mkdir("d", dir_fd=folder)
            deeper = os.open("d", os.O_RDONLY, dir_fd=folder)
            os.close(folder)
            folder = deeper
        os.close(folder)
        assert len(place.look().files) == 100


class TestOnTheDisk:
    def test_a_look_is_read_as_it_was_written(self, place: Place, tmp_path: Path) -> None:
        place.write("a/b")
        (place.root / "link").symlink_to("a")
        (place.root / os.fsdecode(b"\xff")).write_text("x")
        look = place.look()
        files = SnapshotCache(str(tmp_path / "home"), [str(place.root)], "one")
        files.save(look)
        loaded = files.load()
        assert loaded is not None
        assert (loaded.files, loaded.unreadable_folders, loaded.started_ns) == (
            look.files,
            look.unreadable_folders,
            look.started_ns,
        )
        assert files.load_newest(place.kept.digests()) == look.files

    def test_another_session_begins_with_the_newest_and_with_what_is_still_kept(
        self, place: Place, tmp_path: Path
    ) -> None:
        target = place.write("a")
        look = place.look()
        SnapshotCache(str(tmp_path / "home"), [str(place.root)], "one").save(look)
        other = SnapshotCache(str(tmp_path / "home"), [str(place.root)], "two")
        assert other.load() is None
        assert other.load_newest(place.kept.digests()) == look.files
        assert other.load_newest(set()) == {}
        assert str(target) in look.files

    @pytest.mark.parametrize("damage", [b"", b"\x93\x01", b"nonsense", b"\xc1" * 100])
    def test_a_damaged_one_counts_as_none(self, place: Place, tmp_path: Path, damage: bytes) -> None:
        files = SnapshotCache(str(tmp_path / "home"), [str(place.root)], "one")
        files.save(place.look())
        [found] = (tmp_path / "home").rglob("*.look")
        found.write_bytes(damage)
        assert files.load() is None
        assert files.load_newest(set()) == {}

    def test_only_one_process_runs_a_command_of_a_session(self, place: Place, tmp_path: Path) -> None:
        one, two = (SnapshotCache(str(tmp_path / "home"), [str(place.root)], "same") for _ in range(2))
        held = one.mark_running("call")
        assert held is not None
        assert two.mark_running("call") is None
        assert two.find_interrupted() is None
        one.clear_running(held)
        assert two.find_interrupted() is None

    def test_the_oldest_are_removed(self, place: Place, tmp_path: Path) -> None:
        look = place.look()
        for at in range(22):
            SnapshotCache(str(tmp_path / "home"), [str(place.root)], f"s{at:02}").save(look)
        looks = sorted((tmp_path / "home").rglob("*.look"))
        for at, found in enumerate(looks):
            os.utime(found, (time.time() - 90_000 - at, time.time() - 90_000 - at))
        SnapshotCache(str(tmp_path / "home"), [str(place.root)], "x").prune()
        assert sorted((tmp_path / "home").rglob("*.look")) == looks[:20]
