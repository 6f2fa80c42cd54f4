"""The library in a browser and over HTTP: the real program with real files."""

import os
from typing import TYPE_CHECKING, Any

import pytest

from conftest import World
from support.matrix import sample

if TYPE_CHECKING:
    from support.browser import Chromium, WebProgram

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><b>bold</b>"
PDF = "Fills PDF forms. Use when a form has to be filled in."


@pytest.fixture
def house(world: World) -> World:
    world.skill("~/.kitbag/skills", "pdf-forms", PDF, "Read the form first.")
    world.skill(".kitbag/skills", "pdf-forms", "Another one of the project.")
    world.skill(".kitbag/skills", "deploy", f"Deploys {HOSTILE}", f"Run it.\n{HOSTILE}")
    return world


def items(program: "WebProgram", name: str) -> list[dict[str, Any]]:
    return [item for item in program.get("/api/library/items")["items"] if item["key"] == name]


def test_a_message_is_tried_and_a_skill_is_edited_disabled_and_inert(house: World, chromium: "Chromium") -> None:
    from support.browser import browser_window, web_program

    with web_program(house) as program, browser_window(chromium, program) as window:
        tab = window.tab("/library")
        tab.until_seen("is not trusted.", "kitbag trust")
        tab.page.get_by_label("Type a message").fill("deploy this")
        tab.page.locator(".trial-name", has_text="deploy").wait_for()
        tab.page.get_by_label("Filter items").fill("deploy")
        tab.page.locator(".library-name a", has_text="deploy").click()
        tab.until_seen("the workspace is not trusted")
        tab.page.get_by_role("tab", name="What the model gets").click()
        tab.until_seen("Level 1: when it is loaded")
        assert tab.page.locator("main img, main b").count() == 0
        tab.page.get_by_role("tab", name="Edit").click()
        box = tab.page.get_by_label("File")
        assert "Run it." in box.input_value()
        box.fill("---\nname: deploy\ndescription: Deploys the shop.\nallowed-tols: Bash\n---\nRun it now.\n")
        tab.page.get_by_label("Which skills").fill("deploy the shop")
        tab.until_seen("allowed-tols")
        tab.page.locator(".editor-matches .is-this", has_text="deploy").wait_for()
        tab.page.get_by_role("button", name="Save").click()
        tab.page.locator(".editor-status", has_text="saved").wait_for()
        assert "Run it now." in (house.workspace / ".kitbag/skills/deploy/SKILL.md").read_text()
        tab.page.get_by_label("State").select_option("off")
        tab.until_seen("deploy is now off")
        assert tab.page.title() == "Library – Kitbag"
    assert house.json("skills", "show", "deploy")["state"] == "off"


def test_items_have_scope_state_cost_and_what_shadows_them(house: World) -> None:
    from support.browser import web_program

    house.write("~/.kitbag/skills/broken/SKILL.md", "---\nname: [\n---\n")
    house.write("~/.kitbag/personas/lost.yaml", "- nothing\n")
    with web_program(house) as program:
        used, shadowed = items(program, "pdf-forms")
        assert (used["scope"], used["state"], used["is_untrusted"], used["level_0"] > 0) == (
            "project",
            "on",
            True,
            True,
        )
        assert (shadowed["scope"], shadowed["state"], shadowed["is_untrusted"]) == ("user", "shadowed", False)
        assert items(program, "[")[0]["problems"] == 2
        assert "lost.yaml" in "".join(program.get("/api/library/items")["others"])
        assert program.get("/api/library/costs")["skill/pdf-forms"][0] > 0
        kinds = {item["kind"] for item in program.get("/api/library/items")["items"]}
        assert {"skill", "agent"} <= kinds
        with program.http() as client:
            for query, status in (
                ("kind=skill&key=nothing", 404),
                ("kind=spell&key=deploy", 400),
                ("kind=skill&key=../../etc/passwd", 404),
                ("", 400),
            ):
                for path in ("item", "audit", "file"):
                    assert client.get(f"/api/library/{path}?{query}").status_code == status, (path, query)
            assert client.get("/api/library/item?kind=plugin&key=x").status_code == 404
            for body in (
                {"kind": "skill", "key": "deploy", "state": "loud"},
                {"kind": "persona", "key": "x", "state": "on"},
            ):
                assert client.post("/api/library/state", json=body).status_code == 400
            assert client.post("/api/library/explain", json={"message": ""}).json() == {"skills": []}


def test_a_file_is_saved_only_if_it_is_still_the_one_that_was_read(house: World) -> None:
    from support.browser import web_program

    file = house.home / ".kitbag/skills/tidy/SKILL.md"
    house.write(
        "~/.kitbag/skills/tidy/SKILL.md",
        b"\xef\xbb\xbf---\r\nname: tidy\r\ndescription: Tidies up.\r\n---\r\nDo it.\r\n",
    )
    os.chmod(file, 0o640)
    with web_program(house) as program, program.http() as client:
        opened = program.get("/api/library/file?kind=skill&key=tidy")
        draft = {"kind": "skill", "key": "tidy", **opened, "text": opened["text"].replace("Do it.", "Do it well.")}
        saved = client.post("/api/library/save", json=draft)
        assert (saved.json()["notice"], saved.json()["key"]) == ("", "tidy")
        assert file.read_bytes().endswith(b"---\r\nDo it well.\r\n")
        assert file.read_bytes().startswith(b"\xef\xbb\xbf---\r\n")
        assert file.stat().st_mode & 0o777 == 0o640
        late = client.post("/api/library/save", json={**draft, "text": "late"})
        assert (late.status_code, "meanwhile" in late.json()["problem"]) == (409, True)
        assert b"late" not in file.read_bytes()
        assert sorted(os.listdir(file.parent)) == ["SKILL.md"], "no temporary file is left"


def test_only_the_user_s_and_the_project_s_own_files_are_edited_and_none_behind_a_link(house: World) -> None:
    from support.browser import web_program

    target = house.write("linked/SKILL.md", "---\nname: linked\ndescription: Linked.\n---\nDo.\n")
    os.symlink(house.workspace / "linked", house.workspace / ".kitbag/skills/linked")
    (house.workspace / ".kitbag/skills/half").mkdir()
    os.symlink(target, house.workspace / ".kitbag/skills/half/SKILL.md")
    with web_program(house) as program, program.http() as client:
        builtin = next(item for item in program.get("/api/library/items")["items"] if item["scope"] == "built-in")
        for key in (builtin["key"], "linked", "half"):
            for path, method in (("file", "GET"), ("save", "POST")):
                url = f"/api/library/{path}" + (f"?kind=skill&key={key}" if method == "GET" else "")
                body = {"kind": "skill", "key": key, "text": "owned", "version": "x"} if method == "POST" else None
                refused = client.request(method, url, json=body)
                assert refused.status_code in (400, 404, 422), (key, path, refused.text)
        assert "owned" not in target.read_text()
        assert client.get("/api/library/save").status_code == 405


def test_a_saved_change_that_adds_a_capability_needs_trust_again(house: World) -> None:
    from support.browser import web_program

    assert house.run("trust", "--yes").returncode == 0
    with web_program(house) as program:
        opened = program.get("/api/library/file?kind=skill&key=deploy")
        same = opened["text"] + "More text.\n"
        saved = program.post("/api/library/save", kind="skill", key="deploy", text=same, version=opened["version"])
        assert saved["notice"] == "", "text alone changes nothing that was trusted"
        acts = same + "Now: !`make deploy`\n"
        saved = program.post("/api/library/save", kind="skill", key="deploy", text=acts, version=saved["version"])
        assert "kitbag trust" in saved["notice"]
        assert program.get("/api/library/items")["trust"]["state"] == "changed"


DRAFTS = (
    f"---\nname: tidy\ndescription: {PDF}\n---\n{PDF}\n",
    "",
    "---\n",
    "no frontmatter",
    f"---\nname: {HOSTILE}\n---\n",
)


@pytest.mark.parametrize("draft", sample(DRAFTS, 2))
def test_a_draft_costs_what_the_saved_file_costs(house: World, draft: str) -> None:
    """Whatever the text is, the editor reports what `skills show` and `skills validate` would."""
    from kitbag.library.registry import Registry
    from kitbag.views.skill_card import skill_card
    from kitbag.web.skill_drafts import SkillDrafts

    house.skill("~/.kitbag/skills", "tidy", "Tidies up.", "Do it.")
    house.write("~/.kitbag/skills/tidy/references/more.md", "# More\n")
    places = house.places()
    drafts = SkillDrafts()
    found = drafts.evaluate(places, "skill", "tidy", draft, "tidy up")
    drafts.close()
    house.write("~/.kitbag/skills/tidy/SKILL.md", draft)
    saved = skill_card(Registry(places), Registry(places).find_skill(found["name"] or "tidy"))
    assert found["tokens"] == [saved["tokens"][f"level_{level}"] for level in range(3)]
