"""A short-lived cache of agent setups: tasks that start together share one; later tasks get a fresh one, so that
current rules, trust and files apply.

Used by the worker and the MCP server.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

from kitbag.assembly.inherited import ParentContext
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
    async def acquire(self, wish: TaskRequest) -> AsyncGenerator[ParentContext, None]:
        """Keeps the provider open until the block exits. Raises KitbagError if the setup can't be loaded."""
        key = repr((wish.directory, sorted(wish.options.items()), wish.parent_model, wish.parent_mode))
        laid = await self._get_fresh(key, wish)
        laid.users += 1
        try:
            yield laid.inherited
        finally:
            laid.users -= 1
            await self._close_unused(laid)

    async def close(self) -> None:
        for laid in self._cached.values():
            await laid.inherited.provider.close()
        self._cached.clear()

    async def _get_fresh(self, key: str, wish: TaskRequest) -> _CachedSetup:
        async with self._locks.setdefault(key, asyncio.Lock()):
            begun = time.monotonic()
            laid = self._cached.get(key)
            if laid is None or begun - laid.at > MAX_AGE_SECONDS:
                old, laid = laid, _CachedSetup(await asyncio.to_thread(self._load, wish), begun)
                self._cached[key] = laid
                if old is not None:
                    await self._close_unused(old)
            return laid

    async def _close_unused(self, released: _CachedSetup) -> None:
        """Closes setups that are neither used nor fresh."""
        left = [released] if not released.users and released not in self._cached.values() else []
        for key, known in list(self._cached.items()):
            if not known.users and time.monotonic() - known.at > MAX_AGE_SECONDS and not self._locks[key].locked():
                del self._cached[key], self._locks[key]
                left.append(known)
        for unused in left:
            await unused.inherited.provider.close()
