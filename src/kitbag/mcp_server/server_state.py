"""The state of a running server: the served library, connected clients, and the setup for agents.

Reloads the library when files change and notifies clients. Used by server; uses served_library, client_sessions and, on
the first agent call, tasks.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kitbag.assembly.run_options import Options
from kitbag.errors import KitbagError
from kitbag.mcp_server.client_sessions import ConnectedClients
from kitbag.mcp_server.served_library import ServedLibrary, load_served_library
from kitbag.mcp_server.skill_prompts import SkillPrompts
from kitbag.mcp_server.skill_uris import SkillUris

if TYPE_CHECKING:
    from kitbag.assembly.parent_context import ParentContext
    from kitbag.store.journal import Journal
    from kitbag.tasks.task_host import TaskHost
    from kitbag.tasks.worker_environments import SetupCache

logger = logging.getLogger(__name__)

MIN_REFRESH_SECONDS: Final = 2.0
REFRESH_COST_FACTOR: Final = 100
"""The server spends at most one part in this many of its time reloading."""
ChangeCallback = Callable[[ServedLibrary, ServedLibrary], Coroutine[Any, Any, None]]


class ServerState:
    def __init__(self, options: Options) -> None:
        """Raises KitbagError for invalid options."""
        started = time.monotonic()
        self.served = load_served_library(options)
        environment = self.served.environment
        # The mode from the settings at start; a stricter mode set later applies to all clients.
        self.options = options = msgspec.structs.replace(
            options, settings_mode=environment.live_rules.settings_mode, workspace=environment.workspace.identity
        )
        self._reload_seconds = time.monotonic() - started
        self.clients = ConnectedClients(options)
        self.on_change: ChangeCallback | None = None
        self._notifying: set[asyncio.Future[None]] = set()
        self._skill_uris: tuple[ServedLibrary, SkillUris] | None = None
        self._skill_prompts: tuple[ServedLibrary, SkillPrompts] | None = None
        self._reloaded_at = time.monotonic()
        self._reload_lock = asyncio.Lock()
        self._exit_stack = contextlib.AsyncExitStack()
        self._task_hosting: tuple[SetupCache, TaskHost] | None = None
        self._hosting_lock = asyncio.Lock()

    @property
    def skill_uris(self) -> SkillUris:
        """Created on the first resource request."""
        if self._skill_uris is None or self._skill_uris[0] is not self.served:
            digests = self._skill_uris[1].digests if self._skill_uris is not None else None
            self._skill_uris = self.served, SkillUris(self.served.environment, digests)
        return self._skill_uris[1]

    @property
    def skill_prompts(self) -> SkillPrompts:
        """Created on the first prompt request."""
        if self._skill_prompts is None or self._skill_prompts[0] is not self.served:
            parameters = self._skill_prompts[1].parameter_cache if self._skill_prompts is not None else None
            self._skill_prompts = self.served, SkillPrompts(self.served.environment, parameters)
        return self._skill_prompts[1]

    # Library

    async def refreshed(self, max_age: float) -> ServedLibrary:
        """The library, at most this many seconds old."""
        async with self._reload_lock:
            if time.monotonic() - self._reloaded_at >= max_age:
                await self._reload()
        return self.served

    async def watch(self, check_files: Callable[[], Awaitable[float]]) -> None:
        """Runs until cancelled. `check_files`: called after each refresh; returns the seconds it spent reading."""
        seconds = 0.0
        while True:
            await asyncio.sleep(max(MIN_REFRESH_SECONDS, REFRESH_COST_FACTOR * (self._reload_seconds + seconds)))
            self.clients.remove_idle()
            await self.refreshed(MIN_REFRESH_SECONDS)
            seconds = await check_files()

    async def _reload(self) -> None:
        started = time.monotonic()
        try:
            new = await asyncio.to_thread(load_served_library, self.options)
        except (KitbagError, OSError) as error:  # keep the old one: e.g. a persona's file is gone
            logger.warning("refreshing the library failed: %s", error)
            return
        finally:
            self._reloaded_at = time.monotonic()
            self._reload_seconds = self._reloaded_at - started
        old = self.served
        if new.fingerprint == old.fingerprint and new.instructions == old.instructions:
            return
        self.served = new
        if self.on_change is not None:  # apart from requests that wait for the library
            notifying = asyncio.ensure_future(self.on_change(old, new))
            self._notifying.add(notifying)
            notifying.add_done_callback(self._notifying.discard)

    # Agents

    @contextlib.asynccontextmanager
    async def agent_setup(self) -> "AsyncGenerator[tuple[ParentContext, TaskHost], None]":
        """By the current rules, trust and files. Raises KitbagError."""
        from kitbag.tasks.task import TaskRequest

        async with self._hosting_lock:
            if self._task_hosting is None:
                journal = await asyncio.to_thread(self._open_journal)  # may connect to a database
                self._task_hosting = self._open_task_hosting(journal)
        setups, host = self._task_hosting
        async with setups.acquire(
            TaskRequest(agent="", prompt="", directory=self.served.environment.places.cwd)
        ) as inherited:
            yield inherited, host

    def _open_journal(self) -> "Journal":
        from kitbag.assembly.model_sources import load_model_sources
        from kitbag.assembly.open_journal import open_journal
        from kitbag.settings import load_settings

        home = self.served.environment.places.kitbag_home
        return open_journal(home, load_model_sources(load_settings(home, ()))[0])

    def _open_task_hosting(self, journal: "Journal") -> "tuple[SetupCache, TaskHost]":
        from kitbag.events import Notice
        from kitbag.tasks.board import Board
        from kitbag.tasks.standalone_setup import load_standalone_setup
        from kitbag.tasks.task import TaskRequest
        from kitbag.tasks.task_host import TaskHost
        from kitbag.tasks.worker_environments import SetupCache

        self._exit_stack.callback(journal.close)

        def log_notice(notice: Notice) -> None:
            logger.warning("%s", notice.text)

        def load(request: TaskRequest) -> "ParentContext":
            return load_standalone_setup(request.directory, self.options, self.options.model, None, journal, log_notice)

        setups = SetupCache(load)
        self._exit_stack.push_async_callback(setups.close)
        return setups, TaskHost(Board(journal))

    async def close(self) -> None:
        for notifying in self._notifying:
            notifying.cancel()
        await self._exit_stack.aclose()


class HttpOptions(msgspec.Struct, frozen=True, kw_only=True):
    port: int
    """0: any free port."""
    host: str = "127.0.0.1"
    names: tuple[str, ...] = ()
    """Accepted host names, in addition to the address."""
    token_file: str = ""
    """Empty: a new token for each start."""
