"""The plan of what to take back: what a turn did in the end, and whether the files are still what it left."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from conftest import World
from kitbag.agent.resume import fork, resume
from kitbag.agent.session_records import SessionHeader
from kitbag.agent.undo.plan import list_net_effects, plan_undo, read_message_changes, undo_notice
from kitbag.agent.undo.session_changes import SessionChanges
from kitbag.errors import NotFoundError
from kitbag.messages import Text
from support.changing import Shop


@pytest.fixture
def shop(world: World) -> Iterator[Shop]:
    made = Shop(world)
    yield made
    made.close()


class TestTurns:
    def test_a_turn_is_what_one_message_caused(self, shop: Shop) -> None:
        shop.say("First\nof all")
        shop.write("a", b"1")
        shop.command("echo 1 > b")
        shop.say("What is this?")
        shop.say("Third")
        shop.write("a", b"2")
        first, third = shop.messages()
        assert (first.number, first.about, first.tools) == (1, "First", ("Write", "Bash"))
        assert (third.number, third.about, third.tools) == (3, "Third", ("Write",))
        assert {os.path.basename(path): done for path, done in list_net_effects(first.changes).items()} == {
            "a": "created",
            "b": "created",
        }

    def test_there_is_no_such_session(self, shop: Shop) -> None:
        with pytest.raises(NotFoundError, match="no session named 'other'"):
            read_message_changes(shop.journal, "other", shop.kept)

    def test_a_fork_counts_on_and_has_only_what_it_did_itself(self, shop: Shop) -> None:
        shop.say("One")
        shop.write("a", b"1")
        shop.say("Two")
        copy = shop.run(
            fork(shop.journal, shop.session, SessionHeader(directory=str(shop.root), model="model", mode="default"))
        )
        shop.run(copy.add_user((Text("Three"),)))
        changes = SessionChanges(copy, shop.workspace, shop.notices.append)
        shop.run(changes.record("c", str(shop.root / "b"), None, b"x"))
        [turn] = read_message_changes(shop.journal, copy.id, shop.kept)
        assert (turn.number, turn.about) == (3, "Three")

    def test_what_an_agent_did_that_an_agent_started_is_the_persons_turn(self, shop: Shop) -> None:
        shop.say("Delegate")
        inner = Shop(shop.world, "inner")
        changes = SessionChanges(inner.session, shop.workspace, shop.notices.append, record_in=shop.session.id)
        shop.run(changes.record("c", str(shop.root / "b"), None, b"x"))
        (shop.root / "b").write_bytes(b"x")
        inner.close()
        assert [step.effect for step in shop.plan()] == ["created"]

    def test_a_list_of_files_that_is_no_longer_kept_is_told(self, shop: Shop) -> None:
        shop.say()
        shop.command("for i in $(seq 600); do : > f$i; done")
        for digest in shop.kept.digests():
            os.unlink(f"{shop.kept.folder}/{digest[:2]}/{digest}")
        [turn] = shop.messages()
        assert "no longer stored" in turn.problem


class TestPlan:
    def test_several_changes_of_a_turn_are_one(self, shop: Shop) -> None:
        (shop.root / "f").write_bytes(b"0")
        shop.say()
        shop.write("f", b"1")
        shop.command("echo 2 > f")
        shop.write("f", b"3")
        [step] = shop.plan()
        assert (step.effect, step.problem) == ("changed", "")
        shop.undo()
        assert (shop.root / "f").read_bytes() == b"0"

    def test_what_came_and_went_again_is_left_out(self, shop: Shop) -> None:
        shop.say()
        shop.write("f", b"1")
        shop.delete("f")
        assert shop.plan() == []
        assert list_net_effects(shop.messages()[0].changes) == {}

    def test_a_change_that_was_announced_and_never_made_is_no_change(self, shop: Shop) -> None:
        (shop.root / "f").write_bytes(b"0")
        shop.say()
        shop.write("f", b"1", really=False)
        shop.write("g", b"1", really=False)
        assert shop.plan() == []
        shop.write("f", b"2")
        shop.write("f", b"3", really=False)
        [step] = shop.plan()
        assert step.problem == ""

    def test_what_is_as_it_was_already_is_left_out(self, shop: Shop) -> None:
        (shop.root / "f").write_bytes(b"0")
        shop.say()
        shop.write("f", b"1")
        (shop.root / "f").write_bytes(b"0")
        assert shop.plan() == []

    def test_a_file_that_somebody_changed_deleted_or_made_since_is_refused(self, shop: Shop) -> None:
        for name in ("changed", "deleted", "anew", "fine"):
            (shop.root / name).write_bytes(b"0")
        shop.say()
        for name in ("changed", "deleted", "fine", "made"):
            shop.write(name, b"1")
        shop.delete("anew")
        (shop.root / "changed").write_bytes(b"mine")
        (shop.root / "deleted").unlink()
        (shop.root / "anew").write_bytes(b"mine")
        (shop.root / "made").write_bytes(b"mine")
        assert shop.problems() == {
            "changed": "changed since",
            "deleted": "deleted since",
            "anew": "re-created since",
            "made": "changed since",
        }
        assert len(shop.plan()) == 5

    def test_a_file_that_became_a_link_or_a_folder_is_refused(self, shop: Shop) -> None:
        shop.say()
        shop.write("a", b"1")
        shop.write("b", b"1")
        for name in ("a", "b"):
            (shop.root / name).unlink()
        (shop.root / "a").symlink_to("b")
        (shop.root / "b").mkdir()
        assert set(shop.problems()) == {"a", "b"}

    def test_an_edit_of_somebody_else_within_the_turn_is_not_lost(self, shop: Shop) -> None:
        (shop.root / "f").write_bytes(b"0")
        shop.say()
        shop.write("f", b"1")
        (shop.root / "f").write_bytes(b"mine")
        shop.write("f", b"2")
        assert "between two changes" in shop.problems()["f"]

    def test_a_later_turn_that_changed_the_file_has_to_be_undone_first(self, shop: Shop) -> None:
        (shop.root / "f").write_bytes(b"0")
        shop.say()
        shop.write("f", b"1")
        shop.say()
        shop.write("f", b"2")
        assert shop.problems(1) == {"f": "message 2 changed it later; undo that message first"}
        shop.undo(2)
        assert shop.problems(1) == {}
        shop.undo(1)
        assert (shop.root / "f").read_bytes() == b"0"

    def test_rights_that_somebody_else_set_are_no_reason_to_refuse_and_stay(self, shop: Shop) -> None:
        (shop.root / "f").write_bytes(b"0")
        shop.say()
        shop.write("f", b"1")
        (shop.root / "f").chmod(0o700)
        shop.undo()
        assert shop.tree()["f"] == (0o700, b"0")

    def test_rights_that_the_turn_set_are_compared_and_restored(self, shop: Shop) -> None:
        (shop.root / "f").write_bytes(b"0")
        shop.say()
        shop.command("chmod 600 f")
        (shop.root / "f").chmod(0o777)
        assert shop.problems() == {"f": "changed since"}
        (shop.root / "f").chmod(0o600)
        shop.undo()
        assert shop.tree()["f"] == (0o644, b"0")

    def test_bytes_that_are_not_kept_any_more_are_told_and_cannot_be_forced(self, shop: Shop) -> None:
        (shop.root / "f").write_bytes(b"0")
        shop.say()
        shop.write("f", b"1")
        for digest in shop.kept.digests():
            os.unlink(f"{shop.kept.folder}/{digest[:2]}/{digest}")
        [step] = shop.plan()
        assert (step.problem, step.possible) == ("its previous content is no longer stored", False)

    def test_a_file_that_was_too_big_to_be_kept_is_told(self, shop: Shop) -> None:
        with open(shop.root / "big", "wb") as file:
            file.truncate(6 << 20)
        shop.say()
        shop.command("rm big; echo x > small")
        assert list(shop.problems()) == ["big"]
        assert "too large" in shop.problems()["big"]

    def test_a_big_file_that_a_command_made_can_go(self, shop: Shop) -> None:
        shop.say()
        shop.command("head -c 6000000 /dev/zero > big")
        shop.undo()
        assert shop.tree() == {}
        shop.redo()
        assert len(shop.tree()["big"][1]) == 6_000_000

    def test_a_file_that_may_have_been_moved_from_where_nobody_looks_is_not_just_removed(self, shop: Shop) -> None:
        (shop.root / ".gitignore").write_text(".env\n")
        (shop.root / ".env").write_text("KEY=1")
        for name in (".env", ".gitignore"):
            os.utime(shop.root / name, (1_700_000_000, 1_700_000_000))
        shop.say()
        shop.command("mv .env env.bak")
        assert "moved from" in shop.problems()["env.bak"]

    def test_a_folder_on_the_way_that_became_a_link_is_not_followed(self, shop: Shop) -> None:
        shop.say()
        shop.write("d/f", b"1")
        os.rename(shop.root / "d", shop.world.outside / "d")
        (shop.root / "d").symlink_to(shop.world.outside / "d")
        assert "link" in shop.problems()["d/f"]
        shop.force()
        assert (shop.world.outside / "d" / "f").read_bytes() == b"1"


class TestTelling:
    def test_the_model_hears_at_the_next_message_what_was_restored(self, shop: Shop) -> None:
        shop.say()
        shop.write("new\u202e", b"1")
        assert undo_notice(shop.session) == ""
        shop.undo()
        for session in (shop.session, resume(shop.journal, shop.session.id)):
            told = undo_notice(session)
            assert "undid changes you made for message 1" in told
            assert "new[U+202E] (removed)" in told
        shop.redo()
        assert "re-applied" in undo_notice(shop.session)
        shop.say()
        assert undo_notice(shop.session) == ""

    def test_a_fork_that_is_made_after_it_hears_of_it_too(self, shop: Shop) -> None:
        shop.say()
        shop.write("new", b"1")
        shop.undo()
        copy = asyncio.run(
            fork(shop.journal, shop.session, SessionHeader(directory=str(shop.root), model="model", mode="default"))
        )
        assert "new (removed)" in undo_notice(copy)


def test_a_plan_of_nothing_is_empty(shop: Shop) -> None:
    assert plan_undo((), shop.kept) == []
