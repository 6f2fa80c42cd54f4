"""`/persona`: what would change is shown first, what would be lost is asked for, and all changes together."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from chat.answering import Answer
from conftest import World
from kitbag.assembly.run_options import Options
from kitbag.chat.chat import Chat
from kitbag.errors import KitbagError, NotFoundError, UsageError
from kitbag.library.untrusted_items import UntrustedItemError
from kitbag.runtime.agent import Agent
from kitbag.testing import Step
from kitbag.views.blocks import FieldsBlock, TableBlock
from support.talking_face import Talk, TalkingFace, talking

TEAM = ".kitbag/skills/data"
LOADS = Step(calls=(("s1", "Skill", '{"skill": "review"}'),))


@pytest.fixture
def team(at_home: World) -> World:
    world = at_home
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


class After(NamedTuple):
    """What was shown, and how it stands."""

    face: TalkingFace
    persona: str
    team: str
    loaded: list[str]
    model: str

    @property
    def text(self) -> str:
        return self.face.seen()

    @property
    def preview(self) -> dict[str, str]:
        [shown] = [block for block in self.face.blocks if isinstance(block, FieldsBlock)]
        return {label: value for label, value in shown.pairs if value}


def persona(
    world: World,
    arguments: str,
    *answers: Answer,
    is_plain: bool = True,
    before: Callable[[Talk], Awaitable[None]] | None = None,
    steps: tuple[Step | str, ...] = (),
    now: str = "data/dev",
    **options: Any,
) -> After:
    """`/persona` as it is typed by somebody who is `now`."""

    async def go() -> After:
        face = TalkingFace(*answers, plain=is_plain)
        async with talking(world, *steps, face=face, persona=now, **options) as talk:
            if before is not None:
                await before(talk)
            await talk.command(f"/persona {arguments}")
            library = talk.agent.environment.library
            who = library.persona.full_name if library.persona is not None else ""
            loaded = [one.name for one in talk.agent.skills.loaded()]
            return After(face, who, library.team, loaded, talk.agent.chosen.name)

    return asyncio.run(go())


async def load_a_skill(talk: Talk) -> None:
    await talk.say("Review it.")
    assert [one.name for one in talk.agent.skills.loaded()] == ["data/review"]


def test_with_nothing_to_lose_it_shows_what_changes_and_changes_at_once(team: World) -> None:
    after = persona(team, "ops")
    assert after.persona == "data/ops"
    assert after.face.forms == []
    assert after.preview["skills"] == "+data/incidents  -data/review"
    assert after.preview["agents"] == "-data/reviewer"
    assert after.preview["on demand"] == "+data/logs"
    assert " → " in after.preview["prompt"]
    assert "switched to data/ops" in after.text


@pytest.mark.parametrize("name", ["ops", "data/ops", "OPS", "Data/Ops"])
def test_a_name_is_enough_and_so_is_the_full_one(team: World, name: str) -> None:
    assert persona(team, name, now="").persona == "data/ops"


@pytest.mark.parametrize("name", ["none", "None"])
def test_none_takes_it_off(team: World, name: str) -> None:
    after = persona(team, name)
    assert (after.persona, after.team) == ("", "")
    assert "switched to no persona" in after.text


@pytest.mark.parametrize(("name", "now"), [("dev", "data/dev"), ("none", "")])
def test_who_one_is_already_changes_nothing(team: World, name: str, now: str) -> None:
    after = persona(team, name, now=now)
    assert "already" in after.text
    assert not any(isinstance(block, FieldsBlock) for block in after.face.blocks)


def test_a_loaded_skill_that_it_may_not_see_is_dropped_and_announced(team: World) -> None:
    after = persona(team, "ops", before=load_a_skill, steps=(LOADS, "Fine."))
    assert after.preview["unloads"] == "data/review"
    assert after.persona == "data/ops"
    assert "data/review" in after.text.partition("switched to")[2]
    assert after.loaded == []
    assert after.face.forms == []


def test_a_preview_changes_nothing(team: World) -> None:
    after = persona(team, "ops --preview", before=load_a_skill, steps=(LOADS, "Fine."))
    assert after.preview["unloads"] == "data/review"
    assert after.persona == "data/dev"
    assert after.loaded == ["data/review"]


def test_another_model_is_told_before_it_answers(team: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("low", "boss"):
        model = {"low": "anthropic/claude-haiku-4-5", "boss": "anthropic/claude-opus-4-5"}[name]
        team.write(f"{TEAM}/_persona_{name}.yaml", f"name: {name}\ndefault_model: {model}\n")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")

    async def go() -> tuple[TalkingFace, str]:
        face = TalkingFace()
        options = Options(directory=str(team.workspace), persona="data/low", trust_workspace=True)
        async with Agent(options=options) as agent:
            talk = Talk(team, Chat(face, agent, lambda other: Agent(options=other)), face, None)  # type: ignore[arg-type]
            await talk.command("/persona boss")
            return face, agent.chosen.name

    face, model = asyncio.run(go())
    [fields] = [block for block in face.blocks if isinstance(block, FieldsBlock)]
    assert dict(fields.pairs)["model"] == model == "anthropic/claude-opus-4-5"


class TestWithoutAName:
    def test_one_is_chosen_from_all_with_the_present_one_marked(self, team: World) -> None:
        after = persona(team, "", "2", is_plain=False)
        [form] = after.face.forms
        assert [option.label for option in form.options] == ["data/dev (current)", "data/ops", "none"]
        assert form.options[1].note == "Runs it."
        assert form.default == "1"
        assert after.persona == "data/ops"

    def test_leaving_the_question_changes_nothing(self, team: World) -> None:
        after = persona(team, "", None, is_plain=False)
        assert after.persona == "data/dev"
        assert after.face.blocks == []

    def test_in_plain_lines_they_are_a_table(self, team: World) -> None:
        after = persona(team, "")
        [table] = [block for block in after.face.blocks if isinstance(block, TableBlock)]
        assert [row[:2] for row in table.rows] == [("*", "data/dev"), ("", "data/ops")]
        assert "/persona NAME" in after.text

    def test_where_there_are_none_it_says_where_they_are_explained(self, team: World) -> None:
        assert "no personas found" in persona(team, "", now="", trust_workspace=False).text


class TestWhatIsWrong:
    def refused(self, team: World, arguments: str, kind: type[KitbagError], **more: Any) -> str:
        with pytest.raises(kind) as told:
            persona(team, arguments, **more)
        return f"{told.value.problem} {told.value.fix}"

    def test_a_name_that_is_nearly_one_is_answered_with_it(self, team: World) -> None:
        assert "did you mean data/ops" in self.refused(team, "data/opps", NotFoundError)

    def test_a_name_that_is_like_none_is_answered_with_all(self, team: World) -> None:
        assert "use one of: data/dev, data/ops" in self.refused(team, "zebra", NotFoundError)

    def test_of_an_untrusted_workspace_it_says_why_it_is_not_there(self, team: World) -> None:
        assert "trust" in self.refused(team, "ops", UntrustedItemError, now="", trust_workspace=False)

    @pytest.mark.parametrize("arguments", ["dev ops", "dev --no", "--force"])
    def test_what_it_does_not_take(self, team: World, arguments: str) -> None:
        assert "/persona [TEAM/]NAME" in self.refused(team, arguments, UsageError)
