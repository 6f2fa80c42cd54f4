"""Model requests wait for the rate limit of their provider, and say so."""

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from conftest import World
from kitbag.agent.rate_limit import RateLimiter
from kitbag.assembly.model_sources import load_model_sources
from kitbag.events import Event, Waiting
from kitbag.messages import Usage
from kitbag.settings import load_settings
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from kitbag.store.token_bucket import Bucket, RateLimit
from support.house import House

SLOW = RateLimit(requests=2, tokens=600)


def test_a_bucket_holds_a_minute_and_refills_continuously() -> None:
    bucket = Bucket(2, 600, 0.0)
    assert [bucket.take(SLOW, 1, 0, 0.0) for _ in range(4)] == [0.0, 0.0, 30.0, 60.0]
    assert bucket.take(SLOW, 1, 0, 60.0) == 30.0
    assert bucket.take(SLOW, 0, 0, 10_000.0) == 0.0
    assert bucket.take(SLOW, 1, 660, 10_000.0) == 6.0  # only what a minute holds was saved
    assert bucket.take(SLOW, 0, -60, 9_000.0) == 0.0  # a clock that goes backwards refills nothing
    assert bucket.take(SLOW, 0, 1, 10_000.0) > 0


def test_no_limit_never_waits() -> None:
    bucket = Bucket(0, 0, 0.0)
    assert bucket.take(RateLimit(), 1_000, 1_000_000, 0.0) == 0.0


@pytest.mark.usefixtures("store")
def test_processes_that_share_a_store_share_its_buckets(tmp_path: Path) -> None:
    with ExitStack() as opened:
        path = journal_path(str(tmp_path))
        first, second = (opened.enter_context(Journal.open(path, Redactor([]))) for _ in range(2))
        assert first.take_from_bucket("lab", SLOW, 2, 0) == 0.0
        assert 0 < second.take_from_bucket("lab", SLOW, 100, 0) <= 3_000
        assert 0 < first.take_from_bucket("lab", SLOW, -100, 600_000) <= 60_000
        assert second.take_from_bucket("other", SLOW, 1, 0) == 0.0


def test_a_damaged_file_of_buckets_is_replaced(tmp_path: Path) -> None:
    with Journal.open(journal_path(str(tmp_path)), Redactor([])) as journal:
        for text in ("[1", "[]", '{"lab": {"requests": "many"}}'):
            (tmp_path / "state" / "rate-limits.json").write_text(text)
            assert journal.take_from_bucket("lab", SLOW, 2, 0) == 0.0
            assert journal.take_from_bucket("lab", SLOW, 100, 0) > 0


def test_the_requests_of_a_run_are_taken_from_the_bucket_of_its_provider(house: House) -> None:
    house.world.write("~/.kitbag/settings.toml", "[providers.scripted]\nrequests_per_minute = 100000\n")
    assert house.ask("Hi", "Go on").status == "completed"
    assert not any(isinstance(event, Waiting) for event in house.events)
    bucket = json.loads((house.world.home / ".kitbag" / "state" / "rate-limits.json").read_text())["scripted"]
    assert 99_998 <= bucket["requests"] < 100_000


def test_tokens_are_settled_with_what_the_provider_counted_and_given_back_when_cancelled(tmp_path: Path) -> None:
    async def work(journal: Journal) -> None:
        shown: list[Event] = []
        limiter = RateLimiter(journal, "lab", SLOW)
        assert await limiter.wait(Usage(input=100), shown.append) == 100
        await limiter.settle(100, Usage(input=40))
        assert await limiter.wait(Usage(input=560), shown.append) == 560
        waiting = asyncio.create_task(limiter.wait(Usage(input=9_999), shown.append))
        while not shown:
            await asyncio.sleep(0)
        [event] = shown
        assert isinstance(event, Waiting)
        assert event.line().startswith("rate limit of lab: 2 requests and 600 tokens per minute; waiting ")
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert journal.take_from_bucket("lab", SLOW, 0, 0) == 0.0

    with Journal.open(journal_path(str(tmp_path)), Redactor([])) as journal:
        asyncio.run(work(journal))


@pytest.mark.parametrize("value", ["-1", "true", '"many"', "1.5"])
def test_a_limit_that_is_no_number_is_reported_and_ignored(at_home: World, value: str) -> None:
    at_home.write("~/.kitbag/settings.toml", f"[providers.lab]\nrequests_per_minute = {value}\n")
    sources, problems = load_model_sources(load_settings(str(at_home.home / ".kitbag"), ()), probe=False)
    assert [problem.problem for problem in problems] == [
        "`providers.lab.requests_per_minute` is not a non-negative integer"
    ]
    assert sources.providers["lab"].requests_per_minute == 0
