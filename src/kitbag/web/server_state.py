"""What all requests share: the directory that is served, the options of the command line, chats and event streams."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from kitbag.library.scopes import Places
from kitbag.web.event_stream import EventStreams
from kitbag.web.hosted_chats import HostedChats
from kitbag.web.task_feed import TaskFeed
from kitbag.web.topics import Topic

if TYPE_CHECKING:
    from kitbag.assembly.run_options import Options
    from kitbag.web.context_reader import ContextReader
    from kitbag.web.skill_drafts import SkillDrafts


class WebState:
    def __init__(self, places: Places, options: "Callable[[], Options]") -> None:
        self.places = places
        self.options = options
        self.chats = HostedChats(options)
        self.streams = EventStreams(self.find_topic)
        self._topics: dict[str, Topic] = {}
        self.tasks = TaskFeed(places)
        self.add_topic(self.tasks.topic)
        self.drafts: SkillDrafts | None = None
        """Created with the first skill that is edited."""
        self._context_reader: ContextReader | None = None

    def context_reader(self) -> "ContextReader":
        """Imported when it is first used, so that the server starts quickly."""
        from kitbag.web.context_reader import ContextReader

        self._context_reader = self._context_reader or ContextReader(self.places)
        return self._context_reader

    def add_topic(self, topic: Topic) -> None:
        """A topic that exists as long as the server, such as that of tasks."""
        self._topics[topic.name] = topic

    def find_topic(self, name: str) -> Topic | None:
        return self._topics.get(name) or self.chats.find_topic(name)

    def close(self) -> None:
        if self.drafts is not None:
            self.drafts.close()
