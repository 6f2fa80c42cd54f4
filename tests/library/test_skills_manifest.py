"""`manifest.json` beside the heads of skills: what it may add, and what it may not."""

import json
import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import World
from kitbag.errors import Diagnostic
from kitbag.library.registry import Registry
from kitbag.library.skills_manifest import _parse_entry  # pyright: ignore[reportPrivateUsage]
from support.cost import processor_limit
from support.matrix import examples

SKILLS = ".kitbag/skills"

# Seed 001 §8.1.
CLEO = {
    "name": "ct-research-agent",
    "version": "1.0.0",
    "description": "Research and investigation agent.",
    "path": "skills/ct-research-agent",
    "token_budget": 8000,
    "tier": 2,
    "references": ["skills/ct-research-agent/SKILL.md"],
    "capabilities": {
        "inputs": ["TASK_ID", "TOPIC"],
        "outputs": ["research-file", "manifest-entry"],
        "dispatch_triggers": ["research", "investigate"],
    },
}


def manifest(world: World, *entries: Any) -> None:
    world.write(f"{SKILLS}/manifest.json", json.dumps({"skills": list(entries)}))


def notes(registry: Registry) -> list[Diagnostic]:
    return [d for d in registry.diagnostics() if d.file.endswith("manifest.json")]


def test_an_entry_of_the_known_shape_is_read_whole(world: World) -> None:
    world.skill(SKILLS, "ct-research-agent", description="Research and investigation agent.")
    manifest(world, CLEO)
    registry = world.registry()
    entry = registry.manifest_entry(registry.find_skill("ct-research-agent"))
    assert entry is not None
    assert (entry.version, entry.token_budget, entry.tier) == ("1.0.0", 8000, "2")
    assert entry.references == ("skills/ct-research-agent/SKILL.md",)
    assert entry.inputs == ("TASK_ID", "TOPIC")
    assert entry.outputs == ("research-file", "manifest-entry")
    assert entry.dispatch_triggers == ("research", "investigate")
    assert notes(registry) == []


def test_no_manifest_is_nothing_to_speak_of(world: World) -> None:
    world.skill(SKILLS, "x")
    registry = world.registry()
    assert registry.manifest_entry(registry.find_skill("x")) is None
    assert notes(registry) == []


def test_the_head_beats_the_manifest_and_the_difference_is_told(world: World) -> None:
    world.skill(SKILLS, "x", description="From the head.")
    manifest(world, {"name": "X", "description": "From the manifest."})
    registry = world.registry()
    assert registry.find_skill("x").description == "From the head."
    assert [(d.severity, d.code) for d in notes(registry)] == [("info", "manifest-differs")]
    assert "'x'" in notes(registry)[0].problem


def test_the_manifest_gives_a_description_where_the_head_has_none(world: World) -> None:
    world.write(f"{SKILLS}/x/SKILL.md", "---\nname: x\n---\nFirst paragraph.\n")
    manifest(world, {"name": "x", "path": "skills/x", "description": "From the\n manifest."})
    registry = world.registry()
    assert registry.find_skill("x").description == "From the manifest."
    assert notes(registry) == []


def test_an_entry_belongs_to_the_skill_its_path_leads_to_also_when_the_names_differ(world: World) -> None:
    world.write(f"{SKILLS}/folder/SKILL.md", "---\nname: own-name\n---\n")
    manifest(world, {"name": "other", "path": "skills/folder", "description": "Told."})
    registry = world.registry()
    assert registry.find_skill("own-name").description == "Told."


def test_of_two_skills_with_one_short_name_each_keeps_its_own_entry(world: World) -> None:
    for team in ("data", "web"):
        world.write(f"{SKILLS}/{team}/_team.md", "A team.")
        world.write(f"{SKILLS}/{team}/core/review/SKILL.md", "---\nname: review\n---\n")
    manifest(world, {"name": "review", "path": "skills/data/core/review", "description": "For data."})
    registry = world.registry()
    assert registry.find_skill("data/review").description == "For data."
    assert registry.find_skill("web/review").description == ""


def test_a_flat_skill_is_known_by_the_path_of_its_file(world: World) -> None:
    world.write(f"{SKILLS}/core/git.md", "---\nname: git\n---\n")
    manifest(world, {"name": "git-basics", "path": "skills/core/git.md", "description": "Told."})
    assert world.registry().find_skill("git").description == "Told."


@pytest.mark.parametrize("path", ["extra/tool", "extra/tool/", "./extra/../extra/tool", "extra/tool/SKILL.md"])
def test_a_skill_beside_the_skills_folder_is_found_by_its_path_and_can_be_loaded(world: World, path: str) -> None:
    world.write(".kitbag/extra/tool/SKILL.md", "---\nname: tool\ndescription: Beside.\n---\nBody.\n")
    manifest(world, {"name": "tool", "path": path})
    registry = world.registry()
    skill = registry.find_skill("tool")
    assert skill.path == str(world.workspace / ".kitbag/extra/tool/SKILL.md")
    assert skill.description == "Beside."
    assert notes(registry) == []


def test_a_skills_folder_that_is_itself_a_link_leads_to_the_right_neighbours(world: World) -> None:
    world.write("dotfiles/skills/own/SKILL.md", "---\nname: own\ndescription: d\n---\n")
    world.write(".kitbag/extra/tool/SKILL.md", "---\nname: tool\ndescription: d\n---\n")
    (world.workspace / SKILLS).symlink_to(world.workspace / "dotfiles/skills")
    entries = [{"name": "own", "path": "skills/own"}, {"name": "tool", "path": "extra/tool"}]
    world.write("dotfiles/skills/manifest.json", json.dumps({"skills": entries}))
    registry = world.registry()
    assert os.path.isfile(registry.find_skill("tool").path)
    assert os.path.isfile(registry.find_skill("own").path)
    assert notes(registry) == []


def test_a_second_way_to_a_skill_that_is_there_anyway_adds_nothing(world: World) -> None:
    world.write(f"{SKILLS}/data/_team.md", "A team.")
    world.write(f"{SKILLS}/data/dev/secret/SKILL.md", "---\nname: secret\ndescription: d\n---\n")
    (world.workspace / ".kitbag/door").symlink_to(world.workspace / SKILLS / "data/dev/secret")
    manifest(world, {"name": "open", "path": "door"})
    assert [s.full_name for s in world.registry().skills if s.root.scope == "project"] == ["data/secret"]


@pytest.mark.parametrize(
    "path",
    [
        "../../outside/x",
        "/etc",
        "..",
        ".",
        "skills/../..",
        "link-out",
        "a\0b",
        "\ud800",
        "x" * 5_000,
        "skills\\..\\..\\x",
    ],
)
def test_a_path_can_t_lead_out_of_the_folder_that_holds_skills(world: World, path: str) -> None:
    world.write("x/SKILL.md", "---\nname: x\ndescription: Outside.\n---\n", base=world.outside)
    world.write(".kitbag/SKILL.md", "---\nname: x\ndescription: The folder itself.\n---\n")
    world.skill(SKILLS, "good")
    (world.workspace / ".kitbag/link-out").symlink_to(world.outside / "x")
    manifest(world, {"name": "x", "path": path})
    registry = world.registry()
    assert [s.name for s in registry.skills if s.root.scope == "project"] == ["good"]
    (note,) = notes(registry)
    assert (note.severity, note.code) == ("warning", "manifest")
    assert "'x'" in note.problem


@pytest.mark.parametrize("name", ["../../outside/x", "/etc/passwd", "..", "\0"])
def test_a_name_can_t_lead_out_either(world: World, name: str) -> None:
    world.write("x/SKILL.md", "---\nname: x\ndescription: Outside.\n---\n", base=world.outside)
    manifest(world, {"name": name})
    registry = world.registry()
    assert [s for s in registry.skills if s.root.scope == "project"] == []
    assert [d.severity for d in notes(registry)] == ["warning"]


def test_an_entry_for_a_skill_that_is_not_there_is_told(world: World) -> None:
    manifest(world, {"name": "gone", "path": "skills/gone"}, {"name": "also-gone"})
    found = notes(world.registry())
    assert {d.problem for d in found} == {
        "lists 'gone', which does not exist",
        "lists 'also-gone', which does not exist",
    }
    assert "kitbag skills index" in found[0].fix


def test_damaged_json_is_told_with_its_line_and_the_skills_still_load(world: World) -> None:
    world.skill(SKILLS, "x")
    world.write(f"{SKILLS}/manifest.json", '{\n  "skills": [\n    {"name": "x",}\n  ]\n}\n')
    registry = world.registry()
    assert registry.find_skill("x").name == "x"
    (note,) = notes(registry)
    assert note.line == 3
    assert "not valid JSON" in note.problem


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "3",
        '"skills"',
        "{}",
        '{"skills": {}}',
        '{"skills": "x"}',
        "[" * 200_000,
        '{"skills":' * 50_000,
        "1" * 10_000,
        b"\xff\xfe\x00\x01",
        b"\0\0\0",
        '{"skills": [{"name": "\\ud800"}]}',
    ],
)
def test_nothing_that_stands_in_the_file_raises_or_takes_long(world: World, text: str | bytes) -> None:
    world.skill(SKILLS, "x")
    world.write(f"{SKILLS}/manifest.json", text)
    with processor_limit():
        registry = world.registry()
        assert registry.find_skill("x").name == "x"
        assert len(notes(registry)) >= 1


def test_the_second_entry_of_a_name_does_not_count_and_is_told(world: World) -> None:
    world.write(f"{SKILLS}/x/SKILL.md", "---\nname: x\n---\n")
    manifest(world, {"name": "x", "description": "First."}, {"name": "X", "description": "Second."})
    registry = world.registry()
    assert registry.find_skill("x").description == "First."
    assert [d.problem for d in notes(registry)] == ["duplicate entry 'X'; the first one is used"]


def test_wrong_types_are_left_out_and_the_rest_of_the_entry_counts(world: World) -> None:
    world.write(f"{SKILLS}/x/SKILL.md", "---\nname: x\n---\n")
    manifest(
        world,
        {
            "name": "x",
            "description": None,
            "version": {"major": 1},
            "tier": 2.5,
            "token_budget": "8000",
            "references": "one.md",
            "capabilities": {"inputs": [1, None, "TASK_ID"], "dispatch_triggers": {"a": 1}},
        },
        {"path": "skills/nameless"},
        "just a word",
        None,
    )
    registry = world.registry()
    skill = registry.find_skill("x")
    entry = registry.manifest_entry(skill)
    assert entry is not None
    assert skill.description == ""
    assert (entry.version, entry.tier, entry.token_budget) == ("", "2.5", None)
    assert (entry.references, entry.inputs, entry.dispatch_triggers) == (("one.md",), ("TASK_ID",), ())
    assert {d.problem for d in notes(registry)} == {
        "entry 1 of `skills`: `token_budget` must be a positive integer; ignored",
        "entry 2 of `skills`: no `name`; skipped",
        "entry 3 of `skills`: no `name`; skipped",
        "entry 4 of `skills`: no `name`; skipped",
    }


def test_hidden_characters_of_a_description_are_named_and_left_out(world: World) -> None:
    world.write(f"{SKILLS}/x/SKILL.md", "---\nname: x\n---\n")
    manifest(world, {"name": "x", "description": "Harm\u202eless."})
    registry = world.registry()
    assert registry.find_skill("x").description == "Harmless."
    assert "U+202E" in notes(registry)[0].problem


def test_what_skills_index_writes_is_read_without_a_word(world: World) -> None:
    world.skill(SKILLS, "a", description="One.")
    world.skill(SKILLS, "b", description="Two.")
    world.write(f"{SKILLS}/core/flat.md", "---\nname: flat\ndescription: Three.\n---\nx\n")
    world.ok("skills", "index", SKILLS)
    registry = world.registry()
    assert all(registry.manifest_entry(registry.find_skill(name)) for name in ("a", "b", "flat"))
    assert notes(registry) == []


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = ["name", "version", "description", "path", "token_budget", "tier", "references", "capabilities"]


@settings(max_examples=examples(200))
@given(st.dictionaries(st.sampled_from(FIELDS), anything) | anything)
def test_no_entry_raises_and_each_field_has_its_type(item: Any) -> None:
    entry, wrong = _parse_entry(item, "manifest.json")
    assert all(isinstance(problem, str) for problem in wrong)
    if entry is None:
        assert wrong
        return
    assert entry.name
    assert all(isinstance(text, str) for text in (entry.version, entry.description, entry.path, entry.tier))
    assert entry.token_budget is None or entry.token_budget > 0
    for listed in (entry.references, entry.inputs, entry.outputs, entry.dispatch_triggers):
        assert all(isinstance(text, str) and text for text in listed)
