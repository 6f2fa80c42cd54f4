"""Rewinding: the conversation, the files or both as before a message; nothing that somebody else wrote changes."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import World
from kitbag.agent.resume import fork, resume
from kitbag.agent.session import Session
from kitbag.agent.session_records import SessionHeader
from kitbag.agent.undo.plan import undo_notice
from kitbag.agent.undo.session_changes import SessionChanges
from kitbag.errors import NotFoundError
from kitbag.library.scopes import find_places
from kitbag.messages import Message, Text, ToolCall, ToolResult, Usage
from kitbag.runtime.export import collect_export_info, export_json
from kitbag.runtime.rewind import RewindScope, SessionRewind
from kitbag.runtime.undo import SessionUndo
from kitbag.store.fault_points import UNDO_POINTS, VARIABLE
from kitbag.tasks.board import Board
from kitbag.tasks.notifications import render_notifications, take_unnotified
from kitbag.tasks.task import TaskRequest, TaskResult
from support.changing import Shop, Tree
from support.matrix import rounds
from support.waiting import TEST_TIMEOUT


@pytest.fixture
def shop(at_home: World) -> Iterator[Shop]:
    made = Shop(at_home)
    yield made
    made.close()


def rewind_of(shop: Shop, session_id: str = "") -> SessionRewind:
    return SessionRewind(SessionUndo(shop.journal, find_places(str(shop.root)), session_id or shop.session.id))


def rewind(shop: Shop, number: int, scope: RewindScope = "both", *, overwrite: bool = False) -> list[str]:
    """Gives what was kept."""
    one = rewind_of(shop)
    result = one.run(one.make_plan(number), scope, overwrite=overwrite)
    assert not result.failed
    return [Path(path).name for path, _ in result.skipped]


def undo_rewind(shop: Shop) -> None:
    one = rewind_of(shop)
    assert not one.run(one.plan_undo(), "both").failed


def texts(session: Session) -> list[str]:
    return [message.text for message in session.messages() if message.text]


def answer(shop: Shop, text: str) -> None:
    shop.run(shop.session.add_reply(Message("assistant", (Text(text),)), Usage(output=10), 0.5, "model"))


def reopen(shop: Shop) -> None:
    """As the chat does after a rewind."""
    shop.session = resume(shop.journal, shop.session.id)
    shop.changes = SessionChanges(shop.session, shop.workspace, shop.notices.append)


def three_messages(shop: Shop) -> None:
    (shop.root / "mine").write_bytes(b"mine")
    for number in (1, 2, 3):
        shop.say(f"Message {number}")
        shop.write("a", f"version {number}".encode())
        shop.command(f"echo {number} > b{number}; rm -f mine{number}")
        answer(shop, f"Answer {number}")


def test_both_are_as_before_the_message_and_it_is_itself_undone(shop: Shop) -> None:
    three_messages(shop)
    before, conversation = shop.tree(), texts(shop.session)
    assert rewind(shop, 2) == []
    assert {name: held[1] for name, held in shop.tree().items()} == {"a": b"version 1", "b1": b"1\n", "mine": b"mine"}
    session = resume(shop.journal, "shop")
    assert texts(session) == ["Message 1", "Answer 1"]
    assert session.totals.cost == 1.5, "what was spent stays spent"
    assert undo_notice(session) == "", "the model sees the files as it knows them"
    undo_rewind(shop)
    assert shop.tree() == before
    assert texts(resume(shop.journal, "shop")) == conversation
    undo_rewind(shop)  # which rewinds again
    assert "b2" not in shop.tree()
    assert texts(resume(shop.journal, "shop")) == ["Message 1", "Answer 1"]


_REWINDING = """
import sys
from kitbag.library.scopes import find_places
from kitbag.runtime.rewind import SessionRewind
from kitbag.runtime.undo import SessionUndo
from kitbag.store.journal import Journal
from kitbag.store.redaction import Redactor
root, session, journal, undo = sys.argv[1:]
rewind = SessionRewind(SessionUndo(Journal.open(journal, Redactor(())), find_places(root), session))
rewind.run(rewind.plan_undo() if undo else rewind.make_plan(2), "both")
"""


def rewind_and_die(shop: Shop, *, undo: bool = False) -> None:
    """Killed when the files are restored and the conversation is not."""
    command = [sys.executable, "-c", _REWINDING, str(shop.root), "shop", shop.journal.path, "undo" if undo else ""]
    killed = subprocess.run(command, env={**os.environ, VARIABLE: UNDO_POINTS[0]}, timeout=TEST_TIMEOUT, check=False)
    assert killed.returncode == -signal.SIGKILL


def test_a_kill_while_a_rewind_is_undone_is_reported_at_the_next_start_and_finished_later(shop: Shop) -> None:
    three_messages(shop)
    before, conversation = shop.tree(), texts(shop.session)
    assert rewind(shop, 2) == []
    rewind_and_die(shop, undo=True)
    assert shop.tree() == before, "the files were restored"
    resumed = resume(shop.journal, "shop")
    assert texts(resumed) == ["Message 1", "Answer 1"]
    assert [warning for warning in resumed.warnings if "finish it with /rewind undo" in warning]
    undo_rewind(shop)
    resumed = resume(shop.journal, "shop")
    assert (texts(resumed), shop.tree()) == (conversation, before)
    assert not any("interrupted" in warning for warning in resumed.warnings)
    assert rewind(shop, 2) == [], "which can be rewound again"
    assert "b2" not in shop.tree()


@pytest.mark.parametrize("changed_meanwhile", [False, True])
def test_a_kill_after_the_files_leaves_the_conversation_and_is_finished_later(
    shop: Shop, changed_meanwhile: bool
) -> None:
    three_messages(shop)
    before, conversation = shop.tree(), texts(shop.session)
    rewind_and_die(shop)
    assert "b2" not in shop.tree(), "the files were restored"
    assert texts(resume(shop.journal, "shop")) == conversation
    warnings = resume(shop.journal, "shop").warnings
    assert [warning for warning in warnings if "before message 2 was interrupted" in warning], "at the next start"
    if changed_meanwhile:  # as if the kill had come before this file
        (shop.root / "b3").write_bytes(b"3\n")
    assert rewind(shop, 2) == []
    assert texts(resume(shop.journal, "shop")) == ["Message 1", "Answer 1"]
    assert "b3" not in shop.tree()
    assert not any("interrupted" in warning for warning in resume(shop.journal, "shop").warnings)
    undo_rewind(shop)
    assert shop.tree() == before
    assert texts(resume(shop.journal, "shop")) == conversation


def test_only_the_conversation_and_the_model_hears_which_files_are_newer(shop: Shop) -> None:
    three_messages(shop)
    before = shop.tree()
    rewind(shop, 3, "conversation")
    assert shop.tree() == before
    session = resume(shop.journal, "shop")
    assert texts(session) == ["Message 1", "Answer 1", "Message 2", "Answer 2"]
    assert "b3" in undo_notice(session)
    reopen(shop)
    shop.say("Message 4")
    assert rewind(shop, 2, "files") == [], "also what a message that is no longer in the conversation changed"
    assert "b3" not in shop.tree()
    assert texts(resume(shop.journal, "shop"))[-1] == "Message 4"


def test_the_plan_says_who_changed_what_and_edits_from_outside_stay(shop: Shop) -> None:
    three_messages(shop)
    (shop.root / "b2").write_text("edited by hand")
    (shop.root / "new").write_text("never recorded")
    one = rewind_of(shop)
    plan = one.make_plan(2)
    by = {Path(path).name: who for path, who in plan.changed_by.items()}
    assert by == {"a": "Write (2), Write (3)", "b2": "Bash (2)", "b3": "Bash (3)"}
    assert {Path(step.path).name: step.problem for step in plan.files.conflicts} == {"b2": "changed since"}
    assert rewind(shop, 2) == ["b2"]
    assert (shop.root / "b2").read_text() == "edited by hand"
    assert (shop.root / "new").read_text() == "never recorded"
    assert "b3" not in shop.tree()
    undo_rewind(shop)
    assert (shop.root / "b2").read_text() == "edited by hand"
    rewind(shop, 2, overwrite=True)
    assert "b2" not in shop.tree()
    undo_rewind(shop)
    assert (shop.root / "b2").read_text() == "edited by hand", "what was overwritten is kept"


def test_it_survives_a_fork_and_a_fork_rewinds_what_its_origin_did(shop: Shop) -> None:
    three_messages(shop)
    rewind(shop, 3)
    copy = shop.run(
        fork(shop.journal, shop.session, SessionHeader(directory=str(shop.root), model="m", mode="default"))
    )
    assert texts(copy) == ["Message 1", "Answer 1", "Message 2", "Answer 2"]
    one = rewind_of(shop, copy.id)
    assert [message.number for message in one.messages] == [1, 2]
    one.run(one.make_plan(2), "both")
    assert texts(resume(shop.journal, copy.id)) == ["Message 1", "Answer 1"]
    assert (shop.root / "a").read_bytes() == b"version 1"
    assert texts(resume(shop.journal, "shop"))[-1] == "Answer 2", "the original stays"


def test_the_end_of_a_task_that_was_started_before_is_told_again(shop: Shop) -> None:
    shop.say("Message 1")
    board, request = Board(shop.journal), TaskRequest(agent="doer", prompt="Seek.", directory=str(shop.root))
    for name in ("before", "after"):
        if name == "after":
            shop.say("Message 2")
        shop.run(board.create(name, "agent", request, root="shop", parent="", depth=1, background=True))
        shop.run(board.claim(board.find(name)))
    for name in ("before", "after"):
        shop.run(board.finish(name, 1, TaskResult(status="completed", text=f"Found {name}.")))
        shop.run(shop.session.add_note(render_notifications(board, shop.run(take_unnotified(board, "shop", "")))))
    rewind(shop, 2)
    told = "".join(texts(resume(shop.journal, "shop")))
    assert "Found before." in told
    assert "Found after." not in told, "it was started for a message that is gone"
    undo_rewind(shop)
    assert "".join(texts(resume(shop.journal, "shop"))).count("Found before.") == 1


def test_an_export_has_what_the_conversation_has(shop: Shop) -> None:
    three_messages(shop)
    rewind(shop, 2)
    exported = export_json(shop.journal, collect_export_info(resume(shop.journal, "shop")))
    assert "Message 1" in exported
    assert "Message 2" not in exported


def test_what_is_not_in_the_conversation_is_no_target(shop: Shop) -> None:
    with pytest.raises(NotFoundError, match="no messages"):
        rewind_of(shop).make_plan()
    three_messages(shop)
    with pytest.raises(NotFoundError, match="not rewound"):
        rewind_of(shop).plan_undo()
    rewind(shop, 2)
    with pytest.raises(NotFoundError, match="message 2 is not part of the conversation"):
        rewind_of(shop).make_plan(2)


NAMES = ("a", "b", "dir/c", "dir/d", "e")


class History:
    """Messages whose tools, commands and agents change files, while somebody else changes files, too."""

    def __init__(self, shop: Shop, seed: int) -> None:
        self.shop, self.random = shop, random.Random(seed)
        self.before_message: dict[int, Tree] = {}
        self.foreign: dict[str, bytes | None] = {}
        """What somebody else left, by path; None: deleted."""
        self.left: dict[str, bytes | None] = {}
        """What the agent left, by path: somebody who leaves the same is not seen."""
        self.number = 0
        self.last_foreign = 0
        """The message during or after which somebody else changed a file last."""

    def play(self) -> None:
        for number in range(1, self.random.randint(2, 5)):
            self._edit_from_outside()
            self.before_message[number], self.number = self.shop.tree(), number
            self.shop.say(f"Message {number}")
            for _ in range(self.random.randint(0, 3)):
                self.random.choice((self._write, self._delete, self._command, self._command_of_agent))()
                if self.random.random() < 0.2:
                    self._edit_from_outside()
            answer(self.shop, f"Answer {number}")
        self._edit_from_outside()

    def _path(self) -> Path:
        return self.shop.root / self.random.choice(NAMES)

    def _bytes(self) -> bytes:
        return self.random.randbytes(4).hex().encode()

    def _recorded(self, name: str) -> None:
        self.foreign.pop(name, None)
        self.left[name] = self._read(name)

    def _read(self, name: str) -> bytes | None:
        place = self.shop.root / name
        return place.read_bytes() if place.exists() else None

    def _finished(self, name: str) -> None:
        """The call has its result, so the change is known to have happened."""
        [call] = self.shop.session.open_calls
        self.shop.run(self.shop.session.record_result(ToolResult(call_id=call.id, content=(Text("done"),))))
        self._recorded(name)

    def _write(self) -> None:
        name = self.random.choice(NAMES)
        self.shop.write(name, self._bytes())
        self._finished(name)

    def _delete(self) -> None:
        place = self._path()
        if place.is_file():
            self.shop.delete(str(place.relative_to(self.shop.root)))
            self._finished(str(place.relative_to(self.shop.root)))

    def _command(self) -> None:
        name, other = self.random.choice(NAMES), self.random.choice(NAMES)
        data = self._bytes().decode()
        line = self.random.choice(
            (f"mkdir -p dir; echo {data} > {name}", f"rm -f {name}", f"[ -f {name} ] && chmod 600 {name} || :")
        )
        self.shop.command(f"{line}; mkdir -p dir; [ -f {other} ] && echo {data} >> {other} || :")
        for changed in (name, other):
            self._recorded(changed)

    def _command_of_agent(self) -> None:
        session = Session(self.shop.journal, f"inner-{self._bytes().decode()}")
        call = ToolCall(id="c1", name="Bash", arguments={})
        self.shop.run(session.add_reply(Message("assistant", (call,)), Usage(), 0.0, "model"))
        agent = SessionChanges(session, self.shop.workspace, self.shop.notices.append, record_in=self.shop.session.id)
        place, data = self._path(), self._bytes()

        async def change() -> None:
            async with agent.record_command("c1"):
                place.parent.mkdir(exist_ok=True)
                place.write_bytes(data)

        asyncio.run(change())
        self._recorded(str(place.relative_to(self.shop.root)))

    def _edit_from_outside(self) -> None:
        for _ in range(self.random.randint(0, 2)):
            name = self.random.choice((*NAMES, "outside", "dir/outside"))
            self.last_foreign = self.number
            place = self.shop.root / name
            place.parent.mkdir(exist_ok=True)
            if self.random.random() < 0.2 and place.exists():
                place.unlink()
                self.foreign[name] = None
            else:
                data = self.foreign[name] = self._bytes()
                place.write_bytes(data)


@pytest.mark.parametrize("batch", range(rounds(20, 1)))
def test_over_random_histories_no_foreign_byte_changes(at_home: World, batch: int) -> None:
    """1,000 in the long run, 50 to a workspace; 12 in `make test`."""
    for number in range(rounds(50, 12)):
        seed = 1_000 * batch + number
        shop = Shop(at_home, f"shop-{seed}")
        try:
            _check_history(shop, seed)
        finally:
            shop.close()


def _check_history(shop: Shop, seed: int) -> None:
    history = History(shop, seed)
    history.play()
    one, before = rewind_of(shop), shop.tree()
    target = history.random.choice(one.messages)
    plan = one.make_plan(target.number)
    recorded = {step.path for step in plan.files.steps}
    result = one.run(plan, "both")
    assert not result.failed, seed
    after = shop.tree()
    kept = {path for path, _ in result.skipped}
    for name in {*before, *after}:
        path = str(shop.root / name)
        if path not in recorded or path in kept:
            assert after.get(name) == before.get(name), (seed, name, "was not to be touched")
    for name, data in history.foreign.items():
        if name not in history.left or history.left[name] != data:
            assert history._read(name) == data, (seed, name, "is somebody else's")
    if history.last_foreign < target.number:
        assert not kept, seed
        files = {name: held for name, held in after.items() if held[1] is not None}
        wanted = history.before_message[target.number]
        assert files == {name: held for name, held in wanted.items() if held[1] is not None}, seed
    assert f"Message {target.number}" not in texts(resume(shop.journal, shop.session.id))
    undo_rewind(shop)
    assert shop.tree() == before, (seed, "the rewind was not undone")
