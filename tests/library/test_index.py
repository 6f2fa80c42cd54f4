"""The memory of a scan: whatever happened to the files or to the index, the answer is that of a fresh scan."""

import os
import random
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kitbag.library import index
from kitbag.library.discover import RootScan, scan_root
from kitbag.library.index import CachedScan, scan_indexed, scan_with_cache
from kitbag.library.scopes import Root
from kitbag.text.source_files import file_stamp
from support.matrix import examples

LATER = 60_000_000_000
LONG_AGO = 1_500_000_000_000_000_000


def root_of(folder: Path) -> Root:
    return Root(str(folder), "skills", "project", "kitbag", (1, 0))


def text_of(word: str) -> str:
    return f"---\nname: {word[:1]}\ndescription: {word:.<30}\n---\nBody.\n"


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text or text_of(path.parent.name), encoding="utf-8")
    return path


def settled(remembered: CachedScan) -> CachedScan:
    """As if the scan had been made a minute later, when its files were old. (A test can't set a file's ctime.)"""
    return CachedScan(remembered.scan, remembered.scanned_at + LATER, remembered.teams)


def tick(folder: Path) -> None:
    """Until the file system's clock has moved on, so that what is done next has a time of its own."""
    probe = folder / "probe"
    probe.touch()
    first = probe.stat().st_ctime_ns
    for _ in range(1_000_000):
        probe.touch()
        if probe.stat().st_ctime_ns != first:
            return
    raise AssertionError("the clock stands still")


def answer(scan: RootScan) -> tuple[object, ...]:
    return (scan.root, scan.skills, sorted(scan.team_files), scan.folders, sorted(scan.diagnostics), scan.is_stable)


def library(base: Path) -> Path:
    """A root with one of everything."""
    root = base / "project" / "skills"
    (base / "project" / ".git").mkdir(parents=True)
    write(base / "project" / ".gitignore", "vendor/\n")
    for folder in ("a", "b", "c", "cat/d", "cat/deep/e", "vendor/v"):
        write(root / folder / "SKILL.md")
    write(base / "away" / "linked" / "SKILL.md")
    write(base / "away" / "more" / "f" / "SKILL.md")
    write(root / "strange" / "SKILL.md", "---\nname: a: b\ndescription: c: d\u200b\n---\n")
    write(root / "lower" / "skill.md")
    write(root / "core" / "flat.md")
    write(root / "core" / "notes.md", "No head here at all, but quite as long as a head.\n")
    write(root / "team" / "_persona_p.yaml", "name: p\n")
    write(root / "team" / "p" / "g.md")
    write(root / "team" / "_subagents" / "s.yaml", "name: s\n")
    (root / "empty").mkdir()
    (root / "1" / "2" / "3" / "4" / "5" / "6" / "7").mkdir(parents=True)
    (root / "link").symlink_to(base / "away" / "linked")
    (base / "current").symlink_to(base / "away" / "more")
    (root / "chain").symlink_to(base / "current")
    return root


# Each changes something that a scan can see. All may be done in any order and more than once.


def add(root: Path) -> None:
    write(root / f"new{len(list(root.iterdir()))}" / "SKILL.md")


def edit_same_size(root: Path) -> None:
    path = root / "a" / "SKILL.md"
    if path.is_file():
        path.write_text(path.read_text().replace(".", "!", 1))


def edit_and_restore_time(root: Path) -> None:
    path = root / "b" / "SKILL.md"
    if path.is_file():
        before = path.stat()
        path.write_text(path.read_text().replace(".", "?", 1))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_by_rename(root: Path) -> None:
    if (root / "c").is_dir():
        new = write(root / "c" / "SKILL.md.new", text_of("replaced"))
        os.utime(new, ns=(LONG_AGO, LONG_AGO))
        os.replace(new, root / "c" / "SKILL.md")


def delete(root: Path) -> None:
    shutil.rmtree(root / "a", ignore_errors=True)


def rename_folder(root: Path) -> None:
    if (root / "b").is_dir() and not (root / "renamed").exists():
        os.rename(root / "b", root / "renamed")


def add_nested(root: Path) -> None:
    write(root / "cat" / "deep" / "er" / f"n{random.randrange(9)}" / "SKILL.md")


def directory_becomes_link(root: Path) -> None:
    folder = root / "c"
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)
        folder.symlink_to("cat/d")


def change_mode(root: Path) -> None:
    (root / "cat").chmod(0o700 if stat.S_IMODE((root / "cat").stat().st_mode) != 0o700 else 0o755)


def category_becomes_skill(root: Path) -> None:
    write(root / "cat" / "SKILL.md")


def skill_becomes_category(root: Path) -> None:
    (root / "cat" / "SKILL.md").unlink(missing_ok=True)


def empty_folder_is_filled(root: Path) -> None:
    write(root / "empty" / "x" / "SKILL.md")


def notes_get_a_head(root: Path) -> None:
    path = root / "core" / "notes.md"
    path.write_text("---\ndescription: now it has one\n---\n".ljust(path.stat().st_size - 1) + "\n")


def ignore_more(root: Path) -> None:
    (root.parent / ".gitignore").write_text("cat/\n")


def ignore_less(root: Path) -> None:
    (root.parent / ".gitignore").unlink(missing_ok=True)


def no_repository(root: Path) -> None:
    shutil.rmtree(root.parent / ".git", ignore_errors=True)


def a_repository(root: Path) -> None:
    (root.parent / ".git").mkdir(exist_ok=True)


def ignored_folder_becomes_skill(root: Path) -> None:
    write(root / "vendor" / "SKILL.md")


def deepest_folder_becomes_skill(root: Path) -> None:
    write(root / "1" / "2" / "3" / "4" / "5" / "6" / "SKILL.md")


def mark_a_team(root: Path) -> None:
    write(root / "cat" / "_team.md", "A team.\n")


def add_subagent(root: Path) -> None:
    write(root / "team" / "_subagents" / "t.yaml", "name: t\n")


def right_spelling(root: Path) -> None:
    write(root / "lower" / "SKILL.md")


def retarget(root: Path) -> None:
    base = root.parent.parent
    other = base / "away" / f"other{len(list((base / 'away').iterdir()))}"
    write(other / "h" / "SKILL.md")
    (base / "current").unlink()
    (base / "current").symlink_to(other)


def edit_behind_a_link(root: Path) -> None:
    write(root.parent.parent / "away" / "linked" / "SKILL.md", text_of("behind"))


def add_behind_a_link(root: Path) -> None:
    write(root.parent.parent / "away" / "more" / "behind" / "SKILL.md")


def break_a_link(root: Path) -> None:
    shutil.rmtree(root.parent.parent / "away" / "linked", ignore_errors=True)


def mend_a_link(root: Path) -> None:
    write(root.parent.parent / "away" / "linked" / "SKILL.md")


def a_virtual_environment(root: Path) -> None:
    write(root / "cat" / "pyvenv.cfg", "x\n")


CHANGES: list[Callable[[Path], None]] = [
    add, edit_same_size, edit_and_restore_time, replace_by_rename, delete, rename_folder, add_nested,
    directory_becomes_link, change_mode, category_becomes_skill, skill_becomes_category, empty_folder_is_filled,
    notes_get_a_head, ignore_more, ignore_less, no_repository, a_repository, ignored_folder_becomes_skill, deepest_folder_becomes_skill, mark_a_team, add_subagent, right_spelling,
    retarget, edit_behind_a_link, add_behind_a_link, break_a_link, mend_a_link, a_virtual_environment,
]  # fmt: skip


def check_changes(base: Path, changes: list[Callable[[Path], None]]) -> None:
    root = library(base)
    home = str(base / "home")
    memory = scan_with_cache(root_of(root), None)
    for change in changes:
        tick(base)
        before = settled(memory)
        index.save_index(home, before)
        stored = index.load_index(home, root_of(root))
        assert stored is not None
        assert answer(stored.scan) == answer(before.scan)
        change(root)
        fresh = answer(scan_root(root_of(root)))
        memory = scan_with_cache(root_of(root), before)
        assert answer(memory.scan) == fresh, change.__name__
        assert answer(scan_with_cache(root_of(root), stored).scan) == fresh, change.__name__


@pytest.mark.parametrize("change", CHANGES, ids=[change.__name__ for change in CHANGES])
def test_a_change_is_seen(tmp_path: Path, change: Callable[[Path], None]) -> None:
    check_changes(tmp_path, [change])


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.sampled_from(CHANGES), min_size=2, max_size=7))
def test_after_any_sequence_of_changes_a_warm_scan_is_a_fresh_scan(
    tmp_path: Path, changes: list[Callable[[Path], None]]
) -> None:
    base = tmp_path / "base"
    shutil.rmtree(base, ignore_errors=True)
    check_changes(base, changes)


# -- when nothing changed, nothing is read ---------------------------------------------------------------


def test_a_scan_whose_files_are_all_the_same_is_the_same_scan(tmp_path: Path) -> None:
    before = settled(scan_with_cache(root_of(library(tmp_path)), None))
    assert scan_with_cache(before.scan.root, before) is before


def test_another_set_of_teams_is_another_scan(tmp_path: Path) -> None:
    write(tmp_path / "shop" / "x" / "a.md")
    before = settled(scan_with_cache(root_of(tmp_path), None))
    after = scan_with_cache(root_of(tmp_path), before, frozenset(("shop",)))
    assert [skill.full_name for skill in after.scan.skills] == ["shop/x"]


def test_only_what_changed_is_read_again(tmp_path: Path) -> None:
    root = library(tmp_path)
    before = settled(scan_with_cache(root_of(root), None))
    tick(tmp_path)
    edit_same_size(root)
    after = scan_with_cache(root_of(root), before)
    kept = {id(skill) for skill in before.scan.skills} & {id(skill) for skill in after.scan.skills}
    assert len(kept) == len(before.scan.skills) - 1


def test_an_edit_too_soon_after_the_scan_to_change_the_stamp_is_seen(tmp_path: Path) -> None:
    path = write(tmp_path / "a" / "SKILL.md")
    before = scan_with_cache(root_of(tmp_path), None)
    path.write_text(text_of("a").replace(".", "!"))
    # What a coarse clock would make of it: the same times, the same size, other words.
    status = path.stat()
    skill = before.scan.skills[0]._replace(stamp=hash(file_stamp(status)), changed=status.st_ctime_ns)
    forged = before.scan._replace(skills=[skill])
    after = scan_with_cache(root_of(tmp_path), CachedScan(forged, before.scanned_at, before.teams))
    assert "!" in after.scan.skills[0].description


def test_a_folder_changed_just_before_the_scan_is_listed_again(tmp_path: Path) -> None:
    write(tmp_path / "a" / "SKILL.md")
    before = scan_with_cache(root_of(tmp_path), None)
    write(tmp_path / "b" / "SKILL.md")
    status = tmp_path.stat()
    stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
    forged = before.scan._replace(folders={str(tmp_path): stamp})
    after = scan_with_cache(root_of(tmp_path), CachedScan(forged, before.scanned_at, before.teams))
    assert [skill.name for skill in after.scan.skills] == ["a", "b"]


def test_a_root_that_moved_behind_its_link_keeps_its_diagnostics(tmp_path: Path) -> None:
    write(tmp_path / "v1" / "a" / "SKILL.md", "---\nname: a\ndescription: b: c\n---\n")
    (tmp_path / "root").symlink_to("v1")
    before = settled(scan_with_cache(root_of(tmp_path / "root"), None))
    os.rename(tmp_path / "v1", tmp_path / "v2")
    (tmp_path / "root").unlink()
    (tmp_path / "root").symlink_to("v2")
    after = scan_with_cache(root_of(tmp_path / "root"), before)
    assert answer(after.scan) == answer(scan_root(root_of(tmp_path / "root")))
    assert len(after.scan.diagnostics) == 1


def test_an_empty_root_behind_a_link_is_watched_too(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    write(tmp_path / "v2" / "a" / "SKILL.md")
    (tmp_path / "root").symlink_to("v1")
    before = settled(scan_with_cache(root_of(tmp_path / "root"), None))
    (tmp_path / "root").unlink()
    (tmp_path / "root").symlink_to("v2")
    assert len(scan_with_cache(root_of(tmp_path / "root"), before).scan.skills) == 1


# -- the file ----------------------------------------------------------------------------------------


def many(base: Path) -> Root:
    root = library(base)
    for n in range(30):
        write(root / f"skill{n}" / "SKILL.md")
    write(root / "tagged" / "SKILL.md", "---\ndescription: d\ntags: [a b, c]\ntriggers: fix (it|this)\n---\n")
    return root_of(root)


def stored(base: Path) -> tuple[Root, str, Path]:
    """A root with a good index: the root, the home, the file."""
    root, home = many(base), str(base / "home")
    index.save_index(home, settled(scan_with_cache(root, None)))
    return root, home, Path(index.index_path(home, root))


def test_an_index_is_loaded_as_it_was_saved(tmp_path: Path) -> None:
    root, home, _ = stored(tmp_path)
    loaded = index.load_index(home, root)
    assert loaded is not None
    assert answer(loaded.scan) == answer(scan_root(root))
    assert scan_with_cache(root, loaded) is loaded


def test_an_index_is_private(tmp_path: Path) -> None:
    _, _, file = stored(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert os.listdir(file.parent) == [file.name], "nothing else is left there"


def test_small_roots_and_fresh_ones_get_no_file(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    scan_indexed(home, root_of(library(tmp_path / "small")))
    scan_indexed(home, many(tmp_path / "fresh"))
    assert not os.path.exists(home)


def test_an_index_that_was_cut_short_changes_nothing(tmp_path: Path) -> None:
    root, home, file = stored(tmp_path)
    data, fresh = file.read_bytes(), answer(scan_root(root))
    chance = random.Random(1)
    for size in (0, 1, 20, len(data) - 1, *(chance.randrange(len(data)) for _ in range(40))):
        file.write_bytes(data[:size])
        assert index.load_index(home, root) is None
    assert answer(scan_indexed(home, root).scan) == fresh


def test_an_index_with_any_bit_turned_changes_nothing(tmp_path: Path) -> None:
    root, home, file = stored(tmp_path)
    data, fresh = file.read_bytes(), answer(scan_root(root))
    chance = random.Random(2)
    for at in (*range(0, 200, 3), *(chance.randrange(len(data)) for _ in range(150))):
        file.write_bytes(data[:at] + bytes((data[at] ^ (1 << chance.randrange(8)),)) + data[at + 1 :])
        assert index.load_index(home, root) is None
    assert answer(scan_indexed(home, root).scan) == fresh


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 5_000, b"not an index\n", b"kitbag-index-0 " + b"x" * 500, random.Random(3).randbytes(3_000)],
    ids=["empty", "zeros", "words", "old", "noise"],
)
def test_what_is_no_index_changes_nothing(tmp_path: Path, content: bytes) -> None:
    root, home, file = stored(tmp_path)
    file.write_bytes(content)
    assert index.load_index(home, root) is None
    assert answer(scan_indexed(home, root).scan) == answer(scan_root(root))


def test_another_version_s_index_is_not_read(tmp_path: Path) -> None:
    root, home, file = stored(tmp_path)
    data = file.read_bytes()
    assert sys.version.encode() in data
    file.write_bytes(data.replace(sys.version.encode(), b"3.99.0" + sys.version.encode()[6:], 1))
    assert index.load_index(home, root) is None
    file.write_bytes(data.replace(b"kitbag-index-", b"kitbag-index-9", 1))
    assert index.load_index(home, root) is None


def test_another_root_s_index_is_not_read(tmp_path: Path) -> None:
    root, home, file = stored(tmp_path)
    for other in (
        root._replace(path="/other"),
        root._replace(kind="commands"),
        root._replace(scope="user"),
        root._replace(plugin="p"),
    ):
        target = Path(index.index_path(home, other))
        if target != file:
            shutil.copy(file, target)
        assert index.load_index(home, other) is None


def test_an_index_that_is_a_directory_or_a_dead_link_changes_nothing(tmp_path: Path) -> None:
    root, home, file = stored(tmp_path)
    fresh = answer(scan_root(root))
    file.unlink()
    file.mkdir()
    assert answer(scan_indexed(home, root).scan) == fresh
    index.save_index(home, settled(scan_with_cache(root, None)))
    file.rmdir()
    file.symlink_to(tmp_path / "nowhere")
    assert answer(scan_indexed(home, root).scan) == fresh


def test_a_home_that_can_t_be_written_changes_nothing(tmp_path: Path) -> None:
    root = many(tmp_path)
    (tmp_path / "file").write_text("in the way")
    memory = settled(scan_with_cache(root, None))
    for home in (str(tmp_path / "file"), str(tmp_path / "file" / "below"), "/proc/nothing", "/dev/null"):
        index.save_index(home, memory)
        assert answer(scan_indexed(home, root).scan) == answer(memory.scan)


def test_a_file_left_by_a_process_that_died_is_no_obstacle(tmp_path: Path) -> None:
    root, home, file = stored(tmp_path)
    file.unlink()
    left = Path(f"{file}.{os.getpid()}.new")
    left.write_bytes(b"half")
    memory = settled(scan_with_cache(root, None))
    index.save_index(home, memory)
    index.save_index(home, memory)
    assert index.load_index(home, root) is not None


def test_a_link_planted_for_the_next_index_is_not_written_through(tmp_path: Path) -> None:
    root, home, file = stored(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    Path(f"{file}.{os.getpid()}.new").symlink_to(victim)
    index.save_index(home, settled(scan_with_cache(root, None)))
    assert victim.read_text() == "mine"


def test_names_that_are_not_utf_8_survive_the_index(tmp_path: Path) -> None:
    folder = tmp_path / "root" / os.fsdecode(b"caf\xe9")
    write(folder / "SKILL.md", "---\ndescription: b\n---\n")
    root = root_of(tmp_path / "root")
    index.save_index(str(tmp_path / "home"), settled(scan_with_cache(root, None)))
    loaded = index.load_index(str(tmp_path / "home"), root)
    assert loaded is not None
    assert answer(loaded.scan) == answer(scan_root(root))


def test_times_beyond_reason_are_no_obstacle(tmp_path: Path) -> None:
    path = write(tmp_path / "root" / "a" / "SKILL.md")
    root = root_of(tmp_path / "root")
    scan = scan_with_cache(root, None).scan
    for ctime in (-1, 0, 2**63 - 1, 2**63, 2**70):
        skill = scan.skills[0]._replace(changed=ctime)
        index.save_index(str(tmp_path / "home"), CachedScan(scan._replace(skills=[skill]), 0, frozenset()))
    os.utime(path, ns=(2**62, 2**62))
    assert [skill.name for skill in scan_indexed(str(tmp_path / "home"), root).scan.skills] == ["a"]


def test_an_index_is_written_and_used_once_its_files_are_old(tmp_path: Path) -> None:
    root, home, file = stored(tmp_path)
    first = scan_indexed(home, root)
    written = file.stat().st_mtime_ns
    tick(tmp_path)
    assert answer(scan_indexed(home, root).scan) == answer(first.scan) == answer(scan_root(root))
    assert file.stat().st_mtime_ns == written, "nothing changed, so nothing is written"
