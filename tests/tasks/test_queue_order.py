"""Which of many queued tasks a worker starts next."""

from collections.abc import Iterable
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from kitbag.tasks.queue_order import COMMAND_LANE, QueueOrder
from kitbag.tasks.task import Task, timestamp
from support.cost import steps
from support.matrix import examples


def make(number: int, session: str = "s", **more: Any) -> Task:
    usual: dict[str, Any] = {"kind": "agent", "queue": "q", "depth": 1, "background": True, "directory": "/w"}
    created = f"2026-01-01T00:00:{number:06}Z"
    named: dict[str, Any] = {"id": f"{number:06}", "agent": "a", "description": "", "parent": "", "created": created}
    return Task(root=session, **{**usual, **named, **more})


class Slots:
    """A worker with some slots per lane."""

    def __init__(self, slots: int, tasks: Iterable[Task] = (), **limits: int) -> None:
        self.lacking: dict[str, str] = {}
        self.order = QueueOrder(frozenset(("q", "r")), limits, lambda task: self.lacking.get(task.directory, ""))
        self.free = slots
        for task in tasks:
            self.order.update(task)

    def start(self) -> list[str]:
        """The numbers of those that it can start now."""
        found: list[Task] = []
        while self.free and (task := self.order.choose(lambda _: True)) is not None:
            self.free -= 1
            found.append(task)
            self.order.update(msgspec.structs.replace(task, status="running", run=task.run + 1))
        return [str(int(task.id)) for task in found]

    def end(self, task: Task) -> None:
        self.free += 1
        self.order.update(msgspec.structs.replace(task, status="completed", run=task.run + 1))


def test_higher_priorities_start_first_and_the_oldest_first_among_equals() -> None:
    tasks = [make(1), make(2, priority=5), make(3, priority=-1), make(4, priority=5), make(5)]
    assert Slots(9, reversed(tasks)).start() == ["2", "4", "1", "5", "3"]


def test_a_session_with_many_tasks_does_not_starve_another() -> None:
    many = [make(number, "many") for number in range(1, 100)]
    one = make(500, "one")
    slots = Slots(4, [*many, one])
    assert slots.start() == ["1", "500", "2", "3"]
    slots.end(many[0])
    slots.order.update(make(600, "one"))
    assert slots.start() == ["600"]  # one runs there, and two of the other
    slots.end(one)
    slots.order.update(make(700, "late"))
    assert slots.start() == ["700"]


def test_fairness_is_within_a_priority() -> None:
    tasks = [make(1, "a", priority=1), make(2, "a", priority=1), make(3, "b")]
    assert Slots(3, tasks).start() == ["1", "2", "3"]


def test_a_scheduled_task_starts_when_its_time_has_come() -> None:
    past, future = timestamp(0.0), timestamp(9_000_000_000.0)
    slots = Slots(9, [make(1, not_before=future), make(2, not_before=past)])
    assert (slots.start(), slots.order.has_scheduled) == (["2"], True)
    slots.order.update(make(1, not_before=future, warnings=("it says something",)))
    slots.order.update(make(1, not_before=past))
    assert (slots.start(), slots.order.has_scheduled) == (["1"], False)


def test_a_queue_at_its_limit_leaves_others_alone() -> None:
    slots = Slots(9, [make(1), make(2), make(3, depth=2), make(4, queue="r"), make(5, kind="command")], q=1)
    assert sorted(slots.start()) == ["1", "3", "4", "5"]
    slots.end(make(1))
    assert slots.start() == ["2"]


def test_only_lanes_with_room_are_considered() -> None:
    slots = Slots(1, [make(1), make(2, kind="command", priority=-9)])
    found = slots.order.choose(lambda lane: lane == COMMAND_LANE)
    assert found is not None
    assert found.id == "000002"


def test_what_the_worker_cannot_run_is_set_aside_until_it_can() -> None:
    slots = Slots(9)
    slots.lacking = {"/missing": "no directory"}
    for number in range(1, 4):
        slots.order.update(make(number, directory="/missing"))
    slots.order.update(make(4))
    assert slots.start() == ["4"]
    slots.order.retry()
    assert slots.start() == []
    slots.order.update(make(2, directory="/missing", stop_requested=True))
    assert list(slots.order.stopped) == ["000002"]
    slots.lacking = {}
    slots.order.retry()
    assert slots.start() == ["1", "3"]


def test_a_lost_claim_is_tried_again_only_if_the_board_does_not_say_who_won() -> None:
    order = Slots(9, [make(1), make(2)]).order
    assert [order.choose(lambda _: True) for _ in range(3)] == [make(1), make(2), None]
    order.lose("000001")
    order.lose("000002")
    assert order.choose(lambda _: True) is None
    order.update(make(1, status="running", run=1))
    order.retry()
    assert [order.choose(lambda _: True) for _ in range(2)] == [make(2), None]
    assert list(order.running) == ["000001"]


def test_other_queues_foreground_tasks_and_newer_versions_are_not_chosen() -> None:
    tasks = [make(1, queue="x"), make(2, background=False), make(3, version="999.0"), make(4, stop_requested=True)]
    slots = Slots(9, tasks)
    assert slots.start() == []
    assert (list(slots.order.newer), list(slots.order.stopped)) == (["000003"], ["000004"])
    slots.order.update(make(3, version="999.0", status="cancelled"))
    slots.order.update(make(4, status="cancelled"))
    assert (slots.order.newer, slots.order.stopped) == ({}, {})


def test_a_choice_takes_as_long_among_many_tasks_as_among_few() -> None:
    def cost(count: int) -> int:
        slots = Slots(0, [make(number, f"s{number % 10}") for number in range(count)])
        slots.free = 20
        return steps(slots.start)

    assert cost(5_000) < 3 * cost(50)


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 1), st.sampled_from("abc")), max_size=40), st.data())
def test_every_choice_is_the_one_that_looking_at_all_tasks_would_make(
    rows: list[tuple[int, int, str]], data: st.DataObject
) -> None:
    waiting = [make(number, session, priority=priority) for number, (_, priority, session) in enumerate(rows)]
    running: list[Task] = []
    order = Slots(0, waiting).order
    while waiting:
        for task in [task for task in running if data.draw(st.booleans())]:
            running.remove(task)
            order.update(msgspec.structs.replace(task, status="completed"))
        best = min(waiting, key=lambda task: (-task.priority, sum(one.root == task.root for one in running), task.id))
        chosen = order.choose(lambda _: True)
        assert chosen == best
        waiting.remove(best)
        running.append(msgspec.structs.replace(best, status="running", run=1))
        order.update(running[-1])
    assert order.choose(lambda _: True) is None
