"""The Provider protocol: one method that streams one reply. Also its request, stream items, reply and error.

A provider only translates its API and raises ModelError with the kind of failure; it does not retry. Used by agent;
implemented by adapters, offline and scripted; uses messages only.
"""

from collections.abc import AsyncGenerator
from typing import Any, Literal, Protocol

import msgspec

from kitbag.errors import KitbagError
from kitbag.messages import Message, Usage


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str
    schema: dict[str, Any]
    """JSON schema of an object, without `$ref`."""


class SystemBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the system prompt."""

    text: str
    cache: bool = False
    """Set a cache marker here: everything up to this block is the same in every request."""


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    """The provider's name for it, without `provider/`."""
    system: tuple[SystemBlock, ...]
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output: int = 8192
    effort: str = ""
    """low, medium or high; empty for the provider's default."""


class TextChunk(msgspec.Struct, frozen=True):
    text: str


class ThinkingChunk(msgspec.Struct, frozen=True):
    text: str


class ToolCallBegun(msgspec.Struct, frozen=True):
    """The model has started to write a tool call; for display only."""

    id: str
    name: str


StopReason = Literal["end", "tools", "length", "context", "refusal", "pause", "limit", "other"]
"""A reply is complete only after `end` and `tools`. `context`: the window is full; `pause`: the provider expects the
conversation again, to continue; `limit`: Kitbag cut the reply; `other`: no reason, or one that an adapter does not
know."""


class ModelReply(msgspec.Struct, frozen=True, kw_only=True):
    """The complete reply, last in a stream. A stream that ends without one was cut off."""

    message: Message
    stop: StopReason
    usage: Usage
    model: str = ""
    """The model that the provider reports; empty if it reports none."""
    stop_reason: str = ""
    """The provider's own stop reason; empty if it gave none. For `limit`: which limit."""

    @property
    def is_complete(self) -> bool:
        return self.stop in ("end", "tools")


StreamItem = TextChunk | ThinkingChunk | ToolCallBegun | ModelReply

FailureKind = Literal[
    "transient", "overloaded", "cut", "auth", "too-long", "spent", "bad-request", "unreachable", "stalled", "limit"
]
"""transient, overloaded, cut, stalled and unreachable are worth a retry; the others are not."""


class ModelError(KitbagError):
    """A failed request. `retry_after`: seconds to wait, if the provider said so."""

    exit_code = 7

    def __init__(
        self, kind: FailureKind, problem: str, fix: str = "", *, retry_after: float | None = None, status: int = 0
    ) -> None:
        super().__init__(problem, fix)
        self.kind: FailureKind = kind
        self.retry_after = retry_after
        self.status = status

    @property
    def is_retryable(self) -> bool:
        return self.kind in ("transient", "overloaded", "cut", "stalled", "unreachable")


class Provider(Protocol):
    @property
    def name(self) -> str: ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        """Yields stream items as they arrive, then one ModelReply. Raises ModelError. Closing the generator ends the
        request."""
        ...

    async def close(self) -> None: ...
