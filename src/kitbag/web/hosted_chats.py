"""The chats that this server runs for its browsers, one per open session.

Used by chat_routes. A chat without a tab ends after a while, unless it works or asks: that frees its session for a
terminal, and the journal has everything to open it again.
"""

import asyncio
import importlib
import logging
import secrets
import time
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from kitbag.errors import InvalidError, KitbagError, NotFoundError
from kitbag.library.scopes import Places, find_places
from kitbag.runtime.session_locks import session_owner
from kitbag.web.topics import Topic

if TYPE_CHECKING:
    from kitbag.assembly.run_options import Options
    from kitbag.chat.input.completion import ChatCompleter
    from kitbag.runtime.agent import Agent
    from kitbag.runtime.message_preview import PreviewMessage
    from kitbag.web.web_ui import WebUI

MAX_CHATS: Final = 100
IDLE_SECONDS: Final = 60.0
_CHECK_SECONDS: Final = 5.0
TOPIC_PREFIX: Final = "chat:"


class HostedChat:
    def __init__(self, ui: "WebUI", places: Places, options: "Options") -> None:
        self.id = ui.topic.name.removeprefix(TOPIC_PREFIX)
        self.ui = ui
        self.places = places
        self.agent: Agent | None = None
        """The current one; None until it is open."""
        self.resumed = options.resume
        self.is_closed = False
        self._close_reason = ""
        self._options = options
        self._completer: tuple[int, ChatCompleter] | None = None
        self._preview: tuple[object, Callable[[], PreviewMessage]] | None = None
        self._unfollowed_at: float | None = time.monotonic()
        self._running: asyncio.Task[None] | None = None
        ui.topic.on_followed = self._on_followed

    @property
    def session_id(self) -> str:
        return self.agent.session.id if self.agent is not None else self.resumed

    @property
    def is_idle(self) -> bool:
        """Without a tab for a while, and with nothing to do."""
        if self._unfollowed_at is None or self.ui.is_working or self.ui.has_question:
            return False
        return time.monotonic() - self._unfollowed_at > IDLE_SECONDS

    def start(self, on_end: Callable[["HostedChat"], None]) -> None:
        self._running = asyncio.create_task(self._run())
        self._running.add_done_callback(lambda _: on_end(self))

    def completer(self) -> "ChatCompleter | None":
        """Follows the current agent; None until there is one."""
        if self.agent is None:
            return None
        if self._completer is None or self._completer[0] != id(self.agent):
            from kitbag.chat.input.agent_completer import make_completer

            self._close_completer()
            self._completer = (id(self.agent), make_completer(self.agent))
        return self._completer[1]

    def message_preview(self) -> "Callable[[], PreviewMessage] | None":
        """What would be sent now; None until there is an agent. Counts the session, in a thread, once for all that is
        typed between two messages."""
        if self.agent is None:
            return None
        session = self.agent.session
        state = (session.id, session.recorded_messages()[-1:], len(session.skills), self.agent.system_blocks)
        if self._preview is None or self._preview[0] != state:
            from kitbag.runtime.message_preview import prepare_message_preview

            self._preview = state, cache(prepare_message_preview(self.agent))
        return self._preview[1]

    async def close(self, reason: Literal["idle", "deleted", ""] = "") -> None:
        """Ends the chat and waits until its agent is closed. `reason` is for the tabs that still show it."""
        if self._running is not None and not self._running.done():
            self._close_reason = reason
            self.ui.leave()
            await asyncio.wait([self._running], timeout=5)
            self._running.cancel()
            await asyncio.wait([self._running])

    async def _run(self) -> None:
        problem, fix = "", ""
        session_owner.set(self.id)
        try:
            # In a thread, so that other chats go on meanwhile.
            start = await asyncio.to_thread(importlib.import_module, "kitbag.chat.start")
            await start.run_chat(self.ui, self.places, self._options, self._set_agent)
        except KitbagError as error:
            problem, fix = error.problem, error.fix
        except Exception as error:
            problem, fix = f"internal error: {type(error).__name__}: {error}", "report this bug; the session is saved"
            logging.getLogger(__name__).exception("a chat of the web UI failed")
        finally:
            self.is_closed = True
            self._close_completer()
            closed = {"problem": problem, "fix": fix, "session": self.session_id, "reason": self._close_reason}
            self.ui.topic.set("closed", closed)
            await self.ui.close()

    def _set_agent(self, agent: "Agent") -> None:
        if self.agent is not None and self.agent.session.id != agent.session.id:
            self.ui.clear()  # the page shows one session, from its beginning
        self.agent = agent
        self.ui.has_agent = True
        self.ui.topic.set("session", {"session": agent.session.id, "directory": self.places.cwd})

    def _close_completer(self) -> None:
        if self._completer is not None:
            self._completer[1].close()
            self._completer = None

    def _on_followed(self, is_followed: bool) -> None:
        self._unfollowed_at = None if is_followed else time.monotonic()


class HostedChats:
    def __init__(self, options: "Callable[[], Options]") -> None:
        """`options`: those of the command line."""
        self._base_options = options
        self._chats: dict[str, HostedChat] = {}

    def __iter__(self):
        return iter(tuple(self._chats.values()))

    def get(self, chat_id: str) -> HostedChat:
        chat = self._chats.get(chat_id)
        if chat is None:
            raise NotFoundError("this chat is no longer open on the server", "open its session again")
        return chat

    def find_topic(self, name: str) -> Topic | None:
        chat = self._chats.get(name.removeprefix(TOPIC_PREFIX)) if name.startswith(TOPIC_PREFIX) else None
        return chat.ui.topic if chat is not None else None

    def of_session(self, session_id: str) -> HostedChat | None:
        return next((chat for chat in self if chat.session_id == session_id and not chat.is_closed), None)

    def open(self, directory: str, **changes: str | bool) -> HostedChat:
        """A new chat; `changes` are fields of Options. Opens a session once: a second tab gets the same chat."""
        from kitbag.web.web_ui import WebUI

        resumed, is_fork = str(changes.get("resume", "")), bool(changes.get("fork"))
        found = self.of_session(resumed) if resumed and not is_fork else None
        if found is not None:
            return found
        if len(self._chats) >= MAX_CHATS:
            raise InvalidError(f"{MAX_CHATS} chats are open on this server", "close a tab and retry in a minute")
        places = find_places(directory)
        options = msgspec.structs.replace(self._base_options(), directory=directory, **changes)
        chat = HostedChat(WebUI(TOPIC_PREFIX + secrets.token_urlsafe(9)), places, options)
        self._chats[chat.id] = chat
        chat.start(self._remove_later)
        return chat

    def _remove_later(self, chat: HostedChat) -> None:
        """Its tabs still read why it ended."""
        asyncio.get_running_loop().call_later(IDLE_SECONDS, self._chats.pop, chat.id, None)

    async def close_idle(self) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            await self.close_idle_once()

    async def close_idle_once(self) -> None:
        for chat in self:
            if chat.is_idle and not chat.is_closed:
                await chat.close("idle")

    async def close(self) -> None:
        async with asyncio.TaskGroup() as group:
            for chat in self:
                group.create_task(chat.close())
