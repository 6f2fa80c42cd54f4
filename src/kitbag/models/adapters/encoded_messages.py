"""Caches encoded messages, so that each message is encoded once and a turn costs the same in long conversations.

Used by the adapters; many conversations may share one encoder.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kitbag.messages import Message

MAX_CONVERSATIONS: Final = 64
"""Cached conversations."""


class _EncodedConversation:
    __slots__ = ("data", "messages")

    def __init__(self) -> None:
        self.messages: tuple[Message, ...] = ()
        self.data = bytearray()


class MessageEncoder:
    def __init__(self, encode: Callable[[Message], Sequence[dict[str, Any]]]) -> None:
        """`encode`: returns the items for one message."""
        self._encode = encode
        self._conversations: dict[int, _EncodedConversation] = {}

    def encode_body(
        self,
        fields: Mapping[str, Any],
        name: str,
        messages: tuple[Message, ...],
        before: bytes = b"",
        after: bytes = b"",
    ) -> bytes:
        """A JSON object with these fields, and the messages last as the list `name`. `before` and `after`: encoded
        items to add to that list. Long data is copied only once."""
        import msgspec

        # The last message may still grow: a user message is appended to the tool results before it.
        items = [
            piece
            for piece in (before, self._encode_prefix(messages[:-1]), self.encode_items(messages[-1:]), after)
            if piece
        ]
        pieces: list[bytes | bytearray] = [msgspec.json.encode(fields)[:-1], f',"{name}":['.encode()]
        for index, piece in enumerate(items):
            pieces += (b",", piece) if index else (piece,)
        return b"".join([*pieces, b"]}"])

    def encode_items(self, messages: Sequence[Message]) -> bytes:
        """Without the enclosing brackets."""
        import msgspec

        return msgspec.json.encode([item for message in messages for item in self._encode(message)])[1:-1]

    def _encode_prefix(self, messages: tuple[Message, ...]) -> bytearray:
        if not messages:
            return bytearray()
        encoded = self._conversations.pop(id(messages[0]), None)
        # Almost always the same objects, so the comparison is by identity and fast.
        if encoded is None or messages[: len(encoded.messages)] != encoded.messages:
            encoded = _EncodedConversation()
        new = self.encode_items(messages[len(encoded.messages) :])
        if new:
            encoded.data += b"," + new if encoded.data else new
        encoded.messages = messages
        if len(self._conversations) >= MAX_CONVERSATIONS:
            del self._conversations[next(iter(self._conversations))]
        self._conversations[id(messages[0])] = encoded  # most recently used last
        return encoded.data
