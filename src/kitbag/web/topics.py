"""What browsers follow: topics with numbered entries that are kept, and slots of which only the newest value counts.

Used by event_stream, which sends a topic's changes, and by whatever changes: chats, tasks, sessions. An entry has a
number, so a browser that was away gets what it missed, in order. A slot, such as a reply that is being written, is sent
as it is when the browser is ready for it, so a slow browser skips versions instead of falling behind.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

FIRST_ENTRIES: Final = 100
"""Entries sent to a browser that starts; it requests earlier ones when the user scrolls up."""
Payload = dict[str, Any]


class TopicEntry(msgspec.Struct):
    number: int
    kind: str
    value: Any
    is_transient: bool = False
    """Not for browsers that start later: a hint, a text for the input line."""
    encoded: bytes = b""
    """The event as it is sent; filled in when it is first needed."""


class TopicCursor(msgspec.Struct):
    """What one stream has sent of a topic."""

    number: int = -1
    """The last entry. -1: nothing yet."""
    versions: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """By slot."""
    is_started: bool = False
    began_at: int = -1
    """Transient entries up to this one are not sent."""


class Topic:
    def __init__(self, name: str, render: Callable[[str, Any], Payload] = lambda kind, value: value) -> None:
        """`render` turns the value of an entry of this kind into what is sent."""
        self.name = name
        self.on_followed: Callable[[bool], None] = lambda is_followed: None
        """Called with the first follower, and when the last one has left."""
        self._followers: set[Callable[[], None]] = set()
        self._render = render
        self._entries: list[TopicEntry] = []
        self._slots: dict[str, tuple[int, bytes]] = {}
        self._first = 0
        """Entries before it were cleared."""

    @property
    def last_number(self) -> int:
        return len(self._entries) - 1

    @property
    def is_followed(self) -> bool:
        return bool(self._followers)

    def follow(self, notify: Callable[[], None]) -> None:
        """Calls `notify` after each change."""
        self._followers.add(notify)
        if len(self._followers) == 1:
            self.on_followed(True)

    def unfollow(self, notify: Callable[[], None]) -> None:
        if notify in self._followers:
            self._followers.remove(notify)
            if not self._followers:
                self.on_followed(False)

    def add(self, kind: str, value: Any, *, transient: bool = False) -> None:
        entry = TopicEntry(number=len(self._entries), kind=kind, value=value, is_transient=transient)
        self._entries.append(entry)
        self._notify()

    def set(self, slot: str, payload: Payload) -> None:
        version, before = self._slots.get(slot, (0, b""))
        encoded = _encode(self.name, slot, payload)
        if encoded != before:
            self._slots[slot] = (version + 1, encoded)
            self._notify()

    def clear(self) -> None:
        """What was added so far is not sent again."""
        self._first = len(self._entries)
        self.add("clear", {})

    def entries_before(self, number: int, limit: int) -> list[Payload]:
        """Those just before `number` that are shown, oldest first."""
        found: list[Payload] = []
        for at in range(min(number, len(self._entries)) - 1, self._first - 1, -1):
            entry = self._entries[at]
            if entry.kind == "block":
                found.append({"number": entry.number, **self._render(entry.kind, entry.value)})
            if len(found) >= limit:
                break
        return found[::-1]

    def changes(self, cursor: TopicCursor, most: int = 200) -> tuple[list[bytes], bool]:
        """Events since `cursor`, which is moved, and whether there are more."""
        events: list[bytes] = []
        is_new = not cursor.is_started and cursor.number < 0
        cursor.is_started = True
        if is_new or cursor.number < self._first - 1 or cursor.number > self.last_number:
            cursor.began_at = self.last_number
            cursor.number = max(self._first, len(self._entries) - FIRST_ENTRIES) - 1
            cursor.versions.clear()
            events.append(_encode(self.name, "reset", {"is_complete": cursor.number < self._first, "is_new": is_new}))
        while cursor.number < self.last_number and len(events) < most:
            cursor.number += 1
            entry = self._entries[cursor.number]
            if entry.is_transient and entry.number <= cursor.began_at:
                continue
            if not entry.encoded:
                entry.encoded = _encode(self.name, entry.kind, self._render(entry.kind, entry.value), entry.number)
            events.append(entry.encoded)
        if cursor.number < self.last_number:
            return events, True
        for slot, (version, encoded) in self._slots.items():
            if cursor.versions.get(slot) != version:
                cursor.versions[slot] = version
                events.append(encoded)
        return events, False

    def _notify(self) -> None:
        for follower in tuple(self._followers):
            follower()


def _encode(topic: str, kind: str, payload: Payload, number: int | None = None) -> bytes:
    event = {"topic": topic, "kind": kind, **payload}
    if number is not None:
        event["number"] = number
    return b"data: " + msgspec.json.encode(event, enc_hook=str) + b"\n\n"  # HTML is a subclass of str
