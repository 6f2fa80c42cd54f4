"""Steering an agent from Python: when the model gets a message, and that it gets each exactly once."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from kitbag.agent.inbox import Inbox
from kitbag.agent.run import Run
from kitbag.assembly.run_options import Options
from kitbag.errors import UsageError
from kitbag.events import MessageDelivered, RunEnded, ToolFinished
from kitbag.messages import Image
from kitbag.models.provider import ModelRequest, StreamItem
from kitbag.permissions.approvals.approval import ApprovalAnswer, ApprovalRequest
from kitbag.runtime.agent import Agent
from kitbag.testing import Fault, Rule, Script, Scripted, Step
from support.house import House
from support.waiting import TEST_TIMEOUT

WRITE = Step(calls=(("c1", "Write", json.dumps({"file_path": "a.txt", "content": "one"})),))
IMAGE = Image(media_type="image/png", data="AAAA")


class SteeringApprover:
    """Sends messages while it is asked: then the call is running, and no boundary can be missed."""

    one_at_a_time = True

    def __init__(self, *messages: str) -> None:
        self.messages = messages
        self.run: Run | None = None

    async def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
        assert self.run is not None
        for message in self.messages:
            await self.run.steer(message, [IMAGE] if message == "with an image" else [])
        self.messages = ()
        return ApprovalAnswer(choice="allow")


class SteeringModel(Scripted):
    """A message arrives while it answers."""

    def __init__(self, message: str, *steps: Step) -> None:
        super().__init__(Script([Rule(list(steps))]))
        self.message = message
        self.run: Run | None = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        if self.message and self.run is not None:
            await self.run.steer(self.message)
            self.message = ""
        async for item in super().stream(request):
            yield item


async def ask(
    house: House, approver: SteeringApprover, *steps: Any, prompt: str = "Write it.", **options: Any
) -> RunEnded:
    house.model = Scripted(Script([Rule([Step(text=one) if isinstance(one, str) else one for one in steps])]))
    given = Options(directory=str(house.world.workspace), **options)
    async with asyncio.timeout(TEST_TIMEOUT):
        async with Agent(options=given, provider=house.model, approver=approver) as agent:
            house.agent, house.session = agent, agent.session.id
            async with agent.run(prompt) as run:
                approver.run = run
                house.events = [event async for event in run]
            return run.ended


def last_parts(house: House, at: int) -> list[str]:
    """Of the last message of a request: the kind of each part, or its text."""
    return [getattr(part, "text", type(part).__name__) for part in house.requests[at].messages[-1].parts]


def test_the_model_gets_it_after_the_running_call_and_in_order(house: House) -> None:
    ended = asyncio.run(ask(house, SteeringApprover("Use tabs.", "with an image"), WRITE, "Done."))
    assert ended.status == "completed"
    assert last_parts(house, 1) == ["ToolResult", "Use tabs.", "Image", "with an image"]
    delivered = house.of(MessageDelivered)
    assert [(one.text, one.images) for one in delivered] == [("Use tabs.", 0), ("with an image", 1)]
    assert [type(event) for event in house.events].index(ToolFinished) < house.events.index(delivered[0])
    assert len(house.requests) == 2


def test_an_agent_that_is_done_goes_on_with_what_arrived_meanwhile(house: House) -> None:
    async def steer() -> RunEnded:
        house.model = model = SteeringModel("And now?", Step(text="First."), Step(text="Second."))
        async with Agent(options=Options(directory=str(house.world.workspace)), provider=model) as agent:
            async with agent.run("Hi") as run:
                model.run = run
                ended = await run.wait()
            with pytest.raises(UsageError, match="has ended"):
                await run.steer("too late")
            return ended

    ended = asyncio.run(steer())
    assert (ended.status, ended.text) == ("completed", "Second.")
    assert last_parts(house, -1) == ["And now?"]


def test_what_is_sent_before_the_request_is_recorded_comes_after_it(house: House) -> None:
    async def steer() -> None:
        house.model = Scripted(Script([Rule([Step(text="First.")])]))
        async with Agent(options=Options(directory=str(house.world.workspace)), provider=house.model) as agent:
            run = agent.run("Hi")
            await run.steer("Use tabs.")
            async with run:
                await run.wait()

    asyncio.run(steer())
    assert last_parts(house, 0) == ["Hi", "Use tabs."]


def test_what_a_failed_run_did_not_deliver_comes_first_in_the_next_and_only_once(house: House) -> None:
    async def fail() -> None:
        model = SteeringModel("Use tabs.", Step(fault=Fault(status=400)))
        async with Agent(options=Options(directory=str(house.world.workspace)), provider=model) as agent:
            house.session = agent.session.id
            async with agent.run("Hi") as run:
                model.run = run
                assert (await run.wait()).status == "failed"

    asyncio.run(fail())
    approver = SteeringApprover()
    asyncio.run(ask(house, approver, "Yes.", prompt="Continue.", resume=house.session))
    assert str(house.requests[0].messages).count("Use tabs.") == 1
    assert last_parts(house, 0)[-2:] == ["Use tabs.", "Continue."]
    asyncio.run(ask(house, approver, "Yes.", prompt="And?", resume=house.session))
    assert str(house.requests[0].messages).count("Use tabs.") == 1


def test_a_fork_does_not_get_what_was_sent_to_the_original(house: House) -> None:
    house.ask("Hi")
    assert house.agent is not None

    async def send() -> None:
        async with Agent(options=Options(directory=str(house.world.workspace)), provider=house.model) as agent:
            await Inbox(agent.journal, house.session).send("for the original")

    original = house.session
    asyncio.run(send())
    house.ask("Again", resume=original, fork=True)
    assert "for the original" not in str(house.requests)
    house.ask("Again", resume=original)
    assert "for the original" in str(house.requests)


def test_a_skill_for_one_turn_stays_while_the_turn_is_steered(house: House) -> None:
    house.world.skill("~/.kitbag/skills", "ways", body="THE WAYS")
    asyncio.run(ask(house, SteeringApprover("Use tabs."), WRITE, "Done.", prompt="/ways"))
    assert "THE WAYS" in str(house.requests[1].messages)
    asyncio.run(ask(house, SteeringApprover(), "Fine.", prompt="Next.", resume=house.session))
    assert "THE WAYS" not in str(house.requests[0].messages)
