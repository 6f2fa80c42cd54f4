"""What a skill in use allows and takes away, in a real loop: from the moment it is loaded until the person speaks."""

import json
from typing import Any

import pytest

from agent.talking import Talk, call, echo, script, tool
from conftest import World
from kitbag.events import Notice, SkillLoaded
from kitbag.messages import Text
from kitbag.testing import Step
from kitbag.tools.skill import LIST_LOADED_SKILLS, SKILL, UNLOAD_SKILL
from kitbag.tools.todo import TODO_WRITE

WEB = tool("WebSearch", echo, reads_only=False)
"""It reaches the network, so it is asked for, and here nobody answers."""
EVERY = (SKILL, LIST_LOADED_SKILLS, UNLOAD_SKILL, TODO_WRITE, WEB)
SEARCH = Step(calls=(call("w", "WebSearch", '{"text": "x"}'),))
SEARCH_AGAIN = Step(calls=(call("w2", "WebSearch", '{"text": "x"}'),))
LISTS = Step(calls=(call("l", "ListLoadedSkills"),))


def load(name: str, call_id: str = "s") -> Step:
    return Step(calls=(call(call_id, "Skill", json.dumps({"skill": name})),))


@pytest.fixture
def skills(world: World) -> World:
    world.skill("~/.kitbag/skills", "searching", allowed_tools="WebSearch")
    world.skill("~/.kitbag/skills", "listing", restrict_tools="TodoWrite, ListLoadedSkills")
    world.skill("~/.kitbag/skills", "offline", disallowed_tools="WebSearch")
    world.skill("~/.kitbag/skills", "plain")
    world.skill(".kitbag/skills", "of-project", allowed_tools="WebSearch")
    return world


class Talked(Talk):
    """As Requests does, what the person says ends what skills allowed."""

    def begun(self, request: str) -> Any:
        self.skills.begin_turn()
        return super().begun(request)


def talk(world: World, *steps: Any) -> Talked:
    return Talked(world, script(*steps), *EVERY)


def test_without_a_skill_nobody_answers(skills: World) -> None:
    made = talk(skills, SEARCH, "Done.")
    made.run("Search.")
    assert "not interactive" in made.results()[-1]


def test_what_a_skill_asks_for_is_allowed_until_the_person_speaks(skills: World) -> None:
    made = talk(skills, load("searching"), SEARCH, "Done.", SEARCH_AGAIN, "Done.")
    made.run("Search.")
    assert made.results()[-1] == "heard x"
    loaded = made.of(SkillLoaded)[0]
    assert loaded.rights == "until your next message: WebSearch without asking"
    made.run("Once more.")
    assert "not interactive" in made.results()[-1]


def test_to_ask_for_a_loaded_skill_again_allows_it_again(skills: World) -> None:
    made = talk(skills, load("searching"), "Done.", load("searching", "s2"), SEARCH, "Done.")
    made.run("Load it.")
    made.run("Search.")
    assert "already loaded" in made.results()[-2]
    assert made.results()[-1] == "heard x"
    assert not made.of(SkillLoaded)
    assert "the skill searching, until your next message: WebSearch without asking" in made.of(Notice)[0].text


def test_unloading_a_skill_takes_back_what_it_allowed(skills: World) -> None:
    unload = Step(calls=(call("u", "UnloadSkill", '{"skill": "searching"}'),))
    made = talk(skills, load("searching"), unload, SEARCH, "Done.")
    made.run("Search.")
    assert "not interactive" in made.results()[-1]


def test_what_a_project_s_skill_asks_for_is_not_given_where_trust_is_not_known(skills: World) -> None:
    made = talk(skills, load("of-project"), SEARCH, "Done.")
    made.run("Search.")
    assert "not interactive" in made.results()[-1]
    assert "requests WebSearch, which is not granted" in made.of(SkillLoaded)[0].rights


def test_a_limit_holds_for_calls_of_the_same_reply_and_says_so(skills: World) -> None:
    both = Step(
        calls=(call("s", "Skill", '{"skill": "listing"}'), call("w", "WebSearch"), call("l", "ListLoadedSkills"))
    )
    made = talk(skills, both, "Done.", load("plain", "s2"), "Done.")
    made.run("List.")
    text, refused, listed = made.results()
    assert text.endswith("only these tools are available: TodoWrite, ListLoadedSkills.]")
    assert "WebSearch can't be used now: the skill listing is in use" in refused
    assert "Until the next user message, use only ListLoadedSkills, TodoWrite." in refused
    assert "listing" in listed
    made.run("Go on.")
    assert "Do it." in made.results()[-1]


def test_tools_that_are_closed_stay_advertised_so_that_the_prompt_stays_as_it_is(skills: World) -> None:
    made = talk(skills, load("listing"), LISTS, "Done.", "Yes.")
    made.run("List.")
    made.run("And?")
    assert len({str(request.tools) for request in made.model.requests}) == 1


def test_a_limit_beats_what_another_skill_allows_whatever_comes_first(skills: World) -> None:
    for steps in ([load("searching"), load("offline", "s2")], [load("offline"), load("searching", "s2")]):
        made = talk(skills, *steps, SEARCH, "Done.")
        made.run("Search.")
        assert "the skill offline is in use, and these are unavailable: WebSearch" in made.results()[-1]
        made.close()
        skills.home.joinpath(".kitbag/state/journal.db").unlink()


def test_unloading_a_skill_does_not_open_what_it_closed(skills: World) -> None:
    unload = Step(calls=(call("u", "UnloadSkill", '{"skill": "offline"}'),))
    made = talk(skills, load("offline"), unload, SEARCH, "Done.")
    made.run("Search.")
    assert "can't be used now" in made.results()[-1]


def test_to_be_refused_again_and_again_does_not_end_the_run(skills: World) -> None:
    searches = [Step(calls=(call(f"w{n}", "WebSearch"),)) for n in range(5)]
    made = talk(skills, load("offline"), *searches, "Done.")
    assert made.run("Search.").status == "completed"


def test_a_skill_that_could_not_be_loaded_allows_nothing(skills: World) -> None:
    made = talk(skills, load("serching"), SEARCH, "Done.")
    made.run("Search.")
    assert "not interactive" in made.results()[-1]


def test_a_limit_that_can_not_be_read_leaves_no_tool(skills: World) -> None:
    skills.skill("~/.kitbag/skills", "broken", restrict_tools="Frobnicate")
    made = talk(skills, load("broken"), LISTS, "Done.")
    made.run("List.")
    assert "no tools are available" in made.results()[-1]
    assert Text("Done.") in made.session.messages()[-1].parts
