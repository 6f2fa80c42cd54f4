"""The cache of what trust found: whatever happened to the files or to the cache, the answer is that of a fresh scan."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import World
from kitbag.library.scopes import Places
from kitbag.permissions.trust.bounded_reader import BoundedReader
from kitbag.permissions.trust.capabilities import document_capabilities
from kitbag.permissions.trust.workspace_items import WorkspaceScan, scan_workspace
from kitbag.permissions.trust.workspace_trust import check_trust, trust_workspace
from support.cost import calls

COUNT = 30
FOLDER = ".kitbag/skills"


def a_minute_later() -> int:
    """A test can't set a file's ctime, so it sets the clock instead."""
    return time.time_ns() + 60_000_000_000


def settled_scan(world: World) -> WorkspaceScan:
    return scan_workspace(world.places(), clock=a_minute_later)


def fresh_scan(world: World) -> WorkspaceScan:
    """With a home that has no cache."""
    places = world.places()
    return scan_workspace(places._replace(kitbag_home=str(world.home / "empty")))


def fill(world: World) -> Path:
    """Skills with bundles, and what can act in some of them. Returns the folder of one."""
    for number in range(COUNT):
        body = "Words.\n" if number else "Words.\n\n!`scripts/run.sh one` ${PLAIN}\n"
        world.skill(FOLDER, f"s{number:02}", body=body, allowed_tools="Read")
        world.write(f"{FOLDER}/s{number:02}/scripts/run.sh", f"echo {number:02}\n")
        world.write(f"{FOLDER}/s{number:02}/references/a.md", "Words.\n")
    return world.workspace / FOLDER / "s00"


def cache_file(world: World) -> Path:
    [file] = (world.home / ".kitbag/cache").glob("*.content")
    return file


def restore_times(path: Path, before: os.stat_result) -> None:
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_second_scan_reads_only_what_changed_and_the_scripts_that_commands_run(world: World) -> None:
    fill(world)
    first = settled_scan(world)
    with calls(document_capabilities, BoundedReader._hash_script) as counts:  # pyright: ignore[reportPrivateUsage]
        assert scan_workspace(world.places()) == first
        assert counts() == [0, 1]  # the script that a command runs
    assert fresh_scan(world) == first
    world.write(f"{FOLDER}/s07/SKILL.md", "---\nname: s07\ndescription: d\n---\n!`date`\n")
    with calls(document_capabilities, BoundedReader._hash_script) as counts:  # pyright: ignore[reportPrivateUsage]
        changed = scan_workspace(world.places())
        assert counts() == [1, 1]
    assert changed == fresh_scan(world) != first


def test_what_is_younger_than_two_seconds_is_read_again(world: World) -> None:
    fill(world)
    scan_workspace(world.places())
    with calls(document_capabilities) as counts:
        scan_workspace(world.places())
        assert counts() == [COUNT]


def rewrite_keeping_size_and_mtime(folder: Path) -> None:
    file = folder / "SKILL.md"
    before = file.stat()
    file.write_text(file.read_text().replace("run.sh one", "run.sh two"))
    restore_times(file, before)


def replace_script_keeping_size_and_mtime(folder: Path) -> None:
    script = folder / "scripts/run.sh"
    before = script.stat()
    other = folder.parent / "other"
    other.write_text("echo 99\n")
    restore_times(other, before)
    other.replace(script)


def make_prose_executable(folder: Path) -> None:
    (folder / "references/a.md").chmod(0o755)


def add_to_bundle(folder: Path) -> None:
    (folder / "scripts/new.sh").write_text("echo new\n")


def replace_file_by_link(folder: Path) -> None:
    file = folder / "SKILL.md"
    file.rename(folder.parent.parent / "moved.md")
    file.symlink_to(folder.parent.parent / "moved.md")


def replace_folder_by_link(folder: Path) -> None:
    folder.rename(folder.parent.parent / "moved")
    folder.symlink_to(folder.parent.parent / "moved")


def replace_root_by_link(folder: Path) -> None:
    outside = folder.parents[3] / "outside"
    folder.parent.rename(outside)
    folder.parent.symlink_to(outside)


def change_behind_a_link(folder: Path) -> None:
    target = folder.parents[2] / "target.sh"
    before = target.stat()
    target.write_text("echo 2\n")
    restore_times(target, before)


@pytest.mark.parametrize(
    "change",
    [
        rewrite_keeping_size_and_mtime,
        replace_script_keeping_size_and_mtime,
        make_prose_executable,
        add_to_bundle,
        replace_file_by_link,
        replace_folder_by_link,
        replace_root_by_link,
        change_behind_a_link,
        shutil.rmtree,
    ],
)
def test_every_change_is_noticed_whatever_the_times_say(world: World, change: Callable[[Path], None]) -> None:
    folder = fill(world)
    world.write("target.sh", "echo 1\n")
    (folder / "scripts/link.sh").symlink_to(world.workspace / "target.sh")
    before = settled_scan(world)
    change(folder)
    assert scan_workspace(world.places()) == fresh_scan(world) != before


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))


def share_folder(file: Path) -> None:
    file.parent.chmod(0o777)


def link_to_another(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to(file.with_name("elsewhere"))


@pytest.mark.parametrize("damage", [truncate, flip, share_folder, link_to_another, Path.unlink])
def test_a_damaged_shared_or_deleted_cache_only_costs_time(world: World, damage: Callable[[Path], None]) -> None:
    fill(world)
    before = settled_scan(world)
    damage(cache_file(world))
    with calls(document_capabilities) as counts:
        assert scan_workspace(world.places()) == before
        assert counts() == [COUNT]


def test_the_cache_of_another_workspace_is_not_used(world: World) -> None:
    fill(world)
    settled_scan(world)
    cache = cache_file(world).read_bytes()
    copy = world.home / "copy"
    shutil.copytree(world.workspace, copy)
    before = scan_workspace(world.places(copy), clock=a_minute_later)
    for file in (world.home / ".kitbag/cache").glob("*.content"):
        file.write_bytes(cache)
    with calls(document_capabilities) as counts:
        assert scan_workspace(world.places(copy)) == before
        assert counts() == [COUNT]


def test_a_home_inside_the_workspace_has_no_cache(world: World) -> None:
    fill(world)
    here = str(world.workspace)
    places = Places(here, here, f"{here}/.kitbag", (here,))
    scan_workspace(places, clock=a_minute_later)
    assert not list(world.workspace.rglob("*.content"))


def test_a_script_that_changes_after_the_scan_is_not_run(world: World) -> None:
    folder = fill(world)
    places, path = world.places(), str(folder / "SKILL.md")
    trust_workspace(places, check_trust(places))
    trust = check_trust(places)
    text = (folder / "SKILL.md").read_text()
    assert trust.covers(path, text, places)
    replace_script_keeping_size_and_mtime(folder)
    assert not trust.covers(path, text, places)


def test_an_untrusted_workspace_is_listed_without_reading_bodies(world: World) -> None:
    fill(world)
    with calls(document_capabilities) as counts:
        listed = check_trust(world.places(), if_untrusted="names")
        unknown = check_trust(world.places(), if_untrusted="nothing")
        assert counts() == [0]
    assert (listed.state, unknown.state) == ("untrusted", "untrusted")
    assert [item.name for item in listed.items] == [f"s{number:02}" for number in range(COUNT)]
