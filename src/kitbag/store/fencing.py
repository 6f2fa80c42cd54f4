"""Fences: records after which work that was begun earlier must write no more, because another process took it over.

The journal checks them in the transaction of each write, so a process that was frozen meanwhile can't write. Used by
tasks, which fence what a run of a task writes, and by session_leases, which fences what is written to a session.
"""

import contextlib
from collections.abc import Generator
from contextvars import ContextVar

from kitbag.store.private_files import StoreError

_fences: ContextVar[tuple[str, ...]] = ContextVar("fences", default=())


class FencedError(StoreError):
    def __init__(
        self,
        problem: str = "not written: another process has taken over or ended this task",
        fix: str = "see its state with `kitbag tasks show`",
    ) -> None:
        super().__init__(problem, fix)


class StreamFencedError(FencedError):
    def __init__(
        self,
        problem: str = "not written: another process took over the session after this one stopped responding",
        fix: str = "continue there, or close it there and resume it here",
    ) -> None:
        super().__init__(problem, fix)


def current_fences() -> tuple[str, ...]:
    return _fences.get()


@contextlib.contextmanager
def fenced_by(*keys: str) -> Generator[None, None, None]:
    """Writes of this context, and of asyncio tasks created in it, fail once a record with one of these keys exists."""
    token = _fences.set((*_fences.get(), *keys))
    try:
        yield
    finally:
        _fences.reset(token)
