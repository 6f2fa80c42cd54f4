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
from kitbag.mcp_server.client_sessions import ConnectedClients
from kitbag.mcp_server.served_library import ServedLibrary, load_served_library
from kitbag.mcp_server.skill_uris import SkillUris

if TYPE_CHECKING:
    from kitbag.assembly.inherited import ParentContext
    from kitbag.tasks.delegation import TaskHost
    from kitbag.tasks.worker_environments import SetupCache

logger = logging.getLogger(__name__)

MIN_REFRESH_SECONDS: Final = 2.0
REFRESH_COST_FACTOR: Final = 100
"""Of the time that passes between two looks at the disk, one part in so many is spent looking."""
ChangeCallback = Callable[[ServedLibrary, ServedLibrary], Awaitable[None]]


class ServerState:
    def __init__(self, options: Options) -> None:
        """Raises KitbagError for options that make no sense here."""
        begun = time.monotonic()
        self.served = load_served_library(options)
        # What the settings said when the server started: a mode that becomes stricter later counts for all clients.
        self.options = options = options._replace(settings_mode=self.served.environment.live_rules.settings_mode)
        self._reload_seconds = time.monotonic() - begun
        self.clients = ConnectedClients(options)
        self.on_change: ChangeCallback | None = None
        self._skill_uris: tuple[ServedLibrary, SkillUris] | None = None
        self._reloaded_at = time.monotonic()
        self._reload_lock = asyncio.Lock()
        self._exit_stack = contextlib.AsyncExitStack()
        self._task_hosting: tuple[SetupCache, TaskHost] | None = None

    @property
    def skill_uris(self) -> SkillUris:
        """Of the skills as resources; worked out when somebody first asks for one."""
        if self._skill_uris is None or self._skill_uris[0] is not self.served:
            digests = self._skill_uris[1].digests if self._skill_uris is not None else None
            self._skill_uris = self.served, SkillUris(self.served.environment, digests)
        return self._skill_uris[1]

    # What is served

    async def refreshed(self, max_age: float) -> ServedLibrary:
        """What is served, looked at no longer ago than that."""
        async with self._reload_lock:
            if time.monotonic() - self._reloaded_at >= max_age:
                await self._reload()
        return self.served

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(max(MIN_REFRESH_SECONDS, REFRESH_COST_FACTOR * self._reload_seconds))
            self.clients.remove_idle()
            await self.refreshed(MIN_REFRESH_SECONDS)

    async def _reload(self) -> None:
        begun = time.monotonic()
        try:
            new = await asyncio.to_thread(load_served_library, self.options)
        except (KitbagError, OSError) as error:  # what was served stays: a persona's file is gone, say
            logger.warning("looking at the library again failed: %s", error)
            return
        finally:
            self._reloaded_at = time.monotonic()
            self._reload_seconds = self._reloaded_at - begun
        old = self.served
        if new.fingerprint == old.fingerprint and new.instructions == old.instructions:
            return
        self.served = new
        if self.on_change is not None:
            await self.on_change(old, new)

    # What agents stand on

    @contextlib.asynccontextmanager
    async def agent_setup(self) -> "AsyncGenerator[tuple[ParentContext, TaskHost], None]":
        """By the rules, trust and files as they are now. Raises KitbagError."""
        from kitbag.tasks.task import TaskRequest

        if self._task_hosting is None:
            self._task_hosting = self._open_task_hosting()
        grounds, shared = self._task_hosting
        async with grounds.acquire(TaskRequest("", "", directory=self.served.environment.places.cwd)) as inherited:
            yield inherited, shared

    def _open_task_hosting(self) -> "tuple[SetupCache, TaskHost]":
        from kitbag.assembly.model_sources import load_model_sources
        from kitbag.assembly.open_journal import open_journal
        from kitbag.events import Notice
        from kitbag.settings import load_settings
        from kitbag.tasks.board import Board
        from kitbag.tasks.delegation import TaskHost
        from kitbag.tasks.standalone_setup import load_standalone_setup
        from kitbag.tasks.task import TaskRequest
        from kitbag.tasks.worker_environments import SetupCache

        home = self.served.environment.places.kitbag_home
        journal = open_journal(home, load_model_sources(load_settings(home, ()))[0])
        self._exit_stack.callback(journal.close)

        def note(notice: Notice) -> None:
            logger.warning("%s", notice.text)

        def lay(wish: TaskRequest) -> "ParentContext":
            return load_standalone_setup(wish.directory, self.options, self.options.model, None, journal, note)

        grounds = SetupCache(lay)
        self._exit_stack.push_async_callback(grounds.close)
        return grounds, TaskHost(Board(journal))

    async def close(self) -> None:
        await self._exit_stack.aclose()


class HttpOptions(NamedTuple):
    port: int
    """0: any that is free."""
    host: str = "127.0.0.1"
    names: tuple[str, ...] = ()
    """What clients may call it, besides the address itself."""
    token_file: str = ""
    """Empty: a new token for each start."""
