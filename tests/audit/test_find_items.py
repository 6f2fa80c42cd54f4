"""What is found below a path, and which files belong to what."""

import io
import zipfile
from pathlib import Path

import pytest

from conftest import World
from kitbag.audit.find_items import find_items
from kitbag.errors import UsageError

HEAD = "---\nname: x\ndescription: d\n---\nDo it.\n"


def kinds(path: Path) -> list[tuple[str, str]]:
    return [(item.kind, item.path) for item in find_items((str(path),)).items]


def test_a_workspace_has_skills_agents_commands_and_what_steers_agents(world: World) -> None:
    world.write(".claude/skills/a/SKILL.md", HEAD)
    world.write(".claude/skills/a/templates/b/SKILL.md", HEAD)
    world.write(".claude/agents/r.md", HEAD)
    world.write(".claude/agents/README.md", "About agents.")
    world.write(".claude/commands/sub/c.md", "Do it.")
    world.write(".claude/settings.json", "{}")
    world.write(".kitbag/skills/team/flat.md", HEAD)
    world.write(".codex/agents/t.toml", "name = 't'")
    world.write("CLAUDE.md", "Remember.")
    world.write("src/main.py", "print()")
    world.write("node_modules/x/SKILL.md", HEAD)
    target = find_items((str(world.workspace),))
    assert [(item.kind, item.path) for item in target.items] == [
        ("workspace", "."),
        ("agent", ".claude/agents/r.md"),
        ("command", ".claude/commands/sub/c.md"),
        ("skill", ".claude/skills/a"),
        ("agent", ".codex/agents/t.toml"),
        ("skill", ".kitbag/skills/team/flat.md"),
    ]
    assert [entry.relative for entry in target.items[0].files] == [
        ".claude/agents/README.md",
        ".claude/settings.json",
        "CLAUDE.md",
    ]
    assert [entry.relative for entry in target.items[3].files] == ["SKILL.md", "templates/b/SKILL.md"]
    assert [unread.path for unread in target.unread] == ["node_modules"]


def test_a_plugin_owns_what_is_in_it_besides_its_items(world: World) -> None:
    world.write("p/.claude-plugin/plugin.json", '{"name": "p"}')
    world.write("p/hooks/hooks.json", "{}")
    world.write("p/skills/a/SKILL.md", HEAD)
    world.write("p/agents/r.md", HEAD)
    world.write("p/commands/c.md", HEAD)
    target = find_items((str(world.workspace / "p"),))
    assert [(item.kind, item.path) for item in target.items] == [
        ("plugin", "p"),
        ("agent", "p/agents/r.md"),
        ("command", "p/commands/c.md"),
        ("skill", "p/skills/a"),
    ]
    assert [entry.relative for entry in target.items[0].files] == [".claude-plugin/plugin.json", "hooks/hooks.json"]


def test_a_skill_is_the_same_by_its_folder_its_file_and_the_folder_above(world: World) -> None:
    path = world.write("skills/a/SKILL.md", HEAD)
    world.write("skills/a/scripts/x.sh", "ls")
    found = [find_items((str(given),)).items for given in (path, path.parent, path.parent.parent)]
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 1


def test_paths_are_relative_to_the_repository_wherever_the_audit_starts(world: World) -> None:
    world.write("deep/skills/a/SKILL.md", HEAD)
    assert kinds(world.workspace / "deep/skills/a") == [("skill", "deep/skills/a")]
    assert kinds(world.workspace / "deep") == [("skill", "deep/skills/a")]
    outside = world.write("skills/b/SKILL.md", HEAD, base=world.outside)
    assert kinds(outside.parent) == [("skill", ".")]


def test_a_repository_with_a_skill_at_its_top_has_the_others_too(world: World) -> None:
    world.write("SKILL.md", HEAD)
    world.write("skills/a/SKILL.md", HEAD)
    assert kinds(world.workspace) == [("skill", "."), ("skill", "skills/a")]


def test_a_folder_of_agents_and_a_single_file_are_taken_as_they_are(world: World) -> None:
    world.write("mine/one.md", HEAD, base=world.outside)
    world.write("mine/README.md", "no agent", base=world.outside)
    assert kinds(world.outside / "mine") == [("agent", "one.md")]
    assert kinds(world.outside / "mine/one.md") == [("agent", "one.md")]


def test_overlapping_paths_give_each_item_once(world: World) -> None:
    path = world.write("skills/a/SKILL.md", HEAD)
    assert len(find_items((str(path), str(path.parent), str(world.workspace))).items) == 1


@pytest.mark.parametrize("given", ["nothing", "empty", "archive.zip", "a\0b"])
def test_what_can_not_be_audited_is_a_usage_error(world: World, given: str) -> None:
    (world.outside / "empty").mkdir()
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("SKILL.md", HEAD)
    (world.outside / "archive.zip").write_bytes(data.getvalue())
    with pytest.raises(UsageError) as caught:
        find_items((str(world.outside / given),))
    assert caught.value.fix


@pytest.mark.parametrize("folder", ["team/backend", "agents/.curated", "deep/er"])
def test_the_agents_that_a_listing_of_the_directory_finds_are_audited(world: World, folder: str) -> None:
    world.write(f"repo/{folder}/reviewer.md", HEAD)
    world.write(f"repo/{folder}/data.yaml", "name: y\ndescription: d\nprompt: Do it.\n")
    world.write(f"repo/{folder}/notes.md", "No frontmatter.\n")
    world.write("repo/README.md", HEAD)
    listed = world.json("agents", "list", "--dir", "repo", "--all")
    paths = {str(Path(agent["path"]).relative_to(world.workspace)) for agent in listed if "/repo/" in agent["path"]}
    assert len(paths) == 2
    found = find_items((str(world.workspace / "repo"),))
    assert {item.path for item in found.items if item.kind == "agent"} == paths


def test_a_skill_at_the_top_of_a_folder_of_skills_owns_none_of_them(world: World) -> None:
    for path in ("SKILL.md", "a/SKILL.md", "a/inner/SKILL.md", "b/SKILL.md"):
        world.write(f"kit/skills/{path}", "---\ndescription: d\n---\nDo it.\n")
    found = [("skill", "kit/skills"), ("skill", "kit/skills/a"), ("skill", "kit/skills/b")]
    assert kinds(world.workspace / "kit") == [*found]
    nested = [
        one["file"] for one in world.json("doctor", "--dir", "kit")["diagnostics"] if one["code"] == "nested-skill"
    ]
    assert nested == [str(world.workspace / "kit/skills/a/inner/SKILL.md")]


def test_commands_and_agents_have_the_kind_that_the_listings_give_them(world: World) -> None:
    files = {
        ".claude/commands/agents/spawn.md": "command",
        ".claude/commands/agents.md": "command",
        ".claude/agents/team/commands/lead.md": "agent",
        "plugin/agents/team/commands/ship.md": "command",
        "plugin/agents/team/lead.md": "agent",
        "plugin/commands/skill.md": "command",
        "plugin/commands/other.md": "command",
        "plugin/agents/skill.md": "agent",
        ".github/prompts/review.prompt.md": "command",
        ".opencode/command/go.md": "command",
    }
    for number, path in enumerate(files):
        world.write(path, HEAD.replace("x", f"x{number}", 1))
    assert {path: kind for kind, path in kinds(world.workspace)} == files
    commands = {item["path"] for item in world.json("skills", "list", "--dir", ".") if item["kind"] == "command"}
    agents = {item["path"] for item in world.json("agents", "list", "--dir", ".") if item["scope"] == "extra"}
    listed = {path: kind for path, kind in files.items() if not path.startswith("plugin")}
    for kind, found in (("command", commands), ("agent", agents)):
        assert found == {str(world.workspace / path) for path, own in listed.items() if own == kind}
    unsearched = [
        d["problem"] for d in world.json("doctor", "--dir", ".")["diagnostics"] if d["code"] == "not-searched"
    ]
    assert unsearched == [
        "2 agents not loaded from plugin/agents",
        "3 commands not loaded from plugin/commands, plugin/agents/team/commands",
    ]


def test_flat_skills_of_a_team_are_audited(world: World) -> None:
    for path in ("core/basics.md", "shop/core/tickets.md", "shop/developer/review.md"):
        world.write(f"lib/{path}", HEAD.replace("x", Path(path).stem, 1))
    world.write("lib/shop/_persona_developer.yaml", "name: developer\n")
    listed = world.json("skills", "list", "--dir", "lib", "--all")
    listed = {item["path"] for item in listed if item["scope"] == "extra"}
    assert len(listed) == 3
    found = [item for item in find_items((str(world.workspace / "lib"),)).items if item.kind == "skill"]
    assert {str(world.workspace / item.path) for item in found} == listed


@pytest.mark.parametrize(("folder", "kind"), [("commands", "command"), ("prompts", "command"), ("agents", "agent")])
def test_a_folder_of_commands_or_agents_is_listed_and_audited_as_such(world: World, folder: str, kind: str) -> None:
    for name in ("skill", "other"):
        world.write(f"kit/{folder}/{name}.md", HEAD.replace("x", name, 1))
    assert kinds(world.workspace / "kit" / folder) == [(kind, f"kit/{folder}/{name}.md") for name in ("other", "skill")]
    listed = {
        command: {Path(item["path"]).name for item in world.json(command, "list", "--dir", f"kit/{folder}")}
        for command in ("skills", "agents")
    }
    own = "agents" if kind == "agent" else "skills"
    assert {"skill.md", "other.md"} <= listed[own]
    assert "other.md" not in listed["skills" if own == "agents" else "agents"]
