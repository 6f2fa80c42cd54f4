"""Finding skills by the words of a request."""

import json

import pytest

from conftest import World
from kitbag.library.router import search, words_of


def found(world: World, query: str, **options: str) -> list[str]:
    hits = search(world.registry(**options), query)
    return [hit.skill.full_name for hit in hits if hit.skill.root.scope != "built-in"]


def test_names_count_most_then_descriptions(world: World) -> None:
    world.skill(".kitbag/skills", "release", description="Cuts a version.")
    world.skill(".kitbag/skills", "changelog", description="Writes what is new before a release.")
    world.skill(".kitbag/skills", "weather", description="Tells the weather.")
    assert found(world, "make a release") == ["release", "changelog"]


def test_the_name_itself_comes_first(world: World) -> None:
    world.skill(".kitbag/skills", "review", description="Reads.")
    world.skill(".kitbag/skills", "review-review-notes", description="Review the review of a review.")
    assert found(world, "review")[0] == "review"
    assert found(world, "REVIEW")[0] == "review"


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        ("reviews", "review"),
        ("files", "file"),
        ("images", "image"),
        ("queries", "query"),
        ("boxes", "box"),
        ("classes", "class"),
        ("writing", "write"),
        ("merged", "merge"),
        ("debugging", "debug"),
        ("committed", "commit"),
        ("processing", "process"),
        ("testing", "tests"),
    ],
)
def test_endings_make_no_difference(asked: str, written: str) -> None:
    assert words_of(asked) == words_of(written)


def test_words_that_say_nothing_find_nothing(world: World) -> None:
    world.skill(".kitbag/skills", "thing", description="Use this when you are at it with the thing.")
    assert found(world, "how to use it when with the") == []
    assert found(world, "") == []
    assert found(world, "!!! ???") == []


def test_scripts_without_blanks_between_words_are_searched_too(world: World) -> None:
    world.skill(".kitbag/skills", "audit", description="为代码审查提供安全指导")
    assert found(world, "代码审查") == ["audit"]
    assert found(world, "天气") == []


def test_triggers_of_a_manifest_are_found(world: World) -> None:
    world.skill(".kitbag/skills", "plumbing", description="Joins parts.")
    entry = {"name": "plumbing", "capabilities": {"dispatch_triggers": ["pipeline", "integrate"]}}
    world.write(".kitbag/skills/manifest.json", json.dumps({"skills": [entry]}))
    assert found(world, "our pipelines are broken") == ["plumbing"]


def test_of_equal_ones_the_order_of_names_decides_and_the_number_is_kept(world: World) -> None:
    for name in ("c", "a", "b"):
        world.skill(".kitbag/skills", f"{name}-tool", description="Same words.")
    assert found(world, "same words") == ["a-tool", "b-tool", "c-tool"]
    assert len(search(world.registry(), "same words", most=2)) == 2


def test_an_on_demand_skill_is_found_though_no_catalog_lists_it(world: World) -> None:
    world.write(".kitbag/skills/data/_persona_dev.yaml", "name: dev\non_demand_skills: [spark]\n")
    world.write(".kitbag/skills/data/dev/spark.md", "---\nname: spark\ndescription: Tunes Spark jobs.\n---\nx\n")
    assert found(world, "spark", team="data", persona="dev") == ["data/spark"]
    assert found(world, "spark") == []
