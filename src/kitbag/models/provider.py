"""What a model is to the loop: one method that streams one reply. The adapters beside this module satisfy it.

Used by agent; imports messages only. An adapter retries nothing and decides nothing: it speaks its protocol,
and raises ModelError with what kind of failure it was.
"""

from collections.abc import AsyncGenerator
from typing import Any, Literal, NamedTuple, Protocol

import msgspec

from kitbag.errors import KitbagError
from kitbag.messages import Message, Usage


class ToolSpec(NamedTuple):
    name: str
    description: str
    schema: dict[str, Any]
    """JSON schema of an object, without `$ref`."""


class SystemBlock(NamedTuple):
    """A stretch of the system prompt."""

    text: str
    cache: bool = False
    """All up to here stays the same from request to request: a mark for the provider's cache."""


class ModelRequest(NamedTuple):
    model: str
    """As the provider calls it, without `provider/`."""
    system: tuple[SystemBlock, ...]
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output: int = 8192
    effort: str = ""
    """low, medium, high; empty: the provider's own default."""


class TextChunk(msgspec.Struct, frozen=True):
    text: str


class ThinkingChunk(msgspec.Struct, frozen=True):
    text: str


class ToolCallBegun(msgspec.Struct, frozen=True):
    """A tool call is being written; shown, never run."""

    id: str
    name: str


StopReason = Literal["end", "tools", "length", "refusal", "other"]
"""Only after `end` and `tools` the reply is complete; `other` is every word that an adapter does not know."""


class ModelReply(NamedTuple):
    """The whole reply, last in a stream. A stream that ends without one was cut off."""

    message: Message
    stop: StopReason
    usage: Usage
    model: str = ""
    """What the provider says it was, where it says so."""
    stop_reason: str = ""
    """The provider's own word for `stop`; empty: it gave none."""

    @property
    def is_complete(self) -> bool:
        return self.stop in ("end", "tools")


StreamItem = TextChunk | ThinkingChunk | ToolCallBegun | ModelReply

FailureKind = Literal["transient", "overloaded", "cut", "auth", "too-long", "spent", "bad-request", "unreachable"]
"""transient, overloaded, cut and unreachable may pass; the others won't."""


class ModelError(KitbagError):
    """A request that failed. `wait` is what the provider asked for, in seconds."""

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
        return self.kind in ("transient", "overloaded", "cut", "unreachable")


class Provider(Protocol):
    @property
    def name(self) -> str: ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        """Pieces as they come, then one Reply. Raises ModelError. Closing the generator ends the request."""
        ...

    async def close(self) -> None: ...
