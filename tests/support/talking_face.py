"""A face at which a person is played who knows what is coming: answers forms from a list, and presses keys in panels.

With `talking`, a real chat around a real agent with a scripted model, in which commands are typed and things are said.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from chat.answering import Answer, AnsweringFace, text_of
from conftest import World
from kitbag.agent.ask_model import RetryPolicy
from kitbag.assembly.run_options import Options
from kitbag.chat.chat import Chat
from kitbag.chat.commands import COMMANDS
from kitbag.chat.ui import ExitRequested, Panel, PanelRow, Submitted, UserAction
from kitbag.permissions.approvals.approval import Approver
from kitbag.runtime.agent import Agent
from kitbag.testing import Rule, Script, Scripted, Step
from kitbag.views.blocks import Block
from support.waiting import TEST_TIMEOUT


class TalkingFace(AnsweringFace):
    """`pressed`: (key, row) in the next panel, one after another. Plain: it has no panels."""

    def __init__(self, *answers: Answer, pressed: Sequence[tuple[str, str]] = (), plain: bool = False) -> None:
        super().__init__(*answers)
        self.is_plain = plain
        self.can_ask = True
        self.pressed = list(pressed)
        self.panels: list[tuple[PanelRow, ...]] = []
        """The rows at the beginning, and after each key."""
        self.lines: list[str] = []
        """What is typed once somebody reads."""

    async def next(self) -> UserAction:
        return Submitted(text=self.lines.pop(0)) if self.lines else ExitRequested(immediately=False)

    async def open(self, panel: Panel) -> bool:
        if self.is_plain:
            return False
        self.panels.append(panel.rows())
        for key, row in self.pressed:
            assert row in [one.id for one in panel.rows()], f"no row {row}"
            assert key in [action.key for action in panel.actions], f"no key {key}"
            await panel.run_action(key, row)
            self.panels.append(panel.rows())
        self.pressed = []
        return True

    def line(self, row: str, at: int = -1) -> str:
        """How a row of the panel looks, at the end."""
        return "".join(span.text for one in self.panels[at] if one.id == row for span in one.line)


class Talk:
    def __init__(self, world: World, chat: Chat, face: TalkingFace, model: Scripted) -> None:
        self.world = world
        self.chat = chat
        self.face = face
        self.model = model

    @property
    def agent(self) -> Agent:
        return self.chat.agent

    async def say(self, text: str) -> None:
        async with self.agent.run(text) as run:
            async for _ in run:
                pass
        assert run.error is None

    async def command(self, line: str) -> str:
        """A command; gives what it showed."""
        name, _, arguments = line.removeprefix("/").partition(" ")
        known = len(self.face.blocks)
        await COMMANDS[name].load()(self.chat, arguments.strip())
        return "\n".join(text_of(block) for block in self.face.blocks[known:])

    def shown(self, kind: type[Block]) -> list[Any]:
        return [block for block in self.face.blocks if isinstance(block, kind)]

    def last_request(self) -> str:
        return str(self.model.requests[-1])


@asynccontextmanager
async def talking(
    world: World,
    *steps: Any,
    face: TalkingFace | None = None,
    model: str = "",
    approver: Approver | None = None,
    **options: Any,
) -> AsyncIterator[Talk]:
    """`steps`: what the model says, unless a real one is named. The workspace is trusted unless it is said otherwise."""
    scripted = Scripted(Script([Rule([Step(text=one) if isinstance(one, str) else one for one in steps])]))
    given = Options(directory=str(world.workspace), model=model, **{"trust_workspace": True, **options})
    played = face or TalkingFace(plain=True)
    provider, retry_policy = (None if model else scripted), RetryPolicy(first_wait=0.001)
    async with asyncio.timeout(TEST_TIMEOUT):
        async with Agent(options=given, provider=provider, approver=approver, retry_policy=retry_policy) as agent:
            yield Talk(world, Chat(played, agent, lambda other: Agent(options=other)), played, scripted)
