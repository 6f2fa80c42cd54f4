"""The model of a run with its context window, price and effort. Used by loop and compact."""

from collections.abc import Callable
from typing import Final

import msgspec

from kitbag.agent.rate_limit import RateLimiter
from kitbag.messages import Usage
from kitbag.models.provider import Provider

COMPACTION_SHARE: Final = 0.8
"""A conversation is compacted at this share of the window, after room for a reply is subtracted."""
MIN_CONVERSATION_SHARE: Final = 0.2
"""At least this share of the window belongs to the conversation, even after a long prompt."""


class ContextWindow(msgspec.Struct, frozen=True, kw_only=True):
    """In tokens."""

    size: int
    max_output: int

    def compaction_threshold(self, prefix_tokens: int) -> int:
        """`prefix_tokens`: system prompt and tools, which compaction can't shrink."""
        threshold = int((self.size - self.max_output) * COMPACTION_SHARE)
        return max(threshold, prefix_tokens + int(self.size * MIN_CONVERSATION_SHARE))


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    provider: Provider
    model: str
    context_window: ContextWindow
    price: Callable[[Usage], float | None]
    effort: str = ""
    on_request: Callable[[], None] = lambda: None
    """Called when a request is about to be sent."""
    rate_limiter: RateLimiter | None = None
