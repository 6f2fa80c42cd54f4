"""What tools are about to change is kept before they change it, and what a command changed is told after it."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import World
from kitbag.agent.undo.change_records import (
    CHANGE,
    ChangeRecord,
    FileState,
    PathChange,
    decode_change_record,
    encode_change_record,
)
from kitbag.agent.undo.snapshot import SnapshotLimits
from kitbag.errors import KitbagError
from kitbag.store.content_store import content_digest
from support.changing import Shop, reopened, until_killed


@pytest.fixture
def shop(world: World) -> Iterator[Shop]:
    made = Shop(world)
    made.say()
    yield made
    made.close()


def records(shop: Shop) -> list[ChangeRecord]:
    found = [record.body for record in shop.journal.read(shop.session.stream) if record.kind == CHANGE]
    return [decode_change_record(body, shop.kept) for body in found]


class TestKeeping:
    def test_bytes_rights_and_record_are_there_before_the_tool_goes_on(self, shop: Shop) -> None:
        target = shop.root / "run.sh"
        target.write_bytes(b"old\0\xff")
        target.chmod(0o750)
        shop.write("run.sh", b"new", really=False)
        [body] = records(shop)
        assert body.by == "Write"
        assert body.call in shop.session.calls
        [change] = body.files
        assert change == PathChange(
            path=str(target),
            before=FileState("file", content_digest(b"old\0\xff"), 0o750),
            after=FileState("file", content_digest(b"new")),
        )
        assert shop.kept.get(content_digest(b"old\0\xff")) == b"old\0\xff"

    def test_a_new_file_is_recorded_with_the_folders_that_are_made_for_it(self, shop: Shop) -> None:
        shop.write("a/b/new.txt", b"x")
        [body] = records(shop)
        assert [(os.path.relpath(change.path, shop.root), change.before) for change in body.files] == [
            ("a", None),
            ("a/b", None),
            ("a/b/new.txt", None),
        ]

    def test_a_file_that_is_reached_through_a_link_is_recorded_where_it_is(self, shop: Shop) -> None:
        (shop.root / "real").mkdir()
        (shop.root / "way").symlink_to("real")
        shop.run(shop.changes.record("c", str(shop.root / "way" / "f"), None, b"x"))
        assert [change.path for body in records(shop) for change in body.files] == [str(shop.root / "real" / "f")]

    def test_a_path_that_looks_like_a_secret_is_not_lost_and_not_in_the_journal(self, shop: Shop) -> None:
        name = "ghp_0123456789abcdefghij0123456789 hunter2-hunter2"
        shop.write(name, b"x")
        assert [os.path.basename(change.path) for body in records(shop) for change in body.files] == [name]
        written = json.dumps([record.body for record in shop.journal.read(shop.session.stream)])
        assert "ghp_0123" not in written
        assert "hunter2" not in written

    def test_nothing_may_be_changed_when_nothing_can_be_kept(self, shop: Shop) -> None:
        target = shop.root / "f"
        target.write_bytes(b"old")
        os.makedirs(os.path.dirname(shop.kept.folder), exist_ok=True)
        Path(shop.kept.folder).write_text("in the way")
        with pytest.raises(KitbagError):
            shop.write("f", b"new")
        assert target.read_bytes() == b"old"

    def test_a_cancelled_call_has_kept_all_or_nothing(self, shop: Shop) -> None:
        async def work() -> None:
            task = asyncio.ensure_future(shop.changes.record("c", str(shop.root / "f"), b"old", b"new"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        shop.run(work())
        assert all(shop.kept.get(content_digest(b"old")) == b"old" for _ in records(shop))

    def test_a_process_that_is_killed_right_after_leaves_all_that_is_needed(self, world: World) -> None:
        target = world.write("f", "old")
        until_killed(world, 'shop.say(); shop.write("f", b"new", really=False); die()')
        shop = reopened(world)
        assert shop.kept.get(content_digest(b"old")) == b"old"
        assert shop.plan() == []  # it was never written
        target.write_bytes(b"new")
        assert [step.effect for step in shop.plan()] == ["changed"]
        shop.close()


class TestCommands:
    def test_what_a_command_did_is_recorded_and_nothing_else(self, shop: Shop) -> None:
        for name in ("same", "changed", "gone"):
            (shop.root / name).write_text(name)
        shop.command("echo more >> changed; rm gone; mkdir d; echo x > d/new; touch same; cat same")
        [body] = records(shop)
        assert body.by == "Bash"
        assert [(os.path.relpath(c.path, shop.root), c.before is None, c.after is None) for c in body.files] == [
            ("changed", False, False),
            ("d", True, False),
            ("d/new", True, False),
            ("gone", False, True),
        ]
        assert not shop.notices

    def test_a_command_that_changes_nothing_writes_nothing_down(self, shop: Shop) -> None:
        shop.command("true")
        shop.command("ls; cat /dev/null")
        assert records(shop) == []

    def test_what_happens_between_two_commands_is_nobodys(self, shop: Shop) -> None:
        (shop.root / "f").write_text("1")
        shop.command("echo 2 > f")
        (shop.root / "f").write_text("3")
        (shop.root / "mine").write_text("mine")
        shop.command("echo 4 > f")
        before = [change.before.digest for body in records(shop) for change in body.files if change.before]
        assert before == [content_digest(b"1"), content_digest(b"3")]

    def test_a_command_that_fails_is_recorded_too(self, shop: Shop) -> None:
        with pytest.raises(subprocess.CalledProcessError):
            shop.command("echo x > new; exit 3")
        assert len(records(shop)) == 1

    def test_a_command_that_is_cancelled_is_recorded_too(self, shop: Shop) -> None:
        async def work() -> None:
            async with shop.changes.record_command("c"):
                (shop.root / "new").write_text("x")
                begun.set()
                await asyncio.Event().wait()

        async def cancelled() -> None:
            task = asyncio.ensure_future(work())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        begun = asyncio.Event()
        shop.run(cancelled())
        assert len(records(shop)) == 1
        assert not shop.recover()

    def test_a_command_that_removes_the_whole_workspace(self, shop: Shop) -> None:
        (shop.root / "d").mkdir()
        (shop.root / "d" / "f").write_text("x")
        shop.command("cd /; rm -r $OLDPWD")
        [body] = records(shop)
        assert [change.after for change in body.files] == [None, None]

    def test_a_thousand_changes_are_kept_beside_the_journal(self, shop: Shop) -> None:
        shop.command("for i in $(seq 1000); do echo $i > f$i; done")
        [body] = records(shop)
        assert len(body.files) == 1_000
        assert max(len(json.dumps(r.body)) for r in shop.journal.read(shop.session.stream)) < 2_000

    def test_two_sessions_in_one_workspace_do_not_disturb_each_other(self, world: World, shop: Shop) -> None:
        other = Shop(world, "other")
        other.say()
        shop.command("echo 1 > a", meanwhile=lambda: other.command("echo 2 > b"))
        assert [os.path.basename(change.path) for change in records(other)[0].files] == ["b"]
        assert [os.path.basename(change.path) for change in records(shop)[0].files] == ["a", "b"]
        other.close()

    def test_no_program_of_the_workspace_runs(self, shop: Shop, world: World) -> None:
        """Neither git with what a repository configures, nor anything else is started for a look."""
        subprocess.run(["git", "init", "-q"], cwd=shop.root, check=True)
        (shop.root / ".git" / "config").write_text(
            f'[core]\n\tfsmonitor = "touch {world.canary}"\n[filter "x"]\n\tclean = touch {world.canary}; cat\n'
        )
        (shop.root / ".gitattributes").write_text("* filter=x eol=crlf text\n")
        (shop.root / "f").write_bytes(b"a\r\nb\n")
        before = sorted(path for path in (shop.root / ".git").rglob("*"))
        shop.command("rm f")
        assert not world.canary.exists()
        assert sorted(path for path in (shop.root / ".git").rglob("*")) == before
        [change] = records(shop)[0].files
        assert change.before is not None
        assert shop.kept.get(change.before.digest) == b"a\r\nb\n"


class TestWhatCannotBeDone:
    def test_too_big_a_workspace_is_told_once_and_commands_still_run(self, world: World) -> None:
        shop = Shop(world, limits=SnapshotLimits(files=2))
        shop.say()
        for at in range(3):
            shop.command(f"echo x > f{at}; echo x > g{at}")
        assert (shop.root / "g2").exists()
        warnings = [notice for notice in shop.notices if notice.severity == "warning"]
        assert len(warnings) == 2  # of the first command, which made it too big, and of all others
        assert "can't be undone: more than 2 files" in warnings[1].text
        shop.close()

    def test_too_little_time_is_tried_again_and_then_given_up(self, world: World) -> None:
        world.write("known", "x")
        first = Shop(world, "first")
        first.say()
        first.command("echo x > f")
        first.close()
        shop = Shop(world, limits=SnapshotLimits(seconds=-1.0))
        shop.say()
        for at in range(5):
            shop.command(f"echo x > f{at}")
        assert [("next command" in notice.text) for notice in shop.notices] == [True, False]
        shop.close()

    def test_a_workspace_that_is_not_even_counted_in_time_is_not_tried_again(self, world: World) -> None:
        shop = Shop(world, limits=SnapshotLimits(seconds=-1.0))
        shop.say()
        for at in range(3):
            shop.command(f"echo x > f{at}")
        assert ["next command" in notice.text for notice in shop.notices] == [False]
        shop.close()

    def test_commands_that_run_at_the_same_time_are_all_recorded(self, shop: Shop) -> None:
        async def one(name: str) -> None:
            async with shop.changes.record_command(name):
                await meet.wait()
                (shop.root / name).write_text("x")
                await meet.wait()

        async def both() -> None:
            await asyncio.gather(one("a"), one("b"))

        meet = asyncio.Barrier(2)
        shop.run(both())
        assert {os.path.basename(change.path) for body in records(shop) for change in body.files} == {"a", "b"}
        assert not shop.recover()
        shop.undo()
        assert shop.tree() == {}

    def test_a_store_that_cannot_be_written_to_fails_no_command(self, shop: Shop) -> None:
        os.makedirs(os.path.dirname(shop.kept.folder), exist_ok=True)
        Path(shop.kept.folder).write_text("in the way")
        shop.command("echo x > new")
        shop.command("echo x > other")
        assert (shop.root / "other").exists()
        assert len(shop.notices) == 1


class TestAfterAKill:
    def test_what_the_command_changed_is_found_later(self, world: World) -> None:
        world.write("src/a", "a")
        until_killed(world, 'shop.say("Break it"); shop.command("rm -r src; echo x > new", meanwhile=die)')
        shop = reopened(world)
        assert shop.recover()
        assert not shop.recover()
        [turn] = shop.messages()
        assert (turn.number, turn.about, turn.interrupted) == (1, "Break it", True)
        shop.undo(1)
        assert shop.tree().keys() == {"src", "src/a"}
        shop.close()

    def test_it_belongs_to_its_own_turn_also_when_the_session_has_gone_on(self, world: World) -> None:
        world.write("a", "a")
        until_killed(world, 'shop.say(); shop.command("rm a", meanwhile=die)')
        shop = Shop(world, "shop")
        shop.say("And now?")
        shop.command("echo x > b")
        assert [(turn.number, len(turn.changes)) for turn in shop.messages()] == [(1, 1), (2, 1)]
        shop.close()


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"files": None},
        {"files": 3},
        {"files": [["relative", None, None, False]]},
        {"files": [["/a", ["file", "x"], None, False]]},
        {"files": [["/a", ["pipe", "x", 1], None, False]]},
        {"files": [["/a", ["file", 1, 1], None, False]]},
        {"files": [[]]},
        {"kept": "../../etc/passwd"},
        {"kept": "0" * 64},
    ],
)
def test_a_damaged_record_is_said_to_be_so(shop: Shop, body: dict[str, object]) -> None:
    read = decode_change_record(body, shop.kept)
    assert read.files == ()
    assert read.problem


def test_a_record_is_read_as_it_was_written(shop: Shop) -> None:
    made = ChangeRecord(
        files=(
            PathChange(path="/a\udcff\n", before=None, after=FileState("file", "~12-3", 0o000), predates_command=True),
            PathChange(path="/b", before=FileState("link", "0" * 64), after=FileState("folder", "", 0o1777)),
        ),
        call="call",
        by="Bash",
        message=3,
        interrupted=True,
        model_notice="notice",
    )
    assert (
        decode_change_record(json.loads(json.dumps(encode_change_record(made, shop.journal, shop.kept))), shop.kept)
        == made
    )
