"""Agents that are asked one after another, in this process, with a scripted model."""

import asyncio
import json
from typing import Any

from conftest import World
from kitbag.agent.ask_model import RetryPolicy
from kitbag.assembly.run_options import Options
from kitbag.events import Event, Notice, RunEnded
from kitbag.models.provider import ModelRequest
from kitbag.permissions.approvals.approval import Approver
from kitbag.runtime.agent import Agent
from kitbag.testing import Rule, Script, Scripted, Step
from support.waiting import TEST_TIMEOUT


class House:
    """A world in which agents are asked, one after another."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.events: list[Event] = []
        self.model = Scripted(Script([]))
        self.session = ""
        self.agent: Agent | None = None

    def ask(
        self,
        *requests: str,
        steps: Any = ("Fine.",) * 20,
        model: str = "",
        approver: Approver | None = None,
        **options: Any,
    ) -> RunEnded:
        return asyncio.run(self._ask(requests, steps, model, approver, options))

    async def _ask(
        self, requests: tuple[str, ...], steps: Any, model: str, approver: Approver | None, options: dict[str, Any]
    ) -> RunEnded:
        script = steps if isinstance(steps, Script) else Script([Rule([_step(step) for step in steps])])
        self.model, self.events = Scripted(script), []
        given = Options(directory=str(self.world.workspace), **options)
        ended: RunEnded | None = None
        async with asyncio.timeout(TEST_TIMEOUT):
            retry_policy = RetryPolicy(first_wait=0.001)
            async with Agent(
                model, options=given, provider=self.model, approver=approver, retry_policy=retry_policy
            ) as agent:
                self.agent, self.session = agent, agent.session.id
                for request in requests:
                    async with agent.run(request) as run:
                        self.events += [event async for event in run]
                    ended = run.ended
                    if run.error is not None:
                        raise run.error
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert ended is not None
        return ended

    @property
    def requests(self) -> list[ModelRequest]:
        return self.model.requests

    def prompt(self, at: int = -1) -> str:
        return "".join(block.text for block in self.requests[at].system)

    def tools(self) -> list[str]:
        return [tool.name for tool in self.requests[-1].tools]

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def notices(self) -> str:
        return "\n".join(f"{notice.text} {notice.fix}" for notice in self.of(Notice))


def _step(step: Any) -> Any:
    return Step(text=step) if isinstance(step, str) else step


def load(skill: str, call_id: str = "s1") -> Step:
    return Step(calls=((call_id, "Skill", json.dumps({"skill": skill})),))
