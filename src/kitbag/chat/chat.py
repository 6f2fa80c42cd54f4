"""A conversation at a face: reads what the person does, lets the agent work, shows what happens.

Used by start. Uses runtime/agent for the work, event_view for what is shown of it, commands for `/name`.
"""

from collections.abc import Coroutine, Sequence
from typing import Any

from kitbag.chat.blocks import Block
from kitbag.chat.face import Face
from kitbag.messages import Image
from kitbag.runtime.agent import Agent
from kitbag.runtime.options import Options


class Chat:
    face: Face
    agent: Agent
    """Another one after /clear and /resume."""
    details_open: bool
    """Whether results and thoughts are shown whole (Ctrl-O)."""

    def show(self, *blocks: Block) -> None:
        self.face.show(*blocks)

    @property
    def is_working(self) -> bool:
        """In front."""
        raise NotImplementedError

    async def open_session(self, options: Options) -> None:
        """Another conversation (`options.resume` for an earlier one) takes the place of this one, once it is open. Raises
        KitbagError, and then all is as it was."""
        raise NotImplementedError

    async def work(self, activity: str, doing: Coroutine[Any, Any, None]) -> None:
        """In front, to its end, with the time it takes shown; Esc cancels it."""
        raise NotImplementedError

    def submit(self, text: str, images: Sequence[Image] = ()) -> None:
        """As if it had been typed."""
        raise NotImplementedError

    async def cancel(self) -> bool:
        """What works in front, and wait until it has stopped. False: nothing did."""
        raise NotImplementedError

    def refresh(self) -> None:
        """Draw the status anew, after something in it has changed."""
        raise NotImplementedError

    def leave(self, code: int = 0) -> None:
        raise NotImplementedError
