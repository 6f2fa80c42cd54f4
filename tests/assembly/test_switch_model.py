"""Another mode or model for a conversation that goes on, and a conversation that is made shorter by wish."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from conftest import World
from kitbag.agent.resume import resume
from kitbag.agent.session_list import list_sessions
from kitbag.assembly.run_options import Options
from kitbag.errors import InvalidError, KitbagError, UsageError
from kitbag.events import Compacted, Event, RunStarted, Switched, ToolFinished, ToolStarted
from kitbag.permissions.approvals.approval import ApprovalAnswer, ApprovalRequest
from kitbag.runtime.agent import Agent
from kitbag.store.private_files import StoreError
from kitbag.testing import Rule, Script, Step
from support.homes import AN_AGENT, Home, home_with_personas, load, prompt, run, tools
from support.waiting import until_true


@pytest.fixture
def home(world: World, monkeypatch: pytest.MonkeyPatch) -> Home:
    return home_with_personas(world, monkeypatch)


def write(call_id: str, path: str = "a.txt") -> Step:
    return Step(calls=((call_id, "Write", json.dumps({"file_path": path, "content": call_id})),))


def results(home: Home) -> list[str]:
    return [event.summary for event in home.events if isinstance(event, ToolFinished)]


class TestModes:
    def test_a_stricter_one_counts_from_the_next_call_on_while_it_works(self, home: Home) -> None:
        steps = [write("w1"), write("w2", "b.txt"), "Done.", "Yes."]

        async def work() -> None:
            async with home.agent(steps, mode="acceptEdits") as agent:
                async with agent.run("Write both.") as going:
                    home.events = []
                    async for event in going:
                        home.events.append(event)
                        if isinstance(event, ToolFinished) and event.call_id == "w1":
                            assert await agent.use_mode("plan") == "plan"
                assert (home.world.workspace / "a.txt").read_text() == "w1"
                assert not (home.world.workspace / "b.txt").exists()
                assert "plan mode" in results(home)[1]
                first, last = home.model.requests[0], home.model.requests[-1]
                # What was sent stays as it is, for the cache.
                assert (first.system, first.tools) == (last.system, last.tools)
                request = await home.ask(agent, "And now?")
                assert (request.system, request.tools) == (first.system, first.tools)
                assert "permission mode to plan" in request.messages[-1].text
                assert [(one.before, one.after) for one in home.of(Switched)] == [("acceptEdits", "plan")]
                assert home.of(RunStarted)[0].mode == "plan"

        run(work)

    def test_a_question_that_is_open_is_held_to_the_mode_of_its_answer(self, home: Home) -> None:
        class Slow:
            one_at_a_time = True

            async def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
                assert agents
                await agents[0].use_mode("plan")
                return ApprovalAnswer(choice="allow")

        agents: list[Agent] = []
        model = Script([Rule([write("w1"), Step(text="Done.")])])

        async def work() -> None:
            from kitbag.testing import Scripted

            options = Options(directory=str(home.world.workspace))
            async with Agent(options=options, provider=Scripted(model), approver=Slow()) as agent:
                agents.append(agent)
                await home.ask_any(agent, "Write.")
                assert "plan mode" in results(home)[0]
                assert not (home.world.workspace / "a.txt").exists()

        run(work)

    def test_a_freer_one_counts_at_once_too_and_brings_the_tools_it_has(self, home: Home) -> None:
        read = Step(calls=(("r1", "Glob", '{"pattern": "*"}'),))

        async def work() -> None:
            async with home.agent([read, write("w1"), "Done.", "Yes."], mode="plan") as agent:
                async with agent.run("Write.") as going:
                    home.events = []
                    async for event in going:
                        home.events.append(event)
                        if isinstance(event, ToolStarted) and event.call_id == "r1":
                            await agent.use_mode("acceptEdits")
                assert "Write" not in tools(home.model.requests[0])
                assert "Write" in tools(home.model.requests[1])
                assert (home.world.workspace / "a.txt").read_text() == "w1"

        run(work)

    def test_leaving_plan_between_two_requests_makes_the_prompt_anew_since_the_tools_are_others(
        self, home: Home
    ) -> None:
        async def work() -> None:
            async with home.agent(mode="plan") as agent:
                first = await home.ask(agent, "Plan it.")
                assert "Read-Only" in prompt(first)
                await agent.use_mode("default")
                second = await home.ask(agent, "Do it.")
                assert "Read-Only" not in prompt(second)
                assert "Write" in tools(second)
                assert "permission mode to default" in second.messages[-1].text
                assert agent.session.prompt_inputs["tools"] == tools(second)

        run(work)

    def test_before_anything_was_said_the_prompt_alone_says_it(self, home: Home) -> None:
        async def work() -> None:
            async with home.agent() as agent:
                await agent.use_mode("plan")
                request = await home.ask(agent, "Hi")
                assert "Read-Only" in prompt(request)
                assert "Write" not in tools(request)
                assert request.messages[0].text == "Hi"

        run(work)

    def test_agents_that_work_in_front_obey_a_mode_that_came_after_them(self, home: Home) -> None:
        home.world.write(
            "~/.kitbag/agents/writer.md",
            "---\nname: writer\ndescription: Writes.\npermissionMode: acceptEdits\ntools: Write\n---\nWrite.\n",
        )
        given = {"subagent_type": "writer", "prompt": "Write both.", "description": "Both"}
        script = Script([
            Rule([write("w1"), write("w2", "b.txt"), Step(text="Tried.")], system=AN_AGENT),
            Rule([Step(calls=(("t1", "Task", json.dumps(given)),)), Step(text="Done.")]),
        ])  # fmt: skip

        async def work() -> None:
            async with home.agent(script, only_tools=("Task", "Write")) as agent:

                async def stricter() -> None:
                    await until_true((home.world.workspace / "a.txt").exists)
                    await agent.use_mode("plan")
                    held.set()

                held = asyncio.Event()
                stream, child = home.model.stream, 0

                async def waiting(request: Any) -> Any:
                    nonlocal child
                    child += AN_AGENT in prompt(request)
                    if child == 2:
                        await held.wait()
                    async for piece in stream(request):
                        yield piece

                home.model.stream = waiting  # type: ignore[method-assign]
                changing = asyncio.create_task(stricter())
                await home.ask(agent, "Let it write.")
                await changing
                assert not (home.world.workspace / "b.txt").exists()
                refused = [one for one in home.model.requests if AN_AGENT in prompt(one)][-1]
                assert "plan mode" in str(refused.messages[-1])
                assert agent.parent_context().mode == "plan"

        run(work)

    def test_a_command_in_a_skill_obeys_the_mode_of_the_moment(self, home: Home) -> None:
        made = home.world.workspace / "made"
        home.world.skill("~/.kitbag/skills", "maker", body=f"!`touch {made}`")
        home.world.write("~/.kitbag/settings.toml", '[permissions]\nallow = ["Bash(touch:*)"]\n')

        async def work() -> None:
            async with home.agent() as agent:
                await home.ask(agent, "Hi")
                await agent.use_mode("plan")
                async with agent.run("/maker") as going:
                    await going.wait()
                assert going.error is not None
                assert not made.exists()

        run(work)

    def test_unknown_ones_and_those_that_the_project_does_not_allow(self, home: Home) -> None:
        home.world.write(".kitbag/settings.toml", '[permissions]\nmode = "locked"\n')

        async def work() -> None:
            async with home.agent(trust_workspace=True) as agent:
                before, last = agent.current_setup(), agent.journal.last_seq()
                with pytest.raises(UsageError, match="free") as error:
                    await agent.use_mode("free")
                assert "acceptEdits" in error.value.fix
                with pytest.raises(InvalidError, match=r"settings\.toml"):
                    await agent.use_mode("acceptEdits")
                assert (agent.current_setup(), agent.journal.last_seq()) == (before, last)
                assert await agent.use_mode("plan") == "plan"

        run(work)

    @pytest.mark.parametrize(
        ("own", "chosen", "resumed"),
        [
            ("default", "plan", "plan"),
            ("default", "acceptEdits", "default"),
            ("acceptEdits", "acceptEdits", "acceptEdits"),
        ],
    )
    def test_resumed_it_is_kept_but_never_freer_than_one_s_own(
        self, home: Home, own: str, chosen: str, resumed: str
    ) -> None:
        home.world.write("~/.kitbag/settings.toml", f'[permissions]\nmode = "{own}"\n')

        async def work() -> None:
            async with home.agent(mode="default") as agent:
                await home.ask(agent, "Hi")
                await agent.use_mode(chosen)
                [row] = list_sessions(agent.journal)
                assert (row.mode, row.status) == (chosen, "completed")
                async with home.agent(["-", "Yes."], resume=agent.session.id) as other:
                    assert other.permissions.mode == resumed
                    request = await home.ask(other, "Hi")
                    assert ("Write" in tools(request)) is (resumed != "plan")
                    assert str(request.messages).count(f"mode to {resumed}.") == (resumed != "default")
                    assert resume(other.journal, other.session.id).header.mode == resumed

        run(work)

    def test_where_it_can_t_be_written_down_it_is_not_changed(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def work() -> None:
            async with home.agent() as agent:
                await home.ask(agent, "Hi")
                before = agent.current_setup()

                async def full(_: Any) -> list[int]:
                    raise StoreError("the disk is full")

                monkeypatch.setattr(agent.journal, "write_all", full)
                with pytest.raises(StoreError):
                    await agent.use_mode("plan")
                monkeypatch.undo()
                assert agent.current_setup() == before
                assert "<session-changes>" not in str((await home.ask(agent, "Hi")).messages)

        run(work)

    def test_a_compaction_makes_the_prompt_for_the_mode_of_the_moment(self, home: Home) -> None:
        async def work() -> None:
            async with home.agent(summarizing("Fine.", "Fine.", "Fine.")) as agent:
                await home.ask(agent, "One")
                await agent.use_mode("plan")
                assert await agent.compact(lambda _: None)
                request = await home.ask(agent, "Two")
                assert "Read-Only" in prompt(request)
                assert "Write" not in tools(request)

        run(work)


def summarizing(*steps: str) -> Script:
    return Script([
        Rule([Step(text="SUMMARY of it.")] * 9, system="Write the summary"),
        Rule([Step(text=one) for one in steps]),
    ])  # fmt: skip


class TestModels:
    def model(self, home: Home, name: str, *replies: str) -> str:
        path: Path = home.world.write(f"{name}.json", json.dumps(list(replies)))
        return f"scripted:{path}"

    async def say(self, agent: Agent, request: str) -> str:
        async with agent.run(request) as going:
            return (await going.wait()).text

    def test_the_other_one_goes_on_with_the_same_conversation(self, home: Home) -> None:
        async def work() -> None:
            one, other = self.model(home, "one", "I am one."), self.model(home, "other", "-", "I am other.")
            async with Agent(options=Options(directory=str(home.world.workspace), model=one)) as agent:
                assert await self.say(agent, "Who?") == "I am one."
                old, system = agent.provider, agent.system_blocks
                await agent.use_model(other)
                assert agent.provider is not old
                assert agent.system_blocks == system  # of the same kind, so for the same prompt
                assert await self.say(agent, "And you?") == "I am other."
                [first, second] = [message.text for message in agent.provider.requests[0].messages[:2]]  # type: ignore[attr-defined]
                assert (first, second) == ("Who?", "I am one.")
                [row] = list_sessions(agent.journal)
                assert row.model == other
            async with Agent(options=Options(directory=str(home.world.workspace), resume="last")) as again:
                assert again.chosen.reference == other

        run(work)

    def test_a_model_given_with_continue_counts_for_the_next_one_too(self, home: Home) -> None:
        async def work() -> None:
            where = str(home.world.workspace)
            one, other = self.model(home, "one", "One."), self.model(home, "other", "-", "Other.")
            async with Agent(options=Options(directory=where, model=one)) as agent:
                await self.say(agent, "Hi")
            async with Agent(options=Options(directory=where, model=other, resume="last")) as agent:
                [row] = list_sessions(agent.journal)
                assert row.model == other
            async with Agent(options=Options(directory=where, resume="last")) as agent:
                assert agent.chosen.reference == other
                assert await self.say(agent, "Hi") == "Other."

        run(work)

    def test_another_provider_gets_a_prompt_of_its_own_and_the_old_one_is_closed(
        self, home: Home, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")

        async def work() -> None:
            async with home.agent() as agent:
                await home.ask(agent, "Hi")
                before = agent.session.prompt
                assert await agent.use_model("anthropic/claude-haiku-4-5") == "anthropic/claude-haiku-4-5"
                assert agent.session.prompt_inputs["provider"] == "anthropic"
                assert agent.session.prompt != before
                haiku, closed = agent.provider, list[bool]()

                async def close() -> None:
                    closed.append(True)

                monkeypatch.setattr(haiku, "close", close)
                assert await agent.use_model("opus") == "anthropic/claude-opus-4-5"
                assert closed == [True]

        run(work)

    def test_one_that_can_t_be_had_changes_nothing(self, home: Home) -> None:
        async def work() -> None:
            async with home.agent() as agent:
                before, last = agent.current_setup(), agent.journal.last_seq()
                for name in ("openai/gpt-5", "nonsense", "", "  ", "scripted:/nowhere.json", "a/b/c"):
                    with pytest.raises(KitbagError):
                        await agent.use_model(name)
                assert (agent.current_setup(), agent.journal.last_seq()) == (before, last)
                assert not agent.busy

        run(work)


class TestCompacting:
    def test_a_short_conversation_is_made_shorter_because_the_person_wants_it(self, home: Home) -> None:
        async def work() -> None:
            events: list[Event] = []
            async with home.agent(summarizing("First.", "Second.", "Third.")) as agent:
                assert not await agent.compact(events.append)  # there is nothing yet
                assert home.model.requests == []
                await home.ask(agent, "One")
                await home.ask(agent, "Two")
                assert await agent.compact(events.append, "the  name <of> the\u200b dog")
                asked = home.model.requests[-1]
                assert "<instructions>\nthe  name &lt;of> the[U+200B] dog\n</instructions>" in asked.system[0].text
                assert [type(event) for event in events] == [Compacted]
                last = await home.ask(agent, "Three")
                assert "SUMMARY of it." in str(last.messages)
                assert "First." not in str(last.messages)
                assert "Two" in str(last.messages)
                kept = resume(agent.journal, agent.session.id)
                assert kept.messages() == agent.session.messages()

        run(work)

    def test_a_wish_has_an_end(self, home: Home) -> None:
        async def work() -> None:
            async with home.agent(summarizing("First.", "Second.")) as agent:
                await home.ask(agent, "One")
                await home.ask(agent, "Two")
                assert await agent.compact(lambda _: None, "long " * 100_000)
                assert len(home.model.requests[-1].system[0].text) < 5_000

        run(work)

    def test_loaded_skills_stay_whole_in_a_large_window(self, home: Home) -> None:
        home.world.skill("~/.kitbag/skills", "ways", body="The way of ways. " * 200)
        script = Script([
            Rule([Step(text="SUMMARY.")], system="Write the summary"),
            Rule([load("ways"), Step(text="Loaded."), Step(text="Yes.")]),
        ])  # fmt: skip

        async def work() -> None:
            async with home.agent(script) as agent:
                await home.ask(agent, "Load it.")
                assert await agent.compact(lambda _: None)
                assert str((await home.ask(agent, "Go")).messages).count("The way of ways.") == 200
                assert list(agent.session.skills) == ["ways"]

        run(work)

    def test_cancelled_it_leaves_the_conversation_as_it_was(self, home: Home) -> None:
        script = Script([
            Rule([Step(text="SUMMARY.", delay=3_600)], system="Write the summary"),
            Rule([Step(text="Yes.")] * 5),
        ])  # fmt: skip

        async def work() -> None:
            async with home.agent(script) as agent:
                await home.ask(agent, "One")
                await home.ask(agent, "Two")
                messages, asked = agent.session.messages(), len(home.model.requests)
                going = asyncio.create_task(agent.compact(lambda _: None))
                await until_true(lambda: len(home.model.requests) > asked)
                # The mode can be changed meanwhile.
                assert await agent.use_mode("plan") == "plan"
                going.cancel()
                await asyncio.wait([going])
                assert agent.session.messages() == messages
                assert "One" in str((await home.ask(agent, "Three")).messages)

        run(work)
