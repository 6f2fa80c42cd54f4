"""A registry that leaves an untrusted workspace out sees the user's and the built-in items, and can name the others."""

import pytest

from conftest import World
from kitbag.errors import NotFoundError
from kitbag.library.untrusted_items import UntrustedItemError
from kitbag.packing.skill_registry import SkillRegistry


def bring(world: World) -> None:
    world.skill(".kitbag/skills", "theirs")
    world.skill(".claude/skills", "both", description="The project's.")
    world.skill("~/.claude/skills", "both", description="The user's.")
    world.skill("~/.kitbag/skills", "mine")
    world.write(".claude/commands/go.md", "---\ndescription: d\n---\nx\n")
    world.write(".claude/agents/helper.md", "---\nname: helper\ndescription: d\n---\nx\n")
    world.write(".kitbag/personas/shop/dev.yaml", "name: dev\ndescription: d\n")
    world.write(".kitbag/settings.toml", '[skills]\nmine = "off"\n[vars]\nX = "theirs"\n')


def test_nothing_of_the_workspace_is_seen_and_it_configures_nothing(world: World) -> None:
    bring(world)
    registry = world.registry(omit_project=True)
    names = {skill.full_name: skill for skill in registry.skills}
    assert {"mine", "both", "task-executor"} <= set(names)
    assert {"theirs", "go"}.isdisjoint(names)
    assert names["both"].description == "The user's."
    assert "helper" not in {agent.name for agent in registry.agents}
    assert list(registry.personas) == []
    assert registry.settings.variables() == {}
    assert "mine" in {skill.name for skill, _ in registry.visible_skills()}
    assert "theirs" not in SkillRegistry(library=registry).catalog().text
    registry.refresh()
    assert registry.settings.variables() == {}
    assert "theirs" not in {skill.name for skill in registry.skills}


def test_what_is_left_out_is_named(world: World) -> None:
    bring(world)
    found = {(item.kind, item.full_name) for item in world.registry(omit_project=True).untrusted_items()}
    assert found == {
        ("skill", "theirs"), ("skill", "both"), ("command", "go"), ("agent", "helper"), ("persona", "shop/dev"),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["theirs", "THEIRS", "go"])
def test_who_needs_one_of_them_is_told_to_trust(world: World, name: str) -> None:
    bring(world)
    registry = world.registry(omit_project=True)
    with pytest.raises(UntrustedItemError) as error:
        registry.find_skill(name)
    assert error.value.exit_code == 13
    assert "kitbag trust" in error.value.fix
    assert "--trust-workspace" in error.value.fix
    with pytest.raises(UntrustedItemError):
        registry.find_agent("helper")
    with pytest.raises(NotFoundError):
        registry.find_skill("nobody-s")
    assert registry.find_skill("both").description == "The user's."


def test_a_persona_or_a_team_that_is_left_out_needs_trust(world: World) -> None:
    bring(world)
    for options in ({"persona": "dev"}, {"persona": "shop/dev"}, {"team": "shop"}):
        with pytest.raises(UntrustedItemError):
            _ = world.registry(omit_project=True, **options).team
    with pytest.raises(NotFoundError):
        _ = world.registry(omit_project=True, team="none").team


def test_a_directory_that_is_given_by_hand_is_left_out_only_inside_the_workspace(world: World) -> None:
    bring(world)
    world.write("kit/inside/SKILL.md", "---\nname: inside\ndescription: d\n---\n")
    world.write("kit/outside/SKILL.md", "---\nname: outside\ndescription: d\n---\n", base=world.outside)
    extra = [str(world.workspace), str(world.workspace / "kit"), str(world.outside / "kit")]
    names = {skill.name for skill in world.registry(omit_project=True, extra=extra).skills}
    assert "outside" in names
    assert {"inside", "theirs"}.isdisjoint(names)


def test_a_link_to_the_user_s_own_folder_takes_nothing_away(world: World) -> None:
    world.skill("~/.kitbag/skills", "mine")
    (world.workspace / ".kitbag").mkdir()
    (world.workspace / ".kitbag/skills").symlink_to(world.home / ".kitbag/skills")
    assert "mine" in {skill.name for skill in world.registry(omit_project=True).skills}


def test_without_the_flag_everything_is_as_it_was(world: World) -> None:
    bring(world)
    assert world.registry().untrusted_items() != []
    assert world.registry().find_skill("theirs").name == "theirs"
