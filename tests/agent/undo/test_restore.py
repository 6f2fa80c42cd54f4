"""Restoring: after an undo everything is as it was, after a redo as it had become, and nothing is lost on the way."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import World
from kitbag.agent.undo.plan import plan_undo
from kitbag.agent.undo.snapshot import MAX_FILE_BYTES, SnapshotLimits
from kitbag.errors import KitbagError
from kitbag.permissions.decisions.command_paths import MAX_RESTORABLE_BYTES
from support.changing import Shop, reopened, until_killed

ODD = os.fsdecode(b"odd \xff\n\x1b[1m'\"$(x)")


@pytest.fixture
def shop(world: World) -> Iterator[Shop]:
    made = Shop(world)
    yield made
    made.close()


def furnish(shop: Shop) -> None:
    root = shop.root
    (root / "src" / "deep").mkdir(parents=True)
    (root / "hollow").mkdir()
    (root / "src" / "a.py").write_bytes(b"a\r\nb\n")
    (root / "src" / "deep" / "b.py").write_bytes(b"b\n")
    (root / "bytes").write_bytes(bytes(range(256)) * 20)
    (root / "empty").write_bytes(b"")
    (root / "run.sh").write_bytes(b"#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "private").write_bytes(b"p")
    (root / "private").chmod(0o600)
    (root / "readonly").write_bytes(b"r")
    (root / "readonly").chmod(0o444)
    (root / "link").symlink_to("src/a.py")
    (root / "broken").symlink_to("/nowhere/at all")
    (root / ODD).write_bytes(b"odd")


COMMANDS = [
    "rm -r src",
    "rm -rf ./* ",
    "mv src lib",
    "mv src/a.py a.py; mv src/deep/b.py src/a.py",
    "sed -i s/b/c/ src/a.py",
    "chmod 700 run.sh; chmod 644 private; chmod +x src/a.py",
    "chmod 000 private",
    "chmod 000 src",
    "chmod 700 src; chmod 500 hollow",
    "mkdir -p new/er/est; echo x > new/er/file; mkdir other",
    "rmdir hollow",
    "rm link broken; ln -s bytes link; ln -s link more",
    "rm link; echo x > link",
    "rm empty; ln -s bytes empty",
    "rm -r src; echo x > src",
    "rm bytes; mkdir bytes; echo x > bytes/inner",
    "rm -r hollow; ln -s src hollow",
    ": > bytes; echo x > empty",
    "chmod +w readonly; echo x >> readonly; chmod 444 readonly",
    'for f in odd*; do echo x >> "$f"; mv "$f" "$f$f"; done',
    "cp -a src copy; rm src/deep/b.py",
    "printf '\\377\\000' > src/deep/b.py; ln src/a.py hard",
    "git init -q; git add src; git -c user.name=x -c user.email=x commit -qm x; rm src/a.py",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_command_did_is_taken_back_and_done_again(shop: Shop, command: str) -> None:
    furnish(shop)
    before = shop.tree()
    shop.say()
    shop.command(command)
    after = shop.tree()
    assert after != before
    if "cp -a" in command:  # copies that are as old as what they were made from
        shop.force()
    else:
        shop.undo()
    assert shop.tree() == before
    assert shop.messages()[0].undone
    if command == "chmod 000 private":
        return  # what can't be read can't be kept, and so not be done again
    shop.redo()
    assert shop.tree() == after
    assert not shop.messages()[0].undone
    shop.force()
    assert shop.tree() == before


@pytest.mark.parametrize(
    "command", ["rm ignored.log", "mv ignored.log moved.log", "cp src/a.py ignored.log", "chmod +x ignored.log"]
)
@pytest.mark.parametrize("limits", [SnapshotLimits(), SnapshotLimits(files=1)])
def test_files_that_a_command_names_are_restored_even_if_ignored_or_in_a_large_workspace(
    world: World, command: str, limits: SnapshotLimits
) -> None:
    shop = Shop(world, limits=limits)
    furnish(shop)
    (shop.root / ".gitignore").write_text("*.log\n")
    (shop.root / "ignored.log").write_text("once\n")
    before = shop.tree()
    shop.say()
    shop.command(command, named=("ignored.log", "moved.log"))
    assert shop.tree() != before
    shop.undo()
    assert shop.tree() == before
    shop.close()


def test_permissions_and_undo_agree_on_the_size_of_a_file_that_can_be_restored() -> None:
    assert MAX_RESTORABLE_BYTES == MAX_FILE_BYTES


def test_a_folder_that_is_no_repository(shop: Shop) -> None:
    (shop.root / ".git").rmdir()
    furnish(shop)
    before = shop.tree()
    shop.say()
    shop.command("rm -r src; echo x > .gitignore")
    shop.undo()
    assert shop.tree() == before


def test_what_tools_wrote_and_deleted(shop: Shop) -> None:
    furnish(shop)
    before = shop.tree()
    shop.say()
    shop.write("bytes", b"")
    shop.write("run.sh", b"#!/bin/bash\n")
    shop.write("x/y/new", b"new")
    shop.write(f"x/{ODD}", b"new")
    shop.delete("private")
    shop.delete(ODD)
    shop.write("big", b"z" * 8_000_000)
    after = shop.tree()
    shop.undo()
    assert shop.tree() == before
    shop.redo()
    assert shop.tree() == after


def test_one_turn_after_another(shop: Shop) -> None:
    furnish(shop)
    trees = [shop.tree()]
    for command in ("rm -r src", "mkdir src; echo new > src/a.py", "mv src/a.py src/c.py; chmod 700 run.sh"):
        shop.say()
        shop.command(command)
        trees.append(shop.tree())
    for number in (3, 2, 1):
        shop.undo(number)
        assert shop.tree() == trees[number - 1]
    for number in (1, 2, 3):
        shop.redo(number)
        assert shop.tree() == trees[number]


def test_a_folder_in_which_somebody_put_something_stays(shop: Shop) -> None:
    shop.say()
    shop.write("d/f", b"1")
    (shop.root / "d" / "mine").write_bytes(b"mine")
    restored = shop.undo()
    assert restored.skipped == ((str(shop.root / "d"), "not empty"),)
    assert shop.tree().keys() == {"d", "d/mine"}
    assert shop.messages()[0].undone


def test_what_is_forced_over_comes_back_with_a_redo(shop: Shop) -> None:
    (shop.root / "f").write_bytes(b"0")
    shop.say()
    shop.write("f", b"1")
    (shop.root / "f").write_bytes(b"mine")
    shop.force()
    assert (shop.root / "f").read_bytes() == b"0"
    shop.redo()
    assert (shop.root / "f").read_bytes() == b"mine"


def test_what_cannot_be_restored_is_left_and_the_rest_is_done(shop: Shop) -> None:
    with open(shop.root / "big", "wb") as file:
        file.truncate(6 << 20)
    (shop.root / "small").write_bytes(b"s")
    shop.say()
    shop.command("rm big small")
    restored = shop.force()
    assert [path for path, _ in restored.skipped] == [str(shop.root / "big")]
    assert shop.tree().keys() == {"small"}


def test_a_file_that_is_changed_in_the_last_moment_is_left_and_told(shop: Shop) -> None:
    shop.say()
    shop.write("a", b"1")
    shop.write("b", b"1")
    steps = shop.plan()
    (shop.root / "a").write_bytes(b"mine")
    restored = shop.restorer().run(1, steps)
    assert [path for path, _ in restored.failed] == [str(shop.root / "a")]
    assert shop.tree()["a"][1] == b"mine"
    assert not shop.messages()[0].undone


@pytest.mark.parametrize("kind", ["file", "link"])
def test_what_somebody_puts_where_something_was_deleted_is_left_too(shop: Shop, kind: str) -> None:
    """While the person reads what is to be done, say."""
    place = shop.root / "a"
    place.symlink_to("somewhere") if kind == "link" else place.write_bytes(b"old")
    shop.say()
    shop.command("rm a")
    steps = shop.plan()
    place.write_bytes(b"mine")
    restored = shop.restorer().run(1, steps)
    assert [path for path, _ in restored.failed] == [str(place)]
    assert not place.is_symlink()
    assert place.read_bytes() == b"mine"


def test_a_folder_that_is_exchanged_for_a_link_in_the_last_moment_leads_nowhere(shop: Shop) -> None:
    (shop.root / "d").mkdir()
    (shop.root / "d" / "f").write_bytes(b"0")
    shop.say()
    shop.write("d/f", b"1")
    shop.write("d/new", b"1")
    steps = shop.plan()
    outside = shop.world.outside
    (outside / "f").write_bytes(b"1")
    (outside / "new").write_bytes(b"1")
    restorer = shop.restorer()
    kept = restorer._store_current  # type: ignore[attr-defined]

    def swap(step: object) -> object:
        state = kept(step)  # type: ignore[arg-type]
        if not (shop.root / "d").is_symlink() and "new" in str(step):
            os.rename(shop.root / "d", shop.root / "moved")
            (shop.root / "d").symlink_to(outside)
        return state

    restorer._store_current = swap  # type: ignore[method-assign, assignment]
    restored = restorer.run(1, steps)
    assert len(restored.failed) == 2
    assert {name: (outside / name).read_bytes() for name in os.listdir(outside)} == {"f": b"1", "new": b"1"}


def test_a_control_path_is_restored_too(shop: Shop) -> None:
    shop.say()
    shop.write(".vscode/tasks.json", b"{}")
    shop.undo()
    assert shop.tree() == {}


def test_a_restore_that_is_killed_half_way_is_finished_by_the_next(shop: Shop, world: World) -> None:
    furnish(shop)
    before = shop.tree()
    shop.say()
    shop.command("rm -r src; echo x > bytes; echo x > new; rm private")
    after = shop.tree()
    shop.close()
    code = "from kitbag.agent.undo import restore; restore.write_file = die; shop.session.id = 'shop'; shop.force()"
    until_killed(world, code, "other")
    assert shop.tree() not in (before, after)
    again = reopened(world)
    assert not again.messages()[0].undone
    again.undo()
    assert again.tree() == before
    again.redo()
    assert again.tree() == after
    again.close()


def test_a_store_that_cannot_be_written_to_changes_nothing(shop: Shop) -> None:
    shop.say()
    shop.write("f", b"1")
    steps = shop.plan()
    os.rename(shop.kept.folder, f"{shop.kept.folder}-away")
    Path(shop.kept.folder).write_text("in the way")
    with pytest.raises(KitbagError):
        shop.restorer().run(1, steps)
    assert shop.tree().keys() == {"f"}


def test_the_steps_of_an_undone_turn_are_none(shop: Shop) -> None:
    shop.say()
    shop.write("f", b"1")
    shop.undo()
    assert plan_undo(shop.messages()[0].changes, shop.kept) == []
