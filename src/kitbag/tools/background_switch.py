"""Moves a running tool call to the background when the user asks for it (Ctrl-B).

Used by Bash and Task, which wait for their work through it, and by the agent, which passes the user's request on.
"""

import asyncio
from typing import Any


class BackgroundSwitch:
    """Moves running calls to the background when the user asks for it."""

    def __init__(self) -> None:
        self._requests: set[asyncio.Event] = set()

    def request(self) -> int:
        """Returns how many running calls it applies to."""
        for event in self._requests:
            event.set()
        return len(self._requests)

    async def run(self, work: "asyncio.Future[Any]") -> bool:
        """Waits for the end of the work; True if the user moved it to the background first. If canceled, so is the
        work."""
        requested = asyncio.Event()
        self._requests.add(requested)
        waiting = asyncio.ensure_future(requested.wait())
        try:
            await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait([work])
            raise
        finally:
            self._requests.discard(requested)
            waiting.cancel()
        return not work.done()
