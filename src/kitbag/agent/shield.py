"""Runs work that must not be cancelled halfway: the waiting task may be cancelled, the work is not.

Used for everything that writes records, so that a cancellation never leaves half a step behind.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """Raises the cancellation after the work is done; its result is lost then."""
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
        task.exception()  # mark as retrieved, or asyncio warns
    raise cancelled


async def run_ignoring_cancellation(work: Coroutine[Any, Any, T]) -> T:
    """Runs to the end and returns the result, even if cancelled meanwhile, so that the user sees what was done."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    return task.result()
