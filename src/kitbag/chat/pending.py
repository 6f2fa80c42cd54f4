"""Submissions that wait for the running work, in the order in which they were typed.

Used by chat. Messages for the model are also in the agent's inbox, so that they survive a crash; commands and lines of
a pipe only wait here.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from kitbag.agent.inbox import Inbox, InboxMessage, Timing
from kitbag.chat.ui import Submitted

_MAX_SHOWN_LENGTH: Final = 200


class PendingSubmission(msgspec.Struct, frozen=True, kw_only=True):
    submitted: Submitted
    message: InboxMessage | None = None

    @property
    def is_steering(self) -> bool:
        return self.message is not None and self.message.timing == "steer"


class PendingSubmissions:
    def __init__(self) -> None:
        self._waiting: list[PendingSubmission] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def shown(self, *, steering: bool) -> tuple[str, ...]:
        """One line each."""
        return tuple(
            " ".join(one.submitted.display_text.split())[:_MAX_SHOWN_LENGTH]
            for one in self._waiting
            if one.is_steering == steering
        )

    def load(self, inbox: Inbox) -> None:
        """What an earlier process left there comes first."""
        self._waiting[:0] = [
            PendingSubmission(
                submitted=Submitted(text=message.text, images=message.images, typed=message.typed), message=message
            )
            for message in inbox.pending()
        ]

    async def add(self, submitted: Submitted, inbox: Inbox | None = None, timing: Timing = "after") -> None:
        """`inbox`: for a message to the model. Raises StoreError; then the submission does not wait."""
        message = None
        if inbox is not None:
            message = await inbox.send(submitted.text, submitted.images, timing, submitted.typed)
        self._waiting.append(PendingSubmission(submitted=submitted, message=message))

    def next(self) -> PendingSubmission:
        """The first. A message stays until it is delivered."""
        return self._waiting[0] if self._waiting[0].message is not None else self._waiting.pop(0)

    def steering_messages(self) -> list[InboxMessage]:
        return [one.message for one in self._waiting if one.message is not None and one.message.timing == "steer"]

    def remove(self, message_id: int) -> Submitted | None:
        """A message that was delivered; None if it was sent elsewhere."""
        for one in self._waiting:
            if one.message is not None and one.message.id == message_id:
                self._waiting.remove(one)
                return one.submitted
        return None

    async def take_back(self, inbox: Inbox) -> list[Submitted]:
        """Everything that was not delivered meanwhile."""
        taken, self._waiting = self._waiting, []
        return [one.submitted for one in taken if await _take_back(inbox, one)]

    async def take_back_last(self, inbox: Inbox) -> list[Submitted]:
        taken, self._waiting = self._waiting[-1:], self._waiting[:-1]
        return [one.submitted for one in taken if await _take_back(inbox, one)]

    async def take_back_messages(self, inbox: Inbox, message_ids: Collection[int]) -> list[Submitted]:
        taken = [one for one in self._waiting if one.message is not None and one.message.id in message_ids]
        self._waiting = [one for one in self._waiting if one not in taken]
        return [one.submitted for one in taken if await _take_back(inbox, one)]

    async def move_to(self, other: "PendingSubmissions", before: Inbox, after: Inbox) -> None:
        """To another session."""
        for one in self._waiting:
            if await _take_back(before, one):
                await other.add(one.submitted, after if one.message is not None else None)


async def _take_back(inbox: Inbox, one: PendingSubmission) -> bool:
    return one.message is None or await inbox.take_back(one.message.id) is not None
