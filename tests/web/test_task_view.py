"""Tasks in a browser: the real program, a real worker, a scripted model."""

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from conftest import World
from kitbag.store.journal import JournalEntry
from kitbag.web.task_questions import TaskQuestions
from support.boards import opened_board
from support.waiting import wait_until

if TYPE_CHECKING:
    from support.browser import Chromium, Tab, WebProgram
    from support.postgres import Schema

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><b>bold</b>"
SCRIPT: dict[str, Any] = {
    "rules": [
        {"system": "Wait long", "replies": [{"text": "Never.", "delay": 600}]},
        {
            "system": "Push it",
            "replies": [{"calls": [{"name": "Bash", "arguments": {"command": "git push"}}]}, {"text": "Not pushed."}],
        },
        {"system": "## Your Task", "replies": [{"text": f"The answer is **42**. {HOSTILE}"}, {"text": "Once more."}]},
    ]
}


@pytest.fixture
def house(world: World) -> World:
    world.env["KITBAG_MODEL"] = f"scripted:{world.write('~/script.json', json.dumps(SCRIPT))}"
    world.env["KITBAG_HOME"] = str(world.home / ".kitbag")
    return world


@contextlib.contextmanager
def page(
    world: World, chromium: "Chromium", path: str = "/tasks", **options: Any
) -> "Iterator[tuple[Tab, WebProgram]]":
    from support.browser import browser_window, web_program

    with web_program(world) as program, browser_window(chromium, program, **options) as window:
        yield window.tab(path), program


def in_background(world: World, prompt: str) -> str:
    started = world.run("agents", "run", "general-purpose", prompt, "--background")
    assert started.returncode == 0, started.stderr
    return started.stdout.strip()


def test_a_task_is_watched_read_and_resumed_and_its_markup_is_inert(house: World, chromium: "Chromium") -> None:
    with page(house, chromium) as (tab, _):
        tab.until_seen("No tasks in this directory yet")
        task_id = in_background(house, f"What is {HOSTILE}?")
        tab.page.locator(".task-row", has_text="completed").click()
        tab.page.get_by_role("tab", name="Output").click()
        tab.until_seen("The answer is 42.")
        assert tab.page.locator("img, .task-page b").count() == 0
        tab.page.get_by_role("tab", name="Transcript").click()
        tab.until_seen("Start your task.")
        tab.page.get_by_role("tab", name="Context").click()
        tab.until_seen("In its next request")
        tab.page.get_by_label("Message to the task").fill("And again?")
        tab.page.get_by_role("button", name="Resume").click()
        tab.page.get_by_role("tab", name="Output").click()
        tab.until_seen("Once more.")
        assert tab.page.evaluate("location.pathname") == f"/tasks/{task_id}"
        assert tab.page.title() == "Tasks – Kitbag"


def test_an_approval_is_answered_once_by_whichever_tab_is_first(house: World, chromium: "Chromium") -> None:
    from support.browser import NARROW

    task_id = in_background(house, "Push it")
    with page(house, chromium, size=NARROW, theme="dark") as (tab, program):
        tab.page.get_by_role("link", name="Answer").click()
        form = tab.page.locator(".questions form")
        form.wait_for()
        question = str(form.get_attribute("data-form-id"))
        form.get_by_role("button", name="deny", exact=False).last.click()  # with a reason
        tab.page.get_by_label("a message for the model").wait_for()
        assert form.get_by_text("git push").first.is_visible(), "what is asked stays visible"
        with program.http() as client:
            late = client.post("/api/tasks/answers", json={"question": question, "keys": ["y"]})
        assert (late.status_code, late.json()["problem"]) == (409, "this question was already answered")
        tab.page.get_by_label("a message for the model").fill("not on Fridays")
        tab.page.get_by_role("button", name="Send").last.click()
        tab.page.get_by_role("status").filter(has_text="completed").wait_for()
        assert form.count() == 0
        assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert "not on Fridays" in "".join(program.get(f"/api/tasks/{task_id}/transcript")["blocks"])


def test_a_running_task_is_steered_and_stopped_over_http(house: World) -> None:
    from support.browser import web_program

    task_id = in_background(house, "Push it")
    wait_until(lambda: "git push" in house.run("permissions", "pending").stdout)  # messages wait for the answer
    with web_program(house) as program, program.http() as client:
        sent = client.post(f"/api/tasks/{task_id}/messages", json={"text": "look at the logs"})
        assert sent.status_code == 202, sent.text
        assert client.post(f"/api/tasks/{task_id}/messages", json={"text": " "}).status_code == 400
        assert client.post(f"/api/tasks/{task_id}/resume", json={}).status_code == 422
        assert client.post(f"/api/tasks/{task_id}/stop", json={}).json()["text"].startswith(f"{task_id} stopped")
        again = client.post(f"/api/tasks/{task_id}/stop", json={}).json()["text"]
        assert "already ended: cancelled" in again
        assert "before it got your message 'look at the logs'" in again
        assert client.post(f"/api/tasks/{task_id}/messages", json={"text": "late"}).status_code == 422
        assert client.get(f"/api/tasks/{task_id}/stop").status_code == 404, "no state change by GET"
        for path in ("nothing000000/overview", f"{task_id}/secrets", "nothing000000/output", "%2e%2e/overview"):
            found = client.get(f"/api/tasks/{path}")
            assert (found.status_code, "problem" in found.text or found.status_code == 404) == (404, True), path


def test_without_a_journal_there_is_nothing_and_nothing_is_made(world: World) -> None:
    from support.browser import web_program

    with web_program(world) as program, program.http() as client:
        assert client.get("/api/tasks/abc/overview").status_code == 404
        assert not (world.home / ".kitbag/state/journal.db").exists()


def test_many_tasks_are_shown_and_filtered(house: World, chromium: "Chromium") -> None:
    with opened_board(house) as board:
        board.journal.append_all(
            JournalEntry(stream, kind, body)
            for number in range(600)
            for stream, kind, body in seeded(f"{number:012x}", f"look at {number}", str(house.workspace))
        )
    with page(house, chromium) as (tab, _):
        tab.until_seen("600 in total, 0 unfinished")
        assert tab.page.locator(".task-row").count() == 600
        tab.page.get_by_label("Filter tasks").fill("at 599")
        wait_until(lambda: tab.page.locator(".task-row").count() == 1)
        tab.page.get_by_label("Filter tasks").fill("nothing like this")
        tab.until_seen("No task matches")


def seeded(task_id: str, description: str, directory: str) -> "Iterator[tuple[str, str, dict[str, Any]]]":
    """A finished task, as the board writes it."""
    created = {
        "id": task_id, "kind": "agent", "agent": "Explore", "description": description, "root": "", "parent": "",
        "depth": 1, "background": True, "directory": directory, "version": "1", "owner": [],
    }  # fmt: skip
    ended = {
        "id": task_id, "run": 1, "status": "completed", "text": "Done.", "error": "", "turns": 2, "tokens": 100,
        "cost": 0.01, "seconds": 3.0, "branch": "", "violations": [], "length": 0, "rest": "", "code": None,
    }  # fmt: skip
    yield "tasks", "created", created
    yield (
        "tasks",
        "begun",
        {"id": task_id, "run": 1, "owner": [], "again": False, "recovered": False, "in_front": False},
    )
    yield "tasks", "ended", ended


def test_an_answered_request_is_not_asked_again_by_a_late_reader(house: World) -> None:
    """The reader in the thread may have read the queue just before the answer."""
    import asyncio

    from kitbag.dialogs.form import FormAnswer
    from kitbag.permissions.approvals.queue import ApprovalQueue
    from kitbag.tasks.task_approvals import pending_task_questions

    task_id = in_background(house, "Push it")
    with opened_board(house) as board:
        queue = ApprovalQueue(board.journal)
        wait_until(queue.pending)
        pending = pending_task_questions(queue, [board.find(task_id)])
        questions = TaskQuestions()
        questions.update(pending, str)
        [shown] = questions.to_json()
        assert (shown["task"], shown["summary"]) == (task_id, "Bash git push")

        async def answer(*keys: str) -> str:
            [current] = questions.to_json()
            return await questions.answer(current["id"], FormAnswer(keys) if keys else None, queue)

        assert asyncio.run(answer()) == "left", "asked again later"
        assert asyncio.run(answer("n")) == "answered"
        questions.update(pending, str)
        assert questions.to_json() == []
        assert asyncio.run(questions.answer(shown["id"], FormAnswer(("y",)), queue)) == "stale"


def test_the_fleet_is_shown_where_machines_share_a_store(world: World, chromium: "Chromium", schema: "Schema") -> None:
    with page(world, chromium) as (tab, _):
        tab.until_seen("No tasks in this directory yet")
        assert not tab.page.locator(".task-fleet").is_visible()
    world.env["KITBAG_DATABASE_URL"] = schema.url
    world.env["KITBAG_HOME"] = str(world.home / ".kitbag")
    world.env["KITBAG_MODEL"] = f"scripted:{world.write('~/script.json', json.dumps(SCRIPT))}"
    world.run("config", "set", "tasks.queue", "build")
    in_background(world, "Wait long")
    with page(world, chromium) as (tab, _):
        workers = tab.page.get_by_role("region", name="Workers")
        workers.get_by_text("build").wait_for()
        queues = tab.page.get_by_role("region", name="Queues")
        queues.get_by_role("row").filter(has_text="build").wait_for()
        tab.page.locator(".task-row").first.click()
        tab.page.get_by_role("tab", name="Output").wait_for()
        assert not tab.page.locator(".task-fleet").is_visible()
