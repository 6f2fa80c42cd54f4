"""An agent tied together: what a session stands on, from the files of a person and a workspace."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kitbag.agent.turn_limits import Limits
from kitbag.assembly.run_options import Options
from kitbag.errors import KitbagError, NotFoundError, UsageError
from kitbag.events import Compacted, RunStarted, SkillLoaded
from kitbag.library.untrusted_items import UntrustedItemError
from kitbag.messages import Image, Text
from kitbag.runtime.agent import Agent
from kitbag.testing import Rule, Script, Scripted, Seen, Step
from support.house import House, load
from support.waiting import TEST_TIMEOUT, until_true


class TestPrompt:
    def test_it_is_the_same_for_every_turn_and_every_run(self, house: House) -> None:
        house.world.skill("~/.kitbag/skills", "ways")
        house.ask("Hi", "And?", steps=[load("ways"), "Yes.", "No."])
        first = house.requests
        assert len({str((request.system, request.tools)) for request in first}) == 1
        house.ask("Hi")
        assert (house.requests[0].system, house.requests[0].tools) == (first[0].system, first[0].tools)
        assert first[0].system[0].cache
        assert not first[0].system[1].cache
        assert first[0].system[1].text.startswith("# Environment")

    def test_it_holds_no_body_that_was_not_asked_for(self, house: House) -> None:
        house.world.skill("~/.kitbag/skills", "ways", description="Shows ways.", body="Secret ways.")
        house.ask("Hi")
        assert "- ways: Shows ways." in house.prompt()
        assert "Secret ways." not in str(house.requests)

    def test_without_skills_there_is_no_word_of_them_and_no_tool(self, house: House) -> None:
        house.world.write("~/.kitbag/settings.toml", "[skills]\n")
        house.ask("Hi")
        if "Skill" not in house.tools():
            assert "<available-skills>" not in house.prompt()

    def test_the_person_s_addition_is_in_it_as_an_agent_too(self, house: House) -> None:
        house.ask("Hi", append="Speak like a pirate.")
        assert "Speak like a pirate." in house.prompt()
        house.ask("Hi", append="Speak like a pirate.", agent="Explore")
        assert house.prompt().rstrip().endswith("Speak like a pirate.")

    def test_the_ledger_is_the_prompt_byte_for_byte_for_the_main_agent_and_for_others(self, house: House) -> None:
        for agent in ("", "Explore"):
            house.ask("Hi", agent=agent)
            assert house.agent is not None
            assert "".join(entry["text"] for entry in house.agent.session.prompt) == house.prompt()


class TestAnUntrustedWorkspace:
    @pytest.fixture
    def dark(self, house: House) -> House:
        world = house.world
        world.write("CLAUDE.md", "MEMORY of the project.")
        world.write("AGENTS.md", "MORE of it.")
        world.skill(".kitbag/skills", "local-way", description="LOCAL description.", body="LOCAL body.")
        world.write(".kitbag/agents/helper.md", "---\nname: helper\ndescription: HELPER words.\n---\nHelp.")
        world.write(".kitbag/personas/boss.yaml", "name: boss\nsystem_prompt_additions: PERSONA words.\n")
        world.write(".kitbag/settings.toml", 'model = "openai/gpt-5"\npersona = "boss"\n')
        return house

    def test_nothing_of_it_is_sent_and_each_kind_is_counted(self, dark: House) -> None:
        assert dark.ask("What is local-way?").status == "completed"
        sent = str(dark.requests)
        for word in ("MEMORY", "MORE of it", "LOCAL", "HELPER", "PERSONA"):
            assert word not in sent
        for count in ("1 skill", "1 agent", "1 persona", "2 memory files", "1 settings file", "--trust-workspace"):
            assert count in dark.notices()

    def test_a_request_that_needs_it_is_refused(self, dark: House) -> None:
        for ask in (
            lambda: dark.ask("/local-way do it"),
            lambda: dark.ask("Hi", agent="helper"),
            lambda: dark.ask("Hi", persona="boss"),
        ):
            with pytest.raises(UntrustedItemError) as error:
                ask()
            assert error.value.exit_code == 13
            assert "--trust-workspace" in error.value.fix
        assert dark.requests == []

    def test_the_model_is_refused_it_too_and_goes_on(self, dark: House) -> None:
        dark.world.skill("~/.kitbag/skills", "mine")
        dark.ask("Hi", steps=[load("local-way"), "Fine."])
        assert "not trusted" in str(dark.requests[-1].messages[-1])
        assert "LOCAL" not in str(dark.requests)

    def test_a_session_that_began_as_its_persona_can_t_go_on_without_trust(self, dark: House) -> None:
        dark.ask("Hi", trust_workspace=True)
        with pytest.raises(UntrustedItemError):
            dark.ask("And now?", resume="last")

    def test_for_one_run_it_can_be_trusted_and_nothing_of_that_is_kept(self, dark: House) -> None:
        dark.ask("/local-way do it", trust_workspace=True)
        sent = str(dark.requests)
        assert all(word in sent for word in ("MEMORY", "LOCAL body.", "LOCAL description", "PERSONA"))
        dark.ask("Hi")
        assert "MEMORY" not in str(dark.requests)

    def test_a_session_that_is_resumed_without_trust_forgets_what_came_from_it(self, dark: House) -> None:
        (dark.world.workspace / ".kitbag/settings.toml").unlink()
        dark.ask("Hi", steps=[load("local-way"), "Fine."], trust_workspace=True)
        assert "LOCAL body." in str(dark.requests)
        dark.ask("And now?", resume="last", steps=["-", "-", "Fine."])
        sent = str(dark.requests)
        assert "MEMORY" not in sent
        assert "LOCAL" not in sent
        assert "no longer loaded" in dark.notices()


class TestOneTurnSkills:
    def test_a_skill_by_name_is_there_for_one_turn(self, house: House) -> None:
        house.world.skill("~/.kitbag/skills", "ways", body="Go $ARGUMENTS by the ways.")
        house.ask("/ways up north\nand on", "thanks")
        first, second = (str(request.messages) for request in house.requests)
        assert "Go up north\\nand on by the ways." in first
        assert "by the ways" not in second
        assert "was shown here until the next user message" in second
        assert house.of(SkillLoaded) == [SkillLoaded(name="ways", tokens=house.of(SkillLoaded)[0].tokens, by="user")]

    def test_without_arguments_the_message_still_says_something(self, house: House) -> None:
        house.world.skill("~/.kitbag/skills", "ways")
        house.ask("/ways")
        assert "Follow the skill ways." in house.requests[0].messages[0].text

    def test_a_name_that_is_none_is_told_and_the_request_goes_on_as_it_is(self, house: House) -> None:
        house.ask("/wais now", "/etc/hosts is a file")
        assert house.requests[0].messages[0].text.startswith("/wais now")
        assert "wais" in house.notices()
        assert "etc" not in house.notices()

    def test_a_command_in_it_that_is_not_allowed_ends_the_run(self, house: House) -> None:
        house.world.skill("~/.kitbag/skills", "ways", body=f"!`touch {house.world.canary}`")
        with pytest.raises(KitbagError):
            house.ask("/ways")
        assert not house.world.canary.exists()
        assert house.requests == []


class TestSuggestions:
    def test_they_stand_at_the_tail_of_the_message_and_change_nothing_before_it(self, house: House) -> None:
        for number in range(60):
            words = "Fills in tax forms for the office of revenue. " if number == 59 else "Something else entirely. "
            house.world.skill("~/.kitbag/skills", f"skill-{number:02}", description=words * 12)
        house.ask("hello there", "please fill in the tax forms", "and the tax forms again")
        plain, asked, again = house.requests
        assert "<suggested-skills>" not in plain.messages[-1].text
        assert asked.messages[-1].text.startswith("please fill in the tax forms")
        assert "skill-59" in asked.messages[-1].text.partition("<suggested-skills>")[2]
        assert asked.system == plain.system
        assert again.messages[: len(asked.messages)] == asked.messages

    def test_what_changed_in_the_library_is_told_there_too(self, house: House) -> None:
        house.world.skill("~/.kitbag/skills", "ways")

        def grow(seen: Seen) -> str:
            house.world.skill("~/.kitbag/skills", "new-ways")
            return "Fine."

        house.ask("hello", "and?", steps=Script([Rule([grow, Step(text="Yes.")])]))
        assert "<library-changes>" in house.requests[1].messages[-1].text
        assert "new-ways" in house.requests[1].messages[-1].text
        assert house.requests[0].system == house.requests[1].system


class TestResuming:
    def test_it_goes_on_where_it_was_with_the_same_bytes_before(self, house: House) -> None:
        house.world.skill("~/.kitbag/skills", "ways", body="Long ways.")
        house.ask("Hi", steps=[load("ways"), "Yes."])
        before, session = house.requests[-1], house.session
        house.world.skill("~/.kitbag/skills", "other")
        house.ask("Again?", resume="last", steps=["-", "-", load("ways", "s2"), "No."])
        assert house.session == session
        assert house.requests[0].system == before.system
        assert house.requests[0].messages[: len(before.messages)] == before.messages
        assert "is already loaded" in str(house.requests[-1].messages[-1])

    def test_by_its_id_and_not_by_one_that_is_none(self, house: House) -> None:
        house.ask("one")
        first = house.session
        house.ask("two")
        house.ask("three", resume=first, steps=["-", "Fine."])
        assert "one" in str(house.requests[0].messages)
        assert "two" not in str(house.requests[0].messages)
        with pytest.raises(NotFoundError):
            house.ask("x", resume="nope")

    def test_a_fork_leaves_the_original_alone(self, house: House) -> None:
        house.ask("one")
        first = house.session
        house.ask("two", resume=first, fork=True, steps=["-", "Fine."])
        assert house.session != first
        house.ask("three", resume=first, steps=["-", "Fine."])
        assert "two" not in str(house.requests[0].messages)

    def test_in_another_directory_it_is_told_where_it_is(self, house: House) -> None:
        house.ask("one")
        first = house.session
        house.world.workspace = house.world.outside
        house.ask("two", resume=first, steps=["-", "Fine."])
        assert str(house.world.outside) in house.prompt()
        assert "one" in str(house.requests[0].messages)

    def test_limits_count_on(self, house: House) -> None:
        house.ask("one", limits=Limits(turns=2))
        house.ask("two", resume="last", limits=Limits(turns=2), steps=["-", "Fine."])
        assert house.ask("three", resume="last", limits=Limits(turns=2)).status == "max-turns"
        assert house.requests == []

    def test_an_agent_s_session_stays_that_agent_s(self, house: House) -> None:
        house.ask("one", agent="Explore")
        tools, prompt = house.tools(), house.prompt()
        house.ask("two", resume="last", steps=["-", "Fine."])
        assert (house.tools(), house.prompt()) == (tools, prompt)
        assert house.of(RunStarted)[0].mode == "plan"

    def test_a_stricter_beginning_stays_and_a_freer_one_does_not(self, house: House) -> None:
        house.ask("one", mode="plan")
        house.ask("two", resume="last", steps=["-", "Fine."])
        assert house.of(RunStarted)[0].mode == "plan"
        house.ask("one", mode="autonomous")
        house.ask("two", resume="last", steps=["-", "Fine."])
        assert house.of(RunStarted)[0].mode == "default"

    def test_what_is_said_anew_makes_a_new_prompt(self, house: House) -> None:
        house.ask("one")
        house.ask("two", resume="last", append="Be a pirate.", steps=["-", "Fine."])
        assert "Be a pirate." in house.prompt()
        house.ask("three", resume="last", mode="plan", steps=["-", "-", "Fine."])
        assert "Be a pirate." in house.prompt()
        assert "Read-Only" in house.prompt()


class TestAgents:
    def agent(self, house: House, folder: str, **fields: str) -> None:
        head = "".join(f"{key}: {value}\n" for key, value in fields.items())
        house.world.write(
            f"{folder}/agents/helper.md", f"---\nname: helper\ndescription: Helps.\n{head}---\nHelp well."
        )

    def test_one_at_the_top_has_its_own_tools_mode_and_turns(self, house: House) -> None:
        self.agent(house, "~/.kitbag", tools="Read", permissionMode="plan", maxTurns="2")
        calls = [Step(calls=((f"c{n}", "Read", '{"file_path": "x"}'),)) for n in range(5)]
        assert house.ask("Hi", agent="helper", steps=calls).status == "max-turns"
        assert house.tools() == ["Read"]
        assert house.of(RunStarted)[0].mode == "plan"
        assert "Help well." in house.prompt()
        assert house.prompt().index("## Environment") < house.prompt().index("## Guidelines")

    @pytest.mark.parametrize(
        ("folder", "own", "declared", "becomes"),
        [
            ("~/.kitbag", "default", "acceptEdits", "acceptEdits"),
            ("~/.kitbag", "plan", "autonomous", "plan"),
            ("~/.kitbag", "locked", "autonomous", "locked"),
            ("~/.kitbag", "acceptEdits", "", "acceptEdits"),
            (".kitbag", "default", "autonomous", "default"),
            (".kitbag", "default", "plan", "plan"),
        ],
    )
    def test_no_file_makes_it_freer_than_the_person_wants(
        self, house: House, folder: str, own: str, declared: str, becomes: str
    ) -> None:
        house.world.write("~/.kitbag/settings.toml", f'[permissions]\nmode = "{own}"\n')
        self.agent(house, folder, **({"permissionMode": declared} if declared else {}))
        house.ask("Hi", agent="helper", trust_workspace=True)
        assert house.of(RunStarted)[0].mode == becomes

    def test_the_flag_has_the_last_word(self, house: House) -> None:
        self.agent(house, "~/.kitbag", permissionMode="plan")
        house.ask("Hi", agent="helper", mode="acceptEdits")
        assert house.of(RunStarted)[0].mode == "acceptEdits"
        assert "Edits Accepted" in house.prompt()


class TestTools:
    def test_what_is_not_named_is_neither_told_nor_run(self, house: House) -> None:
        house.world.write("a.txt", "text of a")
        hidden = [Step(calls=((f"c{n}", name, '{"pattern": "x"}'),)) for n, name in enumerate(("Grep", "grep"))]
        house.ask("Hi", only_tools=("Read",), steps=[*hidden, "Fine."])
        assert house.tools() == ["Read"]
        results = [str(request.messages[-1]) for request in house.requests[1:]]
        assert all("is_error=True" in result for result in results)

    def test_what_is_denied_is_not_told(self, house: House) -> None:
        house.ask("Hi", no_tools=("Grep",))
        assert "Grep" not in house.tools()

    def test_a_wrong_name_is_told(self, house: House) -> None:
        with pytest.raises(UsageError, match="Raed"):
            house.ask("Hi", only_tools=("Read", "Raed"))


def test_a_small_window_in_the_user_s_settings_makes_a_real_run_compact(house: House) -> None:
    house.world.write("~/.kitbag/settings.toml", '[models."scripted"]\nwindow = 4000\n')
    house.world.skill("~/.kitbag/skills", "ways", body="The way of ways.")
    house.world.write("big.txt", "some words of it\n" * 400)
    reads = 0

    def work(seen: Seen) -> Step:
        nonlocal reads
        reads += 1
        if reads == 1:
            return load("ways")
        if reads > 8:
            return Step(text="Done.")
        return Step(calls=((f"c{reads}", "Read", json.dumps({"file_path": "big.txt", "limit": 60 + reads})),))

    script = Script([Rule([Step(text="A summary.")] * 99, system="Write the summary"), Rule([work] * 99)])
    ended = house.ask("Read it over and over.", steps=script)
    assert ended.status == "completed"
    assert house.of(Compacted)
    last = house.requests[-1]
    assert "A summary." in last.messages[0].text
    assert "The way of ways." in last.messages[0].text
    assert "Read it over and over." in last.messages[0].text


def test_after_a_compaction_the_prompt_tells_what_has_changed(house: House) -> None:
    house.world.write("~/.kitbag/settings.toml", '[models."scripted"]\nwindow = 4000\n')
    house.world.skill("~/.kitbag/skills", "ways")
    house.world.write("big.txt", "some words of it\n" * 400)
    reads = 0

    def work(seen: Seen) -> Step:
        nonlocal reads
        reads += 1
        if reads == 1:
            house.world.skill("~/.kitbag/skills", "new-ways")
        return Step(calls=((f"c{reads}", "Read", '{"file_path": "big.txt"}'),)) if reads < 4 else Step(text="Done.")

    script = Script([Rule([Step(text="A summary.")] * 99, system="Write the summary"), Rule([work] * 99)])
    house.ask("Read.", steps=script)
    assert "new-ways" not in house.prompt(0)
    assert "- new-ways:" in house.prompt(-1)


def test_one_agent_answers_one_request_at_a_time(house: House) -> None:
    async def go() -> None:
        model = Scripted(Script([Rule([Step(text="Slow.", delay=3_600)])]))
        where = str(house.world.workspace)
        async with (
            asyncio.timeout(TEST_TIMEOUT),
            Agent(provider=model, directory=where) as agent,
            agent.run("one") as first,
        ):
            await until_true(lambda: model.requests)
            async with agent.run("two") as second:
                ended = await second.wait()
            assert isinstance(second.error, UsageError)
            assert ended.status == "failed"
            first.cancel()
            await first.wait()

    asyncio.run(go())


def test_pictures_go_along(house: House) -> None:
    async def go() -> Scripted:
        model = Scripted(Script([Rule([Step(text="Nice.")])]))
        where = str(house.world.workspace)
        async with (
            Agent(provider=model, directory=where) as agent,
            agent.run("What is this?", [Image(media_type="image/png", data="aGk=")]) as run,
        ):
            await run.wait()
        return model

    parts = asyncio.run(go()).requests[0].messages[0].parts
    assert parts[0] == Image(media_type="image/png", data="aGk=")
    assert isinstance(parts[1], Text)


class TestWhereNothingCanBeKept:
    def test_a_home_that_is_a_file(self, house: House) -> None:
        (house.world.home / ".kitbag").write_text("no directory")
        with pytest.raises(KitbagError) as error:
            house.ask("Hi")
        assert error.value.problem
        assert error.value.exit_code == 6

    def test_a_damaged_journal_is_set_aside_and_told(self, house: House) -> None:
        house.ask("one")
        path = house.world.home / ".kitbag" / "state" / "journal.db"
        path.write_bytes(b"garbage" * 1_000)
        for beside in ("-wal", "-shm"):
            Path(f"{path}{beside}").unlink(missing_ok=True)
        assert house.ask("two").status == "completed"
        assert "damaged" in house.notices()


class TestModels:
    def wish(self, house: House, written: str, **options: Any) -> str:
        async def go() -> str:
            given = Options(directory=str(house.world.workspace), trust_workspace=True, **options)
            async with Agent(options=given) as agent:
                house.events = list(agent.notices)
                await agent.session.add_user([Text("Hi")])  # without a message there is no session
                return agent.chosen.name

        house.world.write(
            "~/.kitbag/agents/helper.md", f"---\nname: helper\ndescription: x\nmodel: {written}\n---\nHelp."
        )
        return asyncio.run(go())

    def test_an_agent_s_wish_is_heard(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        assert self.wish(house, "haiku", agent="helper") == "anthropic/claude-haiku-4-5"
        assert self.wish(house, "haiku", agent="helper", model="sonnet") == "anthropic/claude-sonnet-4-5"
        assert self.wish(house, "inherit", agent="helper") == "anthropic/claude-sonnet-4-5"

    def test_one_that_can_t_be_had_is_told(self, house: House, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        assert self.wish(house, "gpt-5", agent="helper") == "anthropic/claude-sonnet-4-5"
        assert "OPENAI_API_KEY" in house.notices()

    def test_a_file_can_t_choose_a_script(self, house: House) -> None:
        script = house.world.write("evil.json", '["Evil."]')
        assert self.wish(house, f"scripted:{script}", agent="helper") == "offline"

    def test_a_session_keeps_its_model_but_offline_gives_way(
        self, house: House, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert self.wish(house, "inherit") == "offline"
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        assert self.wish(house, "inherit", resume="last") == "openai/gpt-5"
        assert self.wish(house, "inherit", model="openai/gpt-4o") == "openai/gpt-4o"
        assert self.wish(house, "inherit", resume="last") == "openai/gpt-4o"


def test_a_skill_that_an_agent_starts_with_is_not_delivered_once_more(house: House) -> None:
    world = house.world
    world.skill(".kitbag/skills", "ways", body="Tread softly, always.")
    world.write(".kitbag/agents/walker.md", "---\nname: walker\ndescription: Walks.\nskills: [ways]\n---\nYou walk.\n")
    steps = [Step(calls=(("c1", "Skill", '{"skill": "ways"}'),)), "Done."]
    house.ask("Go", agent="walker", steps=steps, trust_workspace=True)
    assert house.prompt().count("Tread softly") == 1
    [result] = house.requests[-1].messages[-1].results
    assert "is already in your instructions" in str(result.content)
    assert "Tread softly" not in str(house.requests[-1].messages)
    assert house.of(SkillLoaded) == []
