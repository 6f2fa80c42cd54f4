"""CONTRACT §2: every file a person could have produced is read, and what was wrong is said."""

import os

import pytest

from conftest import World

BROKEN_HEADS = {
    "unquoted colon": "name: x\ndescription: Use when: the tests fail\n",
    "text after a flow value": "name: x\ndescription: Use when: the tests fail\nargument-hint: [a] | --b\n",
    "text after a quoted value": 'name: x\ndescription: Use when: the tests fail\nargument-hint: "a" or "b"\n',
    "a leading star": "name: x\ntools: *\ndescription: Use when: the tests fail\n",
    "a broken map": 'name: x\ndescription: "Use when: the tests fail"\nmetadata: {"a": {"b": 1}\n',
    "a template": "name: x\ndescription: 'Use when: the tests fail'\nversion: {{VERSION}}\n",
}


@pytest.mark.parametrize("head", BROKEN_HEADS.values(), ids=BROKEN_HEADS)
def test_a_head_that_is_not_yaml_still_gives_its_fields_and_a_diagnostic_with_line_and_fix(
    world: World, head: str
) -> None:
    path = world.write(".kitbag/skills/x/SKILL.md", f"---\n{head}---\nThe body.\n")
    found = world.json("skills", "show", "x")
    assert found["description"] == "Use when: the tests fail"
    [problem] = [p for p in found["problems"] if p["code"] == "yaml-recovered"]
    assert problem["file"] == str(path)
    assert problem["line"] > 1
    assert problem["fix"]


def test_unknown_keys_are_kept(world: World) -> None:
    world.skill(".kitbag/skills", "x", author="somebody", homepage="here")
    assert world.json("skills", "show", "x")["metadata"]["homepage"] == "here"


@pytest.mark.parametrize(
    "start", [b"\xef\xbb\xbf---\nname: x\n", b"---\r\nname: x\r\n", b"\n\n---\nname: x\n"], ids=["BOM", "CRLF", "blank"]
)
def test_byte_order_marks_and_other_newlines_change_nothing(world: World, start: bytes) -> None:
    newline = b"\r\n" if b"\r\n" in start else b"\n"
    world.write(".kitbag/skills/x/SKILL.md", start + newline.join([b"description: good", b"---", b"The body."]))
    assert world.json("skills", "show", "x")["description"] == "good"
    assert "The body." in world.ok("skills", "show", "x", "--level", "1")


def test_one_bad_file_never_hides_another(world: World) -> None:
    world.skill(".kitbag/skills", "good")
    bad = world.workspace / ".kitbag" / "skills"
    world.write(".kitbag/skills/binary/SKILL.md", b"\x7fELF\0\0\0" * 100)
    world.write(".kitbag/skills/empty/SKILL.md", "")
    world.write(".kitbag/skills/latin/SKILL.md", "---\nname: latin\ndescription: caf\xe9\n---\n".encode("latin-1"))
    world.write(".kitbag/skills/unclosed/SKILL.md", "---\nname: unclosed\ndescription: no end\n\nThe body.\n")
    world.write(".kitbag/skills/huge/SKILL.md", "---\nname: huge\ndescription: " + "x" * 10_000_000 + "\n---\n")
    deep = "[" * 5000 + "]" * 5000
    world.write(".kitbag/skills/deep/SKILL.md", f"---\nname: deep\ndescription: d\nmetadata: {deep}\n---\n")
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b]\nname: bomb\n"
    world.write(".kitbag/skills/bomb/SKILL.md", f"---\n{bomb}description: boom\n---\n")
    world.write(".kitbag/skills/evil/SKILL.md", "---\nname: ../../evil\ndescription: e\n---\n")
    (bad / "pipe").mkdir()
    os.mkfifo(bad / "pipe" / "SKILL.md")
    (bad / "loop").symlink_to(bad / "loop")
    (bad / "cycle").symlink_to(bad)
    names = {item["name"] for item in world.json("skills", "list")}
    assert {"good", "empty", "latin", "unclosed", "huge", "deep", "bomb", "evil"} <= names
    done = world.run("doctor", "--json")
    assert done.returncode == 1
    for folder in ("binary", "pipe"):
        assert f"{folder}/SKILL.md" in done.stdout


@pytest.mark.parametrize("written", ["on", "3000", "2024-01-01", "3.10", "yes"])
def test_scalars_are_the_words_that_were_written(world: World, written: str) -> None:
    world.write(f".kitbag/skills/{written}/SKILL.md", f"---\nname: {written}\ndescription: d\n---\n")
    assert world.json("skills", "show", written)["name"] == written


@pytest.mark.parametrize("written", ["", "null", "~", "[a, b]", "{a: b}", "'..'", "'../../x'"])
def test_a_name_that_is_none_is_replaced_by_the_folder_s(world: World, written: str) -> None:
    world.write(".kitbag/skills/folder/SKILL.md", f"---\nname: {written}\ndescription: d\n---\n")
    assert world.json("skills", "show", "folder")["name"] == "folder"


def test_a_file_without_a_head_is_described_by_its_first_paragraph(world: World) -> None:
    world.write(".kitbag/skills/x/SKILL.md", "# Title\n\nSays what it does\nover two lines.\n\nMore.\n")
    found = world.json("skills", "show", "x")
    assert found["description"] == "Says what it does over two lines."
    assert [p["code"] for p in found["problems"]] == ["no-description"]


def test_an_agent_with_an_unreadable_tool_list_gets_no_tools(world: World) -> None:
    world.write(".claude/agents/a.md", "---\nname: a\ndescription: d\ntools: {{TOOLS}}\n---\n")
    world.write(".claude/agents/b.md", "---\nname: b\ndescription: d\ntools: Grpe, Raed\n---\n")
    for name in ("a", "b"):
        found = world.json("agents", "show", name)
        assert found["tools"]["mode"] == "none", found["tools"]
        assert found["problems"]


@pytest.mark.parametrize(
    ("folder", "written", "mode"),
    [
        (".kitbag/agents", "dontAsk", "autonomous"),
        (".claude/agents", "dontAsk", "locked"),
        (".claude/agents", "bypassPermissions", "autonomous"),
        (".claude/agents", "Plan", "plan"),
        (".claude/agents", "yolo", "default"),
        (".claude/agents", "[plan]", "default"),
    ],
)
def test_permission_modes_in_all_their_spellings(world: World, folder: str, written: str, mode: str) -> None:
    world.write(f"{folder}/a.md", f"---\nname: a\ndescription: d\npermissionMode: {written}\n---\n")
    assert world.json("agents", "show", "a")["permission_mode"] == mode


def test_listings_have_the_promised_keys(world: World) -> None:
    world.skill(".kitbag/skills", "x")
    world.write(
        ".claude/agents/a.md", "---\nname: a\ndescription: d\ntools: Read, Bash(git log:*)\nskills: x, y\n---\n"
    )
    skill = next(item for item in world.json("skills", "list") if item["name"] == "x")
    assert {"name", "full_name", "description", "scope", "path"} <= set(skill)
    agent = next(item for item in world.json("agents", "list") if item["name"] == "a")
    promised = {"name", "full_name", "description", "scope", "path", "model", "permission_mode", "max_turns"}
    assert promised | {"tools", "skills"} <= set(agent)
    assert agent["skills"] == ["x", "y"]
    assert agent["tools"]["names"] == ["Read", "Bash"]
    assert (
        agent["tools"]["specifiers"] == ["Read", "Bash(git log:*)"] or "Bash(git log:*)" in agent["tools"]["specifiers"]
    )


def test_names_that_lead_nowhere_are_warned_about(world: World) -> None:
    world.write(".kitbag/agents/a.md", "---\nname: a\ndescription: d\nskills: [nowhere]\n---\n")
    world.write(".kitbag/personas/p.yaml", "name: p\nskills: [missing]\nsubagents: [gone]\n")
    problems = " ".join(d["problem"] for d in world.json("doctor")["diagnostics"] if d["code"] == "unknown-name")
    assert all(name in problems for name in ("'nowhere'", "'missing'", "'gone'"))


def test_a_manifest_fills_what_the_head_leaves_out_and_never_overrules_it(world: World) -> None:
    world.write(".kitbag/skills/a/SKILL.md", "---\nname: a\ndescription: from the head\n---\nbody\n")
    world.write(".kitbag/skills/b/SKILL.md", "---\nname: b\n---\n")
    entries = '{"name": "a", "description": "from the manifest"}, {"name": "b", "description": "from the manifest"}'
    world.write(".kitbag/skills/manifest.json", '{"skills": [' + entries + "]}")
    assert world.json("skills", "show", "a")["description"] == "from the head"
    assert world.json("skills", "show", "b")["description"] == "from the manifest"
    assert "manifest-differs" in {d["code"] for d in world.json("doctor")["diagnostics"]}


def test_index_writes_a_manifest_that_is_read_back(world: World) -> None:
    world.skill(".kitbag/skills", "a", version="1.2.0")
    world.ok("skills", "index")
    assert (world.workspace / ".kitbag/skills/manifest.json").exists()
    assert world.json("doctor")["counts"]["warnings"] == 0
    assert world.json("skills", "show", "a")["version"] == "1.2.0"
    assert world.json("skills", "show", "a")["token_budget"] is None


def test_a_team_s_skills_and_agents_are_seen_by_its_personas_only(world: World) -> None:
    team = ".kitbag/skills/shop"
    world.write(
        f"{team}/_persona_dev.yaml", "name: dev\nskills: [build]\non_demand_skills: [profile]\nsubagents: [checker]\n"
    )
    world.write(f"{team}/_persona_ops.yaml", "name: ops\n")
    for place, name in (("core", "base"), ("dev", "build"), ("dev", "profile"), ("ops", "page")):
        world.write(f"{team}/{place}/{name}.md", f"---\nname: {name}\ndescription: d\n---\n{name} body\n")
    for place, name in (("_subagents", "checker"), ("_subagents", "other"), ("ops/_subagents", "pager")):
        world.write(f"{team}/{place}/{name}.yaml", f"name: {name}\ndescription: d\nprompt: p\nfile_extensions: [.py]\n")

    def seen(*options: str) -> set[str]:
        skills = {item["full_name"] for item in world.json("skills", "list", *options) if item["team"]}
        agents = {
            item["full_name"] for item in world.json("agents", "list", *options) if item["full_name"][:5] == "shop/"
        }
        return skills | agents

    assert seen() == set()
    assert seen("--team", "shop", "--persona", "dev") == {"shop/base", "shop/build", "shop/checker"}
    assert seen("--persona", "ops") == {"shop/base", "shop/page", "shop/pager", "shop/checker", "shop/other"}
    assert "build body" in world.ok("skills", "show", "shop/build", "--level", "1")
    assert world.run("skills", "show", "build", "--level", "1").returncode == 4
    assert world.run("skills", "show", "shop/page", "--level", "1", "--persona", "dev").returncode == 6
    assert [hit["full_name"] for hit in world.json("skills", "search", "profile", "--persona", "dev")] == [
        "shop/profile"
    ]
    assert world.json("skills", "search", "profile") == []


def test_a_change_is_seen_at_the_next_turn_without_a_restart(world: World) -> None:
    kept = world.skill(".kitbag/skills", "kept", body="old")
    gone = world.skill(".kitbag/skills", "gone")
    registry = world.registry()
    assert registry.refresh() == []
    registry.skills, registry.agents, registry.personas  # noqa: B018 - looked for once
    kept.write_text(kept.read_text().replace("old", "new"))
    gone.unlink()
    world.skill(".claude/skills", "fresh")
    world.write(".claude/agents/a.md", "---\nname: a\ndescription: d\n---\n")
    assert [str(change) for change in registry.refresh()] == [
        "+ agent a",
        "+ skill fresh",
        "- skill gone",
        "~ skill kept",
    ]
    assert registry.refresh() == []
