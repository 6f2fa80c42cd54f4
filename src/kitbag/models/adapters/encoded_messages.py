"""Messages as they go over the wire, each written once: a long conversation costs no more per turn than a short one.

Used by the adapters. Many conversations may share one.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kitbag.messages import Message

MAX_CONVERSATIONS: Final = 64
"""Conversations."""


class _EncodedConversation:
    __slots__ = ("data", "messages")

    def __init__(self) -> None:
        self.messages: tuple[Message, ...] = ()
        self.data = bytearray()


class MessageEncoder:
    def __init__(self, encode: Callable[[Message], Sequence[dict[str, Any]]]) -> None:
        """`encode`: the items that one message becomes."""
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
        """An object with these fields, and last the messages under their name. `before` and `after`: further items of
        that list, written already. What is long is copied once."""
        import msgspec

        # The last one may still grow: what a person says joins the results before it.
        items = [
            piece
            for piece in (before, self._encode_prefix(messages[:-1]), self.encode_items(messages[-1:]), after)
            if piece
        ]
        pieces: list[bytes | bytearray] = [msgspec.json.encode(fields)[:-1], f',"{name}":['.encode()]
        for at, piece in enumerate(items):
            pieces += (b",", piece) if at else (piece,)
        return b"".join([*pieces, b"]}"])

    def encode_items(self, messages: Sequence[Message]) -> bytes:
        """Without brackets around."""
        import msgspec

        return msgspec.json.encode([item for message in messages for item in self._encode(message)])[1:-1]

    def _encode_prefix(self, messages: tuple[Message, ...]) -> bytearray:
        if not messages:
            return bytearray()
        written = self._conversations.pop(id(messages[0]), None)
        # Almost always the very same messages, so that comparing them is comparing addresses.
        if written is None or messages[: len(written.messages)] != written.messages:
            written = _EncodedConversation()
        new = self.encode_items(messages[len(written.messages) :])
        if new:
            written.data += b"," + new if written.data else new
        written.messages = messages
        if len(self._conversations) >= MAX_CONVERSATIONS:
            del self._conversations[next(iter(self._conversations))]
        self._conversations[id(messages[0])] = written  # last in line to be forgotten
        return written.data
