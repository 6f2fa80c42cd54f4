"""Which tools a run has, and that a name has to be exactly right."""

import pytest

from kitbag.library.dialects.tool_lists import parse_tools
from kitbag.tools.files.read import READ
from kitbag.tools.search.glob import GLOB
from kitbag.tools.search.grep import GREP
from kitbag.tools.skill import SKILL, UNLOAD_SKILL
from kitbag.tools.toolset import RestrictedToolset, Toolset
from support.using import Bench

EVERY = (READ, GLOB, GREP, SKILL, UNLOAD_SKILL)


def test_tools_are_advertised_in_the_order_in_which_they_are_given(bench: Bench) -> None:
    made = Toolset(EVERY, bench.context.permissions)
    assert made.names() == ("Read", "Glob", "Grep", "Skill", "UnloadSkill")
    assert [spec.name for spec in made.specs()] == list(made.names())
    assert made.get("Read") is READ


def test_an_agents_list_hides_everything_else(bench: Bench) -> None:  # D26
    permissions = bench.context.permissions.restricted_to(parse_tools("Read")[0], "agent.md")
    made = Toolset(EVERY, permissions)
    assert made.names() == ("Read",)
    assert made.get("Grep") is None
    assert made.explain_unavailable("Grep") == ("Grep is not available in this run", "Available tools: Read.")


def test_an_agent_with_skills_can_unload_them(bench: Bench) -> None:
    permissions = bench.context.permissions.restricted_to(parse_tools("Skill")[0], "agent.md")
    assert Toolset(EVERY, permissions).names() == ("Skill", "UnloadSkill")


@pytest.mark.parametrize("rule", ["Grep", "Grep(*)"])
def test_a_tool_that_a_rule_denies_is_not_advertised(bench: Bench, rule: str) -> None:  # D26
    made = Toolset(EVERY, bench.allowing(deny=rule).permissions)
    assert "Grep" not in made.names()
    assert made.get("Grep") is None


def test_a_rule_about_some_uses_leaves_the_tool_there(bench: Bench) -> None:
    assert "Read" in Toolset(EVERY, bench.allowing(deny="Read(secret/**)").permissions).names()


@pytest.mark.parametrize(
    "name", ["read", "READ ", " Read", "Read\n", "mcp__x__Read", "Write", "", "x" * 100_000, "\ud800"]
)
def test_only_the_exact_name_is_a_tool(bench: Bench, name: str) -> None:  # D26
    made = Toolset(EVERY, bench.context.permissions)
    assert made.get(name) is None
    problem, fix = made.explain_unavailable(name)
    assert len(problem) < 800
    assert fix
    f"{problem} {fix}".encode()


def test_a_name_that_is_nearly_right_gets_a_hint(bench: Bench) -> None:
    made = Toolset(EVERY, bench.context.permissions)
    assert made.explain_unavailable("read ")[1] == "Did you mean Read?"
    assert made.explain_unavailable("frobnicate")[1].startswith("Available tools: Read, Glob")


def test_what_is_closed_for_now_stays_advertised_and_can_not_be_had(bench: Bench) -> None:  # D26
    inner = Toolset(EVERY, bench.context.permissions)
    made = RestrictedToolset(inner, lambda name: "" if name == "Read" else f"{name} is closed by a skill")
    assert made.specs() is inner.specs()
    assert made.names() == ("Read",)
    assert made.get("Read") is READ
    assert made.get("Grep") is None
    assert made.explain_unavailable("Grep") == (
        "Grep is closed by a skill",
        "Until the next user message, use only Read.",
    )
    assert made.explain_unavailable("read")[1] == "Did you mean Read?"
    nothing = RestrictedToolset(inner, lambda name: "closed")
    assert nothing.explain_unavailable("Read") == (
        "closed",
        "Finish without tools, and say that no tools were available.",
    )
