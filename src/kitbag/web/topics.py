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
MAX_BEHIND: Final = 3 * FIRST_ENTRIES
"""A browser that is further behind, such as while a long session is replayed, starts again with the last entries."""
MAX_BYTES: Final = 256 * 1024
"""Of entries that are sent together: rendering more of them would keep other chats waiting."""
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
        encoded = encode_event(self.name, slot, payload)
        if encoded != before:
            self._slots[slot] = (version + 1, encoded)
            self._notify()

    def drop(self, slot: str) -> None:
        """Not sent any more; browsers learn of it in another way."""
        self._slots.pop(slot, None)

    def clear(self) -> None:
        """What was added so far is not sent again."""
        self._first = len(self._entries)
        self.add("clear", {})

    def entries_before(self, number: int, limit: int) -> tuple[list[Payload], bool]:
        """Those just before `number` that are shown, oldest first, and whether they are the first ones."""
        found: list[Payload] = []
        size = 0
        for at in range(min(number, len(self._entries)) - 1, self._first - 1, -1):
            if len(found) >= limit or size > MAX_BYTES:
                return found[::-1], False
            entry = self._entries[at]
            if entry.kind == "block":
                rendered = self._render(entry.kind, entry.value)
                found.append({"number": entry.number, **rendered})
                size += len(rendered.get("html", ""))
        return found[::-1], True

    def changes(self, cursor: TopicCursor, most: int = 200) -> tuple[list[bytes], bool]:
        """Events since `cursor`, which is moved, and whether there are more."""
        events: list[bytes] = []
        size = 0
        is_new = not cursor.is_started and cursor.number < 0
        cursor.is_started = True
        is_behind = cursor.number < max(self._first - 1, self.last_number - MAX_BEHIND)
        if is_new or is_behind or cursor.number > self.last_number:
            cursor.began_at = self.last_number
            cursor.number = self._find_start() - 1
            cursor.versions.clear()
            events.append(
                encode_event(self.name, "reset", {"is_complete": cursor.number < self._first, "is_new": is_new})
            )
        while cursor.number < self.last_number and len(events) < most and size <= MAX_BYTES:
            cursor.number += 1
            entry = self._entries[cursor.number]
            if entry.is_transient and entry.number <= cursor.began_at:
                continue
            events.append(self._encoded(entry))
            size += len(entry.encoded)
        if cursor.number < self.last_number:
            return events, True
        for slot, (version, encoded) in self._slots.items():
            if cursor.versions.get(slot) != version:
                cursor.versions[slot] = version
                events.append(encoded)
        return events, False

    def _find_start(self) -> int:
        """The first entry for a browser that starts."""
        at, size = len(self._entries), 0
        while at > max(self._first, len(self._entries) - FIRST_ENTRIES) and size <= MAX_BYTES:
            at -= 1
            size += len(self._encoded(self._entries[at]))
        return at

    def _encoded(self, entry: TopicEntry) -> bytes:
        if not entry.encoded:
            entry.encoded = encode_event(self.name, entry.kind, self._render(entry.kind, entry.value), entry.number)
        return entry.encoded

    def _notify(self) -> None:
        for follower in tuple(self._followers):
            follower()


def encode_event(topic: str, kind: str, payload: Payload, number: int | None = None) -> bytes:
    event = {"topic": topic, "kind": kind, **payload}
    if number is not None:
        event["number"] = number
    return b"data: " + msgspec.json.encode(event, enc_hook=str) + b"\n\n"  # HTML is a subclass of str
