"""Which agent a request is for: by name, by words, by the files it names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import World
from kitbag.library.routing.agent_search import (
    CONFIDENCE_LEVELS,
    AgentCandidate,
    find_paths,
    find_topic_words,
    rank_agents,
    share_stem,
)
from support.cost import processor_limit

AGENTS = (
    AgentCandidate("code-reviewer", "Reviews code for quality and security."),
    AgentCandidate("python-reviewer", "Reviews Python changes.", (".py", ".pyi")),
    AgentCandidate("sql-reviewer", "Reviews SQL and migrations.", (".sql",)),
    AgentCandidate("config-reviewer", "Reviews configuration.", (".yaml", ".yml")),
    AgentCandidate("shop/investigation-reporter", "Create detailed incident RCA reports with root cause analysis."),
    AgentCandidate("incident-triager", "Says how bad an incident is. Not for root causes and reports."),
    AgentCandidate("Plan", "Designs how to implement a change and returns steps."),
    AgentCandidate("Review", "Reviews code changes for defects, security problems and missing tests."),
    AgentCandidate("migration-planner", "Plans a database schema change."),
)


def best(request: str) -> tuple[str, str]:
    match = rank_agents(AGENTS, request)[0]
    return match.name, CONFIDENCE_LEVELS[match.level]


@pytest.mark.parametrize(
    ("request_", "name", "fit"),
    [
        ("Review db/schema.sql", "sql-reviewer", "name"),
        ("please have app/orders.py reviewed", "python-reviewer", "name"),
        ("Review stubs/x.pyi", "python-reviewer", "name"),
        ("Review my .yml changes", "config-reviewer", "name"),
        ("Review DEPLOY.YML", "config-reviewer", "name"),
        ("Create an investigation report for incident #456", "shop/investigation-reporter", "name"),
        ("Write a report about the incident", "shop/investigation-reporter", "work"),
        ("Triage this incident", "incident-triager", "name"),
        ("Plan the database migration", "migration-planner", "name"),
        ("Plan a change of the settings", "Plan", "name"),
        ("Ask the Plan agent", "Plan", "called"),
        ("@review this", "Review", "called"),
        ("Give it to investigation-reporter", "shop/investigation-reporter", "called"),
        ("Let sql-reviewer look at app/orders.py", "sql-reviewer", "called"),
    ],
)
def test_a_request_finds_its_agent(request_: str, name: str, fit: str) -> None:
    assert best(request_) == (name, fit)


def test_a_file_of_another_kind_speaks_against_a_reviewer() -> None:
    ranked = {match.name: match for match in rank_agents(AGENTS, "Review the SQL reviewer's notes in notes.txt")}
    assert ranked["sql-reviewer"].level == 0
    assert ranked["sql-reviewer"].files == ()


def test_what_an_agent_says_it_is_not_for_does_not_speak_for_it() -> None:
    ranked = {match.name: match.words for match in rank_agents(AGENTS, "root cause reports")}
    assert "incident-triager" not in ranked


def test_nothing_in_common_is_no_match() -> None:
    assert rank_agents(AGENTS, "Sing a song") == []
    assert rank_agents((), "Review x.sql") == []


def test_a_chance_word_is_no_sure_match() -> None:
    assert all(match.level == 0 for match in rank_agents(AGENTS, "Where is the security code?"))


def test_files_are_found_in_a_sentence() -> None:
    said = "See app/orders.py, ./a.b/c-d.test.ts and README.md. Not 1.5, v2.0 or and/or."
    assert find_paths(said) == ["app/orders.py", "./a.b/c-d.test.ts", "README.md"]
    assert find_topic_words("Review customers/plan.sql for #12") == {"review", "sql"}


@pytest.mark.parametrize(
    ("one", "other", "is_so"),
    [
        ("review", "reviewer", True),
        ("investigat", "investigation", True),
        ("report", "report", True),
        ("test", "testament", False),
        ("run", "runner", False),
        ("port", "report", False),
    ],
)
def test_words_of_one_stem(one: str, other: str, is_so: bool) -> None:
    assert share_stem(one, other) is is_so
    assert share_stem(other, one) is is_so


@given(st.text(max_size=300), st.text(max_size=60), st.text(max_size=200), st.lists(st.text(max_size=8), max_size=3))
def test_nothing_that_is_written_breaks_it(request: str, name: str, description: str, extensions: list[str]) -> None:
    rank_agents((*AGENTS, AgentCandidate(name, description, tuple(extensions))), request)


@pytest.mark.parametrize("piece", ["a", "a.", "a/", "a-", ".a", "@", "a.b/", "review ", "x.py "])
def test_a_long_request_costs_no_more_than_its_length_asks_for(piece: str) -> None:
    with processor_limit():
        rank_agents(AGENTS, piece * (2_000_000 // len(piece)))


def test_on_the_command_line_a_persona_s_agents_are_ranked(world: World) -> None:
    world.write(".kitbag/skills/data/_persona_dev.yaml", "name: dev\nsubagents: [sql-reviewer]\n")
    head = "name: {0}-reviewer\ndescription: Reviews {0}.\nprompt: Look.\nfile_extensions: [.{0}]\n"
    for kind in ("sql", "csv"):
        world.write(f".kitbag/skills/data/_subagents/{kind}-reviewer.yaml", head.format(kind))
    found = world.json("agents", "search", "--persona", "data/dev", "review a.sql")
    assert found[0] == {
        "name": "data/sql-reviewer",
        "score": 4.0,
        "fit": "name",
        "words": ["review", "sql"],
        "files": ["a.sql"],
    }
    assert "data/csv-reviewer" not in [one["name"] for one in found]
