"""Waits before a model request until the rate limit of its provider allows it, and shows that it waits.

The user's settings set the limits (`[providers.NAME]`); the journal's store shares them between processes. Used by
budget, before every request. Attempts after a failed one are not counted: they wait anyway.
"""

import asyncio
import time
from typing import Final

from kitbag.agent.ask_model import Emit
from kitbag.events import Waiting
from kitbag.messages import Usage
from kitbag.store.journal import Journal
from kitbag.store.token_bucket import RateLimit

_REPORT_SECONDS: Final = 10.0


class RateLimiter:
    """For the requests of one agent to one provider."""

    def __init__(self, journal: Journal, provider: str, limit: RateLimit) -> None:
        self._journal = journal
        self._provider = provider
        self._limit = limit

    async def wait(self, expected: Usage, emit: Emit) -> int:
        """Returns the tokens that were taken, for `settle`. If cancelled, they are given back."""
        tokens = expected.total_input + expected.output if self._limit.tokens else 0
        tokens = min(tokens, int(self._limit.tokens))  # a longer request than a minute allows waits for a full bucket
        wait = await self._take(1, tokens)
        if wait <= 0:
            return tokens
        until = time.monotonic() + wait
        try:
            while (left := until - time.monotonic()) > 0:
                emit(Waiting(provider=self._provider, seconds=0.0, retry_in=left, reason=self._describe()))
                await asyncio.sleep(min(left, _REPORT_SECONDS))
        except asyncio.CancelledError:
            await asyncio.shield(self._take(-1, -tokens))
            raise
        return tokens

    async def settle(self, taken: int, usage: Usage) -> None:
        """Once it is known how many tokens the request used."""
        used = usage.total_input + usage.output
        if self._limit.tokens and used != taken:
            await self._take(0, used - taken)

    async def _take(self, requests: int, tokens: int) -> float:
        return await asyncio.to_thread(self._journal.take_from_bucket, self._provider, self._limit, requests, tokens)

    def _describe(self) -> str:
        limits = ((self._limit.requests, "requests"), (self._limit.tokens, "tokens"))
        shown = " and ".join(f"{number:,.0f} {what}" for number, what in limits if number)
        return f"rate limit of {self._provider}: {shown} per minute"
