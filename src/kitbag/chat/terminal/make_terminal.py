"""Builds the terminal UI with its history, pastes and completions.

Used by select_ui. Completions follow the current agent: /persona and /resume change them.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from prompt_toolkit.completion import Completer, DynamicCompleter

from kitbag.chat.input.history import InputHistory
from kitbag.chat.terminal.terminal_ui import TerminalUI
from kitbag.library.scopes import Places
from kitbag.messages import Image
from kitbag.settings import Settings
from kitbag.views.blocks import NoticeBlock

if TYPE_CHECKING:
    from kitbag.chat.input.pastes import PasteStore
    from kitbag.runtime.agent import Agent


def make_terminal(places: Places, get_agent: "Callable[[], Agent | None]", settings: Settings) -> TerminalUI:
    """`get_agent`: the chat's agent, once it has one."""
    completers: dict[int, Completer] = {}

    def completer() -> Completer | None:
        agent = get_agent()
        if agent is None:
            return None
        if id(agent) not in completers:
            completers.clear()
            from kitbag.chat.input.agent_completer import make_completer

            completers[id(agent)] = make_completer(agent)
        return completers[id(agent)]

    def notify(message: str) -> None:
        terminal.show(NoticeBlock("warning", message))

    def redact(text: str) -> str:
        return terminal.redact(text)  # looked up late: the chat replaces it

    def missing_mentions(text: str) -> Sequence[str]:
        agent = get_agent()
        if agent is None:
            return ()
        from kitbag.chat.input.agent_completer import list_missing_mentions

        return list_missing_mentions(text, agent)

    history = InputHistory(places.kitbag_home, places.cwd, redact, notify)
    terminal = TerminalUI(
        history=history,
        completer=DynamicCompleter(completer),
        pastes=_LazyPastes(notify),
        bell=settings.get("chat.bell") != "off",
        vim=settings.get("chat.vim") == "on",
        keys=settings.get("chat.keys"),
        theme=str(settings.get("chat.theme")),
        missing_mentions=missing_mentions,
    )
    return terminal


class _LazyPastes:
    """Imports pastes on the first paste or message, not at start-up."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify = notify

    @cached_property
    def _pastes(self) -> "PasteStore":
        from kitbag.chat.input.pastes import PasteStore

        return PasteStore(self._notify)

    def take(self, text: str) -> str:
        return self._pastes.take(text)

    def expand(self, text: str) -> tuple[str, Sequence[Image]]:
        return self._pastes.expand(text)

    def restore(self, text: str, images: Sequence[Image], typed: str) -> str:
        return self._pastes.restore(text, images, typed)

    def from_clipboard(self) -> str | None:
        return self._pastes.from_clipboard()
