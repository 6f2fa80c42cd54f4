"""What the tests about tasks and conversations in the chat share: a chat in the home of a workshop, and work that is on
its board."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from chat.answering import text_of
from kitbag.agent.session import new_session_id
from kitbag.dialogs.form import Form, FormAnswer
from kitbag.tasks import worker_process
from kitbag.tasks.task import Task
from kitbag.views.blocks import Block
from support.talking_face import Talk, TalkingFace, talking
from support.workshop import Workshop


@pytest.fixture
def workshop_at_home(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workshop]:
    """This process lives there. Workers that are started for real leave after a second."""
    workshop.world.write("~/.kitbag/settings.toml", "[tasks]\nidle = 1\n")
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "KITBAG_MODEL", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    for name, value in workshop.environment.items():
        monkeypatch.setenv(name, value)
    workshop.script({"text": "The answer is 42."})
    yield workshop
    for child, _ in worker_process._children:
        child.kill()
        child.wait()
    worker_process._children.clear()


class WaitingFace(TalkingFace):
    """Nobody answers here."""

    async def ask(self, form: Form) -> FormAnswer | None:
        self.forms.append(form)
        await asyncio.Event().wait()
        return None


@asynccontextmanager
async def held(workshop: Workshop, face: TalkingFace | None = None, **options: Any) -> AsyncIterator[Talk]:
    async with talking(workshop.world, face=face, model=model(workshop), **options) as talk:
        yield talk


def model(workshop: Workshop) -> str:
    return f"scripted:{workshop.world.workspace / 'script.json'}"


def said(blocks: tuple[Block, ...]) -> str:
    return "\n".join(text_of(block) for block in blocks)


async def begun(workshop: Workshop, root: str, prompt: str = "Do it.", *, parent: str = "", **more: Any) -> Task:
    """A task of that conversation, in the background; nobody does it yet."""
    wish = workshop.wish(prompt, **more)
    depth = 2 if parent else 1
    return await workshop.board.create(
        new_session_id(), "agent", wish, root=root, parent=parent, depth=depth, background=True
    )
