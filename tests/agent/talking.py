"""A loop with a real journal, a scripted model and tools made for the test, for those who test its details."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from conftest import World
from kitbag.agent.ask_model import RetryPolicy
from kitbag.agent.budget import Budget, BudgetAccount, Caps
from kitbag.agent.execute import Executor
from kitbag.agent.loop import Loop
from kitbag.agent.model_config import ContextWindow, ModelConfig
from kitbag.agent.resume import resume
from kitbag.agent.run import Run
from kitbag.agent.session import Session
from kitbag.agent.session_records import SessionHeader
from kitbag.agent.turn_limits import Limits
from kitbag.errors import KitbagError
from kitbag.events import Event, RunEnded, RunStarted
from kitbag.messages import Message, Text, Usage
from kitbag.models.provider import Provider, SystemBlock
from kitbag.packing.session_skills import SessionSkills
from kitbag.permissions.approvals.approval import Approvals, Approver
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import SandboxSupport, Workspace
from kitbag.permissions.rules.rule import PermissionRules
from kitbag.store.journal import Journal
from kitbag.store.redaction import Redactor
from kitbag.testing import Rule, Script, Scripted, Step
from kitbag.tools.base import Arguments, Tool, ToolContext, ToolOutput, text_output
from kitbag.tools.toolset import Toolset
from support.waiting import TEST_TIMEOUT

NO_CAPS = Caps()
NO_LIMITS, MUCH_ROOM = Limits(), ContextWindow(size=100_000, max_output=1_000)
HASTY = RetryPolicy(attempts=3, first_wait=0.001)
FREE = {"a": "ListLoadedSkills", "b": "SearchSkills"}
"""Names of tools that need no answer and only read."""


class Anything(Arguments, frozen=True):
    text: str = ""
    number: int = 0


Work = Callable[[Anything, ToolContext], Awaitable[ToolOutput]]


def tool(name: str, work: Work, *, reads_only: bool = True) -> Tool[Anything]:
    return Tool(name=name, description="For a test.", arguments=Anything, run=work, read_only=reads_only)


async def echo(arguments: Anything, context: ToolContext) -> ToolOutput:
    del context
    return text_output(f"heard {arguments.text}", arguments.text)


def script(*steps: Any) -> Script:
    return Script([Rule([Step(text=step) if isinstance(step, str) else step for step in steps])])


def call(call_id: str, name: str, arguments: str = "{}") -> tuple[str, str, str]:
    return (call_id, name, arguments)


class Talk:
    """One session; `run` asks, and gives how it ended. `events` are of the last run."""

    def __init__(
        self,
        world: World,
        steps: Script,
        *tools: Tool[Any],
        limits: Limits = NO_LIMITS,
        caps: Caps = NO_CAPS,
        room: ContextWindow = MUCH_ROOM,
        price: Callable[[Usage], float | None] = lambda _: 0.0,
        approver: Approver | None = None,
        provider: Provider | None = None,
        system: tuple[SystemBlock, ...] = (SystemBlock(text="Be brief.", cache=True),),
    ) -> None:
        self.world = world
        self.model = Scripted(steps)
        self.provider: Provider = provider or self.model
        self.tools = tools or (tool(FREE["a"], echo),)
        self.limits = limits
        self.account = BudgetAccount(name="talk", owner="of this talk", caps=caps, fix=lambda limit: f"raise {limit}")
        self.room = room
        self.price = price
        self.approver = approver
        self.system = system
        self.journal = Journal.open(str(world.home / ".kitbag" / "state" / "journal.db"), Redactor(()))
        self.session = Session(self.journal, "talk")
        self.library = world.registry()
        self.skills = SessionSkills(self.library)
        self.events: list[Event] = []
        self.error: KitbagError | None = None
        self._started = False

    def close(self) -> None:
        self.journal.close()

    def run(self, request: str, *, then: Callable[[Run, Event], None] | None = None) -> RunEnded:
        return asyncio.run(self.asked(request, then))

    async def asked(self, request: str, then: Callable[[Run, Event], None] | None = None) -> RunEnded:
        """`then` is given each event, and may cancel the run."""
        async with asyncio.timeout(TEST_TIMEOUT), self.begun(request) as run:
            self.events = []
            async for event in run:
                self.events.append(event)
                if then is not None:
                    then(run, event)
        self.error = run.error
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others, f"left behind: {others}"
        return run.ended

    def begun(self, request: str) -> Run:
        workspace = Workspace(
            root=str(self.world.workspace), home=str(self.world.home), kitbag_home=str(self.world.home / ".kitbag")
        )
        permissions = Permissions(workspace, "default", PermissionRules(()), SandboxSupport(kind="none"))
        toolset = Toolset(self.tools, permissions)
        context = ToolContext(
            workspace=workspace,
            directory=str(self.world.workspace),
            permissions=permissions,
            library=self.library,
            skills=self.skills,
        )

        async def work(emit: Any) -> RunEnded:
            if not self._started:
                await self.session.start(SessionHeader(directory=workspace.root, model="scripted", mode="default"))
                self._started = True
            await self.session.add_user([Text(request)])
            executor = Executor(self.session, toolset, context, Approvals(self.approver), emit)
            brain = ModelConfig(provider=self.provider, model="scripted", context_window=self.room, price=self.price)
            budget = Budget(self.journal, [self.account] if self.account.caps.is_set else [])
            return await Loop(self.session, brain, executor, self.system, self.limits, emit, HASTY, budget=budget).run()

        started = RunStarted(
            session=self.session.id,
            model="scripted",
            mode="default",
            directory=workspace.root,
            skills=0,
            agents=0,
            tools=toolset.names(),
        )
        return Run(self.session, started, work)

    def resumed(self) -> Session:
        return resume(self.journal, self.session.id)

    def results(self) -> list[str]:
        """The texts of all results, in the order in which the model sees them."""
        return [
            "".join(part.text for part in result.content if isinstance(part, Text))
            for message in self.session.messages()
            for result in message.results
        ]

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def assert_valid(messages: tuple[Message, ...]) -> None:
    waiting: list[str] = []
    seen: set[str] = set()
    for at, message in enumerate(messages):
        assert message.parts
        assert message.role == ("user" if at % 2 == 0 else "assistant")
        if message.role == "user":
            assert [result.call_id for result in message.results] == waiting
            assert message.calls == ()
            waiting = []
        else:
            assert waiting == []
            assert message.results == ()
            waiting = [call.id for call in message.calls]
            assert seen.isdisjoint(waiting)
            assert len(set(waiting)) == len(waiting)
            seen.update(waiting)
    assert waiting == []
