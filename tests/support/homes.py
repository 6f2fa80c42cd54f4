"""A person's home with a team of two personas, and agents that are asked there, one after another, by those who test what
changes in between."""

import asyncio
import json
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from conftest import World
from kitbag.agent.ask_model import RetryPolicy
from kitbag.assembly.run_options import Options
from kitbag.events import Event
from kitbag.models.provider import ModelRequest
from kitbag.runtime.agent import Agent
from kitbag.testing import Rule, Script, Scripted, Step
from support.waiting import TEST_TIMEOUT

AN_AGENT = "## Your Task"
"""Stands in the prompt of one that another one started."""


class Home:
    """A person's home with a team, and agents that are asked there, one after another."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.events: list[Event] = []
        self.model = Scripted(Script([]))

    @asynccontextmanager
    async def agent(self, steps: Any = ("Fine.",) * 20, **options: Any) -> AsyncGenerator[Agent, None]:
        given = (
            [Step(text=one) if isinstance(one, str) else one for one in steps] if not isinstance(steps, Script) else []
        )
        self.model = Scripted(steps if isinstance(steps, Script) else Script([Rule(given)]))
        wanted = Options(directory=str(self.world.workspace), **options)
        async with (
            asyncio.timeout(TEST_TIMEOUT),
            Agent(options=wanted, provider=self.model, retry_policy=RetryPolicy(first_wait=0.001)) as agent,
        ):
            yield agent

    async def ask(self, agent: Agent, request: str) -> ModelRequest:
        """The last request that the model was sent for it."""
        await self.ask_any(agent, request)
        return self.model.requests[-1]

    async def ask_any(self, agent: Agent, request: str) -> None:
        """One with a model of its own."""
        async with agent.run(request) as run:
            self.events = [event async for event in run]
        assert run.ended.status == "completed", run.ended

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def prompt(request: ModelRequest) -> str:
    return "".join(block.text for block in request.system)


def tools(request: ModelRequest) -> list[str]:
    return [tool.name for tool in request.tools]


def load(skill: str, call_id: str = "s1") -> Step:
    return Step(calls=((call_id, "Skill", json.dumps({"skill": skill})),))


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TEST_TIMEOUT):
            await work()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(bounded())


def home_with_personas(world: World, monkeypatch: pytest.MonkeyPatch) -> Home:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "KITBAG_MODEL", "KITBAG_HOME", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(world.home))
    skills = "~/.kitbag/skills"

    def skill(path: str, name: str, description: str) -> None:
        world.write(f"{skills}/{path}.md", f"---\nname: {name}\ndescription: {description}\n---\nBODY of {name}.\n")

    skill("core/basics", "basics", "Basic ways.")
    skill("shop/core/shop_basics", "shop_basics", "Ways of the shop.")
    skill("shop/developer/code_review", "code_review", "Reviews code.")
    skill("shop/support/incident_investigation", "incident_investigation", "Investigates incidents.")
    skill("shop/kusto_queries", "kusto_queries", "Writes kusto queries over telemetry tables.")
    world.write(
        f"{skills}/shop/_persona_developer.yaml",
        "name: developer\ndescription: Builds the shop.\nsystem_prompt_additions: You BUILD. With care, and tests first.\n"
        "subagents: [code-reviewer]\n",
    )
    world.write(
        f"{skills}/shop/_persona_support.yaml",
        "name: support\ndisplay_name: Support Hero\ndescription: Helps people.\nsystem_prompt_additions: You HELP.\n"
        "skills: [incident_investigation, incident_reporting]\non_demand_skills: [kusto_queries]\n"
        "subagents: [investigation-reporter]\n",
    )
    for name in ("code-reviewer", "investigation-reporter"):
        world.write(
            f"{skills}/shop/_subagents/{name}.yaml",
            f"name: {name}\ndescription: The {name}.\nprompt: You are {name}.\ntools: [Read]\n",
        )
    return Home(world)


def git(world: World, *words: str) -> str:
    return subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
        cwd=world.workspace, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
