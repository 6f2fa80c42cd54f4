"""A short-lived cache of agent setups: tasks that start together share one; later tasks get a fresh one, so that
current rules, trust and files apply.

Used by the worker and the MCP server.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

from kitbag.assembly.parent_context import ParentContext
from kitbag.tasks.task import TaskRequest

MAX_AGE_SECONDS: Final = 1.0


class _CachedSetup:
    __slots__ = ("at", "inherited", "users")

    def __init__(self, inherited: ParentContext, at: float) -> None:
        self.inherited = inherited
        self.at = at
        self.users = 0


class SetupCache:
    def __init__(self, load: Callable[[TaskRequest], ParentContext]) -> None:
        self._load = load
        self._cached: dict[str, _CachedSetup] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def acquire(self, request: TaskRequest) -> AsyncGenerator[ParentContext, None]:
        """Keeps the provider open until the block exits. Raises KitbagError if the setup can't be loaded."""
        key = repr((request.directory, sorted(request.options.items()), request.parent_model, request.parent_mode))
        setup = await self._get_fresh(key, request)
        setup.users += 1
        try:
            yield setup.inherited
        finally:
            setup.users -= 1
            await self._close_unused(setup)

    async def close(self) -> None:
        for setup in self._cached.values():
            await setup.inherited.provider.close()
        self._cached.clear()

    async def _get_fresh(self, key: str, request: TaskRequest) -> _CachedSetup:
        async with self._locks.setdefault(key, asyncio.Lock()):
            now = time.monotonic()
            setup = self._cached.get(key)
            if setup is None or now - setup.at > MAX_AGE_SECONDS:
                old, setup = setup, _CachedSetup(await asyncio.to_thread(self._load, request), now)
                self._cached[key] = setup
                if old is not None:
                    await self._close_unused(old)
            return setup

    async def _close_unused(self, released: _CachedSetup) -> None:
        """Closes setups that are neither used nor fresh."""
        unused_setups = [released] if not released.users and released not in self._cached.values() else []
        for key, cached in list(self._cached.items()):
            if not cached.users and time.monotonic() - cached.at > MAX_AGE_SECONDS and not self._locks[key].locked():
                del self._cached[key], self._locks[key]
                unused_setups.append(cached)
        for unused in unused_setups:
            await unused.inherited.provider.close()
