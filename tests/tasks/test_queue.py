"""What a queue promises, whoever submits and whoever claims: limits, keys, room and scheduled starts."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kitbag.errors import InvalidError
from kitbag.store.journal import Journal
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import Board
from kitbag.tasks.task import Task, TaskRequest, TaskResult
from kitbag.tools.delegation import QueueOptions

pytestmark = pytest.mark.usefixtures("store")
DONE = TaskResult(status="completed", text="Done.")


@pytest.fixture
def boards(tmp_path: Path) -> Iterator[list[Board]]:
    """Of several processes, as far as the journal knows."""
    with ExitStack() as opened:
        path = str(tmp_path / "state" / "journal.db")
        yield [Board(opened.enter_context(Journal.open(path, Redactor(["hunter2-hunter2"])))) for _ in range(3)]


def put(board: Board, task_id: str, key: str = "", **more: Any) -> Task:
    given: dict[str, Any] = {"root": "r", "parent": "", "depth": 1, "background": True, **more}
    request = TaskRequest(agent="doer", prompt="Do it.", directory="/w")
    return asyncio.run(board.create(task_id, "agent", request, queueing=QueueOptions(key=key), **given))


def test_processes_that_claim_at_once_never_exceed_the_limit_of_a_queue(boards: list[Board]) -> None:
    tasks = [put(boards[0], f"aaaa0000000{number}") for number in range(9)]

    async def claim_all(board: Board) -> list[str]:
        board.journal.catch_up()
        return [task.id for task in tasks if await board.claim(task, limit=2)]

    with ThreadPoolExecutor() as pool:
        claimed = [one for found in pool.map(lambda board: asyncio.run(claim_all(board)), boards) for one in found]
    assert len(claimed) == len(set(claimed)) == 2
    for board in boards:
        board.journal.catch_up()
    asyncio.run(boards[1].finish(claimed[0], 1, DONE))
    left = [task for task in tasks if task.id not in claimed]
    assert [asyncio.run(boards[1].claim(task, limit=2)) for task in left[:2]] == [True, False]
    deeper = put(boards[1], "bbbb00000001", depth=2)
    assert asyncio.run(boards[1].claim(deeper, limit=2))


def test_a_key_stands_for_one_unfinished_task(boards: list[Board]) -> None:
    with ThreadPoolExecutor() as pool:
        ids = [f"aaaa0000000{number}" for number in range(len(boards))]
        made = list(pool.map(lambda given: put(*given, key="nightly"), zip(boards, ids, strict=True)))
    first = made[0]
    assert {task.id for task in made} == {first.id}
    for board in boards:
        board.journal.catch_up()
    assert len(boards[0].all()) == 1
    assert put(boards[0], "bbbb00000001", key="other").id == "bbbb00000001"
    assert asyncio.run(boards[0].claim(first))
    asyncio.run(boards[0].finish(first.id, 1, DONE))
    assert put(boards[1], "cccc00000001", key="nightly").id == "cccc00000001"
    assert put(boards[2], "cccc00000002", key="nightly").id == "cccc00000001"


def test_a_key_that_a_restarted_task_has_again_is_not_free(boards: list[Board]) -> None:
    task = put(boards[0], "aaaa00000001", key="nightly")
    asyncio.run(boards[0].claim(task))
    asyncio.run(boards[0].finish(task.id, 1, DONE))
    boards[1].journal.catch_up()
    ended = boards[1].find(task.id)
    asyncio.run(boards[0].requeue(boards[0].find(task.id), boards[0].request(task.id)))
    assert ended.is_finished
    assert put(boards[1], "aaaa00000002", key="nightly").id == task.id


def test_a_secret_in_a_key_is_not_stored(boards: list[Board]) -> None:
    task = put(boards[0], "aaaa00000001", key="of hunter2-hunter2")
    assert put(boards[0], "aaaa00000002", key="of hunter2-hunter2").id == task.id
    rows = boards[0].journal.select("SELECT body, key FROM records")
    assert "hunter2" not in str(rows)


def test_a_full_queue_refuses_with_the_number_and_the_setting(boards: list[Board]) -> None:
    board = boards[0]
    first = put(board, "aaaa00000001", key="k", max_queued=2)
    put(board, "aaaa00000002", max_queued=2)
    with pytest.raises(InvalidError, match=r"2 background agents are waiting \(`tasks.max_queued` is 2\)"):
        put(board, "aaaa00000003", max_queued=2)
    assert put(board, "aaaa00000004", key="k", max_queued=2).id == first.id
    assert put(board, "aaaa00000005", max_queued=2, background=False).id == "aaaa00000005"
    assert asyncio.run(board.claim(first))
    assert put(board, "aaaa00000006", max_queued=2).id == "aaaa00000006"


def test_a_child_has_the_priority_of_its_parent(boards: list[Board]) -> None:
    request = TaskRequest(agent="doer", prompt="Do it.", directory="/w")

    async def create(task_id: str, parent: str, queueing: QueueOptions | None) -> int:
        made = boards[0].create(
            task_id, "agent", request, root="r", parent=parent, depth=1, background=True, queueing=queueing
        )
        return (await made).priority

    assert asyncio.run(create("aaaa00000001", "", QueueOptions(priority=7))) == 7
    assert asyncio.run(create("aaaa00000002", "aaaa00000001", None)) == 7
    assert asyncio.run(create("aaaa00000003", "aaaa00000001", QueueOptions(priority=0))) == 0
