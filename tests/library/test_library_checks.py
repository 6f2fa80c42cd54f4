"""What only shows when all items are seen together."""

import os

import pytest

from conftest import World
from kitbag.errors import Diagnostic
from kitbag.library.library_checks import CHAT_COMMANDS, check_skill_contents, find_nested_skills
from kitbag.library.names import Namespace
from support.cost import calls


def notes(world: World, code: str, **options: object) -> list[Diagnostic]:
    return [d for d in world.registry(**options).diagnostics() if d.code == code]


# -- collisions ------------------------------------------------------------------------------------

RULES = [
    (".kitbag/skills", "~/.kitbag/skills", "project, .kitbag before user, ~/.kitbag"),
    ("~/.kitbag/skills", ".claude/skills", "user, ~/.kitbag before project, another tool's directory"),
    (".claude/skills", "~/.claude/skills", "project, another tool's directory before user, another tool's directory"),
    (
        ".agents/skills",
        ".claude/skills",
        "project, another tool's directory: closer directory first, then by tool",
    ),
    (
        ".kitbag/skills",
        ".kitbag/skills/deeper",
        "same root: directory with that name first, then by depth, then alphabetically",
    ),
]


@pytest.mark.parametrize(("first", "second", "rule"), RULES)
def test_a_collision_names_winner_loser_and_rule(world: World, first: str, second: str, rule: str) -> None:
    winner, loser = world.skill(first, "deploy"), world.skill(second, "deploy")
    (note,) = notes(world, "shadowed")
    assert note.severity == "warning"
    assert note.file == str(loser)
    assert note.problem == f"'deploy' is shadowed by {winner} ({rule})"
    assert note.fix == "rename or remove one of them"


def test_a_collision_is_told_for_names_that_differ_in_case_only(world: World) -> None:
    world.skill(".kitbag/skills", "deploy")
    loser = world.write("~/.kitbag/skills/d/SKILL.md", "---\nname: Deploy\ndescription: d\n---\n")
    (note,) = notes(world, "shadowed")
    assert (note.file, note.problem.split()[0]) == (str(loser), "'Deploy'")


def test_a_skill_before_a_command_is_a_rule_of_its_own(world: World) -> None:
    world.skill(".claude/skills", "deploy")
    command = world.write(".claude/commands/deploy.md", "---\ndescription: d\n---\nDo.\n")
    (note,) = notes(world, "shadowed")
    assert note.file == str(command)
    assert note.problem.endswith("(project, another tool's directory: skills before commands)")


def test_another_order_is_another_rule(world: World) -> None:
    loser, winner = world.skill(".kitbag/skills", "deploy"), world.skill("~/.kitbag/skills", "deploy")
    world.write("~/.kitbag/settings.toml", 'precedence = "claude"\n')
    (note,) = notes(world, "shadowed")
    assert note.file == str(loser)
    assert f"is shadowed by {winner} (user, ~/.kitbag before project, .kitbag)" in note.problem


def test_whoever_replaces_a_built_in_item_is_told_and_not_warned(world: World) -> None:
    world.write(".kitbag/agents/Explore.md", "---\nname: explore\ndescription: Mine.\n---\nWork.\n")
    (note,) = notes(world, "shadowed")
    assert note.severity == "info"
    assert note.fix == "no action needed if you meant to replace the built-in item"


def test_one_file_that_two_folders_lead_to_is_nothing_to_speak_of(world: World) -> None:
    real = world.skill(".kitbag/skills", "deploy").parent
    link = world.home / ".claude/skills/deploy"
    link.parent.mkdir(parents=True)
    link.symlink_to(real)
    assert notes(world, "shadowed") == []


def test_all_losers_are_told_not_only_the_first(world: World) -> None:
    for folder in (".kitbag/skills", "~/.kitbag/skills", ".agents/skills", ".claude/skills", "~/.claude/skills"):
        world.skill(folder, "deploy")
    assert len(notes(world, "shadowed")) == 4


# -- names that lead nowhere -----------------------------------------------------------------------


def test_names_that_a_persona_declares_and_nothing_has_are_told_with_close_ones(world: World) -> None:
    world.skill(".kitbag/skills", "code-review")
    path = world.write(
        ".kitbag/personas/dev.yaml",
        "name: dev\ncore_skills: [code-revew]\nskills: [nothing-like-it]\non_demand_skills: [x9]\nsubagents: [Explor, Plan]\n",
    )
    found = notes(world, "unknown-name")
    assert {d.file for d in found} == {str(path)}
    assert {(d.problem, d.fix) for d in found} == {
        ("`core_skills` refers to an unknown skill 'code-revew'", "did you mean code-review?"),
        ("`skills` refers to an unknown skill 'nothing-like-it'", "fix the name, or add the skill"),
        ("`on_demand_skills` refers to an unknown skill 'x9'", "fix the name, or add the skill"),
        ("`subagents` refers to an unknown agent 'Explor'", "did you mean Explore?"),
    }


def test_a_persona_s_name_for_a_skill_must_be_the_written_one(world: World) -> None:
    """`code_review` would be found by somebody who types it, but it opens nothing for a persona."""
    world.write(".kitbag/skills/data/_persona_dev.yaml", "name: dev\nskills: [code_review, CODE-REVIEW]\n")
    world.write(".kitbag/skills/data/ops/code-review.md", "---\nname: code-review\ndescription: d\n---\nx\n")
    (note,) = notes(world, "unknown-name")
    assert "'code_review'" in note.problem
    assert note.fix == "did you mean data/code-review?"


def test_names_that_agents_and_skills_declare_are_told_too(world: World) -> None:
    agent = world.write(".kitbag/agents/a.md", "---\nname: a\ndescription: d\nskills: deploi, deploy\n---\nWork.\n")
    skill = world.skill(".kitbag/skills", "deploy", subagents="[explorer9]")
    found = notes(world, "unknown-name")
    assert {(d.file, d.problem.split(",")[0]) for d in found} == {
        (str(agent), "`skills` refers to an unknown skill 'deploi'"),
        (str(skill), "`subagents` refers to an unknown agent 'explorer9'"),
    }


def test_a_required_name_without_its_folder_has_the_full_name_as_its_fix(world: World) -> None:
    world.write(".claude/commands/gsd/plan-phase.md", "---\ndescription: d\n---\nPlan.\n")
    world.write(".claude/commands/gsd/ship.md", "---\ndescription: d\nrequires: [plan-phase, zzzz]\n---\nShip.\n")
    found = [one for one in check_skill_contents(world.registry().skills) if one.code == "unknown-name"]
    assert [one.fix for one in found] == ["did you mean gsd:plan-phase?", "fix the name, or add the skill"]


def test_short_names_of_plugins_and_teams_lead_somewhere(world: World) -> None:
    world.write(".kitbag/skills/data/_team.md", "Data.")
    world.write(".kitbag/skills/data/core/clean.md", "---\nname: clean\ndescription: d\n---\nx\n")
    world.write(".kitbag/agents/a.md", "---\nname: a\ndescription: d\nskills: [clean, data/clean]\n---\nWork.\n")
    assert notes(world, "unknown-name") == []


def test_a_state_for_a_short_name_does_nothing_and_says_so(world: World) -> None:
    world.write(".kitbag/skills/data/core/clean.md", "---\nname: clean\ndescription: d\n---\nx\n")
    world.write(".kitbag/skills/data/_team.md", "Data.")
    file = world.write("~/.kitbag/settings.toml", '[skills]\nclean = "off"\n"data/clean" = "on"\nelsewhere = "off"\n')
    (note,) = notes(world, "unknown-name")
    assert note.file == str(file)
    assert note.problem == "`skills.clean` has no effect: not a full name"
    assert note.fix == "use the full name: data/clean"


def test_a_large_library_with_many_wrong_names_is_reviewed_all_the_same(world: World) -> None:
    names = "".join(f"  - rigth-{n}\n" for n in range(300))
    world.write(".kitbag/personas/dev.yaml", f"name: dev\nskills:\n{names}")
    for n in range(200):
        world.skill(".kitbag/skills", f"right-{n}")
    found = notes(world, "unknown-name")
    assert len(found) == 300
    assert sum("did you mean" in d.fix for d in found) == 20


# -- reserved and nested ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["help", "Skills", "compact", "exit"])
def test_a_skill_that_a_chat_command_hides_is_told(world: World, name: str) -> None:
    path = world.skill(".kitbag/skills", name)
    (note,) = notes(world, "reserved-name")
    assert (note.file, note.severity) == (str(path), "warning")
    assert note.problem == f"the chat command /{name.lower()} takes precedence over this skill"


def test_the_chat_s_commands_of_the_contract_are_all_reserved() -> None:
    promised = "help env skills agents persona model mode context tasks stop resume compact clear exit"
    assert set(promised.split()) <= CHAT_COMMANDS


def test_a_team_s_skill_can_t_be_hidden_since_its_full_name_differs(world: World) -> None:
    world.write(".kitbag/skills/data/core/help.md", "---\nname: help\ndescription: d\n---\nx\n")
    world.write(".kitbag/skills/data/_team.md", "Data.")
    assert notes(world, "reserved-name") == []


def test_a_limit_in_a_file_of_codex_is_reported_since_only_codex_reads_it(world: World) -> None:
    for name, field in (("a", ""), ("b", "disable-model-invocation: true\n")):
        world.write(f".codex/skills/{name}/SKILL.md", f"---\nname: {name}\ndescription: d\n{field}---\nBody.\n")
        policy = "interface:\n  display_name: A\npolicy:\n  allow_implicit_invocation: false\n"
        world.write(f".codex/skills/{name}/agents/openai.yaml", policy)
    [found] = check_skill_contents(world.registry().skills)
    assert (found.code, found.line) == ("field-misplaced", 4)
    assert found.file.endswith("a/agents/openai.yaml")


def test_a_skill_inside_a_skill_is_told_and_not_loaded(world: World) -> None:
    world.skill(".kitbag/skills", "outer")
    inner = world.write(".kitbag/skills/outer/templates/inner/SKILL.md", "---\nname: inner\ndescription: d\n---\n")
    world.write(".kitbag/skills/outer/node_modules/dep/SKILL.md", "---\nname: dep\ndescription: d\n---\n")
    world.write(".kitbag/skills/outer/.git/x/SKILL.md", "---\nname: git\ndescription: d\n---\n")
    registry = world.registry()
    assert not registry.skills.candidates("inner")
    (note,) = find_nested_skills(registry.skills)
    assert (note.severity, note.file) == ("info", str(inner))
    assert note.problem == "ignored: it is inside the skill 'outer'"


def test_the_search_for_nested_skills_follows_no_links_round_in_a_circle(world: World) -> None:
    outer = world.skill(".kitbag/skills", "outer").parent
    os.symlink(outer, outer / "again")
    assert find_nested_skills(world.registry().skills) == []


@pytest.mark.parametrize(
    ("file", "text", "lines"),
    [
        (
            ".kitbag/personas/ops.yaml",
            "# Operations\nname: ops\ndescription: x\n\nskills:\n  - nosuch\n  - other-x\n  # other\n  - other\n"
            "subagents: [Explore,\n  ghost]\ncolour: red\n",
            {"nosuch": 6, "other-x": 7, "other": 9, "ghost": 11, "colour": 12},
        ),
        (
            ".kitbag/agents/a.md",
            "---\nname: a\ndescription: x\nskills:\n- nosuch\n---\nbody\n",
            {"nosuch": 5},
        ),
        (
            ".kitbag/agents/b.md",
            "---\nname: b\ndescription: x\nskills: one, nosuch\n---\nbody\n",
            {"one": 4, "nosuch": 4},
        ),
    ],
)
def test_a_wrong_name_is_reported_with_its_own_line(world: World, file: str, text: str, lines: dict[str, int]) -> None:
    path = str(world.write(file, text))
    found = [one for one in world.registry().diagnostics() if one.file == path]
    for name, line in lines.items():
        assert [one.line for one in found if f"'{name}'" in one.problem or f"`{name}`" in one.problem] == [line], name


def test_the_problems_of_one_file_are_found_without_searching_names_for_the_others(world: World) -> None:
    world.skill("~/.kitbag/skills", "one", subagents="nobody")
    world.skill("~/.kitbag/skills", "two", subagents="nobody-else")
    world.skill("~/.claude/skills", "one")
    registry = world.registry()
    files = [skill.path for skill in registry.skills if skill.root.scope != "built-in"]
    files += [loser.path for _, loser in registry.skills.shadowed]
    everything = registry.diagnostics()
    for file in files:
        expected = [problem for problem in everything if problem.file == file]
        with calls(Namespace.suggest) as counts:
            assert registry.diagnostics(file) == expected
            assert counts() == [sum(problem.code == "unknown-name" for problem in expected)]
    assert len(files) == 3
