"""`!command`: run by the person, seen by them at once and by the model with the next message."""

import os
from pathlib import Path

import pytest

from chat.conversing import conversing
from chat.queue_face import in_a_loop
from conftest import World
from kitbag.agent.user_text import split_user_text
from kitbag.chat.replay import replay_session
from kitbag.chat.ui import KeyPressed, LiveState, Submitted
from kitbag.messages import Image
from kitbag.runtime.user_commands import MAX_CHARS
from kitbag.views.blocks import ReplyBlock, UserBlock

pytestmark = pytest.mark.usefixtures("at_home")


@pytest.mark.parametrize(("text", "command"), [("!ls -la", "ls -la"), ("! git status ", "git status")])
def test_what_begins_with_an_exclamation_mark_is_a_command_of_the_person(text: str, command: str) -> None:
    assert Submitted(text=text).shell_command == command


@pytest.mark.parametrize(
    "said",
    [
        Submitted(text="!"),
        Submitted(text="!!! look"),
        Submitted(text="!important\nplease do it"),
        Submitted(text="look !ls"),
        Submitted(text="!ls", is_piped=True),
        Submitted(text="!ls", images=(Image(media_type="image/png", data="aGk="),)),
    ],
)
def test_everything_else_is_a_message_and_so_is_each_line_of_a_pipe(said: Submitted) -> None:
    assert said.shell_command == ""


@in_a_loop
async def test_it_runs_where_the_chat_runs_and_the_model_sees_it_with_the_next_message(world: World) -> None:
    (world.workspace / "notes.md").write_text("x")
    async with conversing(world, "An answer.") as here:
        here.face.do("!ls *.md; echo @notes.md '</mentioned-command>'; exit 3")
        await here.face.until(lambda: "exit code 3" in here.face.seen())
        await here.until_idle()
        assert "│ notes.md\n│ @notes.md </mentioned-command>" in here.face.seen()
        assert not here.talk.model.requests
        here.face.do("why?")
        await here.face.until(lambda: "An answer." in here.face.seen())
        said = here.talk.model.requests[0].messages[-1].text
        assert said.startswith('why?\n\n<mentioned-command name="ls *.md; echo @notes.md')
        assert 'run-by="the user">\n[Exit code 3]\nnotes.md\n@notes.md &lt;/mentioned-command>\n' in said
        assert "<mentioned-file" not in said
        pieces = [(kind, name) for kind, name, _ in split_user_text(said)]
        assert pieces == [("user", ""), ("mentioned", "! ls *.md; echo @notes.md '</mentioned-command>'; exit 3")]
        assert replay_session(here.chat.agent.session, 3).blocks == (UserBlock("why?"), ReplyBlock("An answer."))
        here.face.do("again")
        await here.face.until(lambda: len(here.talk.model.requests) == 2)
        assert "mentioned-command" not in here.talk.model.requests[-1].messages[-1].text


@in_a_loop
async def test_esc_ends_it_with_all_that_it_started_and_what_it_printed_is_kept(world: World, tmp_path: Path) -> None:
    place = tmp_path / "pid"
    async with conversing(world, "An answer.") as here:
        here.face.do(f"!echo begun; (sleep 600 & echo $! > {place}; wait)")
        await here.face.until(lambda: place.exists() and place.read_text().strip())
        here.face.do(KeyPressed("cancel"))
        await here.until_idle()
        assert "begun" in here.face.seen()
        assert "stopped · 1 line" in here.face.seen()
        assert here.face.live == LiveState()
        assert not os.path.exists(f"/proc/{place.read_text().strip()}/cwd")
        assert "[stopped]\nbegun" in here.chat.agent.user_command_blocks[0]


@in_a_loop
async def test_it_waits_for_what_works_in_front_and_is_shown_as_queued(world: World) -> None:
    from kitbag.testing import Step

    async with conversing(world, Step(text="Done.", delay=0.3)) as here:
        here.face.do("hello", "!echo after")
        await here.face.until(lambda: here.face.live.queued == ("!echo after",))
        await here.face.until(lambda: "1 line" in here.face.seen())
        assert here.face.said() == ["hello", "!echo after"]


@in_a_loop
async def test_secrets_are_neither_shown_nor_told_and_too_much_is_left_out_in_words(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_API_KEY", "sk-acme-0123456789abcdef")
    async with conversing(world, "An answer.") as here:
        here.face.do("!echo $ACME_API_KEY")
        await here.face.until(lambda: "1 line" in here.face.seen())
        assert "0123456789abcdef" not in here.chat.agent.user_command_blocks[0]
        for _ in range(MAX_CHARS // 29_000 + 1):
            here.face.do("!seq 1 20000")
        await here.face.until(lambda: "sees only that you ran it" in here.face.seen())
        assert "Output omitted" in here.chat.agent.user_command_blocks[-1]
