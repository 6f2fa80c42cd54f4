"""Finding skills by the words of a request."""

import gc
import json
import subprocess
import sys
import threading
import weakref

import pytest

from conftest import World
from kitbag.library.routing.message_terms import analyze_message
from kitbag.library.routing.skill_search import search_skills
from kitbag.library.routing.terms import stem_words
from support.cost import processor_limit
from support.routing_set import REQUESTS, SKILLS
from support.waiting import TEST_TIMEOUT


def found(world: World, query: str, **options: str) -> list[str]:
    hits = search_skills(world.registry(**options), query)
    return [hit.skill.full_name for hit in hits if hit.skill.root.scope != "built-in"]


def test_names_count_most_then_descriptions(world: World) -> None:
    world.skill(".kitbag/skills", "release", description="Cuts a version.")
    world.skill(".kitbag/skills", "changelog", description="Writes what is new before a release.")
    world.skill(".kitbag/skills", "weather", description="Tells the weather.")
    assert found(world, "make a release") == ["release", "changelog"]


def test_in_instructions_the_form_that_the_message_has_counts_more(world: World) -> None:
    world.skill(".kitbag/skills", "alpha", description="First.", body="Covers sliding.")
    world.skill(".kitbag/skills", "beta", description="Second.", body="Covers slides.")
    assert found(world, "slides") == ["beta", "alpha"]
    assert found(world, "sliding") == ["alpha", "beta"]


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
    assert stem_words(asked) == stem_words(written)


def test_the_files_that_a_message_names_are_found() -> None:
    message = (
        "Read /srv/app, ~/notes/a.md, `data/budget.xlsx` (or Deck.PPTX), e.g. at 9 a.m.; not v2.3, example.com or a/b."
    )
    assert analyze_message(message).files == {"/srv/app", "~/notes/a.md", "data/budget.xlsx", "Deck.PPTX"}
    assert analyze_message("How far is it, and/or how long at 90 km/h? Ask x@example.org").files == frozenset()


def test_a_file_speaks_for_the_skill_for_such_files(world: World) -> None:
    world.skill(".kitbag/skills", "sheets", description="Builds xlsx files with formulas.")
    (named,) = search_skills(world.registry(), "sum column B in budget.xlsx")
    (other,) = search_skills(world.registry(), "sum column B in xlsx budget")
    assert named.features.extension > other.features.extension == 0.0
    assert named.features.files > other.features.files == 0.0
    assert named.probability > other.probability


def test_words_that_say_nothing_find_nothing(world: World) -> None:
    world.skill(".kitbag/skills", "thing", description="Use this when you are at it with the thing.")
    assert found(world, "how to use it when with the") == []
    assert found(world, "") == []
    assert found(world, "!!! ???") == []


@pytest.mark.parametrize("polite", ["请帮我", "幫我", "这个", "してください", "お願いします", "해주세요"])
def test_words_that_every_chinese_japanese_or_korean_message_may_have_find_nothing(world: World, polite: str) -> None:
    world.skill(".kitbag/skills", "a", "请帮我这个可以 幫我 してください お願いします 해주세요", body="x")
    assert search_skills(world.registry(), polite) == []
    assert search_skills(world.registry(), "x", wait=9)


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
    assert len(search_skills(world.registry(), "same words", limit=2)) == 2


def test_an_on_demand_skill_is_found_though_no_catalog_lists_it(world: World) -> None:
    world.write(".kitbag/skills/data/_persona_dev.yaml", "name: dev\non_demand_skills: [spark]\n")
    world.write(".kitbag/skills/data/dev/spark.md", "---\nname: spark\ndescription: Tunes Spark jobs.\n---\nx\n")
    assert found(world, "spark", team="data", persona="dev") == ["data/spark"]
    assert found(world, "spark") == []


# -- triggers and tags -------------------------------------------------------------------------------


def test_a_skill_s_own_triggers_and_tags_are_found(world: World) -> None:
    world.skill(".kitbag/skills", "plumbing", description="Joins parts.", triggers="[pipeline, ship it]")
    world.skill(".kitbag/skills", "wiring", description="Joins wires.", tags="electric, copper")
    assert found(world, "our pipelines are broken") == ["plumbing"]
    assert found(world, "Ship it!")[0] == "plumbing"
    assert found(world, "copper") == ["wiring"]


def test_a_trigger_far_down_in_a_long_head_is_found(world: World) -> None:
    world.skill(".kitbag/skills", "x", description="word " * 1_500, triggers="[zebra]")
    assert found(world, "zebra") == ["x"]


def test_a_phrase_counts_as_a_whole(world: World) -> None:
    world.skill(".kitbag/skills", "apart", description="d.", triggers="[ship, it now]")
    world.skill(".kitbag/skills", "phrase", description="d.", triggers="[ship the thing]")
    assert found(world, "please ship the thing today")[0] == "phrase"


def test_a_pattern_finds_what_it_matches(world: World) -> None:
    world.write(
        ".kitbag/skills/t/SKILL.md",
        "---\nname: tickets\ndescription: d\ntriggers: ['SHOP-\\d+', '^fix(es)? ']\n---\nx\n",
    )
    assert found(world, "look at shop-123") == ["tickets"]
    assert found(world, "fixes the door") == ["tickets"]
    assert found(world, "look at the shop") == ["tickets"]  # as a word
    assert found(world, "he suffixes the door") == []


@pytest.mark.parametrize(
    "trigger",
    [
        "(a+)+$", "(a|a)*$", "a*a*a*a*b$", "([a-z]+", "a?" * 30 + "a" * 30 + "$", "(a|aa)" * 25 + "$", ".*", "^", "x" * 300,
        "(a{1,99}){1,99}$", "(?:a|a)(?:a|a)(?:a|a)" * 6 + "b$", "[a-z]*[a-z]*[a-z]*!$",
    ],
)  # fmt: skip
def test_a_pattern_that_could_take_long_or_matches_all_is_none(world: World, trigger: str) -> None:
    for number in range(30):
        world.write(
            f".kitbag/skills/s{number}/SKILL.md",
            f"---\nname: s{number}\ndescription: d\ntriggers: ['{trigger}']\n---\nx\n",
        )
    registry = world.registry()
    with processor_limit():
        assert search_skills(registry, "q" * 30 + "a" * 300) == []


def test_patterns_that_are_slow_together_end_the_looking(world: World) -> None:
    for number in range(300):
        world.write(
            f".kitbag/skills/s{number}/SKILL.md",
            f"---\nname: s{number}\ndescription: d\ntriggers: ['.*.*\\bx{number}y']\n---\nx\n",
        )
    registry = world.registry()
    search_skills(registry, "first")
    with processor_limit():
        search_skills(registry, "a " * 300)


def test_half_a_character_in_a_trigger_is_no_matter(world: World) -> None:
    world.write(".kitbag/skills/x/SKILL.md", '---\nname: x\ndescription: d\ntriggers: ["\\ud800", "zebra"]\n---\nx\n')
    assert found(world, "zebra") == ["x"]


# -- words -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "written"),
    [("deployments", "deploy"), ("deploy", "deployment"), ("visualize", "visualise"), ("data-vis", "data-visualisation"), ("café", "cafe"), ("running", "runs"), ("kube", "kubernetes"), ("git_ops", "git-ops"), ("GÖDEL", "gödel")],
)  # fmt: skip
def test_forms_accents_case_and_beginnings_make_no_difference(world: World, asked: str, written: str) -> None:
    world.skill(".kitbag/skills", written, description="d.")
    assert found(world, f"the {asked} please") == [written]


@pytest.mark.parametrize(
    "query",
    [
        '"', '""', '"release', "*", "rel*", "release AND", "NEAR(release x)", "-release", "^release", "name:release", "release OR",
        "(release", "release)", "{release}", "release:", "release + x", "NOT release", "a" * 50_000, "release\0", "\ud800 release",
    ],
)  # fmt: skip
def test_the_signs_of_a_query_language_are_only_signs(world: World, query: str) -> None:
    world.skill(".kitbag/skills", "release", description="Cuts a version.")
    assert found(world, query) in (["release"], [])
    assert found(world, f"{query} release")[:1] == ["release"] or len(query) > 4_000


def test_a_rare_word_counts_more_than_a_common_one(world: World) -> None:
    for number in range(20):
        world.skill(".kitbag/skills", f"s{number}", description="Works with data.")
    world.skill(".kitbag/skills", "z", description="Works with parquet.")
    assert found(world, "data or parquet?")[0] == "z"


def test_chinese_japanese_and_korean_requests_find_parts_of_words(world: World) -> None:
    world.skill(".kitbag/skills", "audit", description="为代码审查提供安全指导")
    world.skill(".kitbag/skills", "sales", description="売上データを分析します")
    world.skill(".kitbag/skills", "docs", description="문서를 한국어로 번역합니다")
    assert found(world, "请帮我做代码审查")[0] == "audit"
    assert found(world, "データ分析をお願い")[0] == "sales"
    assert found(world, "이 문서 번역해줘")[0] == "docs"
    assert found(world, "天气") == []


def test_a_name_in_the_middle_of_a_request_comes_first(world: World) -> None:
    for name, description in SKILLS.items():
        world.skill(".kitbag/skills", name, description=f'"{description}"')
    assert found(world, "run a load testing session against the database migrations")[:2] == [
        "database-migrations",
        "load-testing",
    ]
    assert found(world, "with docker images, kubernetes and terraform")[0] == "docker-images"


def test_most_requests_find_their_skill_among_the_first_three(world: World) -> None:
    for name, description in SKILLS.items():
        world.skill(".kitbag/skills", name, description=f'"{description}"')
    registry = world.registry()
    right = [
        request
        for request, name in REQUESTS.items()
        if name in [hit.skill.name for hit in search_skills(registry, request, 3)]
    ]
    assert len(REQUESTS) == 20
    assert len(right) >= 14, sorted(set(REQUESTS) - set(right))


# -- the index ---------------------------------------------------------------------------------------


def test_what_changes_on_disk_is_found_after_a_refresh(world: World) -> None:
    registry = world.registry()
    assert search_skills(registry, "zebra") == []
    path = world.skill(".kitbag/skills", "x", description="Draws a zebra.")
    assert search_skills(registry, "zebra") == []
    registry.refresh()
    assert [hit.skill.name for hit in search_skills(registry, "zebra")] == ["x"]
    path.write_text("---\nname: x\ndescription: Draws a giraffe.\n---\nx\n")
    registry.refresh()
    assert search_skills(registry, "zebra") == []


def test_a_skill_switched_off_is_gone_at_once(world: World) -> None:
    world.skill(".kitbag/skills", "x", description="Draws a zebra.")
    registry = world.registry()
    assert search_skills(registry, "zebra")
    world.write("~/.kitbag/settings.toml", '[skills]\nx = "off"\n')
    registry.refresh()
    assert search_skills(registry, "zebra") == []


def test_what_may_not_be_found_takes_no_place_from_what_may(world: World) -> None:
    for number in range(10):
        world.skill(".kitbag/skills", f"a{number}", description="Draws a zebra.", disable_model_invocation="true")
    world.skill(".kitbag/skills", "z", description="Draws a zebra.")
    assert [hit.skill.name for hit in search_skills(world.registry(), "zebra", limit=1)] == ["z"]
    assert search_skills(world.registry(), "zebra", limit=0) == []


def test_threads_may_search_at_once(world: World) -> None:
    world.skill(".kitbag/skills", "x", description="Draws a zebra.")
    registry = world.registry()
    names: list[str] = []

    def look() -> None:
        names.extend(hit.skill.name for _ in range(50) for hit in search_skills(registry, "zebra"))

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TEST_TIMEOUT)
    assert names == ["x"] * 200


def test_the_index_goes_with_its_registry(world: World) -> None:
    registry = world.registry()
    search_skills(registry, "x")
    gone = weakref.ref(registry)
    del registry
    gc.collect()
    assert gone() is None


WITHOUT = """
import sys
sys.modules["{module}"] = None
from kitbag.library.registry import Registry
from kitbag.library.routing.skill_search import search_skills
for query in ("make a release", "release", "代码审查", "how to use it", "pipelines"):
    print([hit.skill.full_name for hit in search_skills(Registry(), query) if hit.skill.root.scope != "built-in"])
"""


@pytest.mark.parametrize("module", ["sqlite3", "nothing"])
def test_without_sqlite_words_are_compared(world: World, module: str) -> None:
    world.skill(".kitbag/skills", "release", description="Cuts a version.")
    world.skill(".kitbag/skills", "changelog", description="Writes what is new before a release.")
    world.skill(".kitbag/skills", "audit", description="为代码审查提供安全指导")
    world.skill(".kitbag/skills", "plumbing", description="Joins parts.")
    entry = {"name": "plumbing", "capabilities": {"dispatch_triggers": ["pipeline", "integrate"]}}
    world.write(".kitbag/skills/manifest.json", json.dumps({"skills": [entry]}))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(module=module)],
        cwd=world.workspace, env=world.env, capture_output=True, text=True, timeout=TEST_TIMEOUT,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "['release', 'changelog']", "['release', 'changelog']", "['audit']", "[]", "['plumbing']",
    ], done.stderr  # fmt: skip


def test_listing_skills_needs_no_index(world: World) -> None:
    script = "import sys\nfrom kitbag.cli import main\nsys.argv = ['kitbag', 'skills', 'list']\ntry:\n    main()\nexcept SystemExit:\n    pass\nprint('sqlite3' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=world.workspace, env=world.env, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "False", done.stderr
