"""`/doctor`: what is wrong, the worst first, with a fix for each."""

import asyncio

from conftest import World
from kitbag.views.blocks import NoticeBlock
from support.talking_face import talking


def test_the_worst_comes_first_and_says_what_to_do(at_home: World) -> None:
    at_home.skill("~/.kitbag/skills", "good")
    at_home.write("~/.kitbag/skills/bare/SKILL.md", "No head.\n")
    at_home.write("~/.kitbag/settings.toml", "colour = 'red'\n[permissions]\nallow = ['Bsah(ls)']\n")

    async def look() -> None:
        async with talking(at_home) as talk:
            shown = await talk.command("/doctor")
            found = talk.shown(NoticeBlock)
            order = ["error", "warning", "info"]
            assert [one.severity for one in found] == sorted((one.severity for one in found), key=order.index)
            assert all(one.fix for one in found if one.severity != "info")
            assert "colour" in shown
            assert "Bsah" in shown
            assert "sandbox  " in shown
            assert "no problems" not in shown

    asyncio.run(look())


def test_it_sees_what_has_come_since_the_conversation_began(at_home: World) -> None:
    async def look() -> None:
        async with talking(at_home) as talk:
            assert "no problems" in await talk.command("/doctor")
            at_home.write("~/.kitbag/settings.toml", "colour = 'red'\n")
            assert "colour" in await talk.command("/doctor")

    asyncio.run(look())


def test_many_problems_of_one_kind_are_grouped(at_home: World) -> None:
    for number in range(30):
        at_home.write(
            f"~/.kitbag/skills/s{number:02}/SKILL.md", f"---\nname: other{number}\ndescription: b\n---\nText.\n"
        )
    at_home.write("~/.kitbag/skills/bare/SKILL.md", "No head.\n")

    async def look() -> None:
        async with talking(at_home) as talk:
            shown = await talk.command("/doctor")
            assert shown.count("but the directory is named") == 3
            assert "27 more [name-not-folder]" in shown
            assert shown.index("no-description") < shown.index("name-not-folder")

    asyncio.run(look())
    short, full = at_home.run("doctor"), at_home.run("doctor", "--details")
    assert "info: 30 × name-not-folder, for example" in short.stdout
    assert short.stdout.count("but the directory is named") == 3
    assert short.stdout.index("[no-description]") < short.stdout.index("name-not-folder")
    assert "kitbag doctor --details" in short.stdout
    assert full.stdout.count("but the directory is named") == 30
    assert "--details" not in full.stdout
    report = at_home.json("doctor")
    assert sum(one["code"] == "name-not-folder" for one in report["diagnostics"]) == 30


def test_a_directory_without_items_is_reported(at_home: World) -> None:
    (at_home.workspace / "empty").mkdir()
    at_home.skill("skills/.curated", "found")
    assert "nothing-found" in at_home.run("doctor", "--dir", "empty").stdout
    assert "nothing-found" not in at_home.run("doctor", "--dir", ".").stdout
    assert "found" in at_home.run("skills", "list", "--dir", ".").stdout


def test_doctor_says_which_items_of_a_given_directory_are_not_loaded(at_home: World) -> None:
    at_home.skill("repo/.claude/skills", "own")
    for name in ("one", "two"):
        at_home.skill("repo/plugins/p/skills", name)
    at_home.skill("repo/docs/de/skills", "three")
    at_home.write("repo/agents/a.md", "---\nname: a\ndescription: d\n---\nText\n")
    at_home.write("repo/extra/agents/team/b.md", "---\nname: b\ndescription: d\n---\nText\n")
    at_home.write("repo/plugins/p/commands/c.md", "---\ndescription: d\n---\nText\n")
    notes = [note for note in at_home.json("doctor", "--dir", "repo")["diagnostics"] if note["code"] == "not-searched"]
    assert [note["problem"] for note in notes] == [
        "1 agent not loaded from extra/agents",
        "1 command not loaded from plugins/p/commands",
        "3 skills not loaded from plugins/p/skills, docs/de/skills",
    ]
    assert notes[2]["fix"].endswith("/repo/plugins/p/skills")


def test_a_skill_with_a_file_of_codex_is_complete(at_home: World) -> None:
    at_home.skill(".", "repo")
    at_home.write("repo/agents/openai.yaml", "interface:\n  display_name: Repo\n")
    report = at_home.json("doctor", "--dir", "repo")
    assert [one for one in report["diagnostics"] if one["code"] in ("not-searched", "not-an-agent")] == []


def test_a_repository_of_plugins_beside_agents_has_its_skills_found(at_home: World) -> None:
    at_home.skill("repo/plugins/p/skills", "one")
    at_home.write("repo/agents/a.md", "---\nname: a\ndescription: d\n---\nText\n")
    assert "one" in at_home.run("skills", "list", "--dir", "repo").stdout
    assert "not-searched" not in at_home.run("doctor", "--dir", "repo").stdout


def test_examples_of_a_group_have_the_fix_that_belongs_to_each(at_home: World) -> None:
    heads = ("description: Use: when", "metadata:\n\ta: b\ndescription: d", "description:squeezed")
    for number in range(12):
        name = f"s{number:02}"
        at_home.write(f"~/.kitbag/skills/{name}/SKILL.md", f"---\nname: {name}\n{heads[number // 4]}\n---\nText.\n")
    shown = at_home.run("doctor").stdout
    assert "warning: 12 × yaml-recovered, for example" in shown
    lines = shown.split("\n")
    for problem, fix in (("contains `: `", "double quotes"), ("a tab", "not tabs"), ("no `: `", "with a space")):
        at = next(number for number, line in enumerate(lines) if problem in line)
        assert fix in lines[at + 1]


def test_many_kinds_of_problems_have_fewer_examples(at_home: World) -> None:
    kinds = (
        "nothing: x", "description: d\nuser-invocable: maybe", "description:d", "description: d\nuser-invocabel: false",
        "description: d\u200bx", "description: d\nmetadata:\n  allowed-tools: Bash", "description: d\nreadonly: true",
        "name: other\ndescription: d",
    )  # fmt: skip
    for number in range(80):
        head = kinds[number % len(kinds)]
        at_home.write(f"~/.kitbag/skills/s{number:02}/SKILL.md", f"---\n{head}\n---\nText.\n")
        at_home.write(f"~/.kitbag/skills/s{number:02}/inner/SKILL.md", "---\ndescription: d\n---\nText.\n")
    shown = at_home.run("doctor").stdout
    assert shown.count("for example") > 8
    assert len(shown.split("\n")) < 60
    assert len(at_home.json("doctor")["diagnostics"]) >= 160
