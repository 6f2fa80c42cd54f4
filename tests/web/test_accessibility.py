"""What axe-core finds in the chat, in its states, and in the other views, light and dark, wide and narrow."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from conftest import World
from kitbag.testing import ModelServer, Step
from support import needs
from support.headless import point, reads, script
from support.matrix import long
from support.web_program import web_program

if TYPE_CHECKING:
    from support.browser import Chromium, Tab

REPLY = "# A title\n\nText with `code`, a [link](https://example.com) and\n\n```python\ndef f(): return 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"


def check(tab: "Tab", axe: Path, state: str) -> None:
    from support.browser import NARROW, WIDE

    for theme in ("light", "dark"):
        for size in (WIDE, NARROW):
            tab.page.emulate_media(color_scheme=theme)
            tab.page.set_viewport_size({"width": size[0], "height": size[1]})
            found = tab.evaluate_isolated(
                axe.read_text(),
                "axe.run(document, {resultTypes: ['violations']}).then(r => JSON.stringify(r.violations))",
            )
            bad = [one for one in json.loads(found) if one["impact"] in ("serious", "critical")]
            assert not bad, (
                state,
                theme,
                size,
                [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in bad],
            )
    tab.page.set_viewport_size({"width": WIDE[0], "height": WIDE[1]})


def test_the_chat_has_no_serious_finding_and_can_be_used_with_the_keyboard(world: World, chromium: "Chromium") -> None:
    from support.browser import browser_window

    axe = needs.axe_core()
    world.write("a.txt", "old line\n")
    edit = Step(
        calls=(("c2", "Edit", json.dumps({"file_path": "a.txt", "old_string": "old line", "new_string": "new line"})),)
    )
    with ModelServer(script(reads(), edit, Step(text=REPLY, thinking="Hm."))) as server:
        point(world, server)
        with web_program(world) as program, browser_window(chromium, program) as window:
            tab = window.tab()
            tab.page.locator(".start-panel select").first.wait_for()
            check(tab, axe, "empty")
            tab.page.keyboard.type("/mo")
            tab.page.locator(".completions [role=option]").first.wait_for()
            check(tab, axe, "completions")
            tab.page.keyboard.press("Escape")
            tab.page.keyboard.press("Control+a")
            tab.page.keyboard.type("change it")
            tab.page.keyboard.press("Enter")
            question = tab.page.locator("form.question")
            question.get_by_text("new line").wait_for()
            assert tab.page.evaluate("document.querySelector('form.question').contains(document.activeElement)")
            check(tab, axe, "question")
            tab.page.keyboard.press("y")
            tab.until_seen("A title")
            assert (world.workspace / "a.txt").read_text() == "new line\n"
            assert tab.page.evaluate("document.activeElement.tagName") == "TEXTAREA"
            tab.page.keyboard.press("Control+o")
            check(tab, axe, "reply")
            assert tab.page.locator("[role=log] .live").count() == 0


@long
def test_the_other_views_have_no_serious_finding(world: World, chromium: "Chromium") -> None:
    from support.browser import browser_window

    axe = needs.axe_core()
    world.skill("~/.kitbag/skills", "deploy", "Deploys the thing.", "# Deploy\n\nBy hand.")
    world.ok("-p", "@agent-Explore hello", "--model", "offline")
    with web_program(world, "--model", "offline") as program, browser_window(chromium, program) as window:
        for path, shown in (
            ("/context", "Save picture"),
            ("/tasks", "hello"),
            ("/library", "deploy"),
            ("/library/skill/deploy", "What the model gets"),
            ("/pack", "Nothing to pack yet"),
        ):
            tab = window.tab(path)
            tab.page.locator("main").get_by_text(shown).first.wait_for()
            check(tab, axe, path)
            tab.page.close()
