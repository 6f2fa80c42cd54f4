"""What an answer reports as missing: only in its last lines, outside fences, and only where it is meant."""

import pytest

from conftest import World
from kitbag.tasks.missing_needs import Need, find_needs
from kitbag.testing import Rule, Script, Step
from support.boards import all_tasks
from support.delegating import AN_AGENT, results, task
from support.house import House

pytestmark = pytest.mark.usefixtures("kitbag_home", "explore_allowed")
FENCED = "```\nneed skill: style\n```\n"


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ("I can't.\nneed skill: style", ["style"]),
        ("need skill: style\n\nI have stopped here.\nstatus: blocked", ["style"]),
        ("**Need skill:** `git:commit`.", ["git:commit"]),
        ("- need skill: style (for the tabs)", ["style"]),
        ("need skill: style - it has the rules for tabs", ["style"]),
        ("need skill: style, tabs and team/lint", ["style", "tabs", "team/lint"]),
        ("need skill: style\nneed skill: tabs", ["style", "tabs"]),
        ("need skill: @style", ["@style"]),
        ("need skill: @docs/style.md", ["@docs/style.md"]),
        ("missing skill: style", ["style"]),
        ("Failed: the skill `style` is not available.", ["style"]),
        ("status: blocked - no skill named 'style'", ["style"]),
        ("need file: docs/_plan.md", ["docs/_plan.md"]),
        ("unresolved reference: @docs/plan.md", ["docs/plan.md"]),
        (f"Done.\n{FENCED}That is how one asks.", []),
        (f"{FENCED}need skill: tabs", ["tabs"]),
        ("~~~\n```\nneed skill: style\n~~~\nDone.", []),
        ("need skill: style\n" + "More.\n\n" * 10, []),
        ("need skill: style\n" + "More.\n\n" * 9, ["style"]),
        ("You will need skill: it is hard work.", []),
        ("Answer with `need skill: NAME` if one is missing.\n`need skill: NAME`", []),
        ("The skill tree is missing. All skills are listed.", []),
        ("Error handling is fine; the skill `x` is missing tests.", []),
        ("We need skills and patience.", []),
        ("", []),
    ],
)
def test_a_need_is_read_from_the_last_ten_lines_outside_fences(answer: str, names: list[str]) -> None:
    assert [need.name for need in find_needs(answer)] == names


@pytest.mark.parametrize(
    "answer",
    [
        "I can't continue.\nThe skill `style` is not available.",
        "I cannot continue without the style skill.",
        "I cannot continue without the skill `style`.",
        "I am unable to format the file: the style skill was not provided.",
        "I could not do it because the skill style is not in my context.",
        "The skill `style` is not loaded, so I stopped.",
        "The style skill is not available. I had to stop.",
        "We were unable to proceed: no skill named 'style'.",
        "Unable to continue: missing skill style.",
        "Cannot start: the skill `style` is unknown.",
        "**Status:** blocked. The skill `style` is missing.",
        "Status: failed\nUnknown skill: style",
        "Task failed: the style skill is not available.",
        "The task is blocked: the skill `style` is not found.",
        "# Blocked\nThe skill `style` is not available.",
        "missing skill: style",
        "I read ten files.\n" + "It is long.\n" * 12 + "I can't continue without the skill `style`.",
        "- I read a.py.\n- I read b.py.\n\nBlocked: the skill `style` is not available.",
        "- I read a.py.\n\nneed skill: style",
    ],
)
def test_an_answer_that_says_it_can_t_go_on_names_what_is_missing(answer: str) -> None:
    assert [need.name for need in find_needs(answer)] == ["style"]


@pytest.mark.parametrize(
    "answer",
    [
        "# Review\n\n1. agents/a.md: the skill `style` is missing.\n2. The `tabs` skill is not found.",
        "- Failed: the skill `style` is not available.\n- Passed: the other checks.",
        "- Missing skill: style (agents/a.md, line 3)",
        "* Unknown skill: style",
        "> Blocked: the skill `style` is missing.",
        "| agents/a.md | the skill style is missing |\n| status: failed | no skill named style |",
        "Findings:\n- I could not find tests.\n- The skill `style` is missing.",
        "I reviewed agents/a.md. The skill `style` is missing. I could not find other problems.",
        "I reviewed agents/a.md.\nMissing skill: style",
        "The skill `style` is missing.",
        "agents/a.md names a skill that does not exist: the skill `style` is not found.",
        "Error handling is fine, and the style skill is not available to the agent.",
        "Error: agents/a.md:3: the skill `style` is unknown.",
        "The build failed because the skill `style` is missing.",
        "I checked ten agents.\n" + "This one is fine.\n" * 12 + "The last one failed: the skill `style` is missing.",
        "I checked ten agents.\n" + "This one is fine.\n" * 12 + "Failed: the skill `style` is missing.",
        "I fixed it. Without the skill `style`, agents/a.md could not start.",
        "- Unresolved reference: @docs/plan.md in a.md\n- Missing file: docs/other.md",
        "The page says: unresolved reference: @docs/plan.md",
        "Done. I did not need the style skill.",
        "Three skills are listed; no skill named style is among them.",
        "Failed: the check of agents/a.md, because the skill `style` is not found.",
        "Review result\n\nFailed: agents/a.md names the skill `style`, and the skill `style` is not found.",
        "The review is complete.\nStatus: failed\nUnknown skill: style",
        "I read all agents. I could not load agents/a.md because the skill `style` is missing.",
        "I could not format it because the style skill is missing.",
        "Verdict: request changes.\nWe cannot merge this: the skill `style` is not available.",
        "Request changes. I cannot approve this change: the skill `style` is missing.",
        "I cannot recommend it: agents/a.md lists `style`, and no skill named `style` exists.",
        "Blocked: the merge, because the skill style is missing.",
        "Blocked users: none. The skill `style` is not loaded by default.",
        "I can't say whether the skill `style` is missing.",
        "I stopped the server. The skill `style` is not available in it.",
        "Task completed. I was not able to run the tests. The skill `style` is not found in agents/a.md.",
    ],
)
def test_a_finding_about_a_missing_skill_or_file_is_no_need(answer: str) -> None:
    assert find_needs(answer) == []


def test_a_failed_run_is_no_reason_to_read_its_findings_as_needs() -> None:
    assert find_needs("- The skill `style` is missing.", "the connection was lost") == []


def test_the_error_of_a_failed_run_names_what_it_lacked() -> None:
    assert find_needs("", "no skill named 'style'") == [Need("skill", "style", True)]


@pytest.mark.parametrize(
    "answer", ["need skill: {}\nstatus: blocked", "Blocked: the skill `{}` is missing.", "need skill: @{}"]
)
def test_an_agent_is_started_anew_with_the_skill_or_the_file_that_it_names(world: World, answer: str) -> None:
    world.skill("~/.kitbag/skills", "style", body="Use tabs.")
    rules = [
        Rule([Step(text="I used tabs.")], system="Use tabs"),
        Rule([Step(text=answer.format("style"))], system=AN_AGENT),
    ]
    house = House(world)
    house.ask("Ask.", steps=Script([*rules, Rule([Step(calls=(task(),)), Step(text="Done.")])]))
    assert "I used tabs." in results(house)
    assert [(one.status, one.warnings) for one in all_tasks(world)] == [("completed", ())]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("need skill: stile", "did you mean style?"),
        ("Blocked: the skill `stile` is missing.", "did you mean style?"),
        ("need skill: @no/such.md", "workspace/no does not exist"),
        ("need skill: @stile", "did you mean style?"),
        ("need file: ../outside/secret.md", "which it may not read"),
        ("need skill: closed", "disable-model-invocation"),
        ("need skill: huge", "does not fit"),
        ("need skill: denied", "which your rules deny"),
    ],
)
def test_a_need_that_can_t_be_met_ends_the_task_as_failed_and_says_why(world: World, answer: str, said: str) -> None:
    world.skill("~/.kitbag/skills", "style", body="Use tabs.")
    world.skill("~/.kitbag/skills", "closed", disable_model_invocation="true")
    world.skill("~/.kitbag/skills", "huge", body="Long words. " * 500)
    world.skill("~/.kitbag/skills", "denied")
    world.write(
        "~/.kitbag/settings.toml",
        '[budget]\nskills = 300\n[permissions]\nallow = ["Task(Explore)"]\ndeny = ["Skill(denied)"]\n',
    )
    world.write("../outside/secret.md", "Secret.")
    house = House(world)
    rules = [Rule([Step(text=answer)] * 3, system=AN_AGENT), Rule([Step(calls=(task(),)), Step(text="Done.")])]
    house.ask("Ask.", steps=Script(rules))
    [found] = all_tasks(world)
    assert found.result is not None
    assert (found.status, found.result.text) == ("failed", answer)
    assert said in found.result.error
    assert said in results(house)
    assert said in house.notices(), "the person is told, too"


def test_every_subagent_without_the_skill_tool_knows_how_to_ask_for_a_skill(world: World) -> None:
    world.skill("~/.kitbag/skills", "style")
    world.write("~/.kitbag/agents/all.md", "---\nname: all\ndescription: Has all.\n---\nDo it.\n")
    rules = [Rule([Step(text="Fine.")] * 9, system=AN_AGENT), Rule([Step(text="Done.")] * 9)]

    def prompts(agent: str, *only: str) -> list[str]:
        house = House(world)
        starts = Rule([Step(calls=(task(subagent_type=agent),)), Step(text="Done.")])
        house.ask("Ask.", steps=Script([rules[0], starts]), only_tools=only)
        return ["".join(block.text for block in one.system) for one in house.requests if AN_AGENT in str(one.system)]

    [explore], [with_skills], [limited] = (
        prompts("Explore", "Task", "Read"),
        prompts("all", "Task", "Read", "Skill"),
        prompts("all", "Task", "Read"),
    )
    assert "need skill: NAME" in explore
    assert "need skill: NAME" in limited
    assert "<available-skills>" not in limited, "it could not load them"
    assert "need skill: NAME" not in with_skills
    assert "<available-skills>" in with_skills
    house = House(world)
    house.ask("Hello.", steps=Script([rules[1]]), agent="Explore")
    assert "need skill" not in house.prompt(), "nobody starts it anew"
