"""The model of a run and what is known about it: values that the loop and compaction share."""

from collections.abc import Callable
from typing import Final, NamedTuple

from kitbag.messages import Usage
from kitbag.models.provider import Provider

FULL_AT: Final = 0.8
"""The share of the window, less the room for a reply, at which a conversation is compacted."""
SMALLEST_SHARE: Final = 0.2
"""Of the window; so much is left to the conversation, also behind a long prompt."""


class Room(NamedTuple):
    """What a model can hold, in tokens."""

    window: int
    max_output: int

    def full_at(self, prefix: int) -> int:
        """`prefix`: the prompt and the tools, which stay."""
        usual = int((self.window - self.max_output) * FULL_AT)
        return max(usual, prefix + int(self.window * SMALLEST_SHARE))


class Brain(NamedTuple):
    provider: Provider
    model: str
    room: Room
    price: Callable[[Usage], float | None]
    effort: str = ""
