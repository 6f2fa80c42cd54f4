"""Connected clients and the skills each has loaded: one over stdio, one per session over HTTP.

Clients do not share loaded skills. Used by server_state, server and http_guard; uses packing/session_skills.
"""

import contextlib
import threading
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from kitbag.agent.session import new_session_id
from kitbag.assembly.run_options import Options
from kitbag.assembly.skill_loading import build_session_skills
from kitbag.errors import InvalidError, KitbagError
from kitbag.library.untrusted_items import UntrustedItemError
from kitbag.mcp_server.served_library import ServedLibrary
from kitbag.mcp_server.skill_uris import ResourceStamp
from kitbag.packing.session_skills import SessionSkills

if TYPE_CHECKING:
    from mcp.server.session import ServerSession

IDLE_SECONDS: Final = 30 * 60.0
"""An HTTP session without requests for this long ends."""

SubscribedResources = dict[str, ResourceStamp | None]
"""The files that a client is notified of, by URI, as they were last seen; None: not served."""


class ConnectedClient:
    def __init__(self, options: Options) -> None:
        self.id = new_session_id()
        """The session id for skills and tasks."""
        self.session: ServerSession | None = None
        """Sends notifications to the client."""
        self.last_active = time.monotonic()
        self.open_requests = 0
        self._options = options
        self._stop = threading.Event()
        self._loading = 0
        self.subscriptions: SubscribedResources = {}
        self.has_background_tasks = False
        """It has started background tasks and must be notified of their end."""
        self._served: ServedLibrary | None = None
        self._skills: SessionSkills | None = None

    def session_skills(self, served: ServedLibrary) -> SessionSkills:
        """Keeps what was loaded before, if the client may still see it."""
        if self._skills is None or self._served is not served:
            loaded = self._skills.loaded() if self._skills is not None else []
            skills = self.create_skills(served)
            skills.restore(skill for skill in loaded if _can_see(skills, skill.name))
            self._skills, self._served = skills, served
        return self._skills

    def create_skills(self, served: ServedLibrary) -> SessionSkills:
        """With no skills loaded."""
        environment = served.environment
        skills = build_session_skills(environment, lambda: environment.permissions.mode, self._stop)
        skills.session_id = self.id
        return skills

    @contextlib.contextmanager
    def loading(self) -> Generator[None, None, None]:
        """Within it, `stop_loading` stops the commands of a skill."""
        if not self._loading:
            self._stop.clear()
        self._loading += 1
        try:
            yield
        finally:
            self._loading -= 1

    def stop_loading(self) -> None:
        self._stop.set()


def _can_see(skills: SessionSkills, name: str) -> bool:
    try:
        skills.find(name)
    except (UntrustedItemError, InvalidError):
        return False
    except KitbagError:
        return True  # its file is gone: the skill stays loaded
    return True


class ConnectedClients:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._clients: dict[str, ConnectedClient] = {}

    def get(self, session_id: str) -> ConnectedClient:
        """The client of a session, created on its first request. Over stdio the id is empty."""
        client = self._clients.get(session_id)
        if client is None:
            client = self._clients[session_id] = ConnectedClient(self._options)
        client.last_active = time.monotonic()
        return client

    def create_anonymous(self) -> ConnectedClient:
        """For a request without a session: nothing is kept."""
        return ConnectedClient(self._options)

    def all(self) -> list[ConnectedClient]:
        return list(self._clients.values())

    @contextlib.contextmanager
    def track_request(self, session_id: str) -> Generator[None, None, None]:
        """A session with an open request is not idle."""
        client = self._clients.get(session_id)
        if client is not None:
            client.open_requests += 1
        try:
            yield
        finally:
            if client is not None:
                client.open_requests -= 1
                client.last_active = time.monotonic()

    def remove(self, session_id: str) -> None:
        self._clients.pop(session_id, None)

    def remove_idle(self) -> None:
        now = time.monotonic()
        for session_id, client in list(self._clients.items()):
            if session_id and not client.open_requests and now - client.last_active > IDLE_SECONDS:
                del self._clients[session_id]
