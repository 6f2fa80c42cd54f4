"""`/undo`: what the last request changed is shown, asked about and taken back; the model hears of it."""

import asyncio
import json
import threading
from typing import Any

import pytest

from conftest import World
from kitbag.errors import NotFoundError, UsageError
from kitbag.runtime.undo import SessionUndo
from kitbag.testing import Step
from kitbag.views.blocks import DiffBlock, TableBlock
from support.talking_face import TalkingFace, talking
from support.waiting import TEST_TIMEOUT, until_true


def write(name: str, content: str) -> Step:
    return Step(calls=((f"c{name}{len(content)}", "Write", json.dumps({"file_path": name, "content": content})),))


def ask(world: World, *lines: str, face: TalkingFace, meanwhile: Any = None) -> list[str]:
    async def work() -> list[str]:
        steps = (write("new.txt", "one\ntwo\n"), "Done.", "So it is.")
        async with talking(world, *steps, face=face, mode="acceptEdits") as talk:
            await talk.say("make a file")
            if meanwhile is not None:
                meanwhile()
            shown = [await talk.command(line) for line in lines]
            await talk.say("and now?")
            shown.append(str(talk.model.requests[-1].messages[-1]))
            return shown

    return asyncio.run(work())


def test_it_is_shown_then_taken_back_and_the_model_is_told(at_home: World) -> None:
    face = TalkingFace("d", "y")
    shown, told = ask(at_home, "/undo", face=face)
    table = next(block for block in face.blocks if isinstance(block, TableBlock))
    assert (table.headers, table.rows) == (("ACTION", "CHANGE", "FILE"), (("remove", "+0 -2", "new.txt"),))
    assert table.title == "Undo message 1: make a file"
    assert any(isinstance(block, DiffBlock) and "-two" in block.text for block in face.blocks)
    assert "message 1 undone: 1 removed" in shown
    assert not (at_home.workspace / "new.txt").exists()
    assert "new.txt" in told
    assert not face.forms[0].default


def test_what_is_cancelled_while_files_are_taken_back_is_done_and_told(
    at_home: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    restore = SessionUndo.restore

    def slow(self: SessionUndo, planned: Any) -> Any:
        begun.set()
        may_end.wait(TEST_TIMEOUT)
        return restore(self, planned)

    monkeypatch.setattr(SessionUndo, "restore", slow)

    async def work() -> str:
        async with talking(
            at_home, write("new.txt", "one\n"), "Done.", face=TalkingFace("y"), mode="acceptEdits"
        ) as talk:
            await talk.say("make a file")
            undoing = asyncio.ensure_future(talk.command("/undo"))
            await until_true(begun.is_set)
            undoing.cancel()
            await asyncio.sleep(0)
            assert not undoing.done()
            may_end.set()
            return await undoing

    assert "message 1 undone: 1 removed" in asyncio.run(work())
    assert not (at_home.workspace / "new.txt").exists()


@pytest.mark.parametrize("answer", ["n", None])
def test_without_a_yes_nothing_is_changed(at_home: World, answer: str | None) -> None:
    shown, _ = ask(at_home, "/undo", face=TalkingFace(answer))
    assert "nothing changed" in shown
    assert (at_home.workspace / "new.txt").read_text() == "one\ntwo\n"


def test_what_was_changed_since_needs_an_answer_of_its_own(at_home: World) -> None:
    face = TalkingFace("n", "f", "y")
    file = at_home.workspace / "new.txt"
    _, forced, again, _ = ask(
        at_home, "/undo", "/undo", "/undo redo", face=face, meanwhile=lambda: file.write_text("mine\n")
    )
    assert [option.key for option in face.forms[0].options] == ["f", "d", "n"]
    assert "changed since" in face.seen()
    assert "message 1 undone" in forced
    assert "message 1 redone" in again
    assert file.read_text() == "mine\n"  # what was overwritten is kept


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ("/undo 7", NotFoundError, "messages that did: 1"),
        ("/undo redo", NotFoundError, ""),
        ("/undo everything", UsageError, "/undo 3"),
        ("/undo ²", UsageError, "/undo 3"),
    ],
)
def test_what_cannot_be_meant_is_told(at_home: World, line: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as found:
        ask(at_home, line, face=TalkingFace())
    assert words in getattr(found.value, "fix", "")


def test_where_nothing_was_changed_that_is_said(at_home: World) -> None:
    async def look() -> None:
        async with talking(at_home, "Hi.") as talk:
            await talk.say("hello")
            with pytest.raises(NotFoundError, match="nothing to undo"):
                await talk.command("/undo")

    asyncio.run(look())
