"""The context view in a real browser: what the model was given, call by call."""

import json
from typing import TYPE_CHECKING

import httpx2
import pytest

from conftest import World
from kitbag.testing import ModelServer, Step
from support.headless import point, script
from support.web_program import web_program

if TYPE_CHECKING:
    from support.browser import Chromium, Tab

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script></svg>"


@pytest.fixture
def session(world: World) -> str:
    """Three calls: a skill is loaded and unloaded."""
    world.skill(".kitbag/skills", "sql-style", description=f"SQL {HOSTILE}.", body=f"In capitals. {HOSTILE}\n" * 20)
    load = Step(calls=(("c1", "Skill", json.dumps({"skill": "sql-style"})),))
    unload = Step(calls=(("c2", "UnloadSkill", json.dumps({"skill": "sql-style"})),))
    with ModelServer(script(load, unload, "Done.", "Fine.")) as server:
        point(world, server)
        world.ok("-p", f"How is SQL written? {HOSTILE}", "--trust-workspace")
    return str(world.json("sessions", "list")[0]["id"])


def _until_drawn(tab: "Tab", title: str) -> None:
    tab.page.locator(".context-picture text", has_text=title).wait_for()


def test_calls_pieces_differences_and_costs_are_shown(world: World, session: str, chromium: "Chromium") -> None:
    from support.browser import NARROW, browser_window

    with web_program(world) as program:
        with browser_window(chromium, program) as window:
            tab = window.tab("/context")
            page = tab.page
            _until_drawn(tab, "Call 3: what claude-sonnet-4-5 was given")
            page.get_by_label("Call", exact=True).select_option("2")
            _until_drawn(tab, "Call 2: what")
            page.locator(".context-picture [data-key]", has_text="sql-style").first.click()
            tab.until("document.querySelector('.context-text pre')?.textContent.includes('onerror=alert(1)')")
            assert page.locator("tr.is-selected").count() == 1
            assert "the model loaded it" in page.locator("tr.is-selected").inner_text()
            page.get_by_label("Next call").click()
            page.get_by_role("tab", name="Difference").click()
            tab.until_seen("Cause: the skill sql-style was unloaded", "First difference at byte")
            page.get_by_role("tab", name="Check").click()
            tab.until_seen("3 of 3 calls reproduced byte for byte")
            page.get_by_role("tab", name="Skills and savings").click()
            tab.until_seen("All skills loaded")
            page.get_by_label("Next call").click()
            page.get_by_role("tab", name="Request").click()
            _until_drawn(tab, "What would be sent now")
            with page.expect_download() as download:
                page.get_by_role("button", name="Save page").click()
            assert download.value.suggested_filename == f"context-{session}.html"
            assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
        with browser_window(chromium, program, NARROW, "dark") as window:
            tab = window.tab(f"/context/{session}?call=1")
            _until_drawn(tab, "Call 1: what")
            assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_would_be_sent_is_shown_while_a_message_is_typed(world: World, session: str, chromium: "Chromium") -> None:
    from support.browser import browser_window

    world.write("notes.txt", "x" * 400)
    world.ok("trust", "--yes")
    with web_program(world) as program, browser_window(chromium, program) as window:
        tab = window.tab(f"/chat/{session}")
        tab.until_seen("Done.")
        tab.page.get_by_role("combobox", name="Message").press_sequentially("/sql-style for @notes.txt please")
        tab.page.locator(".message-preview", has_text="notes.txt").wait_for()
        tab.page.locator(".message-preview summary").click()
        tab.until_seen("100 tokens, you mention it", "you invoke it for this message")


def test_a_session_that_does_not_exist_and_bad_numbers_are_reported(world: World, session: str) -> None:
    with web_program(world) as program, program.http() as client:
        for path, status in (
            ("/api/context/nothing-here", 404),
            (f"/api/context/{session}/call?number=99", 404),
            (f"/api/context/{session}/piece?number=1&piece=-1", 404),
            (f"/api/context/{session}/diff?second=1", 404),
            (f"/api/context/{session}/call?number=%00&width=-5", 200),
            ("/api/context/-", 200),
        ):
            answer: httpx2.Response = client.get(path)
            assert answer.status_code == status, (path, answer.text)
            assert answer.json()
        exported = client.get(f"/api/context/{session}/export?format=svg")
        assert exported.headers["content-disposition"] == "attachment"
        assert "onerror" not in exported.text.replace("&lt;img src=x onerror", "")
        assert client.post("/api/chats/unknown/preview", json={"text": "x"}).status_code == 404


def test_without_a_session_the_view_says_so(world: World, chromium: "Chromium") -> None:
    from support.browser import browser_window

    with web_program(world) as program, browser_window(chromium, program) as window:
        window.tab("/context").until_seen("no sessions yet")


def test_new_calls_appear_and_an_earlier_call_stays_chosen(world: World, session: str, chromium: "Chromium") -> None:
    from support.browser import browser_window

    with ModelServer(script("One.", "Two.", "Three.", "Four.", "Five.", "Six.")) as server:
        point(world, server)
        with web_program(world) as program, browser_window(chromium, program) as window:
            tab = window.tab("/context")
            _until_drawn(tab, "Call 3: what")
            world.ok("--resume", session, "-p", "And now?", "--trust-workspace")
            _until_drawn(tab, "Call 4: what")
            tab.page.get_by_label("Call", exact=True).select_option("2")
            _until_drawn(tab, "Call 2: what")
            world.ok("--resume", session, "-p", "And then?", "--trust-workspace")
            tab.until("document.querySelector('.context-picker').textContent.includes('Call 5 of 5')")
            assert tab.page.get_by_label("Call", exact=True).input_value() == "2"
            _until_drawn(tab, "Call 2: what")
