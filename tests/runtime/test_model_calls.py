"""Every request of a session is reconstructed from the journal, byte for byte, as the provider received it."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from conftest import World
from kitbag.agent.model_calls import CallHistory, ModelCall, read_calls
from kitbag.assembly.run_options import Options
from kitbag.assembly.system_prompt import prompt_blocks
from kitbag.messages import Image, Usage
from kitbag.models.adapters.anthropic import Anthropic
from kitbag.models.adapters.api_errors import ApiEndpoint
from kitbag.models.adapters.openai_chat import OpenAIChat
from kitbag.models.provider import ModelRequest, SystemBlock
from kitbag.runtime.agent import Agent
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from kitbag.testing import ModelServer, Rule, Script, Step
from kitbag.testing.server import ReceivedRequest
from support.house import House, load
from support.waiting import TEST_TIMEOUT

CLAUDE, GPT = "anthropic/claude-sonnet-4-5", "openai/gpt-5"
PIXEL = Image(
    media_type="image/png",
    data="iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
)
Work = Callable[[Agent], Any]


class Wire:
    """Agents that talk to a scripted provider over HTTP, which keeps what it received."""

    def __init__(self, house: House, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.server = house.world, server
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)

    def talk(self, *work: Work | str, steps: Any, model: str = CLAUDE, **options: Any) -> str:
        """Gives the session."""
        self.server.script = Script(steps) if isinstance(steps[0], Rule) else Script([Rule(steps)])
        return asyncio.run(self._talk(work, model, options))

    async def _talk(self, work: tuple[Work | str, ...], model: str, options: dict[str, Any]) -> str:
        given = Options(directory=str(self.world.workspace), trust_workspace=True, **options)
        async with asyncio.timeout(TEST_TIMEOUT), Agent(model, options=given) as agent:
            for one in work:
                if isinstance(one, str):
                    await _ask(agent, one)
                else:
                    await one(agent)
            return agent.session.id

    def history(self, session: str) -> CallHistory:
        path = journal_path(str(self.world.home / ".kitbag"))
        with Journal.open(path, Redactor(())) as journal:
            return read_calls(journal, session)

    def received(self, marker: str = "") -> list[ReceivedRequest]:
        return [one for one in self.server.requests if marker.encode() in one.raw]


async def _ask(agent: Agent, text: str, *images: Image) -> None:
    async with agent.run(text, images) as run:
        async for _ in run:
            pass
    if run.error is not None:
        raise run.error


@pytest.fixture
def wire(house: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    house.world.write("AGENTS.md", "Answer in Französisch, 简短.\n")
    house.world.skill(".kitbag/skills", "sql-style", description="How SQL is written here.", body="In capitals.\n" * 9)
    house.world.skill(".kitbag/skills", "tone", description="How we talk.", body="Kindly.")
    with ModelServer(Script([])) as server:
        yield Wire(house, server, monkeypatch)


def encode(call: ModelCall) -> dict[str, Any]:
    """The body that the adapter makes of the reconstruction."""
    assert call.tools is not None
    endpoint = ApiEndpoint(provider=call.provider, base_url="http://127.0.0.1", headers={})
    adapter = Anthropic(endpoint) if call.provider == "anthropic" else OpenAIChat(endpoint)
    name = call.header.model.partition("/")[2]
    summary = (SystemBlock(text="".join(entry["text"] for entry in call.prompt)),)
    system = summary if call.kind == "compaction" else prompt_blocks(call.prompt)
    request = ModelRequest(model=name, system=system, messages=call.messages(), tools=call.tools)
    return json.loads(adapter._encode_request(request))  # pyright: ignore[reportPrivateUsage]


def assert_exact(calls: list[ModelCall], received: list[ReceivedRequest]) -> None:
    assert len(calls) == len(received)
    for call, request in zip(calls, received, strict=True):
        assert call.difference in (0, None) if call.kind == "compaction" else call.difference == 0
        made = encode(call)
        for name in ("system", "tools", "messages"):
            assert json.dumps(made.get(name)) == json.dumps(request.body.get(name)), name


def skill(name: str, call_id: str = "s1") -> Step:
    return load(name, call_id)


def unload(name: str) -> Step:
    return Step(calls=(("u1", "UnloadSkill", json.dumps({"skill": name})),))


def test_skills_that_are_loaded_unloaded_and_shown_for_one_message(wire: Wire) -> None:
    steps = [skill("sql-style"), "Done.", "Kindly.", unload("sql-style"), "Gone.", "Bye."]
    session = wire.talk("How do we write SQL?", "/tone hello", "Unload it.", "Bye.", steps=_steps(steps))
    history = wire.history(session)
    assert_exact([*history.calls], wire.received())
    texts = [json.dumps(encode(call)) for call in history.calls]
    assert ["In capitals." in text for text in texts] == [False, True, True, True, False, False]
    assert ["was shown here until" in text for text in texts] == [False, False, False, True, True, True]
    assert history.calls[-1].notes.dropped["sql-style"].tokens > 0


def _steps(steps: list[Step | str]) -> list[Step]:
    return [Step(text=step) if isinstance(step, str) else step for step in steps]


def test_a_compaction_and_the_request_that_wrote_the_summary(wire: Wire) -> None:
    async def compact(agent: Agent) -> None:
        assert await agent.compact(lambda _: None, "Keep <the names>.")

    summary = Rule([Step(text="They talked.")], last="^user: ")
    rules = [summary, Rule(_steps([skill("sql-style"), "One. " * 400, "Two.", "Three.", "Four."]))]
    session = wire.talk("How do we write SQL?", "And then?", compact, "Go on.", steps=rules)
    history = wire.history(session)
    assert [call.kind for call in history.calls] == ["turn", "turn", "turn", "compaction", "turn"]
    assert_exact([*history.calls], wire.received())
    assert history.calls[-1].notes.compacted[0] > 0


def test_another_persona_another_model_and_a_reload(wire: Wire) -> None:
    wire.world.write(".kitbag/personas/boss.yaml", "name: boss\nsystem_prompt_additions: Talk like a boss.\n")

    async def switch(agent: Agent) -> None:
        await agent.use_persona("boss")

    async def reload(agent: Agent) -> None:
        wire.world.write("AGENTS.md", "Answer in Latin.\n")
        await agent.reload()

    async def other_model(agent: Agent) -> None:
        await agent.use_model(GPT)

    async def plan(agent: Agent) -> None:
        await agent.use_mode("plan")

    work = ("One", switch, "Two", reload, "Three", plan, "Four", other_model, "Five")
    session = wire.talk(*work, steps=[Step(text="Yes.", thinking="Hm.")] * 9)
    history = wire.history(session)
    assert_exact([*history.calls], wire.received())
    prompts = ["".join(entry["text"] for entry in call.prompt) for call in history.calls]
    assert ["like a boss" in prompt for prompt in prompts] == [False, True, True, True, True]
    assert ["Latin" in prompt for prompt in prompts] == [False, False, True, True, True]


def test_images_and_a_session_that_is_resumed_and_forked(wire: Wire) -> None:
    async def show(agent: Agent) -> None:
        await _ask(agent, "What is this?", PIXEL)

    first = wire.talk(show, steps=_steps([skill("sql-style"), "A dot."]))
    again = wire.talk("And now?", steps=_steps(["", "", "Still."]), resume=first)
    assert again == first
    history = wire.history(first)
    assert_exact([*history.calls], wire.received())
    wire.server.requests.clear()
    copy = wire.talk("Another way?", steps=_steps(["", "", "", "Perhaps."]), resume=first, fork=True)
    fork = wire.history(copy)
    assert_exact([*fork.calls], wire.received())
    assert [call.number for call in fork.calls] == [1]
    assert fork.origin is not None
    assert fork.origin.seq == history.calls[-1].seq
    assert fork.before(fork.calls[0]) == fork.origin


def test_the_calls_of_a_subagent(wire: Wire) -> None:
    task = Step(calls=(("t1", "Task", json.dumps({"subagent_type": "Explore", "prompt": "Find it."})),))
    glob = Step(calls=(("g1", "Glob", '{"pattern": "*.md"}'),))
    child = Rule([glob, Step(text="Found.")], system="## Your Task|Find it", first="Find it|.")
    rules = [Rule([task, Step(text="There.")], first="Where is it"), child]
    session = wire.talk("Where is it?", steps=rules, mode="plan")
    main = wire.history(session)
    main_requests = [one for one in wire.server.requests if "Where is it?" in json.dumps(one.body["messages"][0])]
    assert_exact([*main.calls], main_requests)
    path = journal_path(str(wire.world.home / ".kitbag"))
    with Journal.open(path, Redactor(())) as journal:
        [other] = [name.partition("/")[2] for name in journal.streams("session/") if not name.endswith(session)]
    others = [one for one in wire.server.requests if one not in main_requests]
    assert_exact([*wire.history(other).calls], others)


def test_a_tool_list_is_stored_once_for_all_sessions(wire: Wire) -> None:
    sessions = [wire.talk("Hi", "And?", steps=_steps(["One.", "Two."])) for _ in range(2)]
    with Journal.open(journal_path(str(wire.world.home / ".kitbag")), Redactor(())) as journal:
        assert len(journal.streams("tools/")) == 1
        stored = sum(len(json.dumps(record.body)) for name in sessions for record in journal.read(f"session/{name}"))
        text = "".join(json.dumps(record.body) for name in sessions for record in journal.read(f"session/{name}"))
    assert stored
    assert "input_schema" not in text
    assert "Reads a file" not in text


def test_a_journal_of_an_earlier_version_says_what_is_unknown(wire: Wire) -> None:
    session = wire.talk("Hi", steps=_steps(["One."]))
    with Journal.open(journal_path(str(wire.world.home / ".kitbag")), Redactor(())) as journal:
        entries = [
            (record.kind, {name: value for name, value in record.body.items() if name != "sent"})
            for record in journal.read(f"session/{session}")
        ]
        for kind, body in entries:
            journal.append("session/old", kind, body)
    [call] = wire.history("old").calls
    assert call.tools is None
    assert call.difference is None
    assert "Read" in call.tool_names


def test_a_secret_that_the_journal_redacts_is_a_known_difference(wire: Wire) -> None:
    key = "sk-ant-api03-" + "A1b2C3d4E5" * 9 + "-AA"
    session = wire.talk(f"My key is {key}, remember.", steps=_steps(["Better not."]))
    [call] = wire.history(session).calls
    assert key not in str(call.messages())
    assert call.difference is not None
    assert call.difference > 0


def test_usage_and_cost_are_those_of_the_reply(wire: Wire) -> None:
    used = Usage(input=100, output=2, cache_read=30, cache_write=4)
    session = wire.talk("Hi", steps=[Step(text="Hi.", usage=used)])
    [call] = wire.history(session).calls
    assert call.usage == used
    assert call.cost is not None


def test_a_session_that_does_not_exist(world: World) -> None:
    from kitbag.errors import NotFoundError

    with (
        Journal.open(str(world.home / "journal.db"), Redactor(())) as journal,
        pytest.raises(NotFoundError, match="nothing-here"),
    ):
        read_calls(journal, "nothing-here")
