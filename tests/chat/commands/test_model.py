"""`/model`: who answers and why, who could, and another one from now on."""

import asyncio

import pytest

from conftest import World
from kitbag.errors import InvalidError, UsageError
from kitbag.testing import ModelServer, Rule, Script, Step
from kitbag.views.blocks import TableBlock
from support.talking_face import TalkingFace, talking

KEY = "sk-ant-very-secret-0123456789"


def test_the_model_is_told_with_why_and_without_a_key_how_to_connect_one(at_home: World) -> None:
    async def look() -> None:
        async with talking(at_home, model="offline") as talk:
            shown = await talk.command("/model")
            assert "--model" in shown or "choice" in shown
            assert talk.shown(TableBlock)[-1].rows[-1][:2] == ("offline", "yes")
            assert "ANTHROPIC_API_KEY" in shown
            assert "kitbag setup" in shown

    asyncio.run(look())


def test_models_of_a_key_are_offered_with_their_price_and_the_key_is_nowhere(
    at_home: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    face = TalkingFace(None)

    async def look() -> None:
        async with talking(at_home, model="offline", face=face) as talk:
            await talk.command("/model")
            options = {option.label: option.note for option in face.forms[0].options}
            sonnet = next(note for label, note in options.items() if "sonnet" in label)
            assert "ANTHROPIC_API_KEY is set" in sonnet
            assert "200,000 tokens, $3 in, $15 out" in sonnet
            assert "offline" in options
            assert KEY not in face.everything()
            assert talk.agent.chosen.name == "offline"

    asyncio.run(look())


def test_a_model_unknown_to_the_catalog_is_used_with_a_warning_and_close_names(
    at_home: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)

    async def look() -> None:
        async with talking(at_home, model="anthropic/claude-haiku-4-5") as talk:
            shown = await talk.command("/model anthropic/claud-sonnet-4-5")
            assert talk.agent.chosen.model == "claud-sonnet-4-5"
            assert "unknown model 'claud-sonnet-4-5'" in shown
            assert "did you mean claude-sonnet-4-5" in shown
            shown = await talk.command("/model nosuch")
            assert "unknown model 'nosuch'" in shown
            assert "did you mean" not in shown
            assert "unknown model" not in await talk.command("/model claude-haiku-4-5")

    asyncio.run(look())


def test_another_one_answers_from_now_on(at_home: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def look() -> None:
        with ModelServer(Script([Rule([Step(text="Hello from there.")])])) as server:
            for name, value in server.environment().items():
                monkeypatch.setenv(name, value)
            async with talking(at_home, model="offline") as talk:
                shown = await talk.command("/model anthropic/claude-haiku-4-5")
                assert "switched to anthropic/claude-haiku-4-5" in shown
                assert "200,000 tokens" in shown
                assert "$1 in, $5 out" in shown
                await talk.say("hello")
                assert server.requests[-1].body["model"] == "claude-haiku-4-5"
                assert "already using" in await talk.command("/model haiku")
                assert "thinking" not in server.requests[-1].body
                assert "effort: high" in await talk.command("/model haiku high")
                await talk.say("think")
                assert server.requests[-1].body["thinking"]["budget_tokens"]
                assert "effort: default" in await talk.command("/model haiku default")
                with pytest.raises(UsageError, match="unknown effort"):
                    await talk.command("/model haiku huge")

    asyncio.run(look())


@pytest.mark.parametrize("answer", ["form", "words"])
def test_one_is_chosen_from_the_form_or_written(at_home: World, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    face = TalkingFace("1" if answer == "form" else "anthropic/claude-sonnet-4-5", "h")

    async def look() -> None:
        async with talking(at_home, model="offline", face=face) as talk:
            await talk.command("/model")
            assert talk.agent.chosen.name == "anthropic/claude-sonnet-4-5"
            assert talk.agent.options.effort == "high"

    asyncio.run(look())


def test_without_its_key_it_says_how_to_connect_and_all_stays_as_it_was(at_home: World) -> None:
    async def look() -> None:
        async with talking(at_home, model="offline") as talk:
            with pytest.raises(InvalidError) as found:
                await talk.command("/model openai/gpt-5")
            assert "kitbag setup" in found.value.fix
            with pytest.raises(UsageError):
                await talk.command("/model gibberish")
            assert talk.agent.chosen.name == "offline"

    asyncio.run(look())
