"""One running server: what it serves now, who is connected, and what its agents stand on.

It looks at the disk again by itself and tells its clients what changed. Used by server; uses served, clients and, when
an agent is first asked for, the runtime of agents.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from kitbag.assembly.run_options import Options
from kitbag.errors import KitbagError
from kitbag.mcp_server.client_sessions import Clients
from kitbag.mcp_server.served_library import Served, lay_served
from kitbag.mcp_server.skill_uris import Addresses

if TYPE_CHECKING:
    from kitbag.assembly.inherited import Inherited
    from kitbag.tasks.delegation import Shared
    from kitbag.tasks.worker_environments import Grounds

logger = logging.getLogger(__name__)

LEAST_SECONDS: Final = 2.0
SHARE: Final = 100
"""Of the time that passes between two looks at the disk, one part in so many is spent looking."""
Changed = Callable[[Served, Served], Awaitable[None]]


class House:
    def __init__(self, options: Options) -> None:
        """Raises KitbagError for options that make no sense here."""
        begun = time.monotonic()
        self.served = lay_served(options)
        # What the settings said when the server started: a mode that becomes stricter later counts for all clients.
        self.options = options = options._replace(settings_mode=self.served.ground.live.settings_mode)
        self._cost = time.monotonic() - begun
        self.clients = Clients(options)
        self.on_change: Changed | None = None
        self._addresses: tuple[Served, Addresses] | None = None
        self._looked = time.monotonic()
        self._looking = asyncio.Lock()
        self._opened = contextlib.AsyncExitStack()
        self._agents: tuple[Grounds, Shared] | None = None

    @property
    def addresses(self) -> Addresses:
        """Of the skills as resources; worked out when somebody first asks for one."""
        if self._addresses is None or self._addresses[0] is not self.served:
            digests = self._addresses[1].digests if self._addresses is not None else None
            self._addresses = self.served, Addresses(self.served.ground, digests)
        return self._addresses[1]

    # What is served

    async def fresh(self, seconds: float) -> Served:
        """What is served, looked at no longer ago than that."""
        async with self._looking:
            if time.monotonic() - self._looked >= seconds:
                await self._look()
        return self.served

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(max(LEAST_SECONDS, SHARE * self._cost))
            self.clients.forget_idle()
            await self.fresh(LEAST_SECONDS)

    async def _look(self) -> None:
        begun = time.monotonic()
        try:
            new = await asyncio.to_thread(lay_served, self.options)
        except (KitbagError, OSError) as error:  # what was served stays: a persona's file is gone, say
            logger.warning("looking at the library again failed: %s", error)
            return
        finally:
            self._looked = time.monotonic()
            self._cost = self._looked - begun
        old = self.served
        if new.mark == old.mark and new.instructions == old.instructions:
            return
        self.served = new
        if self.on_change is not None:
            await self.on_change(old, new)

    # What agents stand on

    @contextlib.asynccontextmanager
    async def inherited(self) -> "AsyncGenerator[tuple[Inherited, Shared], None]":
        """By the rules, trust and files as they are now. Raises KitbagError."""
        from kitbag.tasks.task import Wish

        if self._agents is None:
            self._agents = self._open_agents()
        grounds, shared = self._agents
        async with grounds.of(Wish("", "", directory=self.served.ground.places.cwd)) as inherited:
            yield inherited, shared

    def _open_agents(self) -> "tuple[Grounds, Shared]":
        from kitbag.assembly.model_sources import model_sources
        from kitbag.assembly.open_journal import open_journal
        from kitbag.events import Notice
        from kitbag.settings import load_settings
        from kitbag.tasks.board import Board
        from kitbag.tasks.delegation import Shared
        from kitbag.tasks.standalone_setup import lay_inherited
        from kitbag.tasks.task import Wish
        from kitbag.tasks.worker_environments import Grounds

        home = self.served.ground.places.kitbag_home
        journal = open_journal(home, model_sources(load_settings(home, ()))[0])
        self._opened.callback(journal.close)

        def note(notice: Notice) -> None:
            logger.warning("%s", notice.text)

        def lay(wish: Wish) -> "Inherited":
            return lay_inherited(wish.directory, self.options, self.options.model, None, journal, note)

        grounds = Grounds(lay)
        self._opened.push_async_callback(grounds.close)
        return grounds, Shared(Board(journal))

    async def close(self) -> None:
        await self._opened.aclose()


class Listening(NamedTuple):
    port: int
    """0: any that is free."""
    host: str = "127.0.0.1"
    names: tuple[str, ...] = ()
    """What clients may call it, besides the address itself."""
    token_file: str = ""
    """Empty: a new token for each start."""
