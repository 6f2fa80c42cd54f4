"""`kitbag skills lint --collisions` and `kitbag skills budget`."""

import json

import pytest

from conftest import World
from kitbag.packing.budget_report import report_budget
from kitbag.packing.catalog import Budget, render_skills
from kitbag.packing.skill_collisions import find_collisions
from support.routing_set import SKILLS


@pytest.fixture
def library(world: World) -> World:
    for name, description in SKILLS.items():
        world.skill(".kitbag/skills", name, description=f'"{description}"')
    return world


def test_skills_that_say_the_same_collide_with_messages_and_words_that_separate_them(library: World) -> None:
    body = "# Ghostscript\nRasterize with ghostscript."
    library.skill(".kitbag/skills", "pdf-tools", "Fill pdf forms, merge and split pdf files.", body=body)
    query = json.dumps([{"query": "merge and split these pdf files"}])
    library.write(".kitbag/skills/pdf/evals/evals.json", query)
    found = {(one.first, one.second): one for one in find_collisions(library.registry()).collisions}
    pair = found["pdf", "pdf-tools"]
    assert pair.overlap >= 0.5
    assert "merge and split these pdf files" in pair.messages
    assert "ghostscript" in pair.second_words
    assert len(found) <= 3
    assert not {name for names in found for name in names} & {"aws-cost", "changelog", "debugging"}


def test_a_hidden_skill_collides_with_none_and_one_skill_can_be_asked_for(library: World) -> None:
    library.skill(
        ".kitbag/skills", "pdf-secret", "Fills in and merges PDF files.", **{"disable-model-invocation": "true"}
    )
    done = library.run("skills", "lint", "--collisions", "pdf", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, [])
    library.skill(".kitbag/skills", "pdf-two", SKILLS["pdf"])
    done = library.run("skills", "lint", "--collisions", "pdf")
    assert done.returncode == 1
    assert done.stdout.startswith("pdf and pdf-two: 100% of a description is in the other\n")
    assert done.stdout.endswith("1 collision among 1 skill\n")


def test_words_that_separate_are_no_code_and_no_words_of_all_colliding_skills(library: World) -> None:
    junk = "Stability stability stability banner.\n\n```python\nconst const const const\n```\n<span>`flag flag flag`</span>"
    for name, word in (("one", "walnut"), ("two", "cedar"), ("three", "maple"), ("four", "birch"), ("five", "")):
        body = f"{'' if name == 'five' else junk}\nhttps://badge.example/badge\n{word}"
        library.skill(".kitbag/skills", f"wood-{name}", "Sands the wooden furniture of old boats.", body=body)
    report = find_collisions(library.registry(), most=3)
    assert (len(report.collisions), report.total) == (3, 10)
    found = {one.first: one for one in find_collisions(library.registry()).collisions if one.second == "wood-one"}
    assert found["wood-five"].second_words[0] == "walnut"
    assert {"const", "span", "flag", "badge"}.isdisjoint(found["wood-five"].second_words)


def test_a_listing_of_collisions_is_limited_and_says_so(library: World) -> None:
    for number in range(3):
        library.skill(".kitbag/skills", f"boat-{number}", "Sands the wooden furniture of old boats.")
    done = library.run("skills", "lint", "--collisions", "--limit", "1")
    assert done.stdout.count("100% of a description") == 1
    assert done.stdout.endswith(f"3 collisions among {len(SKILLS) + 6} skills\n")
    assert done.stderr == "2 more collisions not listed; list all with --limit 0\n"


def test_the_budget_says_for_each_skill_how_it_is_listed_and_why(library: World) -> None:
    library.skill(".kitbag/skills", "long", "Word " * 100)
    library.skill(".kitbag/skills", "secret", **{"disable-model-invocation": "true"})
    registry = library.registry()
    report = report_budget(registry, Budget(descriptions=100_000, entry=200))
    rows = {row.name: row for row in report.rows}
    assert (rows["pdf"].listing, rows["pdf"].reason) == ("described", "")
    assert (rows["long"].listing, rows["long"].reason) == ("shortened", "longer than catalog.entry (200 characters)")
    assert rows["secret"].listing == "hidden"
    small = Budget(descriptions=1_000, names=400)
    report = report_budget(registry, small)
    assert {row.listing for row in report.rows} == {"described", "shortened", "by name", "omitted", "hidden"}
    assert all(bool(row.reason) == (row.listing != "described") for row in report.rows)
    catalog = render_skills(registry.visible_skills(), small)
    assert report.count("shortened") + report.count("described") == catalog.described
    assert len(report.rows) - report.count("omitted") - report.count("hidden") == catalog.listed
    assert report.descriptions <= 1_000
    assert report.names <= 400


def test_the_budget_is_printed_with_its_limits(library: World) -> None:
    plain = library.ok("skills", "budget")
    assert plain.startswith("described     ")
    assert " of 8,000 characters\n" in plain
    library.write("~/.kitbag/settings.toml", '[catalog]\ndescriptions = "1%"\n')
    shown = library.json("skills", "budget", "--window", "20000")
    assert shown["descriptions"]["limit"] == 800
    assert shown["counts"]["by name"] > 0
    done = library.run("skills", "budget", "--window", "20000", "--limit", "1")
    reason = "no room in catalog.descriptions (800 characters); suggested when it matches"
    assert f"\nby name       {shown['counts']['by name']}: {reason}\n" in done.stdout
    assert "more skills not listed; list all with --limit 0" in done.stderr
