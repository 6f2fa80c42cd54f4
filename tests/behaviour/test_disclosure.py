"""CONTRACT §3, the part that a model starts with: names and descriptions inside a budget."""

import json

import pytest

from conftest import World
from kitbag import SkillRegistry
from kitbag.testing import ModelServer, Rule, Script, Step


def test_the_three_levels_show_what_a_model_gets_and_what_it_costs(world: World) -> None:
    world.skill(".kitbag/skills", "x", description="Knows things.", body="Read ${SKILL_ROOT}/references/r.md")
    world.write(".kitbag/skills/x/references/r.md", "Reference text.\n")
    world.write(".kitbag/skills/x/scripts/go.sh", "echo go\n")
    directory = world.workspace / ".kitbag/skills/x"
    zero = world.json("skills", "show", "x", "--level", "0")
    assert zero["text"] == "- x: Knows things. [1 script, 1 reference]"
    one = world.json("skills", "show", "x", "--level", "1")
    assert one["text"] == "\n".join(
        [
            '<skill-invocation name="x">',
            f"Skill directory: {directory}",
            "Scripts (run with Bash): scripts/go.sh",
            "References (open with Read): references/r.md",
            "",
            f"Read {directory}/references/r.md",
            "</skill-invocation>",
        ]
    )
    two = world.json("skills", "show", "x", "--level", "2")
    assert [file["path"] for file in two["files"]] == ["references/r.md", "scripts/go.sh"]
    assert 0 < zero["tokens"] < one["tokens"]
    assert "tokens)" in world.ok("skills", "show", "x", "--level", "0")


def test_the_catalog_block_is_the_promised_one(world: World) -> None:
    world.skill("~/.kitbag/skills", "x", description="Knows things.", argument_hint="file")
    for name in ("task-executor", "writing-skills", "writing-agents"):
        world.ok("skills", "disable", name)
    assert world.ok("skills", "list", "--format", "list") == (
        "<available-skills>\n"
        "Use the Skill tool to load any of these before doing the work it covers:\n\n"
        "- x: Knows things. [file]\n\n"
        "(1 of 1 skills are described.)\n"
        "</available-skills>\n"
    )


def test_no_skills_means_no_block(world: World) -> None:
    for name in ("task-executor", "writing-skills", "writing-agents"):
        world.ok("skills", "disable", name)
    assert world.ok("skills", "list", "--format", "list") == ""


def test_a_thousand_skills_stay_inside_the_budget_and_all_of_them_loadable(world: World) -> None:
    for number in range(1000):
        world.skill(".kitbag/skills", f"skill-{number:04d}", description=f"Number {number}. " + "Does things. " * 20)
    registry = SkillRegistry(places=world.places())
    catalog = registry.catalog()
    names = sum(len(name) for name in registry.list_skill_names())
    assert len(catalog.text) <= 8_000 + names + 1000 * len("- : \n") + 300
    assert (catalog.listed, catalog.total) == (1003, 1003)
    assert f"({catalog.described} of 1003 skills are described" in catalog.text
    assert registry.load_skill("skill-0999").content == "Do it."


@pytest.mark.parametrize(
    ("state", "listed", "described", "loadable", "shown"),
    [
        ("on", True, True, True, True),
        ("name-only", True, False, True, True),
        ("user-only", False, False, False, True),
        ("off", False, False, False, False),
    ],
)
def test_a_state_rules_listing_search_show_and_load_alike(
    world: World, state: str, listed: bool, described: bool, loadable: bool, shown: bool
) -> None:
    world.skill(".kitbag/skills", "xray", description="Looks through things.")
    world.ok("skills", "set", "xray", state)
    catalog = world.ok("skills", "list", "--format", "list")
    assert ("- xray" in catalog) == listed
    assert ("Looks through" in catalog) == described
    assert (world.run("skills", "search", "xray", "--json").stdout != "[]\n") == loadable
    assert SkillRegistry(places=world.places()).has_skill("xray") == loadable
    assert ("xray" in {item["name"] for item in world.json("skills", "list")}) == shown
    assert (world.run("skills", "show", "xray", "--level", "1").returncode == 0) == shown


def test_the_four_axes_are_separate(world: World) -> None:
    world.skill(".kitbag/skills", "mine", disable_model_invocation="true")
    world.skill(".kitbag/skills", "models", user_invocable="false")
    axes = ("listed", "model_may_load", "user_may_invoke", "agents_may_preload")
    mine = world.json("skills", "show", "mine")
    models = world.json("skills", "show", "models")
    assert [mine[axis] for axis in axes] == [False, False, True, False]
    assert [models[axis] for axis in axes] == [True, True, False, True]


def test_a_project_can_switch_off_but_not_on_what_the_user_switched_off(world: World) -> None:
    world.skill(".kitbag/skills", "xray")
    world.ok("skills", "disable", "xray", "--project")
    assert world.json("skills", "show", "xray")["state"] == "off"
    world.ok("skills", "enable", "xray", "--project")
    world.ok("skills", "disable", "xray")
    world.write(".kitbag/settings.toml", '[skills]\nxray = "on"\n')
    assert world.json("skills", "show", "xray")["state"] == "off"


def test_starting_with_ten_skills_costs_a_tenth_of_loading_them(world: World) -> None:
    for number in range(10):
        body = "Follow each of these steps in order and say what you did.\n" * 60
        world.skill(".kitbag/skills", f"skill-{number}", description="Helps with one kind of work.", body=body)
    registry = SkillRegistry(places=world.places())
    from kitbag import estimate_tokens

    start = estimate_tokens(registry.get_skill_catalog())
    for number in range(10):
        registry.load_skill(f"skill-{number}")
    assert start <= registry.loaded().total_tokens / 10


def test_the_prompt_and_all_tools_take_at_most_12000_characters(world: World) -> None:
    with ModelServer(Script([Rule([Step(text="Hi.")])])) as server:
        world.env |= server.environment()
        done = world.run("-p", "Say hi.", "--model", "anthropic/claude-sonnet-4-5")
        assert done.returncode == 0, done.stderr
        body = server.requests[0].body
    tools = sum(len(json.dumps(tool, ensure_ascii=False, separators=(",", ":"))) for tool in body["tools"])
    assert len(body["tools"]) >= 16
    assert tools + sum(len(block["text"]) for block in body["system"]) <= 12_000


def test_a_long_skill_is_loaded_in_parts_and_the_ledger_stays_exact(world: World) -> None:
    body = "".join(f"# Chapter {number}\n\n" + "Do it with care.\n" * 40 + "\n" for number in range(12))
    world.skill("~/.kitbag/skills", "manual", body=body)
    world.write("~/.kitbag/settings.toml", "[limits]\nskill = 800\n")
    calls = [
        {"skill": "manual"},
        {"skill": "manual", "part": 2},
        {"skill": "manual", "part": 2},
        {"skill": "manual", "part": 9},
    ]
    steps = [Step(calls=((f"c{at}", "Skill", json.dumps(call)),)) for at, call in enumerate(calls)]
    with ModelServer(Script([Rule([*steps, Step(text="Done.")])])) as server:
        world.env |= server.environment()
        done = world.run("-p", "Go.", "--model", "anthropic/claude-sonnet-4-5")
        assert done.returncode == 0, done.stderr
        messages = server.requests[-1].body["messages"]
    results = [block for message in messages for block in message["content"] if block["type"] == "tool_result"]
    texts = [block["content"][0]["text"] for block in results]
    assert 'part="1"' in texts[0]
    assert "Outline:\nPart 1:\n- Chapter 0\n" in texts[0]
    assert 'part="2"' in texts[1]
    assert "already loaded" in texts[2]
    assert "and no part 9" in texts[3]
    report = world.json("context")
    pieces = [piece for piece in report["pieces"] if piece["kind"] == "skill"]
    assert [piece["name"] for piece in pieces] == ["manual"] * 3
    assert [piece["bytes"] for piece in pieces] == [len(text.encode()) for text in texts[:3]]
