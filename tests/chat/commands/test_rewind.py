"""`/rewind` and Esc Esc: the plan is shown first, then conversation and files are as before the chosen message."""

import asyncio
import json
import re
from typing import Any

import pytest

from conftest import World
from kitbag.chat.ui import Submitted
from kitbag.errors import NotFoundError, UsageError
from kitbag.messages import Image
from kitbag.runtime.agent import Agent
from kitbag.testing import ModelServer, Step
from kitbag.views.blocks import NoticeBlock, TableBlock
from support.driving import chat
from support.headless import point, script
from support.pseudo_terminal import ENTER, ESCAPE
from support.talking_face import TalkingFace, talking


def write(number: int, content: str) -> Step:
    return Step(calls=((f"c{number}", "Write", json.dumps({"file_path": "a.txt", "content": content})),))


STEPS = (write(1, "one\n"), "First.", write(2, "two\n"), "Second.", "Third.")


class Face(TalkingFace):
    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers, plain=True)
        self.inserted: list[str] = []

    def insert(self, *submissions: Submitted) -> None:
        self.inserted += [one.text for one in submissions]


def rewind(world: World, face: Face, *lines: str, meanwhile: Any = lambda: None) -> list[str]:
    """After two messages; gives what the model gets with the next one."""

    async def work() -> list[str]:
        async with talking(world, *STEPS, face=face, mode="acceptEdits") as talk:
            talk.chat._open_agent = lambda options: Agent(options=options, provider=talk.model)
            await talk.say("make it one")
            await talk.say("make it two")
            meanwhile()
            for line in lines:
                await talk.command(line)
            try:
                await talk.say("and now?")
                sent = talk.model.requests[-1].messages
                return [message.text for message in sent if message.role == "user" and message.text]
            finally:
                if talk.agent is not None:
                    await talk.agent.close()

    return asyncio.run(work())


def test_the_message_is_chosen_the_plan_is_shown_and_the_message_returns_to_the_line(at_home: World) -> None:
    face = Face("2", "b")
    sent = rewind(at_home, face, "/rewind")
    assert sent == ["make it one", "and now?"]
    assert (at_home.workspace / "a.txt").read_text() == "one\n"
    [table] = [block for block in face.blocks if isinstance(block, TableBlock)]
    assert table.title == "Rewind to before message 2: make it two"
    assert table.rows == (("restore", "+1 -1", "a.txt", "Write (2)"),)
    assert [option.label for option in face.forms[0].options] == ["make it two", "make it one"]
    assert face.inserted == ["make it two"]


def test_it_is_undone(at_home: World) -> None:
    face = Face("b", "b")
    sent = rewind(at_home, face, "/rewind 1", "/rewind undo")
    assert sent == ["make it one", "make it two", "and now?"]
    assert (at_home.workspace / "a.txt").read_text() == "two\n"


def test_only_the_conversation_and_the_model_is_told(at_home: World) -> None:
    sent = rewind(at_home, Face("c"), "/rewind 2")
    assert (at_home.workspace / "a.txt").read_text() == "two\n"
    assert sent[0] == "make it one"
    typed, told = sent[1].split("\n\n")
    assert typed == "and now?"
    assert re.fullmatch(
        "<session-changes>\n"
        r"The user rewound the conversation to here. These files are newer: \S+a\.txt\. "
        "Read files again before you change them.\n"
        "</session-changes>",
        told,
    )


def test_only_the_files_and_what_somebody_else_wrote_stays(at_home: World) -> None:
    file = at_home.workspace / "a.txt"
    face = Face("n", "o")
    rewind(at_home, face, "/rewind 2", "/rewind 2", meanwhile=lambda: file.write_text("mine\n"))
    assert [option.key for option in face.forms[0].options] == ["c", "o", "d", "n"], "nothing could be restored"
    assert "changed since" in face.seen()
    assert [block.rows[0][0] for block in face.blocks if isinstance(block, TableBlock)] == ["keep", "keep"]
    assert file.read_text() == "one\n", "overwritten because the user said so"


@pytest.mark.parametrize(
    ("line", "error"), [("/rewind 7", NotFoundError), ("/rewind all", UsageError), ("/rewind undo", NotFoundError)]
)
def test_what_cannot_be_meant_is_told(at_home: World, line: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        rewind(at_home, Face(), line)


@pytest.mark.parametrize("line", ["/rewind", "/rewind undo", "/rewind 1", "/undo", "/undo redo"])
def test_before_the_first_message_there_is_nothing_to_rewind_or_undo(at_home: World, line: str) -> None:
    async def work() -> list[str]:
        async with talking(at_home, face=Face()) as talk:
            await talk.command(line)
            return [block.text for block in talk.shown(NoticeBlock)]

    assert asyncio.run(work())[-1] == "this session has no messages yet"


def test_esc_twice_at_the_terminal(world: World) -> None:
    with ModelServer(script("First.", "Second.", "Again.")) as server:
        point(world, server)
        with chat(world) as driven:
            driven.say("question one")
            driven.until_seen("First.")
            driven.say("question two")
            driven.until_seen("Second.")
            driven.until(lambda: "Esc to interrupt" not in driven.text())
            driven.press(ESCAPE)
            driven.until_seen("press Esc again to rewind")
            driven.press(ESCAPE)
            driven.until_seen("Rewind to before which message?")
            driven.press("2")
            driven.until_seen("Restore what?")
            driven.press("c")
            driven.until(lambda: "> question two" in driven.text() and "undo this with /rewind undo" in driven.text())
            driven.press(ENTER)
            driven.until(lambda: len(server.requests) == 3)
    last = json.dumps(server.requests[-1].body["messages"])
    assert last.count("question two") == 1
    assert "Second." not in last


def test_the_images_of_the_message_return_with_it(at_home: World) -> None:
    picture = Image(media_type="image/png", data="iVBORw0KGgo=")

    class Keeping(Face):
        def insert(self, *submissions: Submitted) -> None:
            returned.extend(submissions)

    async def work() -> None:
        async with talking(at_home, "Seen.", face=Keeping("c")) as talk:
            talk.chat._open_agent = lambda options: Agent(options=options, provider=talk.model)
            await talk.chat._run_turn(Submitted(text="look at this", images=(picture,)))
            await talk.command("/rewind")
            await talk.chat.agent.close()

    returned: list[Submitted] = []
    asyncio.run(work())
    assert returned == [Submitted(text="look at this", images=(picture,))]
