"""`/skills`: state, cost and reasons are told, and what is switched counts at once and is told to the model."""

import asyncio
import json

import pytest

from conftest import World
from kitbag.errors import InvalidError, NotFoundError, UsageError
from kitbag.testing import Step
from kitbag.text.tokens import estimate_tokens
from kitbag.views.blocks import TableBlock
from kitbag.views.skill_card import skill_card
from support.talking_face import Talk, TalkingFace, talking


def load(skill: str) -> Step:
    return Step(calls=(("c1", "Skill", json.dumps({"skill": skill})),))


def rows(talk: Talk) -> dict[str, tuple[str, ...]]:
    """Of the last table, by the name of the skill."""
    return {row[0]: row[1:] for row in talk.shown(TableBlock)[-1].rows}


def test_each_is_told_with_its_state_its_scope_its_cost_and_whether_it_is_loaded(at_home: World) -> None:
    at_home.skill("~/.kitbag/skills", "deploy", "Deploys the thing.", "Do it by hand. " * 20)

    async def look() -> None:
        async with talking(at_home, load("deploy"), "Done.") as talk:
            await talk.command("/skills")
            state, source, listed, body, shown = rows(talk)["deploy"]
            assert (state, source, shown) == ("on", "user", "described")
            assert int(listed) == estimate_tokens("- deploy: Deploys the thing.")
            card = skill_card(talk.agent.environment.library, talk.agent.environment.library.find_skill("deploy"))
            assert (int(listed), int(body)) == (card["tokens"]["level_0"], card["tokens"]["level_1"])
            await talk.say("go")
            await talk.command("/skills")
            assert rows(talk)["deploy"][0] == "on, loaded"

    asyncio.run(look())


def test_why_each_is_not_described_is_told(at_home: World) -> None:
    at_home.skill("~/.kitbag/skills", "mine", disable_model_invocation="true")
    at_home.skill("~/.kitbag/skills", "quiet")
    at_home.skill("~/.kitbag/skills", "gone")
    at_home.skill("~/.kitbag/skills", "pythons", paths="'*.py'")
    at_home.write("~/.kitbag/settings.toml", '[skills]\nquiet = "name-only"\ngone = "off"\n')

    async def look() -> None:
        async with talking(at_home) as talk:
            await talk.command("/skills")
            why = {name: row[-1] for name, row in rows(talk).items()}
            assert why["mine"] == "no: disable-model-invocation is set in its file"
            assert why["quiet"] == "by name: name-only in ~/.kitbag/settings.toml"
            assert why["gone"].startswith("no: disabled in")
            assert rows(talk)["gone"][0] == "off"
            assert "paths" in why["pythons"]

    asyncio.run(look())


def test_what_the_catalog_s_budget_leaves_out_is_told_as_that(at_home: World) -> None:
    for number in range(6):
        at_home.skill("~/.kitbag/skills", f"long-{number}", f"Number {number} " + "does a thing with much to say. " * 8)
    at_home.write("~/.kitbag/settings.toml", "[catalog]\ndescriptions = 300\n")

    async def look() -> None:
        async with talking(at_home) as talk:
            await talk.command("/skills")
            why = [row[-1] for name, row in rows(talk).items() if name.startswith("long")]
            assert any("budget for descriptions" in one for one in why)
            assert not any(one == "described" for one in why)

    asyncio.run(look())


def test_names_that_do_not_fit_are_told_as_left_out(at_home: World) -> None:
    for number in range(6):
        at_home.skill("~/.kitbag/skills", f"a-name-that-is-long-{number}")
    at_home.write("~/.kitbag/settings.toml", "[catalog]\nnames = 60\n")

    async def look() -> None:
        async with talking(at_home) as talk:
            await talk.command("/skills")
            assert any("omitted: over the catalog's budget for names" in row[-1] for row in rows(talk).values())

    asyncio.run(look())


def test_a_workspace_that_is_not_trusted_has_its_skills_named_as_left_out(at_home: World) -> None:
    at_home.skill(".kitbag/skills", "theirs")

    async def look() -> None:
        async with talking(at_home, trust_workspace=False) as talk:
            await talk.command("/skills")
            assert rows(talk)["theirs"] == ("-", "project", "0", "-", "no: omitted: the workspace is not trusted")

    asyncio.run(look())


def test_those_of_another_persona_are_counted_and_shown_when_asked_for(at_home: World) -> None:
    root = "~/.kitbag/skills/shop"
    at_home.write(f"{root}/_persona_dev.yaml", "name: dev\n")
    at_home.write(f"{root}/dev/review.md", "---\nname: review\ndescription: Reviews.\n---\nReview.\n")
    at_home.write(f"{root}/support/triage.md", "---\nname: triage\ndescription: Triages.\n---\nTriage.\n")

    async def look() -> None:
        async with talking(at_home, team="shop", persona="dev") as talk:
            await talk.command("/skills")
            assert "shop/review" in rows(talk)
            assert "shop/triage" not in rows(talk)
            assert "1 from other teams or personas" in talk.shown(TableBlock)[-1].foot
            await talk.command("/skills all")
            assert "belongs to support" in rows(talk)["shop/triage"][-1]

    asyncio.run(look())


@pytest.mark.parametrize("said_before", [False, True])
def test_what_is_switched_off_can_t_be_loaded_from_then_on_and_the_model_is_told(
    at_home: World, said_before: bool
) -> None:
    at_home.skill("~/.kitbag/skills", "deploy")

    async def look() -> None:
        async with talking(at_home, *(["Hi."] if said_before else []), load("deploy"), "I can't.") as talk:
            if said_before:
                await talk.say("hello")
            shown = await talk.command("/skills off deploy")
            assert "deploy is now off (~/.kitbag/settings.toml)" in shown
            assert "notified with your next message" in shown
            assert "/reload" in shown
            await talk.command("/skills")
            assert "until the prompt is rebuilt" in rows(talk)["deploy"][-1]
            await talk.say("deploy it")
            first = talk.model.requests[1 if said_before else 0]
            assert "- skill deploy" in str(first.messages[-1])
            assert "disabled in" in str(talk.model.requests[-1].messages[-1])
            assert "deploy" not in talk.agent.session.skills

    asyncio.run(look())


def test_switched_on_again_it_is_told_as_new_and_can_be_loaded(at_home: World) -> None:
    at_home.skill("~/.kitbag/skills", "deploy", body="BY HAND")
    at_home.write("~/.kitbag/settings.toml", '[skills]\ndeploy = "off"\n')

    async def look() -> None:
        async with talking(at_home, "Hi.", load("deploy"), "Done.") as talk:
            await talk.say("hello")
            await talk.command("/skills on deploy")
            await talk.command("/skills")
            assert "since this session started" in rows(talk)["deploy"][-1]
            await talk.say("deploy it")
            assert "+ skill deploy" in str(talk.model.requests[1].messages[-1])
            assert "BY HAND" in str(talk.model.requests[-1].messages[-1])

    asyncio.run(look())


def test_what_is_to_be_by_name_is_described_until_the_prompt_is_made_anew(at_home: World) -> None:
    at_home.skill("~/.kitbag/skills", "deploy")

    async def look() -> None:
        async with talking(at_home) as talk:
            await talk.command("/skills name-only deploy")
            await talk.command("/skills")
            assert rows(talk)["deploy"][-1] == (
                "described: name-only in ~/.kitbag/settings.toml, once the prompt is rebuilt"
            )
            await talk.agent.reload()
            await talk.command("/skills")
            assert rows(talk)["deploy"][-1] == "by name: name-only in ~/.kitbag/settings.toml"

    asyncio.run(look())


def test_a_project_that_is_stricter_is_named(at_home: World) -> None:
    at_home.skill("~/.kitbag/skills", "deploy")
    at_home.write(".kitbag/settings.toml", '[skills]\ndeploy = "off"\n')

    async def look() -> None:
        async with talking(at_home) as talk:
            shown = await talk.command("/skills on deploy")
            assert "still off: .kitbag/settings.toml sets it" in shown

    asyncio.run(look())


def test_the_panel_switches_through_all_states_and_shows(at_home: World) -> None:
    at_home.skill("~/.kitbag/skills", "deploy", "Deploys the thing.")
    at_home.write("~/.kitbag/skills/deploy/references/notes.md", "Notes.\n")
    face = TalkingFace(pressed=[("space", "deploy")] * 4 + [("enter", "deploy")])

    async def look() -> None:
        async with talking(at_home, face=face) as talk:
            shown = await talk.command("/skills")
            states = [face.line("deploy", at).split()[0] for at in range(5)]
            assert states == ["on", "name-only", "user-only", "off", "on"]
            assert "Deploys the thing." in shown
            assert "references/notes.md" in shown
            assert "when loaded" in shown
            assert "described" in shown

    asyncio.run(look())
    assert "deploy" not in (at_home.home / ".kitbag/settings.toml").read_text()


def test_one_is_loaded_as_if_it_had_been_typed_and_unloaded_again(at_home: World) -> None:
    at_home.skill("~/.kitbag/skills", "deploy", body="BY HAND")

    async def look() -> None:
        async with talking(at_home, "Done.", load("deploy"), "Again.", "Now without.") as talk:
            talk.face.lines = ["/skills use deploy"]
            await talk.chat.run()
            assert "BY HAND" in str(talk.model.requests[0].messages)
            await talk.say("load it yourself")
            assert "deploy" in talk.agent.session.skills
            assert "unloaded deploy" in await talk.command("/skills unload deploy")
            await talk.say("go on")
            assert "BY HAND" not in str(talk.model.requests[-1].messages)
            with pytest.raises(NotFoundError, match="not loaded"):
                await talk.command("/skills unload deploy")

    asyncio.run(look())


def test_the_panel_loads_and_unloads(at_home: World) -> None:
    at_home.skill("~/.kitbag/skills", "deploy", body="BY HAND")
    face = TalkingFace(pressed=[("u", "deploy")])

    async def look() -> None:
        async with talking(at_home, load("deploy"), "Done.", face=face) as talk:
            await talk.say("load it")
            await talk.command("/skills")
            assert face.line("deploy", 0).startswith("●")
            assert not face.line("deploy").startswith("●")
            assert talk.agent.skills.loaded() == []

    asyncio.run(look())


def test_a_row_of_an_untrusted_workspace_does_nothing_but_say_so(at_home: World) -> None:
    at_home.skill(".kitbag/skills", "theirs")
    face = TalkingFace(pressed=[("space", "!theirs"), ("l", "!theirs")])

    async def look() -> None:
        async with talking(at_home, face=face, trust_workspace=False) as talk:
            assert "kitbag trust" in await talk.command("/skills")

    asyncio.run(look())


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ("/skills off", UsageError, "/skills off NAME"),
        ("/skills off deplyo", NotFoundError, "did you mean deploy"),
        ("/skills deplyo", NotFoundError, "did you mean deploy"),
        ("/skills of deploy", NotFoundError, "did you mean off"),
        ("/skills use nothing-like-it", NotFoundError, ""),
        ("/skills use hidden", InvalidError, ""),
        ("/skills unload deploy", NotFoundError, ""),
    ],
)
def test_what_is_typed_wrong_is_told(at_home: World, line: str, error: type[Exception], words: str) -> None:
    at_home.skill("~/.kitbag/skills", "deploy")
    at_home.skill("~/.kitbag/skills", "hidden", user_invocable="false")

    async def look() -> None:
        async with talking(at_home) as talk:
            with pytest.raises(error) as found:
                await talk.command(line)
            assert words in getattr(found.value, "fix", "")

    asyncio.run(look())


def test_one_is_shown_with_why(at_home: World) -> None:
    at_home.skill("~/.kitbag/skills", "mine", "For me.", disable_model_invocation="true")

    async def look() -> None:
        async with talking(at_home) as talk:
            shown = await talk.command("/skills mine")
            assert "not listed: disable-model-invocation is set in its file" in shown
            assert "For me." in shown
            assert "~/.kitbag/skills/mine/SKILL.md" in shown

    asyncio.run(look())


def test_a_skill_with_the_name_of_a_command_is_not_loaded_by_running_the_command(at_home: World) -> None:
    at_home.skill("~/.kitbag/skills", "Exit", "Says goodbye.")

    async def look() -> None:
        async with talking(at_home) as talk:
            with pytest.raises(UsageError) as refused:
                await talk.command("/skills use exit")
            assert "is a built-in command" in refused.value.problem
            assert "rename it" in refused.value.fix
            assert talk.chat._events.empty()
            assert "built-in commands shadow" in await talk.command("/help")
            assert "skills/Exit/SKILL.md" in await talk.command("/help exit")

    asyncio.run(look())
