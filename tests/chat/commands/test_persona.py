"""`/persona`: what would change is shown first, what would be lost is asked for, and all changes together."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from chat.held import HeldChat, HeldFace
from conftest import World
from kitbag.chat.blocks import Fields, Table
from kitbag.chat.commands import COMMANDS
from kitbag.chat.commands.persona import persona_command
from kitbag.chat.face import Filled
from kitbag.errors import NotFoundError, UsageError
from kitbag.library.left_out import LeftOutError
from kitbag.runtime.agent import Agent
from kitbag.runtime.options import Options
from kitbag.testing import Rule, Script, Scripted, Step

HANG = 30.0
TEAM = ".kitbag/skills/data"


@pytest.fixture
def team(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "KITBAG_MODEL", "KITBAG_HOME", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(world.home))
    world.write(f"{TEAM}/_persona_dev.yaml", "name: dev\ndescription: Writes code.\nsubagents: [reviewer]\n")
    world.write(
        f"{TEAM}/_persona_ops.yaml", "name: ops\ndescription: Runs it.\non_demand_skills: [logs]\nsubagents: []\n"
    )
    for path, name in (("dev", "review"), ("ops", "incidents"), ("ops", "logs"), ("core", "tickets")):
        world.write(
            f"{TEAM}/{path}/{name}.md", f"---\nname: {name}\ndescription: About {name}.\n---\nBODY of {name}.\n"
        )
    world.write(f"{TEAM}/_subagents/reviewer.yaml", "name: reviewer\ndescription: Reviews.\nprompt: Review.\n")
    return world


def at_chat(
    world: World,
    work: Callable[[HeldChat], Awaitable[Any]],
    *,
    persona: str = "",
    face: HeldFace | None = None,
    steps: tuple[Step, ...] = (),
    trusted: bool = True,
    **options: Any,
) -> HeldChat:
    async def go() -> HeldChat:
        given = Options(directory=str(world.workspace), persona=persona, trust_workspace=trusted, **options)
        model = Scripted(Script([Rule([*steps, *(Step(text="Fine."),) * 5])]))
        async with asyncio.timeout(HANG), Agent(options=given, provider=model) as agent:
            chat = HeldChat(face or HeldFace(), agent)
            await work(chat)
            chat.persona = agent.ground.library.persona  # type: ignore[attr-defined]
            return chat

    return asyncio.run(go())


def now(chat: HeldChat) -> str:
    found = chat.persona  # type: ignore[attr-defined]
    return found.full_name if found is not None else ""


def asks(arguments: str) -> Callable[[HeldChat], Awaitable[None]]:
    return lambda chat: COMMANDS["persona"].run()(chat.chat, arguments)


def fields(chat: HeldChat) -> dict[str, str]:
    [shown] = [block for block in chat.face.blocks if isinstance(block, Fields)]
    return {label: value for label, value in shown.pairs if value}


LOADS = Step(calls=(("s1", "Skill", '{"skill": "review"}'),))


async def load_a_skill(chat: HeldChat) -> None:
    async with chat.agent.run("Review it.") as run:
        await run.wait()
    assert [one.name for one in chat.agent.skills.loaded()] == ["data/review"]


def test_with_nothing_to_lose_it_shows_what_changes_and_changes_at_once(team: World) -> None:
    chat = at_chat(team, asks("ops"), persona="data/dev")
    assert now(chat) == "data/ops"
    assert chat.face.forms == []
    shown = fields(chat)
    assert shown["skills"] == "+data/incidents  -data/review"
    assert shown["agents"] == "-data/reviewer"
    assert shown["on demand"] == "+data/logs"
    assert " → " in shown["prompt"]
    assert "You are data/ops from now on." in chat.text()


@pytest.mark.parametrize("name", ["ops", "data/ops", "OPS", "Data/Ops"])
def test_a_name_is_enough_and_so_is_the_full_one(team: World, name: str) -> None:
    assert now(at_chat(team, asks(name))) == "data/ops"


@pytest.mark.parametrize("name", ["none", "None --yes"])
def test_none_takes_it_off(team: World, name: str) -> None:
    chat = at_chat(team, asks(name), persona="data/dev")
    assert now(chat) == ""
    assert chat.agent.ground.library.team == ""
    assert "You are nobody in particular from now on." in chat.text()


@pytest.mark.parametrize(("name", "persona"), [("dev", "data/dev"), ("none", "")])
def test_who_one_is_already_changes_nothing(team: World, name: str, persona: str) -> None:
    chat = at_chat(team, asks(name), persona=persona)
    assert "already" in chat.text()
    assert not any(isinstance(block, Fields) for block in chat.face.blocks)


class TestALoadedSkillThatWouldBeDropped:
    @staticmethod
    def after(arguments: str) -> Callable[[HeldChat], Awaitable[None]]:
        async def work(chat: HeldChat) -> None:
            await load_a_skill(chat)
            await persona_command(chat.chat, arguments)

        return work

    def test_is_asked_for_and_announced(self, team: World) -> None:
        face = HeldFace([Filled(("y",))])
        chat = at_chat(team, self.after("ops"), persona="data/dev", face=face, steps=(LOADS,))
        [form] = face.forms
        assert "data/review will be unloaded" in form.prompt
        assert form.default == ""  # nothing is lost by Enter alone
        assert fields(chat)["unloads"] == "data/review"
        assert now(chat) == "data/ops"
        assert "data/review" in chat.text().partition("from now on.")[2]
        assert chat.agent.skills.loaded() == []

    @pytest.mark.parametrize("answer", [Filled(("n",)), Filled(), None])
    def test_stays_when_the_answer_is_not_yes(self, team: World, answer: Filled | None) -> None:
        chat = at_chat(team, self.after("ops"), persona="data/dev", face=HeldFace([answer]), steps=(LOADS,))
        assert now(chat) == "data/dev"
        assert "nothing has changed" in chat.text()
        assert [one.name for one in chat.agent.skills.loaded()] == ["data/review"]

    def test_is_not_asked_for_with_yes(self, team: World) -> None:
        chat = at_chat(team, self.after("ops --yes"), persona="data/dev", steps=(LOADS,))
        assert chat.face.forms == []
        assert now(chat) == "data/ops"


def test_another_model_is_asked_for(team: World, monkeypatch: pytest.MonkeyPatch) -> None:
    team.write(f"{TEAM}/_persona_boss.yaml", "name: boss\ndefault_model: anthropic/claude-opus-4-5\n")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")

    async def go() -> tuple[HeldFace, str]:
        options = Options(directory=str(team.workspace), trust_workspace=True)
        face = HeldFace([Filled(("n",))])
        async with asyncio.timeout(HANG), Agent(options=options) as agent:
            await persona_command(HeldChat(face, agent).chat, "boss")
            return face, agent.chosen.name

    face, model = asyncio.run(go())
    assert "claude-opus-4-5 will answer" in face.forms[0].prompt
    assert "opus" not in model


class TestWithoutAName:
    def test_one_is_chosen_from_all_with_the_present_one_marked(self, team: World) -> None:
        face = HeldFace([Filled(("2",))], pressed=[])
        chat = at_chat(team, asks(""), persona="data/dev", face=face)
        [form] = face.forms
        assert [option.label for option in form.options] == ["data/dev (now)", "data/ops", "none"]
        assert form.options[1].note == "Runs it."
        assert form.default == "1"
        assert now(chat) == "data/ops"

    def test_leaving_the_question_changes_nothing(self, team: World) -> None:
        chat = at_chat(team, asks(""), persona="data/dev", face=HeldFace([None], pressed=[]))
        assert now(chat) == "data/dev"
        assert chat.face.blocks == []

    def test_in_plain_lines_they_are_a_table(self, team: World) -> None:
        chat = at_chat(team, asks(""), persona="data/dev")
        [table] = [block for block in chat.face.blocks if isinstance(block, Table)]
        assert [row[:2] for row in table.rows] == [("*", "data/dev"), ("", "data/ops")]
        assert "/persona NAME" in chat.text()

    def test_where_there_are_none_it_says_where_they_are_explained(self, world: World, team: World) -> None:
        chat = at_chat(team, asks(""), trusted=False)
        assert "There are no personas here" in chat.text()


class TestWhatIsWrong:
    def refused(self, team: World, arguments: str, kind: type[Exception], **more: Any) -> str:
        with pytest.raises(kind) as told:
            at_chat(team, asks(arguments), **more)
        return f"{told.value.problem} {told.value.fix}"  # type: ignore[attr-defined]

    def test_a_name_that_is_nearly_one_is_answered_with_it(self, team: World) -> None:
        assert "did you mean data/ops" in self.refused(team, "data/opps", NotFoundError)

    def test_a_name_that_is_like_none_is_answered_with_all(self, team: World) -> None:
        assert "there are: data/dev, data/ops" in self.refused(team, "zebra", NotFoundError, persona="data/dev")

    def test_of_an_untrusted_workspace_it_says_why_it_is_not_there(self, team: World) -> None:
        assert "trust" in self.refused(team, "ops", LeftOutError, trusted=False)

    @pytest.mark.parametrize("arguments", ["dev ops", "dev --no", "--force"])
    def test_what_it_does_not_take(self, team: World, arguments: str) -> None:
        assert "/persona [TEAM/]NAME" in self.refused(team, arguments, UsageError)
