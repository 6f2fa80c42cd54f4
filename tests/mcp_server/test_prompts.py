"""Skills as MCP prompts: listed, filled with arguments and delivered as `/name` in the chat delivers them."""

import asyncio
import re
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp_types import INVALID_PARAMS, PromptListChangedNotification, PromptReference, ResourceTemplateReference

from conftest import World
from kitbag.mcp_server.skill_prompts import argument_text, read_parameters
from support.connected import at_home, over_stdio, run, scripted, served, text

MINE = "~/.kitbag/skills"

__all__ = ["at_home"]  # a fixture that every test here uses


async def get(client: Client, name: str, **arguments: str) -> list[str]:
    found: Any = await client.get_prompt(name, arguments)
    assert all(message.role == "user" for message in found.messages)
    return [message.content.text for message in found.messages]


async def refused(client: Client, name: str, **arguments: str) -> str:
    with pytest.raises(MCPError) as caught:
        await client.get_prompt(name, arguments)
    assert caught.value.error.code == INVALID_PARAMS
    return caught.value.error.message


def test_a_prompt_is_what_the_command_would_insert(world: World) -> None:
    world.skill(MINE, "fix", "Fixes an issue.", "Fix $issue with care ($ARGUMENTS).", arguments="[issue, severity]")
    world.skill(MINE, "plain", body="Do it.", disallowed_tools="Bash")

    async def work() -> None:
        async with served(world) as server, server.client() as client:
            filled, request = await get(client, "fix", issue="the login page", severity="high")
            assert 'Fix the login page with care ("the login page" high).' in filled
            assert filled.startswith('<skill-invocation name="fix">')
            assert request == '"the login page" high'
            block, request = await get(client, "plain")
            assert request == "Follow the skill plain."
            assert "Bash" in block.partition("</skill-invocation>")[2]
            # A skill that is loaded already is inserted whole: the prompt may begin another conversation.
            await text(client, "load_skill", skill_name="plain")
            assert await get(client, "plain") == [block, request]

    run(work)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_list_names_arguments_and_hides_what_users_may_not_invoke(world: World, mode: str) -> None:
    world.skill(MINE, "mine", "For users.", disable_model_invocation="true", argument_hint='"<file> [fast|slow]"')
    world.skill(MINE, "models-only", user_invocable="false")
    world.skill(MINE, "denied")
    world.write(".kitbag/skills/untrusted/SKILL.md", "---\nname: untrusted\ndescription: x\n---\nX\n")
    world.write("~/.kitbag/settings.toml", '[permissions]\ndeny = ["Skill(denied)"]\n')

    async def work() -> None:
        async with served(world) as server, server.client(mode) as client:
            assert client.server_capabilities.prompts is not None
            assert client.server_capabilities.prompts.list_changed
            listed = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
            assert not listed.keys() & {"models-only", "denied", "untrusted"}
            mine = listed["mine"]
            assert mine.description == "For users."
            named = [(one.name, one.required) for one in mine.arguments or ()]
            assert named == [("file", True), ("argument2", False)]
            for name in ("models-only", "untrusted", "no such"):
                assert "no prompt named" in await refused(client, name)
            assert "not allowed" in await refused(client, "denied")
            assert "missing argument 'file'" in await refused(client, "mine")
            assert "unknown argument 'x'" in await refused(client, "mine", file="a", x="b")

    run(work)


def test_prompt_names_are_safe_for_clients_and_unique(world: World) -> None:
    for folder, name in (("a", "Bad Name"), ("b", "bad name!"), ("c", "发布"), ("d", "Bad-Name"), ("e", "x" * 90)):
        world.write(f"{MINE}/{folder}/SKILL.md", f"---\nname: {name}\ndescription: x\n---\nBODY {folder}.\n")

    async def work() -> None:
        async with served(world) as server, server.client() as client:
            names = [prompt.name for prompt in (await client.list_prompts()).prompts]
            assert len(set(names)) == len(names)
            assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name) for name in names)
            assert "BODY d" in (await get(client, "Bad-Name"))[0]
            bodies = "".join([(await get(client, name))[0] for name in names])
            assert all(f"BODY {folder}." in bodies for folder in "abcde")

    run(work)


def test_a_skill_that_runs_as_an_agent_needs_permission_and_returns_its_report(world: World) -> None:
    world.skill(MINE, "research", body="Look into $ARGUMENTS.", context="fork")
    model = scripted(world, "The report.")

    async def work() -> None:
        async with served(world, model=model) as server, server.client() as client:
            assert "not allowed" in await refused(client, "research", arguments="it")
        world.write("~/.kitbag/settings.toml", '[permissions]\nallow = ["Task"]\n')
        async with served(world, model=model) as server, server.client() as client:
            assert "The report." in "".join(await get(client, "research", arguments="it"))

    run(work)


def test_a_new_prompt_is_notified_of_and_found_at_once(world: World) -> None:
    world.skill(MINE, "deploy")

    async def work() -> None:
        heard = asyncio.Event()

        async def hear(message: object) -> None:
            if isinstance(message, PromptListChangedNotification):
                heard.set()

        async with over_stdio(world, mode="legacy", message_handler=hear) as client:
            assert "deploy" in [prompt.name for prompt in (await client.list_prompts()).prompts]
            world.skill(MINE, "only-for-users", body="NEW", disable_model_invocation="true")
            assert "NEW" in (await get(client, "only-for-users"))[0]
            await heard.wait()

    run(work)


def test_prompts_come_in_pages(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kitbag.mcp_server.prompts.PROMPTS_PAGE_SIZE", 3)
    for number in range(7):
        world.skill(MINE, f"skill-{number}")

    async def work() -> None:
        async with served(world) as server, server.client() as client:
            names: list[str] = []
            cursor = None
            while True:
                page = await client.list_prompts(cursor=cursor)
                names += [prompt.name for prompt in page.prompts]
                cursor = page.next_cursor
                if cursor is None:
                    break
            assert [name for name in names if name.startswith("skill-")] == [f"skill-{n}" for n in range(7)]

    run(work)


def test_choices_and_resource_paths_are_completed(world: World) -> None:
    world.skill(MINE, "deploy", argument_hint='"[dev|prod|preview]"')
    world.write(f"{MINE}/deploy/references/a.md", "A")

    async def work() -> None:
        async with served(world) as server, server.client() as client:
            assert client.server_capabilities.completions is not None

            async def complete(ref: Any, name: str, value: str, **given: str) -> list[str]:
                return (await client.complete(ref, {"name": name, "value": value}, given)).completion.values

            prompt = PromptReference(name="deploy")
            assert await complete(prompt, "argument1", "p") == ["prod", "preview"]
            assert await complete(prompt, "other", "") == []
            template = ResourceTemplateReference(uri="skill://{skill}/{+path}")
            assert await complete(template, "skill", "dep") == ["deploy"]
            assert await complete(template, "path", "ref", skill="deploy") == ["references/a.md"]
            assert await complete(template, "path", "") == []
            for unknown in (PromptReference(name="none"), ResourceTemplateReference(uri="file:///{x}")):
                with pytest.raises(MCPError) as caught:
                    await complete(unknown, "a", "")
                assert caught.value.error.code == INVALID_PARAMS

    run(work)


@pytest.mark.parametrize(
    ("hint", "declared", "names"),
    [
        ("", (), []),
        ("[message]", (), ["message"]),
        ("<a> [b]", (), ["a", "b"]),
        ("[a|b] [c|d]", (), ["argument1", "argument2"]),
        ("[file] [file]", (), ["arguments"]),
        ("add [tag] | remove [tag]", (), ["arguments"]),
        ("<a>", ("x", "y"), ["x", "y"]),
        ("<a> <b>", ("x", "y"), ["x", "y"]),
        ("", ("x", "x"), []),
    ],
)
def test_arguments_come_from_the_names_or_the_hint(hint: str, declared: tuple[str, ...], names: list[str]) -> None:
    assert [one.name for one in read_parameters(hint, declared)] == names


@pytest.mark.parametrize(
    ("hint", "values", "typed"),
    [
        ("[message]", {"message": " it's done "}, "it's done"),
        ("[a] [b]", {"a": "x", "b": "y z"}, 'x "y z"'),
        ("[a] [b]", {"b": "y"}, '"" y'),
        ("[a] [b]", {"a": "it's"}, '"it\'s"'),
        ("[a] [b]", {"a": 'say "hi" \\o'}, "'say \"hi\" \\o'"),
        ("[a] [b]", {}, ""),
        ("", {"arguments": "x y"}, "x y"),
    ],
)
def test_values_are_quoted_as_a_user_would_type_them(hint: str, values: dict[str, str], typed: str) -> None:
    assert argument_text(read_parameters(hint, ()), values) == typed
