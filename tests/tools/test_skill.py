"""The tools for skills: loaded once, listed, searched, unloaded."""

import pytest

from conftest import World
from kitbag.errors import InvalidError, NotFoundError
from kitbag.events import ToolFinished
from kitbag.tools.skill import LIST_LOADED_SKILLS, SEARCH_SKILLS, SKILL, UNLOAD_SKILL
from support.house import House, load
from support.using import Bench, listed, text_of


@pytest.fixture
def bench(bench: Bench) -> Bench:
    for name, description, more in (
        ("deploy", "Deploys the web service.", ""),
        ("review", "Reviews changes of code.", ""),
        ("secret", "Deploys in secret.", "disable-model-invocation: true\n"),
    ):
        head = f"---\nname: {name}\ndescription: {description}\n{more}---\n"
        bench.write(f".kitbag/skills/{name}/SKILL.md", f"{head}How to {name}: $ARGUMENTS\n")
    bench.allowing()
    return bench


def test_a_skill_arrives_whole_and_counts_as_loaded(bench: Bench) -> None:
    outcome = bench.use(SKILL, skill="deploy", args="to production")
    assert "How to deploy: to production" in text_of(outcome)
    assert "disable-model-invocation" not in text_of(outcome)
    assert outcome.loaded_skill is not None
    assert (outcome.loaded_skill.name, outcome.loaded_skill.arguments) == ("deploy", "to production")
    assert outcome.summary.startswith("deploy, ")


def test_loading_it_again_gives_a_receipt(bench: Bench) -> None:
    bench.use(SKILL, skill="deploy")
    outcome = bench.use(SKILL, skill="/deploy")
    assert "How to deploy" not in text_of(outcome)
    assert "already loaded" in text_of(outcome)
    assert outcome.loaded_skill is None
    assert "(already loaded)" in outcome.summary


def test_an_unknown_skill_is_an_error_with_close_names(bench: Bench) -> None:
    with pytest.raises(NotFoundError) as error:
        bench.use(SKILL, skill="deply")
    assert "deploy" in error.value.fix
    assert "secret" not in error.value.fix


def test_a_skill_that_is_not_for_models_can_not_be_loaded_or_found(bench: Bench) -> None:
    with pytest.raises((InvalidError, NotFoundError)):
        bench.use(SKILL, skill="secret")
    assert "secret" not in text_of(bench.use(SEARCH_SKILLS, query="secret deploys"))


def test_skills_are_found_by_words(bench: Bench) -> None:
    outcome = bench.use(SEARCH_SKILLS, query="review code")
    assert text_of(outcome).startswith("- review: Reviews changes of code.")
    assert text_of(bench.use(SEARCH_SKILLS, query="zebra")).startswith("No matching skills")


def test_what_is_loaded_is_listed_until_it_is_unloaded(bench: Bench) -> None:
    assert text_of(bench.use(LIST_LOADED_SKILLS)) == "No skills are loaded."
    bench.use(SKILL, skill="deploy")
    bench.use(SKILL, skill="review")
    lines = text_of(bench.use(LIST_LOADED_SKILLS)).splitlines()
    assert [line.split(":")[0] for line in lines[:2]] == ["- deploy", "- review"]
    assert lines[2].startswith("2 loaded, ")
    outcome = bench.use(UNLOAD_SKILL, skill="deploy")
    assert outcome.unloaded_skill == "deploy"
    assert "- deploy" not in text_of(bench.use(LIST_LOADED_SKILLS))
    assert listed(bench.use(UNLOAD_SKILL, skill="deploy")) == ["deploy is not loaded."]
    assert "How to deploy" in text_of(bench.use(SKILL, skill="deploy"))


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "../../etc/passwd", "x" * 300, " ", "bad\u202e"])
def test_a_hostile_name_is_an_error_and_nothing_else(bench: Bench, name: str) -> None:  # D58
    with pytest.raises((NotFoundError, InvalidError)):
        bench.use(SKILL, skill=name)
    assert not bench.use(UNLOAD_SKILL, skill=name).unloaded_skill
    bench.use(SEARCH_SKILLS, query=name)


@pytest.mark.parametrize("name", ["folder-x", "FOLDER-X", "foo", "Foo", "/foo"])
def test_a_rule_for_a_skill_holds_whatever_name_it_is_loaded_by(
    world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in world.env.items():
        monkeypatch.setenv(variable, value)
    world.write("~/.kitbag/skills/folder-x/SKILL.md", "---\nname: foo\ndescription: Does.\n---\nBODY")
    for rule, is_loaded in (("Skill(foo)", False), ("Skill(other)", True)):
        house = House(world)
        house.ask("Hi", steps=[load(name), "Done."], no_tools=(rule,))
        [finished] = house.of(ToolFinished)
        assert ("BODY" in str(house.requests[-1].messages)) == is_loaded == (not finished.is_error)
