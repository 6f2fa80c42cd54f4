"""`kitbag skills explain`: every outcome has its rule, and agrees with what is suggested."""

import json
from pathlib import Path

import pytest

from conftest import World
from kitbag.errors import NotFoundError
from kitbag.library.routing.skill_search import TOUCHED_EXTENSION, TOUCHED_PATH, search_skills
from kitbag.packing.catalog import render_skills
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
    assert found["pdf-paths"] == ("not suggested", "it has `paths`: suggested when a matching file is named or used")
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


def test_a_file_in_the_message_suggests_the_skill_for_such_files(library: World) -> None:
    library.skill(".kitbag/skills", "wire-format", "Reviews messages on the wire.", paths="'api/**/*.proto'")
    registry = library.registry()
    block = suggest_skills(registry, "hm, what about api/v1/a.proto?", "")
    assert "- wire-format: Reviews messages on the wire. [file matches its paths]" in block
    found = outcomes(library, "hm, what about api/v1/a.proto?", RoutingState())["wire-format"]
    assert (found[0], "names a file that matches its `paths`" in found[1]) == ("suggested", True)
    catalog = render_skills([one for one in registry.visible_skills() if one[0].name != "wire-format"]).text
    assert list_suggested(suggest_skills(registry, "what about api/v1/a.proto?", catalog)) == ["wire-format"]
    assert suggest_skills(registry, "what about api/v1/a.proto?", f"{catalog}\n{block}") == ""
    assert "wire-format" not in suggest_skills(registry, "what about lib/v1/a.proto?", "")


def test_files_used_before_raise_their_skills_and_say_so(library: World) -> None:
    for name, description in (("alpha", "Rotates certificates."), ("beta", "Rotates certificates.")):
        library.skill(".kitbag/skills", name, description)
    library.skill(".kitbag/skills", "gamma", "Rotates certificates.", paths="'certs/**'")
    library.skill(".kitbag/skills", "delta", "Rotates certificates in .pem files.")
    message, touched = "rotate the certificates now", (str(library.workspace / "certs/a.pem"),)
    plain = {hit.skill.name: hit for hit in search_skills(library.registry(), message)}
    hits = search_skills(library.registry(), message, touched=touched)
    raised = {hit.skill.name: hit for hit in hits}
    assert [hit.skill.name for hit in hits[:2]] == ["gamma", "delta"]
    assert raised["gamma"].score == pytest.approx(plain["gamma"].score + TOUCHED_PATH)
    assert raised["delta"].score == pytest.approx(plain["delta"].score + TOUCHED_EXTENSION)
    assert {name: hit.probability for name, hit in raised.items()} == {
        name: hit.probability for name, hit in plain.items()
    }
    found = outcomes(library, message, RoutingState(touched=touched))
    assert found["gamma"][0] == "suggested"
    assert "raised: a.pem, used before, matches its `paths`" in found["gamma"][1]
    assert "raised: it is about files like a.pem, used before" in found["delta"][1]
    assert "raised" not in found["alpha"][1]


def test_used_files_alone_suggest_nothing(library: World) -> None:
    library.skill(".kitbag/skills", "python-style", "How Python in .py files is written.", paths="'*.py'")
    registry, touched = library.registry(), (str(library.workspace / "a.py"),)
    everyday = Path(__file__, "../../../bench/data/routing/everyday.txt").resolve().read_text("utf-8").splitlines()[:60]
    suggested = [bool(suggest_skills(registry, message, "", touched=touched)) for message in everyday]
    assert suggested == [bool(suggest_skills(registry, message, "")) for message in everyday]
