"""What the journal has about the use of skills, and what the ranking and `explain` make of it."""

import json
import os

import pytest

from conftest import World
from kitbag.agent.session_routing import read_routing
from kitbag.agent.skill_usage import learn_from_sessions, read_usage, reset_usage
from kitbag.errors import NotFoundError
from kitbag.library.routing.skill_search import search_skills
from kitbag.library.routing.usage_prior import MAX_PRIOR, set_load_counter, weigh_loads
from kitbag.packing.routing_explanation import explain_routing
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from kitbag.testing import Step
from support.house import House, load
from support.routing_set import SKILLS

pytestmark = pytest.mark.usefixtures("store")

MESSAGE = "the users query is slow, which index do we need in postgres?"


@pytest.fixture
def library(house: House) -> House:
    for name, description in SKILLS.items():
        house.world.skill("~/.kitbag/skills", name, description=f'"{description}"')
    house.world.write("~/.kitbag/settings.toml", "[catalog]\ndescriptions = 60\n")
    return house


def journal_of(world: World) -> Journal:
    return Journal.open(journal_path(str(world.home / ".kitbag")), Redactor([]))


def test_suggested_searched_loaded_and_invoked_skills_are_counted_per_workspace(library: House) -> None:
    search = Step(calls=(("f", "SearchSkills", '{"query": "fill in a pdf form"}'),))
    steps = [load("postgres-tuning"), search, load("pdf", "s2"), "Done.", "Done."]
    library.ask(MESSAGE, "/feature-flags please", steps=steps)
    with journal_of(library.world) as journal:
        found = {one.name: one for one in read_usage(journal, str(library.world.workspace))}
        assert read_usage(journal, str(library.world.outside)) == []
        tuning, pdf = found["postgres-tuning"], found["pdf"]
        assert (tuning.suggested, tuning.loaded, tuning.loaded_after_suggestion) == (1, 1, 1)
        assert (pdf.suggested, pdf.loaded, pdf.loaded_after_search, pdf.loaded_after_suggestion) == (0, 1, 1, 0)
        assert found["feature-flags"].invoked == 1
    shown = library.world.json("skills", "usage")
    assert shown["learning"] is True
    assert next(one for one in shown["skills"] if one["name"] == "pdf")["prior"] == weigh_loads(1)
    library.world.ok("skills", "usage", "--reset")
    assert library.world.json("skills", "usage")["skills"] == []


def test_a_skill_that_a_message_invokes_is_not_suggested_with_it(library: House) -> None:
    library.ask(f"/postgres-tuning {MESSAGE}", steps=["Done."])
    with journal_of(library.world) as journal:
        found = {one.name: one for one in read_usage(journal, str(library.world.workspace))}
        assert (found["postgres-tuning"].suggested, found["postgres-tuning"].invoked) == (0, 1)
    shown = library.world.json("sessions", "show", library.session)
    assert (shown["last_message"], shown["about"]) == (MESSAGE, MESSAGE)


def test_a_skill_that_was_suggested_for_a_file_is_explained_and_counted(library: House) -> None:
    library.world.skill("~/.kitbag/skills", "wire-format", "Reviews messages on the wire.", paths="'*.proto'")
    library.world.write("a.proto", "message A {}\n")
    read = Step(calls=(("r", "Read", '{"file_path": "a.proto"}'),))
    library.ask("look at it", "and now?", steps=[read, load("wire-format"), "Done.", "Done."])
    with journal_of(library.world) as journal:
        [used] = [one for one in read_usage(journal, str(library.world.workspace)) if one.name == "wire-format"]
        assert (used.suggested, used.loaded, used.loaded_after_suggestion) == (1, 1, 1)
    library.ask("look at @a.proto", "and now?", steps=["Done.", "Done."])
    with journal_of(library.world) as journal:
        [used] = [one for one in read_usage(journal, str(library.world.workspace)) if one.name == "wire-format"]
        assert (used.suggested, used.loaded) == (2, 1)
    library.ask("look at it", "and now?", steps=[read, "Done.", "Done."])
    with journal_of(library.world) as journal:
        message, state, _ = read_routing(journal, library.session, 1)
        [found] = [
            one for one in explain_routing(library.world.registry(), message, state).skills if one.name == "wire-format"
        ]
        assert (found.outcome, "matches its `paths`" in found.rule) == ("suggested", True)
        assert "wire-format" in read_routing(journal, library.session, 2)[1].suggested_before
        assert read_routing(journal, library.session, 1)[1].touched == ()
        assert [os.path.basename(one) for one in read_routing(journal, library.session, 2)[1].touched] == ["a.proto"]


def test_a_skill_is_suggested_once_for_a_named_and_a_used_file(library: House) -> None:
    library.world.skill("~/.kitbag/skills", "wire-format", "Reviews messages on the wire.", paths="'*.proto'")
    library.world.write("a.proto", "message A {}\n")
    read = Step(calls=(("r", "Read", '{"file_path": "a.proto"}'),))
    library.ask("read a.proto", "and a.proto again", steps=[read, "Done.", "Done."])
    with journal_of(library.world) as journal:
        [used] = [one for one in read_usage(journal, str(library.world.workspace)) if one.name == "wire-format"]
        assert used.suggested == 1
        assert read_routing(journal, library.session, 1)[1].suggested == {"wire-format"}
    library.ask("read it", "and now a.proto", steps=[read, "Done.", "Done."])
    with journal_of(library.world) as journal:
        [used] = [one for one in read_usage(journal, str(library.world.workspace)) if one.name == "wire-format"]
        assert used.suggested == 2


def test_past_use_breaks_ties_within_its_cap_and_changes_no_probability(world: World) -> None:
    for name in ("alpha", "beta"):
        world.skill(".kitbag/skills", name, "Rotates the certificates of the mail server.")
    world.skill(".kitbag/skills", "other", "Paints a fence.")
    plain, learned = world.registry(), world.registry()
    set_load_counter(learned, lambda: {"beta": 1_000_000, "other": 1_000_000})
    message = "rotate the certificates of the mail server"
    before = {hit.skill.name: hit for hit in search_skills(plain, message)}
    after = search_skills(learned, message)
    assert [hit.skill.name for hit in after] == ["beta", "alpha"]
    assert after[0].usage == MAX_PRIOR
    assert after[0].score == pytest.approx(before["beta"].score + MAX_PRIOR)
    assert {hit.skill.name: hit.probability for hit in after} == {name: hit.probability for name, hit in before.items()}
    world.write("~/.kitbag/settings.toml", "[routing]\nlearning = 'off'\n")
    off = world.registry()
    set_load_counter(off, lambda: {"beta": 20})
    assert [hit.skill.name for hit in search_skills(off, message)] == ["alpha", "beta"]


def test_a_damaged_record_and_an_old_one_do_not_disturb_the_counts(library: House) -> None:
    library.ask(MESSAGE, steps=[load("postgres-tuning"), "Done."])
    workspace = str(library.world.workspace)
    with journal_of(library.world) as journal:
        stream = f"session/{library.session}"
        journal.append(stream, "user", {"message": {"role": "user", "parts": []}, "suggested": "no list"})
        journal.append(stream, "skill", {"name": 7, "by": "model"})
        journal.append(stream, "skill", {"name": "old", "by": "model"})
        found = {one.name: one.loaded for one in read_usage(journal, workspace) if one.loaded}
        assert found == {"postgres-tuning": 1, "old": 1}
        reset_usage(journal, workspace)
        registry = library.world.registry()
        learn_from_sessions(registry, journal)
        assert {hit.usage for hit in search_skills(registry, MESSAGE)} == {0.0}


def test_a_recorded_message_is_explained_with_what_its_model_knew(library: House) -> None:
    library.ask(MESSAGE, "and the next one", steps=[load("postgres-tuning"), "Done.", "Done."])
    with journal_of(library.world) as journal:
        message, state, number = read_routing(journal, library.session, 1)
        assert (message, number) == (MESSAGE, 1)
        explained = explain_routing(library.world.registry(), message, state, most=3)
        assert explained.skills[0].outcome == "loaded"
        assert explained.skills[0].rule == "the model loaded it after the suggestion"
        message, state, number = read_routing(journal, library.session)
        assert (message, number) == ("and the next one", 2)
        assert state.known == {"postgres-tuning"}
        with pytest.raises(NotFoundError, match="no message 3"):
            read_routing(journal, library.session, 3)
    shown = library.world.json("skills", "explain", "--session", library.session, "--turn", "1")
    assert (shown["turn"], shown["skills"][0]["name"]) == (1, "postgres-tuning")
    assert json.dumps(shown["skills"][0]["features"])
