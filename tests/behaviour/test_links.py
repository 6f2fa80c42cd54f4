"""Links out of the workspace: nothing that a workspace brings is read through one, and every surface reports it."""

import itertools
import json
import shutil
from pathlib import Path

import pytest

from conftest import World
from kitbag.testing import ModelServer
from support.connected import over_stdio, run, text
from support.headless import point, script
from support.matrix import sample

SECRET = "CANARY_SECRET_4711"
KEY = f"---\nname: leaked\ndescription: {SECRET}\ntools: {SECRET}\n---\n{SECRET}\n"
YAML = f"name: leaked\ndescription: {SECRET}\nsystem_prompt_additions: {SECRET}\n"
JSON = json.dumps({"skills": [{"name": "real", "description": SECRET}], "mcpServers": {SECRET: {"command": SECRET}}})

FILES = {
    ".claude/skills/p/SKILL.md": KEY,
    ".agents/skills/q/skill.md": KEY,
    ".kitbag/skills/team/core/flat.md": KEY,
    ".kitbag/skills/team/_team.md": KEY,
    ".kitbag/skills/team/_persona_ann.yaml": YAML,
    ".kitbag/skills/team/_subagents/sub.yaml": YAML,
    ".kitbag/skills/manifest.json": JSON,
    ".claude/commands/c.md": KEY,
    ".claude/agents/a.md": KEY,
    ".codex/agents/b.toml": f'name = "leaked"\ndescription = "{SECRET}"\nprompt = "{SECRET}"\n',
    ".kitbag/personas/bob.yaml": YAML,
    ".kitbag/tasks/T1.md": f"---\nid: T1\ntitle: {SECRET}\n---\n{SECRET} !`id`\n",
    ".kitbag/settings.toml": f'persona = "{SECRET}"\n',
    ".claude/settings.json": JSON,
    ".mcp.json": JSON,
    "AGENTS.md": SECRET,
    "CLAUDE.md": SECRET,
    ".claude/rules/r.md": SECRET,
    ".github/copilot-instructions.md": SECRET,
}
FOLDERS = {
    ".claude/skills/linked": {"SKILL.md": KEY},
    ".claude/skills/folder": {"deep/SKILL.md": KEY},
    ".github/skills": {"whole/SKILL.md": KEY},
    ".github/agents": {"whole.md": KEY},
    ".gemini/agents/folder": {"deep.md": KEY},
    ".kitbag/personas/shop": {"cay.yaml": YAML},
    ".kitbag/skills/squad/_subagents": {"sub.yaml": YAML},
    ".opencode": {"skills/whole/SKILL.md": KEY, "agents/whole.md": KEY},
}
COMMANDS = [
    ("skills", "list", "--all", "--json"),
    ("skills", "list", "--format", "xml"),
    ("skills", "search", "CANARY", "--json"),
    ("agents", "list", "--json"),
    ("personas", "list", "--json"),
    ("servers", "list", "--json"),
    ("config", "get", "--json"),
    ("doctor", "--json"),
    ("trust", "show", "--json"),
    ("trust", "show"),
    ("audit", ".", "--json"),
    ("context", "--json", "--trust-workspace"),
    ("pack", "T1"),
    ("skills", "validate", ".claude/skills/p"),
    ("skills", "validate", "--portable", ".claude/skills/p"),
    ("skills", "index", "--output", "-", ".claude/skills"),
]


def link(world: World, path: str, content: "str | dict[str, str]", outside: Path | None = None) -> None:
    """At this path of the workspace, a link to a file or folder outside."""
    place = (outside or world.outside) / path.replace("/", "_")
    if isinstance(content, str):
        world.write(place.name, content, base=place.parent)
    else:
        for name, text in content.items():
            world.write(name, text, base=place)
    target = world.workspace / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(place)


@pytest.fixture
def linked(world: World) -> World:
    """A workspace in which everything that can be a link is one, and leads out."""
    for path, content in {**FILES, **FOLDERS}.items():
        link(world, path, content)
    world.skill(".kitbag/skills", "real", "Does a real thing.")
    (world.workspace / ".kitbag/skills/real/references").mkdir()
    world.write("notes.md", SECRET, base=world.outside)
    (world.workspace / ".kitbag/skills/real/references/notes.md").symlink_to(world.outside / "notes.md")
    return world


@pytest.mark.parametrize("verb", COMMANDS, ids=" ".join)
def test_no_command_reads_through_a_link_that_leaves_the_workspace(linked: World, verb: tuple[str, ...]) -> None:
    done = linked.run(*verb)
    assert SECRET not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_neither_the_first_request_nor_a_loaded_skill_holds_what_a_link_leads_to(linked: World) -> None:
    with ModelServer(script("Done.", "Done.")) as server:
        point(linked, server)
        for prompt in ("Say hi.", "/real"):
            assert linked.run("-p", prompt, "--trust-workspace").returncode == 0
        for request in server.requests:
            assert SECRET not in json.dumps(request.body)
            assert "Does a real thing." in json.dumps(request.body)


def test_doctor_and_the_trust_prompt_name_each_link(linked: World) -> None:
    items = linked.json("trust", "show")["items"]
    shown = {item["path"] for item in items for act in item["acts"] if act["kind"] == "link" and act["note"]}
    diagnostics = json.loads(linked.run("doctor", "--json").stdout)["diagnostics"]
    files = {one["file"] for one in diagnostics if one["code"] == "link-outside"}
    roots = {".opencode": [".opencode/skills", ".opencode/agents"]}
    for path in (one for linked_path in (*FILES, *FOLDERS) for one in roots.get(linked_path, [linked_path])):
        assert path in shown
        assert str(linked.workspace / path) in files
    assert ".kitbag/skills/real/SKILL.md" in shown, "a reference beside it is a link"


def test_the_trust_prompt_shows_links_and_does_not_say_that_there_is_only_text(world: World) -> None:
    link(world, ".claude/skills/p/SKILL.md", KEY)
    shown = world.ok("trust", "show")
    assert "Symbolic links" in shown
    assert "nothing runs or grants permissions" not in shown
    assert str(world.outside) in shown


@pytest.mark.parametrize(
    ("path", "verb"),
    [
        (".claude/skills/p/SKILL.md", ("skills", "show", "p")),
        (".claude/skills/p/SKILL.md", ("skills", "which", "p")),
        (".claude/skills/p/SKILL.md", ("skills", "validate", "p")),
        (".claude/skills/p/SKILL.md", ("pack", "T2", "--skills", "p")),
        (".claude/skills/p/SKILL.md", ("-p", "/p")),
        (".claude/skills/p/SKILL.md", ("-p", "/p", "--trust-workspace")),
        (".claude/commands/p.md", ("skills", "show", "p")),
        (".claude/agents/p.md", ("agents", "show", "p")),
        (".claude/agents/p.md", ("agents", "run", "p", "Say hi.")),
        (".claude/agents/p.md", ("-p", "Say hi.", "--agent", "p", "--trust-workspace")),
        (".kitbag/personas/p.yaml", ("-p", "Say hi.", "--persona", "p", "--trust-workspace")),
        (".kitbag/tasks/p.md", ("pack", "p")),
    ],
)
def test_a_command_that_names_the_item_says_why_it_is_not_read(world: World, path: str, verb: tuple[str, ...]) -> None:
    link(world, path, YAML if path.endswith("yaml") else KEY)
    world.write(".kitbag/tasks/T2.md", "---\nid: T2\ntitle: T\n---\nDo it.\n")
    done = world.run(*verb)
    assert done.returncode == 6, done.stderr
    assert "symbolic link outside" in done.stderr
    assert str(world.outside) in done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_links_inside_the_workspace_are_followed(world: World) -> None:
    world.skill("shared/skills", "kept", "Lies elsewhere.")
    for place in (".claude/skills", ".github/skills"):
        (world.workspace / place).parent.mkdir(exist_ok=True)
    (world.workspace / ".github/skills").symlink_to("../shared/skills")
    (world.workspace / ".claude/skills/one").mkdir(parents=True)
    (world.workspace / ".claude/skills/one/SKILL.md").symlink_to("../../../shared/skills/kept/SKILL.md")
    world.write("AGENTS.md", "Be brief.")
    (world.workspace / "CLAUDE.md").symlink_to("AGENTS.md")
    assert {skill["name"] for skill in world.json("skills", "list")} >= {"kept"}
    assert not [
        d for d in json.loads(world.run("doctor", "--json").stdout)["diagnostics"] if d["code"] == "link-outside"
    ]


@pytest.mark.parametrize("name", [".env", "certs/server.key", "credentials.json"])
def test_a_link_to_a_file_that_holds_secrets_is_not_followed_even_inside(world: World, name: str) -> None:
    world.write(name, KEY)
    (world.workspace / ".claude/skills/p").mkdir(parents=True)
    (world.workspace / ".claude/skills/p/SKILL.md").symlink_to(world.workspace / name)
    assert SECRET not in world.run("skills", "list", "--json").stdout


def test_the_users_folders_may_link_to_folders_beside_them_and_to_named_ones(world: World) -> None:
    folder = world.home / ".claude/skills"
    folder.mkdir(parents=True)
    places = {
        "beside": world.home / "dotfiles/skills/beside",
        "shared": world.home / ".agents/store/shared",
        "far": world.outside / "far",
        "named": world.outside / "named/named",
        "hidden": world.home / ".ssh/hidden",
    }
    for name, place in places.items():
        world.write("SKILL.md", f"---\nname: {name}\ndescription: d\n---\nDo it.\n", base=place)
        (folder / name).symlink_to(place)
    world.write(".netrc", KEY, base=world.home)
    (folder / "netrc").mkdir()
    (folder / "netrc/SKILL.md").symlink_to(world.home / ".netrc")
    world.write("plain.txt", KEY, base=world.home)
    (folder / "plain").mkdir()
    (folder / "plain/SKILL.md").symlink_to(world.home / "plain.txt")

    def seen() -> set[str]:
        return {skill["name"] for skill in world.json("skills", "list", "--all")} & {*places, "leaked"}

    assert seen() == {"beside", "shared"}
    done = world.run("skills", "show", "far")
    assert done.returncode == 6
    assert "library.link_targets" in done.stderr
    world.ok("config", "set", "library.link_targets", f'["{world.outside}/named"]')
    assert seen() == {"beside", "shared", "named"}


def test_a_project_can_name_no_folder_that_links_may_lead_to(world: World) -> None:
    link(world, ".claude/skills/p", {"SKILL.md": KEY})
    world.write(".kitbag/settings.toml", f'[library]\nlink_targets = ["{world.outside}"]\n')
    done = world.run("skills", "list", "--json")
    assert SECRET not in done.stdout
    assert "cannot be set by a project" in world.run("doctor").stdout


def test_a_project_that_links_to_the_users_skills_does_not_hide_them(world: World) -> None:
    world.skill("~/.claude/skills", "mine")
    world.write("~/.claude/skills/mine/SKILL.md", "---\nname: mine\ndescription: d\n---\nDo it.\n")
    (world.workspace / ".claude").mkdir()
    (world.workspace / ".claude/skills").symlink_to(world.home / ".claude/skills")
    [mine] = [skill for skill in world.json("skills", "list") if skill["name"] == "mine"]
    assert mine["scope"] == "user"


NEW = (
    ".claude/skills/new/SKILL.md", ".claude/commands/new.md", ".claude/agents/new.md", ".kitbag/personas/new.yaml",
    "AGENTS.md", ".mcp.json", ".claude/rules/new.md",
)  # fmt: skip


@pytest.mark.parametrize(
    ("path", "kind"), sample(itertools.product(NEW, ("file", "inner link", "outer link")), 9, unpack=True)
)
def test_an_item_or_link_that_appears_after_trust_is_a_change_and_is_not_loaded(
    world: World, path: str, kind: str
) -> None:
    world.skill(".claude/skills", "old")
    world.write("docs/source", YAML if path.endswith("yaml") else JSON if path.endswith("json") else KEY)
    world.ok("trust", "--yes")
    assert world.json("trust", "show")["state"] == "trusted"
    target = world.workspace / path
    target.parent.mkdir(parents=True, exist_ok=True)
    if kind == "outer link":
        link(world, path, KEY)
    elif kind == "inner link":
        target.symlink_to(world.workspace / "docs/source")
    else:
        shutil.copy(world.workspace / "docs/source", target)
    found = world.json("trust", "show")
    assert found["state"] == "changed"
    assert path in {change["path"] for change in found["changes"]}
    world.ok("trust", "--yes")
    assert world.json("trust", "show")["state"] == "trusted"


def test_a_link_put_in_the_place_of_a_trusted_file_is_a_change(world: World) -> None:
    path = world.skill(".claude/skills", "old")
    world.ok("trust", "--yes")
    other = world.write("docs/source", path.read_text())
    path.unlink()
    path.symlink_to(other)
    [change] = world.json("trust", "show")["changes"]
    assert (change["kind"], change["mark"]) == ("link", "+")


def test_mcp_serves_nothing_that_a_link_leads_out_to(linked: World) -> None:
    answers: list[str] = []

    async def work() -> None:
        async with over_stdio(linked, "--trust-workspace") as client:
            for name in ("leaked", "p", "linked", "c", "real"):
                answers.append(await text(client, "load_skill", skill_name=name, reason="r"))
            for path in ("SKILL.md", "references/notes.md"):
                answers.append(await text(client, "read_skill_file", skill_name="real", path=path))
            answers.append(await text(client, "search_skills", query="canary secret"))
            answers.append((await client.list_tools()).model_dump_json())
            answers.append((await client.list_resources()).model_dump_json())

    run(work)
    assert "Does a real thing." in "".join(answers)
    assert "symbolic link outside" in answers[1]
    assert SECRET not in "".join(answers)
