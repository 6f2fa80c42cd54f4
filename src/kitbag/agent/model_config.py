"""The model of a run and what is known about it: values that the loop and compaction share."""

from collections.abc import Callable
from typing import Final, NamedTuple

from kitbag.messages import Usage
from kitbag.models.provider import Provider

COMPACTION_SHARE: Final = 0.8
"""The share of the window, less the room for a reply, at which a conversation is compacted."""
MIN_CONVERSATION_SHARE: Final = 0.2
"""Of the window; so much is left to the conversation, also behind a long prompt."""


class ContextWindow(NamedTuple):
    """What a model can hold, in tokens."""

    size: int
    max_output: int

    def compaction_threshold(self, prefix_tokens: int) -> int:
        """`prefix`: the prompt and the tools, which stay."""
        usual = int((self.size - self.max_output) * COMPACTION_SHARE)
        return max(usual, prefix_tokens + int(self.size * MIN_CONVERSATION_SHARE))


class ModelConfig(NamedTuple):
    provider: Provider
    model: str
    context_window: ContextWindow
    price: Callable[[Usage], float | None]
    effort: str = ""
