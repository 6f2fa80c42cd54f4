"""Topics and event streams: what a browser that starts, was away, or is slow gets."""

import asyncio
import json
import random
from typing import Any

import pytest

from kitbag.web.event_stream import EventStreams
from kitbag.web.topics import FIRST_ENTRIES, MAX_BYTES, Topic, TopicCursor


def read(events: list[bytes]) -> list[dict[str, Any]]:
    text = b"".join(events).decode()
    return [json.loads(part.removeprefix("data: ")) for part in text.split("\n\n") if part.startswith("data: ")]


def take(topic: Topic, cursor: TopicCursor) -> list[dict[str, Any]]:
    events: list[bytes] = []
    has_more = True
    while has_more:
        found, has_more = topic.changes(cursor)
        events += found
    return read(events)


def test_a_browser_that_starts_gets_the_last_entries_and_the_newest_state() -> None:
    topic = Topic("t")
    for number in range(FIRST_ENTRIES + 50):
        topic.add("block", {"html": str(number)})
        topic.set("live", {"html": f"live {number}"})
    events = take(topic, TopicCursor())
    assert events[0] == {"topic": "t", "kind": "reset", "is_complete": False, "is_new": True}
    assert [event["number"] for event in events if event["kind"] == "block"] == list(range(50, FIRST_ENTRIES + 50))
    assert [event["html"] for event in events if event["kind"] == "live"] == [f"live {FIRST_ENTRIES + 49}"]
    earlier, is_complete = topic.entries_before(50, 20)
    assert not is_complete
    assert [one["number"] for one in earlier] == list(range(30, 50))


def test_large_entries_are_sent_a_few_at_a_time() -> None:
    topic = Topic("t")
    for number in range(20):
        topic.add("block", {"html": str(number) + "x" * (MAX_BYTES // 3)})
    there = TopicCursor(number=-1, is_started=True)
    sizes = []
    has_more = True
    while has_more:
        events, has_more = topic.changes(there)
        sizes.append(sum(map(len, events)))
    assert len(sizes) > 4
    assert max(sizes) < 2 * MAX_BYTES
    numbers = [event["number"] for event in take(topic, TopicCursor()) if event["kind"] == "block"]
    assert 0 < len(numbers) < 6
    assert numbers[-1] == 19
    earlier, is_complete = topic.entries_before(numbers[0], 100)
    assert [one["number"] for one in earlier] == list(range(numbers[0] - len(earlier), numbers[0]))
    assert 0 < len(earlier) < 6
    assert not is_complete


def test_a_browser_that_is_far_behind_starts_again() -> None:
    """It follows a chat before its session is replayed."""
    topic = Topic("t")
    there = TopicCursor()
    take(topic, there)
    for number in range(5_000):
        topic.add("block", {"html": str(number)})
    found = take(topic, there)
    assert found[0] == {"topic": "t", "kind": "reset", "is_complete": False, "is_new": False}
    assert [event["number"] for event in found[1:]] == list(range(5_000 - FIRST_ENTRIES, 5_000))


def test_a_tab_that_comes_back_learns_that_its_chat_has_ended() -> None:
    async def first_events() -> list[dict[str, Any]]:
        streams = EventStreams({"a": Topic("a")}.get)
        stream = streams.serve({"a": -1, "chat:ended": 7}, streams.server_id)
        await anext(stream)
        events = read([await anext(stream)])
        await stream.aclose()
        return events

    assert {"topic": "chat:ended", "kind": "gone"} in asyncio.run(first_events())


def test_hints_are_for_those_who_were_there() -> None:
    topic = Topic("t")
    there = TopicCursor()
    take(topic, there)
    topic.add("hint", {"text": "now"}, transient=True)
    topic.add("block", {"html": "kept"})
    assert [event["kind"] for event in take(topic, there)] == ["hint", "block"]
    assert [event["kind"] for event in take(topic, TopicCursor())] == ["reset", "block"]


def test_what_was_cleared_is_not_sent_again() -> None:
    topic = Topic("t")
    there = TopicCursor()
    topic.add("block", {"html": "before"})
    take(topic, there)
    topic.clear()
    topic.add("block", {"html": "after"})
    assert [event["kind"] for event in take(topic, there)] == ["clear", "block"]
    assert "before" not in json.dumps(take(topic, TopicCursor()))
    assert topic.entries_before(1, 10) == ([], True)


def test_a_browser_that_was_away_while_the_topic_was_cleared_starts_again() -> None:
    topic = Topic("t")
    away = TopicCursor()
    for number in range(5):
        topic.add("block", {"html": str(number)})
    take(topic, away)
    for number in range(5, 10):
        topic.add("block", {"html": str(number)})
    topic.clear()
    topic.add("block", {"html": "new"})
    found = take(topic, away)
    assert [event["kind"] for event in found] == ["reset", "clear", "block"]
    assert not found[0]["is_new"]


@pytest.mark.parametrize("seed", range(20))
def test_streams_that_break_off_at_random_lose_and_reorder_nothing(seed: int) -> None:
    """Each of several browsers takes what there is whenever it likes, reconnects with what it has, and misses nothing."""
    chance = random.Random(seed)
    topic = Topic("t")
    numbers: list[list[int]] = [[] for _ in range(4)]
    cursors = [TopicCursor() for _ in numbers]
    for step in range(400):
        if chance.random() < 0.6:
            topic.add("block", {"html": str(step)})
        which = chance.randrange(len(numbers))
        if chance.random() < 0.2:  # a new stream that continues
            cursors[which] = TopicCursor(number=numbers[which][-1] if numbers[which] else -1)
        if chance.random() < 0.4:
            for event in read(topic.changes(cursors[which], most=chance.randrange(1, 9))[0]):
                if event["kind"] == "reset":
                    numbers[which].clear()
                elif event["kind"] == "block":
                    numbers[which].append(event["number"])
    for got, cursor in zip(numbers, cursors, strict=True):
        got += [event["number"] for event in take(topic, cursor) if event["kind"] == "block"]
        assert got == list(range(got[0], topic.last_number + 1))


def test_a_stream_follows_several_topics_and_ends_when_it_is_closed() -> None:
    async def work() -> list[dict[str, Any]]:
        topics = {name: Topic(name) for name in "ab"}
        streams = EventStreams(topics.get)
        events: list[bytes] = []

        async def browser() -> None:
            async for part in streams.serve({"a": -1, "b": -1, "unknown": -1}, ""):
                events.append(part)
                if b"last" in part:
                    streams.close()

        running = asyncio.create_task(browser())
        await asyncio.sleep(0)
        topics["a"].add("block", {"html": "first"})
        topics["b"].add("block", {"html": "last"})
        await running
        assert not topics["a"].is_followed
        return read(events)

    events = asyncio.run(work())
    assert events[0]["kind"] == "hello"
    assert [event["html"] for event in events if event["kind"] == "block"] == ["first", "last"]


def test_numbers_of_another_server_mean_nothing() -> None:
    async def first_events(server: str) -> list[dict[str, Any]]:
        topic = Topic("a")
        topic.add("block", {"html": "one"})
        streams = EventStreams({"a": topic}.get)
        stream = streams.serve({"a": 0}, server or streams.server_id)
        await anext(stream)
        topic.add("block", {"html": "two"})
        events = read([await anext(stream)])
        await stream.aclose()
        return events

    assert [event["kind"] for event in asyncio.run(first_events(""))] == ["block"]
    assert [event["kind"] for event in asyncio.run(first_events("other"))] == ["reset", "block", "block"]
