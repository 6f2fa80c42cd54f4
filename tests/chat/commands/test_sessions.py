"""`/resume`, `/clear`, `/compact`: from one conversation to another, and one made shorter."""

import asyncio
import json
from typing import Any

import pytest

from conftest import World
from kitbag.assembly.run_options import Options
from kitbag.dialogs.form import Form, FormAnswer
from kitbag.errors import AmbiguousError, InvalidError, KitbagError, NotFoundError
from kitbag.messages import Message, Text, message_to_json
from kitbag.runtime.agent import Agent
from kitbag.runtime.session_locks import hold_session, is_session_open
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from kitbag.views.blocks import NoticeBlock
from support.talking_face import Talk, TalkingFace, talking

pytestmark = pytest.mark.usefixtures("at_home")


def conversed(world: World, *requests: str, **options: Any) -> str:
    """An earlier conversation; its id."""

    async def talk() -> str:
        given = Options(**{"directory": str(world.workspace), "model": scripted(world), **options})
        async with Agent(options=given) as agent:
            for request in requests:
                async with agent.run(request) as run:
                    async for _ in run:
                        pass
            return agent.session.id

    return asyncio.run(talk())


def scripted(world: World) -> str:
    """A model that another agent can have too."""
    path = world.write("script.json", json.dumps({"rules": [{"replies": [{"text": "Yes."}]}]}))
    return f"scripted:{path}"


def home(world: World) -> str:
    return str(world.home / ".kitbag")


class TestResume:
    def test_the_picker_shows_those_of_this_directory_the_newest_first(self, world: World) -> None:
        first, second = conversed(world, "Find the red fox", "And?"), conversed(world, "Find the blue fox")
        conversed(world)  # in which nothing was said
        (world.workspace / "below").mkdir()
        conversed(world, "Elsewhere", directory=str(world.workspace / "below"))

        async def look() -> None:
            face = TalkingFace("2")
            async with talking(world, face=face) as talk:
                await talk.command("/resume")
                [form] = face.forms
                assert [option.label for option in form.options] == ["Find the blue fox", "Find the red fox"]
                assert first in form.options[1].note
                assert "2 turns" in form.options[1].note
                assert "just now" in form.options[1].note
                assert second in form.options[0].note
                assert form.options[0].preview == "> Find the blue fox\nYes."
                assert talk.agent.session.id == first
                assert talk.agent.session.messages()[0].text == "Find the red fox"
                await talk.chat._stop_watching()
                await talk.agent.close()

        asyncio.run(look())

    @pytest.mark.parametrize("said", [FormAnswer(), None])
    def test_left_it_changes_nothing(self, world: World, said: FormAnswer | None) -> None:
        conversed(world, "Find the fox")

        async def look() -> None:
            async with talking(world, face=TalkingFace(said)) as talk:
                before = talk.agent
                await talk.command("/resume")
                assert talk.agent is before

        asyncio.run(look())

    def test_words_narrow_the_picker_and_an_id_chooses(self, world: World) -> None:
        red, _ = conversed(world, "Find the red fox"), conversed(world, "Find the blue fox")

        def narrowed(form: Form) -> FormAnswer:
            assert [option.label for option in form.options] == ["Find the red fox"]
            return FormAnswer(text=red[:6])

        async def look() -> None:
            async with talking(world, face=TalkingFace("unheard of", "RED find", narrowed)) as talk:
                await talk.command("/resume")
                assert "no session in this directory" in talk.face.seen()
                await closed(talk, red)

        asyncio.run(look())

    def test_last_is_the_newest_other_one_and_the_beginning_of_an_id_is_enough(self, world: World) -> None:
        first, second = conversed(world, "One"), conversed(world, "Two")

        async def look() -> None:
            async with talking(world, "Hm.") as talk:
                await talk.say("Three")
                await talk.command("/resume last")
                await closed(talk, second)
            async with talking(world) as talk:
                await talk.command(f"/resume {first[:7]}")
                await closed(talk, first)

        asyncio.run(look())

    def test_model_mode_and_persona_are_those_of_that_conversation(self, world: World) -> None:
        for name in ("developer", "support"):
            world.write(f"~/.kitbag/skills/shop/_persona_{name}.yaml", f"name: {name}\ndescription: Is {name}.\n")
        script = scripted(world)
        earlier = conversed(world, "One", mode="plan", persona="shop/support", model=script)

        async def look() -> None:
            async with talking(world, mode="acceptEdits", persona="shop/developer", model="offline") as talk:
                await talk.command(f"/resume {earlier}")
                agent = talk.agent
                assert agent.permissions.mode == "plan"
                assert agent.environment.library.persona is not None
                assert agent.environment.library.persona.full_name == "shop/support"
                assert agent.chosen.reference == script
                await closed(talk, earlier)

        asyncio.run(look())

    @pytest.mark.parametrize(
        ("name", "error", "words"),
        [
            ("unheard", NotFoundError, "/resume"),
            ("{}0", NotFoundError, "did you mean"),
            ("last", NotFoundError, "no other session"),
        ],
    )
    def test_one_that_is_not_there(self, world: World, name: str, error: type[KitbagError], words: str) -> None:
        (world.workspace / "below").mkdir()
        elsewhere = conversed(world, "Hi", directory=str(world.workspace / "below"))

        async def look() -> None:
            async with talking(world) as talk:
                with pytest.raises(error) as caught:
                    await talk.command(f"/resume {name.format(elsewhere)}")
                assert words in f"{caught.value.problem} {caught.value.fix}"

        asyncio.run(look())

    def test_one_of_another_directory_says_where_to_go(self, world: World) -> None:
        below = world.workspace / "with space"
        below.mkdir()
        elsewhere = conversed(world, "Hi", directory=str(below))

        async def look() -> None:
            async with talking(world) as talk:
                with pytest.raises(InvalidError) as caught:
                    await talk.command(f"/resume {elsewhere}")
                assert caught.value.fix == f"resume it there: cd '{below}' && kitbag --resume {elsewhere}"
                below.rmdir()
                with pytest.raises(InvalidError) as caught:
                    await talk.command(f"/resume {elsewhere}")
                assert "recreate" in caught.value.fix
                await talk.command(f"/resume {talk.agent.session.id[:6]}")
                assert "is the current session" in talk.face.seen()

        asyncio.run(look())

    def test_one_that_is_open_in_another_window_is_not_opened_twice(self, world: World) -> None:
        earlier = conversed(world, "Hi")

        async def look() -> None:
            async with talking(world, face=TalkingFace(None)) as talk:
                with hold_session(home(world), earlier):
                    with pytest.raises(InvalidError, match="open in another window"):
                        await talk.command("/resume last")
                    await talk.command("/resume")
                    assert "open in another window" in talk.face.forms[0].options[0].note
                await talk.command("/resume last")
                await closed(talk, earlier)

        asyncio.run(look())

    def test_one_that_broke_off_and_one_that_is_damaged_say_so(self, world: World) -> None:
        broken, damaged = conversed(world, "Broke off"), conversed(world, "Damaged")
        with Journal.open(journal_path(home(world)), Redactor([])) as journal:
            said = message_to_json(Message("user", (Text("And then?"),)))
            journal.append(f"session/{broken}", "user", {"message": said, "one_turn": []})
            journal.append(f"session/{damaged}", "ended", {"status": "completed", "about": "", "turns": "many"})

        async def look() -> None:
            async with talking(world, face=TalkingFace(None)) as talk:
                await talk.command("/resume")
                notes = {option.label: option.note for option in talk.face.forms[0].options}
                assert "interrupted" in notes["Broke off"]
                assert sum("damaged" in note for note in notes.values()) == 1
                with pytest.raises(InvalidError, match="can't read session"):
                    await talk.command(f"/resume {damaged}")

        asyncio.run(look())

    def test_several_with_the_same_beginning(self, world: World) -> None:
        with Journal.open(journal_path(home(world)), Redactor([])) as journal:
            for name in ("abc1", "abc2"):
                header = {"directory": str(world.workspace), "model": "", "mode": "default"}
                journal.append(f"session/{name}", "session", header)
                journal.append(f"session/{name}", "ended", {"status": "failed", "about": "x", "turns": 1, "cost": 0})

        async def look() -> None:
            async with talking(world) as talk:
                with pytest.raises(AmbiguousError, match="several"):
                    await talk.command("/resume abc")

        asyncio.run(look())


async def closed(talk: Talk, session: str) -> None:
    """The agent that was opened is this conversation, and is closed."""
    assert talk.agent.session.id == session
    await talk.chat._stop_watching()
    await talk.agent.close()


class TestClear:
    def test_a_new_conversation_has_what_the_last_one_had_and_says_how_to_go_back(self, world: World) -> None:
        world.write("~/.kitbag/skills/shop/_persona_support.yaml", "name: support\ndescription: Supports.\n")
        script = scripted(world)

        async def look() -> None:
            async with talking(world, model=script) as talk:
                await talk.say("Hello")
                await talk.agent.use_persona("shop/support")
                await talk.agent.use_mode("plan")
                before = talk.agent.session.id
                await talk.command("/clear")
                agent = talk.agent
                assert agent.session.id != before
                assert not agent.session.messages()
                assert agent.permissions.mode == "plan"
                assert agent.chosen.reference == script
                assert agent.environment.library.persona is not None
                assert agent.environment.library.persona.full_name == "shop/support"
                assert f"/resume {before}" in talk.shown(NoticeBlock)[-1].text
                await talk.command(f"/resume {before}")
                await closed(talk, before)

        asyncio.run(look())

    def test_of_one_in_which_nothing_was_said_nothing_is_said(self, world: World) -> None:
        async def look() -> None:
            async with talking(world, model="offline") as talk:
                before = talk.agent.session.id
                await talk.command("/clear")
                assert before not in talk.face.seen()
                await closed(talk, talk.agent.session.id)

        asyncio.run(look())


class TestCompact:
    def test_it_is_said_how_much_shorter_it_is_and_what_to_keep_is_passed_on(self, world: World) -> None:
        async def look() -> None:
            long = "word " * 4_000
            async with talking(world, long, long, long, "They talked.") as talk:
                for _ in range(3):
                    await talk.say("Go on")
                await talk.command("/compact the names of foxes")
                assert "→" in talk.face.seen()
                assert "the names of foxes" in talk.last_request()

        asyncio.run(look())

    def test_nothing_to_make_shorter(self, world: World) -> None:
        async def look() -> None:
            async with talking(world) as talk:
                await talk.command("/compact")
                assert "nothing to compact" in talk.face.seen()

        asyncio.run(look())


def test_a_conversation_is_open_as_long_as_somebody_holds_it(world: World) -> None:
    assert not is_session_open(home(world), "abc")
    with hold_session(home(world), "abc"):
        assert is_session_open(home(world), "abc")
        with pytest.raises(InvalidError, match="open in another window"), hold_session(home(world), "abc"):
            pass
        assert is_session_open(home(world), "abc")
    assert not is_session_open(home(world), "abc")
    assert not (world.home / ".kitbag" / "state" / "open" / "abc").exists()
