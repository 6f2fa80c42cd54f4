"""Waiting for tasks: told soon after the end, never longer than the time given, whoever ends on the way."""

import asyncio
import os
import signal

import pytest

from kitbag.tasks.board import MAX_INLINE_TEXT, Board
from kitbag.tasks.owner import Owner, this_process
from kitbag.tasks.reports import build_report
from kitbag.tasks.task import Task, TaskResult
from kitbag.tasks.worker_process import wait_until_finished
from kitbag.tools.delegation import TaskReport
from kitbag.tools.task import MAX_ANSWER_CHARS, render_report
from support.waiting import TEST_TIMEOUT
from support.workshop import Workshop


def begun(workshop: Workshop) -> Task:
    task_id = workshop.put()
    assert asyncio.run(workshop.board.claim(workshop.task(task_id)))
    return workshop.task(task_id)


async def waited(board: Board, home: str, task_id: str, seconds: float = 3_600) -> str:
    """Its status then. Whoever is not told of the end waits much longer than a test may take."""
    async with asyncio.timeout(TEST_TIMEOUT):
        await wait_until_finished(board, home, task_id, seconds)
    return board.find(task_id).status


def test_twenty_who_wait_are_told_and_so_is_whoever_comes_later(workshop: Workshop) -> None:
    task = begun(workshop)

    async def main() -> None:
        boards = [Board(workshop.journal) for _ in range(20)]
        waiting = [asyncio.create_task(waited(board, workshop.home, task.id)) for board in boards]
        await workshop.journal.wait_async(workshop.journal.last_seq(), 0.1)
        assert await workshop.board.finish(task.id, task.run, TaskResult(status="completed", text="Done."))
        assert set(await asyncio.gather(*waiting)) == {"completed"}
        assert await waited(Board(workshop.journal), workshop.home, task.id) == "completed"

    asyncio.run(main())


def test_nobody_waits_longer_than_they_said(workshop: Workshop) -> None:
    task = begun(workshop)

    async def main() -> None:
        for seconds in (0.0, 0.05, 2.2):
            assert await waited(workshop.board, workshop.home, task.id, seconds) == "running"

    asyncio.run(main())


def test_of_work_whose_worker_was_killed_the_end_comes_all_the_same(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits sees to it that another worker takes over."""
    workshop.script({"text": "Done.", "delay": 0.5})
    task_id = workshop.put()
    worker = workshop.worker(idle=20)
    workshop.until_status(task_id, "running")
    workshop.until(lambda: workshop.records(task_id, "user"))
    os.kill(worker, signal.SIGKILL)
    workshop.nursery.wait(worker)
    monkeypatch.setenv("HOME", str(workshop.world.home))
    assert asyncio.run(waited(workshop.board, workshop.home, task_id)) == "completed"


def test_work_in_front_of_a_process_that_is_gone_has_ended_for_whoever_waits(workshop: Workshop) -> None:
    me = this_process()
    gone = Owner(machine=me.machine, boot=me.boot, pid=me.pid, started="1")  # the number is taken, by another process
    task_id = workshop.put(background=False)
    assert asyncio.run(workshop.board.claim(workshop.task(task_id), gone))
    assert asyncio.run(waited(workshop.board, workshop.home, task_id)) == "interrupted"


def test_a_long_answer_is_whole_page_by_page_and_in_nobody_s_memory(workshop: Workshop) -> None:
    task = begun(workshop)
    text = "".join(f"{number:07} of a long answer\n" for number in range(400_000))
    assert asyncio.run(workshop.board.finish(task.id, task.run, TaskResult(status="completed", text=text)))
    end = Board(workshop.journal).find(task.id).result
    assert end is not None
    assert (end.text, end.full_length) == (text[:MAX_INLINE_TEXT], len(text))
    report = build_report(workshop.board, workshop.task(task.id))
    assert report.text == text
    for offset in (0, 1_000_000, len(text) - 10, len(text), len(text) + 5):
        shown = _page(report, offset)
        assert text[offset : offset + MAX_ANSWER_CHARS].strip() in shown
        assert len(shown) < MAX_ANSWER_CHARS + 1_000
        assert ("more characters" in shown) == (offset + MAX_ANSWER_CHARS < len(text))


def _page(report: TaskReport, offset: int) -> str:
    return "".join(str(getattr(part, "text", "")) for part in render_report(report, offset).content)
