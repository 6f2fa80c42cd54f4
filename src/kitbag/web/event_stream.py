"""Server-sent events: one stream per browser, which carries the changes of every topic that its tabs follow.

Used by routes. A stream has no queue: it remembers what it sent of each topic and sends the rest when the browser takes
it, so that nothing is lost or reordered and a slow browser costs no memory.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from typing import Final

import msgspec

from kitbag.web.topics import Topic, TopicCursor, encode_event

_HEARTBEAT_SECONDS: Final = 15.0
_FRAME_SECONDS: Final = 0.03
"""At most one frame in this time: changes in between are sent together."""
_FRAME_SECONDS_PER_STREAM: Final = 0.0005
MAX_STREAMS: Final = 500


class EventStream:
    def __init__(self, find_topic: Callable[[str], Topic | None]) -> None:
        self.id = secrets.token_urlsafe(9)
        self._find_topic = find_topic
        self._followed: dict[str, tuple[Topic, TopicCursor]] = {}
        self._gone: set[str] = set()
        """Topics that the browser wants and that exist no more, such as a chat that ended while it was away."""
        self._changed = asyncio.Event()
        self.is_closed = False

    def follow(self, wanted: Mapping[str, int], restart: Collection[str] = ()) -> None:
        """Replaces the followed topics; the numbers are those of the last entries that the browser has, or -1. Topics
        in `restart` are sent from their beginning."""
        for name in [name for name in self._followed if name not in wanted]:
            self._followed.pop(name)[0].unfollow(self._changed.set)
        for name, number in wanted.items():
            topic = self._find_topic(name)
            if name in self._followed and name in restart:
                self._followed[name] = (self._followed[name][0], TopicCursor())
            elif name not in self._followed and topic is not None:
                self._followed[name] = (topic, TopicCursor(number=number))
                topic.follow(self._changed.set)
            elif topic is None and name not in self._followed:
                self._gone.add(name)
        self._changed.set()

    def close(self) -> None:
        self.is_closed = True
        self.follow({})

    def take_changes(self) -> list[bytes]:
        events = [encode_event(name, "gone", {}) for name in self._gone]
        self._gone.clear()
        for topic, cursor in tuple(self._followed.values()):
            found, has_more = topic.changes(cursor)
            events += found
            if has_more:
                self._changed.set()
        return events

    async def wait(self) -> bool:
        """False after a while without a change."""
        try:
            async with asyncio.timeout(_HEARTBEAT_SECONDS):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True


class EventStreams:
    def __init__(self, find_topic: Callable[[str], Topic | None]) -> None:
        self.server_id = secrets.token_urlsafe(9)
        """A browser that sees another one knows that its numbers mean nothing any more."""
        self._find_topic = find_topic
        self._streams: dict[str, EventStream] = {}

    def get(self, stream_id: str) -> EventStream | None:
        return self._streams.get(stream_id)

    def close(self) -> None:
        """Ends all streams."""
        for stream in self._streams.values():
            stream.close()

    @property
    def is_full(self) -> bool:
        return len(self._streams) >= MAX_STREAMS

    async def serve(self, wanted: Mapping[str, int], server_id: str) -> AsyncGenerator[bytes, None]:
        """The events of a new stream. `wanted` are topics and numbers, which count if `server_id` is this server's."""
        stream = EventStream(self._find_topic)
        self._streams[stream.id] = stream
        known = wanted if server_id == self.server_id else dict.fromkeys(wanted, -1)
        stream.follow(known)
        try:
            hello = {"kind": "hello", "stream": stream.id, "server": self.server_id}
            yield b"data: " + msgspec.json.encode(hello) + b"\n\n"
            while not stream.is_closed:
                if not await stream.wait():
                    yield b": still here\n\n"
                elif events := stream.take_changes():
                    yield b"".join(events)
                    await asyncio.sleep(max(_FRAME_SECONDS, len(self._streams) * _FRAME_SECONDS_PER_STREAM))
        finally:
            stream.close()
            del self._streams[stream.id]
