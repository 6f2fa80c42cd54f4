"""Work that is done whole or not at all: who waits for it may be cancelled, it itself is not.

Used wherever something is written down, so that a cancellation never leaves half of a step behind.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """A cancellation is raised when the work is done, not before; then what the work says is lost."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return task.result()
    if not task.cancelled():
        task.exception()  # looked at, or asyncio complains about it
    raise cancelled


async def run_ignoring_cancellation(work: Coroutine[Any, Any, T]) -> T:
    """To its end, and what it says is told, whoever cancels meanwhile: what a person sees is then what was done."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    return task.result()
