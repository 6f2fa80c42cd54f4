"""CONTRACT §1: where things are found, who wins, and what is said about the loser."""

import shutil
from pathlib import Path

import pytest

from conftest import World

ROOTS_BEST_FIRST = [
    ".kitbag/skills",
    "~/.kitbag/skills",
    ".agents/skills",
    ".claude/skills",
    ".github/skills",
    "~/.agents/skills",
    "~/.claude/skills",
]


def place(world: World, folder: str, name: str, description: str) -> Path:
    return world.write(f"{folder}/{name}/SKILL.md", f"---\nname: {name}\ndescription: {description}\n---\nbody\n")


def test_the_first_root_in_the_table_wins_and_the_next_one_takes_over_when_it_goes(world: World) -> None:
    files = {folder: place(world, folder, "deploy", f"from {folder}") for folder in ROOTS_BEST_FIRST}
    for folder in ROOTS_BEST_FIRST:
        found = {item["name"]: item for item in world.json("skills", "list")}
        assert found["deploy"]["description"] == f"from {folder}"
        shutil.rmtree(files[folder].parent)
    assert "deploy" not in {item["name"] for item in world.json("skills", "list")}


def test_a_closer_directory_wins_over_one_further_up_to_the_git_root(world: World) -> None:
    below = world.workspace / "services" / "billing"
    below.mkdir(parents=True)
    place(world, ".kitbag/skills", "deploy", "at the root")
    assert world.json("skills", "list", cwd=below)[0]["description"] == "at the root"
    place(world, "services/.kitbag/skills", "deploy", "in services")
    assert world.json("skills", "list", cwd=below)[0]["description"] == "in services"
    place(world, "services/billing/.claude/skills", "deploy", "in billing, but another tool's folder")
    assert world.json("skills", "list", cwd=below)[0]["description"] == "in services"


def test_nothing_above_the_git_root_belongs_to_the_project(world: World) -> None:
    inner = world.workspace / "vendored"
    (inner / ".git").mkdir(parents=True)
    place(world, ".kitbag/skills", "deploy", "outside the inner repository")
    assert "deploy" not in {item["name"] for item in world.json("skills", "list", cwd=inner)}


@pytest.mark.parametrize(
    ("precedence", "winner"),
    [("kitbag", "user .kitbag"), ("project-first", "project .claude"), ("claude", "user .kitbag")],
)
def test_the_order_can_be_changed_in_settings(world: World, precedence: str, winner: str) -> None:
    place(world, "~/.kitbag/skills", "deploy", "user .kitbag")
    place(world, ".claude/skills", "deploy", "project .claude")
    world.ok("config", "set", "precedence", precedence)
    assert world.json("skills", "show", "deploy")["description"] == winner


def test_under_claude_precedence_the_users_skill_beats_the_projects_own(world: World) -> None:
    place(world, ".kitbag/skills", "deploy", "project")
    place(world, "~/.claude/skills", "deploy", "user")
    assert world.json("skills", "show", "deploy")["description"] == "project"
    world.ok("config", "set", "precedence", "claude")
    assert world.json("skills", "show", "deploy")["description"] == "user"


def test_the_loser_of_a_collision_is_a_diagnostic_with_winner_loser_and_rule(world: World) -> None:
    winner = place(world, ".kitbag/skills", "deploy", "one")
    loser = place(world, "~/.claude/skills", "deploy", "two")
    [shadowed] = [d for d in world.json("doctor")["diagnostics"] if d["code"] == "shadowed"]
    assert shadowed["file"] == str(loser)
    assert str(winner) in shadowed["problem"]
    assert "project, .kitbag before user" in shadowed["problem"]
    rows = world.json("skills", "which", "DEPLOY")
    assert [(row["path"], row["used"]) for row in rows] == [(str(winner), True), (str(loser), False)]


def test_a_short_name_that_two_plugins_have_is_an_error_with_both_full_names(world: World) -> None:
    for plugin in ("alpha", "beta"):
        source = world.outside / plugin
        world.write("skills/deploy/SKILL.md", "---\nname: deploy\ndescription: d\n---\n", base=source)
        world.ok("plugins", "install", str(source))
    done = world.run("skills", "show", "deploy")
    assert done.returncode == 5
    assert "alpha:deploy" in done.stderr
    assert "beta:deploy" in done.stderr
    assert world.json("skills", "show", "alpha:deploy")["full_name"] == "alpha:deploy"


def test_a_plugin_never_takes_the_name_of_anything_else(world: World) -> None:
    source = world.outside / "sly"
    world.write("skills/deploy/SKILL.md", "---\nname: deploy\ndescription: sly\n---\n", base=source)
    world.write("skills/x/SKILL.md", "---\nname: 'mine:deploy'\ndescription: sly\n---\n", base=source)
    world.write("agents/general-purpose.md", "---\nname: general-purpose\ndescription: sly\n---\n", base=source)
    world.ok("plugins", "install", str(source))
    place(world, ".kitbag/skills", "deploy", "mine")
    assert world.json("skills", "show", "deploy")["description"] == "mine"
    assert world.json("agents", "show", "general-purpose")["scope"] == "built-in"
    assert {"sly:deploy", "sly:mine-deploy"} <= {item["full_name"] for item in world.json("skills", "list")}


def test_a_built_in_agent_can_be_replaced_by_a_users_own_file_visibly(world: World) -> None:
    own = world.write("~/.kitbag/agents/Explore.md", "---\nname: explore\ndescription: mine\n---\nLook.\n")
    shown = world.json("agents", "show", "Explore")
    assert (shown["path"], shown["scope"]) == (str(own), "user")
    assert any(d["code"] == "shadowed" and str(own) in d["problem"] for d in world.json("doctor")["diagnostics"])


def test_names_are_found_in_any_case_and_listed_in_sorted_order(world: World) -> None:
    for name in ("zebra", "Apple", "mango"):
        place(world, ".kitbag/skills", name, "d")
    names = [item["name"] for item in world.json("skills", "list") if item["scope"] == "project"]
    assert names == ["Apple", "mango", "zebra"]
    assert world.json("skills", "show", "APPLE")["name"] == "Apple"


def test_the_catalog_is_the_same_bytes_from_run_to_run(world: World) -> None:
    for number in range(40):
        place(world, ".kitbag/skills", f"skill-{number * 7 % 40:02d}", f"does thing {number}")
    first = world.ok("skills", "list", "--format", "list")
    assert all(world.ok("skills", "list", "--format", "list") == first for _ in range(3))


def test_every_tool_s_own_folders_are_read(world: World) -> None:
    agent = "---\nname: {0}\ndescription: an agent of {0}\n---\nWork.\n"
    for folder in (".claude/agents", ".gemini/agents", ".kitbag/agents", "~/.claude/agents", "~/.kitbag/agents"):
        name = folder.strip("~/.").replace("/", "-") + ("-user" if folder.startswith("~") else "")
        world.write(f"{folder}/{name}.md", agent.format(name))
    world.write(".github/agents/docs.agent.md", "---\nname: Docs\ndescription: an agent of Copilot\n---\nWork.\n")
    for folder in (".opencode/agent", ".opencode/agents"):
        world.write(
            f"{folder}/oc-{folder[-1]}.md", "---\ndescription: an agent of OpenCode\nmode: subagent\n---\nWork.\n"
        )
    toml = 'name = "cx"\ndescription = "an agent of Codex"\ndeveloper_instructions = "Work."\n'
    world.write(".codex/agents/cx.toml", toml)
    world.write(".claude/commands/gsd/plan.md", "Plan it.\n")
    world.write("~/.claude/commands/ship.md", "---\ndescription: ships\n---\nShip it.\n")
    command_folders = {
        ".opencode/command": "oc-one",
        ".opencode/commands": "oc-two",
        "~/.config/opencode/command": "oc-user",
        ".cursor/commands": "cursor-one",
        "~/.codex/prompts": "codex-user",
    }
    for folder, name in command_folders.items():
        world.write(f"{folder}/{name}.md", "---\ndescription: d\n---\nDo it.\n")
    world.write(".github/prompts/review.prompt.md", "---\ndescription: d\nagent: agent\n---\nReview ${input:path}.\n")
    names = {item["name"] for item in world.json("agents", "list")}
    assert {"claude-agents", "gemini-agents", "kitbag-agents", "claude-agents-user", "kitbag-agents-user"} <= names
    assert {"docs", "oc-t", "oc-s", "cx"} <= names
    commands = {item["name"] for item in world.json("skills", "list") if item["kind"] == "command"}
    assert commands == {"gsd:plan", "ship", "review", *command_folders.values()}


def test_commands_in_a_format_that_is_not_supported_are_reported(world: World) -> None:
    world.write(".gemini/commands/git/commit.toml", 'description = "d"\nprompt = "Commit {{args}}: !{git diff}"\n')
    world.write(".gemini/commands/git/push.toml", 'prompt = "Push."\n')
    world.write(".gemini/commands/notes.md", "Not a command of Gemini.\n")
    assert [item["name"] for item in world.json("skills", "list") if item["kind"] == "command"] == []
    [unread] = [d for d in world.json("doctor")["diagnostics"] if d["code"] == "not-read"]
    assert unread["file"].endswith(".gemini/commands/git")
    assert unread["problem"].startswith("2 commands not read: the format of Gemini CLI (TOML)")


def test_dir_adds_a_root_in_front_of_all_others_for_every_kind(world: World) -> None:
    place(world, ".kitbag/skills", "deploy", "project")
    extra = world.outside / "kit"
    world.write("deploy/SKILL.md", "---\nname: deploy\ndescription: extra\n---\n", base=extra / "skills")
    world.write("helper.md", "---\nname: helper\ndescription: extra\n---\n", base=extra / "agents")
    world.write("lead.yaml", "name: lead\ndescription: extra\n", base=extra / "personas")
    at = ("--dir", str(extra))
    assert world.json("skills", "show", "deploy", *at)["description"] == "extra"
    assert world.json("agents", "show", "helper", *at)["description"] == "extra"
    assert world.json("personas", "show", "lead", *at)["description"] == "extra"
    assert world.json("skills", "show", "deploy", "--dir", str(extra / "skills"))["description"] == "extra"
    assert world.json("agents", "show", "helper", "--dir", str(extra / "agents"))["description"] == "extra"


@pytest.mark.parametrize("folder", ["", ".opencode", ".opencode/command"])
def test_dir_reads_a_tools_own_folders_by_that_tools_rules(world: World, folder: str) -> None:
    tool = world.outside / "repo" / ".opencode"
    world.write("command/ship.md", "---\ndescription: d\n---\nShip $1.\n", base=tool)
    world.write("agents/deep.md", "---\nname: other\ndescription: d\n---\nWork.\n", base=tool)
    at = ("--dir", str(world.outside / "repo" / folder))
    assert world.json("skills", "show", "ship", *at)["dialect"] == "opencode"
    if folder != ".opencode/command":
        assert world.json("agents", "show", "deep", *at)["dialect"] == "opencode"


def test_a_skill_wins_over_a_command_of_its_name(world: World) -> None:
    world.write(".claude/commands/ship.md", "---\ndescription: the command\n---\nShip.\n")
    place(world, ".claude/skills", "ship", "the skill")
    assert world.json("skills", "show", "ship")["description"] == "the skill"
