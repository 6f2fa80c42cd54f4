"""The chat in a real browser, with a scripted model on loopback."""

import json
from typing import TYPE_CHECKING, Any

from conftest import World
from kitbag.testing import ModelServer, Step
from support.headless import point, reads, script

if TYPE_CHECKING:
    from support.browser import Chromium


def calls(name: str, call_id: str = "c1", **arguments: Any) -> Step:
    return Step(calls=((call_id, name, json.dumps(arguments)),))


def test_a_question_is_answered_and_tool_calls_open(world: World, chromium: "Chromium") -> None:
    from support.browser import browser_window, web_program

    world.write("a.txt", "line 17\n")
    with ModelServer(script(reads(), "# Hello\n\nThis is **the answer**.")) as server:
        point(world, server)
        with web_program(world) as program, browser_window(chromium, program) as window:
            tab = window.tab()
            tab.say("what is this?")
            tab.until_seen("This is the answer.")
            assert tab.page.locator("article h1").inner_text() == "Hello"
            assert not tab.page.get_by_text("line 17").is_visible()
            tab.page.locator("summary", has_text="a.txt").click()
            tab.page.get_by_text("line 17").wait_for(state="visible")


def test_eight_tabs_share_one_stream_and_show_the_same(world: World, chromium: "Chromium") -> None:
    from support.browser import browser_window, web_program

    with ModelServer(script("The answer.", "Another one.")) as server:
        point(world, server)
        with web_program(world) as program, browser_window(chromium, program) as window:
            first = window.tab()
            first.say("ask")
            first.until_seen("The answer.")
            path = first.page.evaluate("location.pathname")
            others = [window.tab(path) for _ in range(7)]
            for tab in others:
                tab.until_seen("The answer.")
            others[-1].say("again")
            for tab in (first, *others):
                tab.until_seen("Another one.")
                assert tab.page.get_by_text("The answer.").count() == 1
