"""`kitbag skills explain`: every outcome has its rule, and agrees with what is suggested."""

import json

import pytest

from conftest import World
from kitbag.errors import NotFoundError
from kitbag.packing.routing_explanation import RoutingState, explain_routing, new_session_state
from kitbag.packing.suggestions import list_suggested, suggest_skills
from support.routing_set import REQUESTS, SKILLS

MESSAGE = "merge these pdf files and fill in the pdf form"


@pytest.fixture
def library(world: World) -> World:
    for name, description in SKILLS.items():
        world.skill(".kitbag/skills", name, description=f'"{description}"')
    return world


def outcomes(world: World, message: str, state: RoutingState, *names: str) -> dict[str, tuple[str, str]]:
    found = explain_routing(world.registry(), message, state, most=200, names=names)
    return {one.name: (one.outcome, one.rule) for one in found.skills}


def test_what_is_explained_as_suggested_is_what_is_suggested(library: World) -> None:
    registry = library.registry()
    for request in list(REQUESTS)[:8]:
        explained = explain_routing(registry, request, RoutingState(), most=200).skills
        suggested = [one.name for one in explained if one.outcome == "suggested"]
        assert sorted(suggested) == sorted(list_suggested(suggest_skills(registry, request, "")))


def test_each_skill_has_its_outcome_and_rule(library: World) -> None:
    library.skill(".kitbag/skills", "pdf-secret", "Merges pdf files.", **{"disable-model-invocation": "true"})
    library.skill(".kitbag/skills", "pdf-paths", "Merges pdf files.", paths="'*.pdf'")
    found = outcomes(library, MESSAGE, RoutingState(known=frozenset(("pdf",))))
    assert found["pdf"][0] == "loaded"
    assert found["pdf-secret"] == ("hidden", "disable-model-invocation is set in its file")
    assert found["pdf-paths"] == ("not suggested", "it has `paths`: described when a matching file is used")
    state = new_session_state(library.registry())
    assert outcomes(library, MESSAGE, state)["pdf"] == (
        "described",
        "the catalog, or an earlier suggestion, describes it",
    )


def test_a_skill_that_was_asked_for_is_explained_though_nothing_matches(library: World) -> None:
    found = outcomes(library, MESSAGE, RoutingState(), "feature-flags")
    assert list(found) == ["feature-flags"]
    assert found["feature-flags"][0] in ("no match", "not suggested")
    with pytest.raises(NotFoundError):
        outcomes(library, MESSAGE, RoutingState(), "nonesuch")


def test_a_message_that_needs_no_skill_says_so(library: World) -> None:
    found = outcomes(library, "what do you form an opinion about lunch?", RoutingState())
    assert {outcome for outcome, _ in found.values()} <= {"not suggested"}
    assert all("seems to need no skill" in rule for _, rule in found.values())


def test_the_command_prints_features_and_rejects_wrong_options(library: World) -> None:
    shown = library.ok("skills", "explain", MESSAGE, "--most", "1")
    assert shown.startswith("pdf\n")
    assert "passage      merge these pdf files" in shown
    assert "features     " in shown
    assert library.run("skills", "explain").returncode == 2
    assert library.run("skills", "explain", "x", "--turn", "2").returncode == 2
    assert library.run("skills", "explain", "--session", "none").returncode == 4


def test_a_long_message_is_read_from_standard_input(library: World) -> None:
    text = f"{'unrelated words ' * 100_000}\n{MESSAGE}"
    for command in ("explain", "search"):
        done = library.run("skills", command, "-", "--json", stdin=text)
        found = json.loads(done.stdout)
        assert "pdf" in [one["name"] for one in (found["skills"] if command == "explain" else found)]
    for words, problem in (
        (("-",), "no message on standard input"),
        ((" ",), "the message is empty"),
        ((), "no message"),
    ):
        done = library.run("skills", "explain", *words, stdin=" ")
        assert (done.returncode, problem in done.stderr) == (2, True)


def test_a_message_and_a_session_exclude_each_other(library: World) -> None:
    done = library.run("skills", "explain", "x", "--session", "y")
    assert (done.returncode, "not both" in done.stderr) == (2, True)
    assert "--turn needs --session" in library.run("skills", "explain", "--turn", "1").stderr


def test_a_journal_that_can_not_be_opened_leaves_the_ranking_without_past_use(library: World) -> None:
    journal = library.home / ".kitbag/state/journal.db"
    journal.mkdir(parents=True)
    assert library.json("skills", "explain", MESSAGE)["skills"][0]["name"] == "pdf"


def test_the_rule_names_files_of_the_home_directory_briefly(library: World) -> None:
    library.ok("skills", "disable", "pdf")
    shown = library.ok("skills", "explain", "--skill", "pdf", MESSAGE)
    assert "outcome      hidden: disabled in ~/.kitbag/settings.toml\n" in shown


def test_a_recorded_session_is_explained_with_its_trust_and_its_directories(library: World) -> None:
    library.skill("~/more/skills", "boats", "Paints wooden boats.")
    library.ok("-p", "paint my wooden boats", "--model", "offline", "--dir", str(library.home / "more/skills"))
    done = library.run("skills", "explain", MESSAGE)
    assert "pdf" in done.stderr.partition("workspace not trusted: until you run `kitbag trust`, sessions omit ")[2]
    [session] = library.json("sessions", "list")
    shown = library.json("skills", "explain", "--session", session["id"])
    assert [one["name"] for one in shown["skills"]] == ["boats"]
    assert library.json("skills", "explain", "--session", "last") == shown
    done = library.run("skills", "explain", "--session", session["id"], "--skill", "pdf")
    assert (done.returncode, "not trusted" in done.stderr) == (13, True)
