"""What all requests share: the directory that is served, the options of the command line, chats and event streams."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kitbag.library.scopes import Places
from kitbag.web.event_stream import EventStreams
from kitbag.web.hosted_chats import HostedChats
from kitbag.web.topics import Topic

if TYPE_CHECKING:
    from kitbag.assembly.run_options import Options


class WebState:
    def __init__(self, places: Places, options: "Callable[[], Options]") -> None:
        self.places = places
        self.options = options
        self.chats = HostedChats(options)
        self.streams = EventStreams(self.find_topic)
        self._topics: dict[str, Topic] = {}

    def add_topic(self, topic: Topic) -> None:
        """A topic that exists as long as the server, such as that of tasks."""
        self._topics[topic.name] = topic

    def find_topic(self, name: str) -> Topic | None:
        return self._topics.get(name) or self.chats.find_topic(name)
