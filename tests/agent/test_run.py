"""A run ends with exactly one RunEnded, however it is left."""

import asyncio

import pytest

from agent.talking import Talk, assert_valid, script
from kitbag.agent.loop import CUT_OFF_MARKER
from kitbag.agent.run import Run
from kitbag.events import RunEnded, TextDelta
from kitbag.messages import Usage
from kitbag.store.private_files import StoreError
from kitbag.testing import Fault, Step
from support.waiting import TEST_TIMEOUT

ENDLESS = Step(text="Hello, you there.", fault=Fault(times=99, kind="idle", seconds=3_600))


def bounded(work) -> object:
    async def go() -> object:
        async with asyncio.timeout(TEST_TIMEOUT):
            result = await work
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    return asyncio.run(go())


def test_cancelled_before_its_first_step(talk) -> None:
    one: Talk = talk(script("Hello."))

    async def go() -> list[object]:
        async with one.begun("Hi") as run:
            run.cancel()
            run.cancel()
            return [event async for event in run]

    events = bounded(go())
    assert [event.status for event in events if isinstance(event, RunEnded)] == ["cancelled"]  # type: ignore[attr-defined]
    assert one.model.requests == []


def test_cancelled_in_the_middle_of_a_reply_keeps_and_marks_what_was_said(talk) -> None:
    one: Talk = talk(script(ENDLESS, "Fine."))

    def stop(run: Run, event: object) -> None:
        if isinstance(event, TextDelta):
            run.cancel()

    ended = one.run("Hi", then=stop)
    assert ended.status == "cancelled"
    assert one.session.messages()[-1].text == f"Hello, y\n\n{CUT_OFF_MARKER}"
    assert one.run("Go on").text == "Fine."
    assert_valid(one.session.messages())
    assert one.resumed().messages() == one.session.messages()


@pytest.mark.parametrize("moment", range(6))
def test_cancelled_while_a_reply_is_written_down_its_calls_have_results(talk, moment: int) -> None:
    step = Step(calls=(("c1", "ListLoadedSkills", "{}"), ("c2", "ListLoadedSkills", "{}")))
    one: Talk = talk(script(step, "Fine."))
    run = one.begun("Hi")
    write = one.journal.write

    async def cancelling(stream: str, kind: str, body: object) -> int:
        if kind == "reply":
            run.cancel()
        for _ in range(moment):
            await asyncio.sleep(0)
        return await write(stream, kind, body)

    async def go() -> None:
        async with run:
            await run.wait()

    one.journal.write = cancelling  # type: ignore[method-assign]
    bounded(go())
    assert run.ended.status == "cancelled"
    assert len(one.results()) == 2
    assert one.resumed().warnings == []
    assert one.resumed().messages() == one.session.messages()


def test_cancelled_while_it_waits_to_try_again(talk) -> None:
    one: Talk = talk(script(Step(text="x", fault=Fault(times=99, status=429))))

    class Waits:
        name = "scripted"

        async def close(self) -> None: ...

        async def stream(self, request):
            from kitbag.models.provider import ModelError

            raise ModelError("overloaded", "come back later", retry_after=100)
            yield

    one.provider = Waits()

    def stop(run: Run, event: object) -> None:
        if type(event).__name__ == "Retrying":
            run.cancel()

    assert one.run("Hi", then=stop).status == "cancelled"


def test_leaving_the_block_early_ends_the_work(talk) -> None:
    one: Talk = talk(script(ENDLESS))

    async def go() -> Run:
        async with one.begun("Hi") as run:
            async for event in run:
                if isinstance(event, TextDelta):
                    break
        return run

    run = bounded(go())
    assert run.ended.status == "cancelled"  # type: ignore[attr-defined]


def test_an_error_in_the_block_is_what_comes_out_of_it(talk) -> None:
    one: Talk = talk(script(ENDLESS))

    async def go() -> None:
        async with one.begun("Hi"):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        bounded(go())
    assert next(reversed(list(one.journal.read("session/talk")))).kind == "ended"


def test_a_fault_of_ours_is_told_and_raised(talk) -> None:
    one: Talk = talk(script("Hello."), price=lambda usage: 1 / 0)

    async def go() -> None:
        async with one.begun("Hi") as run:
            one.events = [event async for event in run]

    with pytest.raises(ZeroDivisionError):
        bounded(go())
    assert one.events[-1].status == "failed"  # type: ignore[union-attr]
    assert "ZeroDivisionError" in one.events[-1].error  # type: ignore[union-attr]


def full_at_the_end(one: Talk) -> None:
    """Nothing can be written any more when the run's end is about to be."""
    write = one.journal.write

    async def closing(stream: str, kind: str, body: object) -> int:
        if kind == "ended":
            one.journal.close()
        return await write(stream, kind, body)

    one.journal.write = closing  # type: ignore[method-assign]


def test_a_run_whose_end_can_t_be_written_failed_and_says_why_and_keeps_its_answer(talk) -> None:
    one: Talk = talk(script("Hello."))
    full_at_the_end(one)
    ended = one.run("Hi")
    assert (ended.status, ended.text) == ("failed", "Hello.")
    assert isinstance(one.error, StoreError)
    assert (ended.error, ended.fix) == (one.error.problem, one.error.fix)
    assert one.of(RunEnded) == [ended]


def test_a_cancelled_run_whose_end_can_t_be_written_says_how_to_fix_that(talk) -> None:
    one: Talk = talk(script(ENDLESS))
    full_at_the_end(one)

    def stop(run: Run, event: object) -> None:
        if isinstance(event, TextDelta):
            run.cancel()

    ended = one.run("Hi", then=stop)
    assert isinstance(one.error, StoreError)
    assert (ended.status, ended.error, ended.fix) == ("failed", one.error.problem, one.error.fix)


def test_a_run_that_failed_before_its_end_could_not_be_written_says_why_it_failed_first(talk) -> None:
    one: Talk = talk(script(Step(text="x", fault=Fault(times=99, status=401))))
    full_at_the_end(one)
    ended = one.run("Hi")
    assert ended.status == "failed"
    assert "401" in ended.error
    assert "is closed" not in ended.error


def test_a_second_reader_ends_at_once_and_the_end_is_there_afterwards(talk) -> None:
    one: Talk = talk(script(Step(text="Hello.", usage=Usage(input=10, output=2))))

    async def go() -> Run:
        async with one.begun("Hi") as run:
            await run.wait()
            assert [event async for event in run] == []
        return run

    run = bounded(go())
    assert run.ended == RunEnded(status="completed", text="Hello.", turns=1, usage=Usage(input=10, output=2), cost=0.0)  # type: ignore[attr-defined]


def test_it_is_for_one_request(talk) -> None:
    one: Talk = talk(script("Hello."))

    async def go() -> None:
        async with one.begun("Hi") as run:
            await run.wait()
            with pytest.raises(RuntimeError):
                async with run:
                    pass

    bounded(go())


def test_before_its_end_it_does_not_say_how_it_ended(talk) -> None:
    with pytest.raises(RuntimeError):
        _ = talk(script("Hello.")).begun("Hi").ended
