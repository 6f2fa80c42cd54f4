"""The inbox: messages for an agent that works. Each is durable once `send` returns, and settled exactly once: delivered
in the transaction that adds it to the conversation, or taken back.

Written by Run.steer, the chat and `kitbag tasks send`, from any process; assembly/base_agent delivers. A UI shows
`pending` and removes a message at its MessageDelivered event.
"""

import contextlib
from collections.abc import Iterable
from typing import Any, Final, Literal, cast

import msgspec

from kitbag.agent.transcript import replace_surrogates
from kitbag.errors import KitbagError, UsageError
from kitbag.messages import Image, part_from_json, part_to_json
from kitbag.store.fault_points import point
from kitbag.store.journal import Journal, JournalEntry, JournalRecord

INBOX_STREAM_PREFIX: Final = "inbox/"
Timing = Literal["steer", "after"]
"""`steer`: delivered after the running tool calls. `after`: once the current work has ended."""
_SENT: Final = "sent"
_DELIVERED: Final = "delivered"
_TAKEN_BACK: Final = "taken-back"


class InboxMessage(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    """Its record number, so ids are in the order of sending."""
    text: str
    images: tuple[Image, ...] = ()
    timing: Timing = "steer"
    typed: str = ""
    """As the user typed it, if the text contained placeholders for pasted content; otherwise empty."""

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "text": self.text, "images": len(self.images), "timing": self.timing}


class Inbox:
    """Of one session, or of one task: a task that restarts with a new session keeps its inbox."""

    def __init__(self, journal: Journal, owner: str) -> None:
        """`owner`: the id of the task or session."""
        self.owner = owner
        self._journal = journal
        self._stream = INBOX_STREAM_PREFIX + owner
        self._last_read = 0
        self._pending: dict[int, InboxMessage] = {}

    async def send(
        self, text: str, images: Iterable[Image] = (), timing: Timing = "steer", typed: str = ""
    ) -> InboxMessage:
        """The message is on disk when this returns. Raises UsageError for an empty one, and StoreError."""
        message = InboxMessage(
            id=0, text=replace_surrogates(text), images=tuple(images), timing=timing, typed=replace_surrogates(typed)
        )
        if not text.strip() and not message.images:
            raise UsageError("the message is empty", "type a message")
        body = {
            "text": message.text,
            "images": [part_to_json(image) for image in message.images],
            "timing": timing,
            "typed": message.typed,
        }
        seq = await self._journal.write(self._stream, _SENT, body)
        point("message-sent")
        # The journal redacts secrets; the agent of this process gets the text as it was typed.
        self._pending[seq] = sent = msgspec.structs.replace(message, id=seq)
        return sent

    async def take_back(self, message_id: int) -> InboxMessage | None:
        """None if it was delivered or taken back before, by any process."""
        message = next((one for one in self.pending() if one.id == message_id), None)
        if message is None:
            return None
        key, body = self._key(message_id), {"message": message_id}
        return message if await self._journal.write_once(key, self._stream, _TAKEN_BACK, body) is not None else None

    def pending(self) -> list[InboxMessage]:
        """What is neither delivered nor taken back, in the order of sending."""
        for record in self._journal.read(self._stream, self._last_read):
            with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError, KitbagError):  # damaged
                self._apply(record)
            self._last_read = record.seq
        return [self._pending[seq] for seq in sorted(self._pending)]

    async def deliver(self, message: InboxMessage, entry: JournalEntry) -> int:
        """Writes `entry`, which adds the message to a conversation, and settles the message, both or neither. Returns
        the number of the entry's record; 0 if the message was settled before."""
        settled = JournalEntry(self._stream, _DELIVERED, {"message": message.id})
        seqs = await self._journal.write_all_once(self._key(message.id), [entry, settled])
        point("message-delivered")
        return seqs[0] if seqs else 0

    def _key(self, message_id: int) -> str:
        return f"{self._stream}:{message_id}"

    def _apply(self, record: JournalRecord) -> None:
        body = cast("dict[str, Any]", record.body)
        if record.kind == _SENT:
            images = [part_from_json(image) for image in body.get("images", ())]
            message = InboxMessage(
                id=record.seq,
                text=str(body["text"]),
                images=tuple(image for image in images if isinstance(image, Image)),
                timing="after" if body.get("timing") == "after" else "steer",
                typed=str(body.get("typed", "")),
            )
            self._pending.setdefault(record.seq, message)
        else:
            self._pending.pop(int(body["message"]), None)
