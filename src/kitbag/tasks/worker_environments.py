"""What the agents of a worker stand on: laid once for all that begin alike at a time, and anew after a moment, so that
rules, trust and files count as they are when a task begins.

Used by the worker.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Final

from kitbag.assembly.inherited import Inherited
from kitbag.tasks.task import Wish

FRESH_SECONDS: Final = 1.0


class _Laid:
    __slots__ = ("at", "inherited", "users")

    def __init__(self, inherited: Inherited, at: float) -> None:
        self.inherited = inherited
        self.at = at
        self.users = 0


class Grounds:
    def __init__(self, lay: Callable[[Wish], Inherited]) -> None:
        self._lay = lay
        self._laid: dict[str, _Laid] = {}
        self._laying: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def of(self, wish: Wish) -> AsyncGenerator[Inherited, None]:
        """Its provider stays open until the block is left. Raises KitbagError for what can't be laid."""
        key = repr((wish.directory, sorted(wish.options.items()), wish.parent_model, wish.parent_mode))
        laid = await self._fresh(key, wish)
        laid.users += 1
        try:
            yield laid.inherited
        finally:
            laid.users -= 1
            await self._tidy(laid)

    async def close(self) -> None:
        for laid in self._laid.values():
            await laid.inherited.provider.close()
        self._laid.clear()

    async def _fresh(self, key: str, wish: Wish) -> _Laid:
        async with self._laying.setdefault(key, asyncio.Lock()):
            begun = time.monotonic()
            laid = self._laid.get(key)
            if laid is None or begun - laid.at > FRESH_SECONDS:
                old, laid = laid, _Laid(await asyncio.to_thread(self._lay, wish), begun)
                self._laid[key] = laid
                if old is not None:
                    await self._tidy(old)
            return laid

    async def _tidy(self, laid: _Laid) -> None:
        """Of those that nobody uses, only what is still fresh is kept."""
        left = [laid] if not laid.users and laid not in self._laid.values() else []
        for key, known in list(self._laid.items()):
            if not known.users and time.monotonic() - known.at > FRESH_SECONDS and not self._laying[key].locked():
                del self._laid[key], self._laying[key]
                left.append(known)
        for unused in left:
            await unused.inherited.provider.close()
