"""Skills in use, from a request to its end: what `/name` allows, what `paths` tell, and the tools for list and person."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from conftest import World
from kitbag.assembly.run_options import Options
from kitbag.events import SkillLoaded, ToolFinished
from kitbag.messages import Text
from kitbag.runtime.agent import Agent
from kitbag.testing import Rule, Script, Scripted, Step
from kitbag.tools.base import UserQuestion
from support.house import House, load


@pytest.fixture
def house(world: World, monkeypatch: pytest.MonkeyPatch) -> House:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "KITBAG_MODEL", "KITBAG_HOME", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(world.home))
    return House(world)


def write(path: str, call_id: str) -> Step:
    return Step(calls=((call_id, "Write", json.dumps({"file_path": path, "content": "x\\n"})),))


def read(path: str, call_id: str) -> Step:
    return Step(calls=((call_id, "Read", json.dumps({"file_path": path})),))


def results(house: House) -> dict[str, str]:
    assert house.agent is not None
    return {
        result.call_id: "\n".join(part.text for part in result.content if isinstance(part, Text))
        for message in house.agent.session.messages()
        for result in message.results
    }


class TestAllowedForTheTurn:
    def test_what_a_person_invokes_allows_until_they_speak_again(self, house: House) -> None:
        house.world.skill("~/.kitbag/skills", "writer", allowed_tools="Write")
        workspace = house.world.workspace
        house.ask("/writer now", "More.", steps=[write("a.txt", "a"), "Done.", write("b.txt", "b"), "Done."])
        assert (workspace / "a.txt").exists()
        assert not (workspace / "b.txt").exists()
        assert "not interactive" in results(house)["b"]
        (loaded,) = house.of(SkillLoaded)
        assert loaded.rights == "until your next message: Write without asking"
        assert not house.notices()

    def test_a_resumed_session_has_none_of_it(self, house: House) -> None:
        house.world.skill("~/.kitbag/skills", "writer", allowed_tools="Write")
        steps = [load("writer"), "Loaded.", write("a.txt", "a"), "Done."]
        house.ask("Write.", steps=steps)
        house.ask("Go on.", steps=steps, resume=house.session)
        assert not (house.world.workspace / "a.txt").exists()
        assert "not interactive" in results(house)["a"]

    def test_rules_that_deny_or_ask_count_more(self, house: House) -> None:  # D25
        house.world.skill("~/.kitbag/skills", "writer", allowed_tools="Write, Edit")
        house.world.write("~/.kitbag/settings.toml", '[permissions]\ndeny = ["Edit(a.txt)"]\nask = ["Edit(b.txt)"]\n')
        steps = [write("a.txt", "a"), write("b.txt", "b"), write("c.txt", "c"), "Done."]
        house.ask("/writer now", steps=steps)
        assert [path.name for path in sorted(house.world.workspace.glob("*.txt"))] == ["c.txt"]

    def test_what_lies_outside_or_is_protected_stays_so(self, house: House) -> None:
        house.world.skill("~/.kitbag/skills", "writer", allowed_tools="Write")
        outside = house.world.outside / "a.txt"
        house.ask("/writer now", steps=[write(str(outside), "a"), write(".git/hooks/pre-commit", "b"), "Done."])
        assert not outside.exists()
        assert not (house.world.workspace / ".git/hooks").exists()

    def test_a_trusted_project_s_skill_allows_and_limits(self, house: House) -> None:
        house.world.skill(".kitbag/skills", "writer", allowed_tools="Write", restrict_tools="Write")
        steps = [write("a.txt", "a"), read("a.txt", "r"), "Done."]
        house.ask("/writer now", steps=steps, trust_workspace=True)
        assert (house.world.workspace / "a.txt").exists()
        assert "Read can't be used now: the skill writer is in use" in results(house)["r"]
        assert "only these tools are available: Write" in house.requests[0].messages[0].text


class TestPaths:
    @pytest.fixture(autouse=True)
    def sql(self, house: House) -> None:
        house.world.skill("~/.kitbag/skills", "sql-style", "How SQL is written.", "Upper case.", paths="'**/*.sql'")
        house.world.skill("~/.kitbag/skills", "plain", "For anything.")
        house.world.write("db/a.sql", "select 1;\n")
        house.world.write("a.py", "1\n")

    def test_a_skill_is_told_of_when_its_files_are_used_and_the_prompt_stays(self, house: House) -> None:
        steps = [read("a.py", "p"), read("db/a.sql", "q"), read("db/a.sql", "r"), "Done.", load("sql-style"), "Done."]
        house.ask("How is SQL written?", "Use it.", steps=steps)
        found = results(house)
        assert "suggested" not in found["p"] + found["r"]
        assert found["q"].endswith("- sql-style: How SQL is written.\n</suggested-skills>")
        assert "Upper case." in found["s1"]
        assert "How SQL is written." not in house.prompt() + house.requests[0].messages[0].text
        assert "- sql-style\n" in house.prompt()
        assert "- plain: For anything." in house.prompt()
        assert len({str((request.system, request.tools)) for request in house.requests}) == 1

    def test_a_resumed_session_does_not_tell_it_again(self, house: House) -> None:
        steps = [read("db/a.sql", "q"), "Done.", read("db/a.sql", "r"), "Done."]
        house.ask("Hi", steps=steps)
        house.ask("Hi", steps=steps, resume=house.session)
        assert "suggested" in results(house)["q"]
        assert "suggested" not in results(house)["r"]

    def test_a_file_that_can_not_be_read_tells_nothing(self, house: House) -> None:
        house.ask("Hi", steps=[read("none.sql", "q"), "Done."])
        assert "suggested" not in results(house)["q"]

    def test_it_is_not_told_where_it_could_not_be_loaded(self, house: House) -> None:
        house.ask("Hi", steps=[read("db/a.sql", "q"), "Done."], only_tools=("Read",))
        assert "suggested" not in results(house)["q"]

    def test_search_finds_it_at_any_time(self, house: House) -> None:
        house.ask("Hi", steps=[Step(calls=(("f", "SearchSkills", '{"query": "SQL"}'),)), "Done."])
        assert "- sql-style: How SQL is written." in results(house)["f"]

    def test_it_is_shown_as_name_only(self, house: House) -> None:
        (found,) = [one for one in house.world.json("skills", "list") if one["name"] == "sql-style"]
        assert found["reason"] == "described when a file that matches its `paths` is used"


def test_a_skill_knows_its_session_and_its_project(house: House) -> None:
    body = "Log to ${CLAUDE_SESSION_ID}.log or $CLAUDE_SESSION_ID, in ${CLAUDE_PROJECT_DIR}, $CLAUDE_SESSION_IDS."
    house.world.skill("~/.kitbag/skills", "log", body=body)
    house.ask("Log.", "/log", steps=[load("log"), "Done.", "Done."])
    place = f"{house.session}.log or {house.session}, in {house.world.workspace}, $CLAUDE_SESSION_IDS."
    assert place in results(house)["s1"]
    house.ask("/log", resume=house.session, fork=True)
    assert f"Log to {house.session}.log" in house.requests[-1].messages[-1].text


TODOS = '{"todos": [{"content": "Fix it", "status": "in_progress", "activeForm": "Fixing it"}]}'


def test_the_list_is_in_the_journal_and_the_person_sees_it(house: House) -> None:
    house.ask("Hi", steps=[Step(calls=(("t", "TodoWrite", TODOS),)), "Done."])
    (finished,) = house.of(ToolFinished)
    assert (finished.summary, finished.details) == ("0 of 1 done: Fixing it", "[>] Fix it")
    house.ask("And?", resume=house.session)
    assert any(call.name == "TodoWrite" for message in house.requests[0].messages for call in message.calls)


class Person:
    async def ask(self, questions: tuple[UserQuestion, ...]) -> tuple[str, ...]:
        return tuple(f"my answer to {question.text}" for question in questions)


def test_a_person_is_asked_where_there_is_one_and_else_there_is_no_such_tool(house: House, world: World) -> None:
    house.ask("Hi")
    assert "AskUser" not in house.tools()
    question = Step(calls=(("q", "AskUser", '{"questions": [{"question": "Which?"}]}'),))
    model = Scripted(Script([Rule([question, Step(text="Fine.")])]))

    async def asked(workspace: Path) -> Any:
        async with Agent(options=Options(directory=str(workspace)), provider=model, person=Person()) as agent:
            async with agent.run("Hi") as run:
                await run.wait()
            return agent.session.messages()

    messages = asyncio.run(asked(world.workspace))
    assert "AskUser" in [tool.name for tool in model.requests[0].tools]
    assert "my answer to Which?" in str(messages)
