"""Builds the terminal UI with its history, pastes and completions.

Used by select_ui. Completions follow the current agent: /persona and /resume change them.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from prompt_toolkit.completion import Completer, DynamicCompleter

from kitbag.chat.input.history import InputHistory
from kitbag.chat.terminal.terminal_ui import TerminalUI
from kitbag.chat.ui import Submitted
from kitbag.library.scopes import Places
from kitbag.messages import Image
from kitbag.settings import Settings
from kitbag.views.blocks import NoticeBlock

if TYPE_CHECKING:
    from kitbag.chat.input.pastes import PasteStore
    from kitbag.runtime.agent import Agent

_MAX_SESSIONS = 20
_MAX_TASKS = 200


def make_terminal(places: Places, get_agent: "Callable[[], Agent | None]", settings: Settings) -> TerminalUI:
    """`get_agent`: the chat's agent, once it has one."""
    completers: dict[int, Completer] = {}

    def completer() -> Completer | None:
        agent = get_agent()
        if agent is None:
            return None
        if id(agent) not in completers:
            completers.clear()
            completers[id(agent)] = _completer_for(agent)
        return completers[id(agent)]

    def notify(message: str) -> None:
        terminal.show(NoticeBlock("warning", message))

    def redact(text: str) -> str:
        return terminal.redact(text)  # looked up late: the chat replaces it

    def missing_mentions(text: str) -> Sequence[str]:
        agent = get_agent()
        return _missing_mentions(text, agent) if agent is not None else ()

    history = InputHistory(places.kitbag_home, places.cwd, redact, notify)
    terminal = TerminalUI(
        history=history,
        completer=DynamicCompleter(completer),
        pastes=_LazyPastes(notify),
        bell=settings.get("chat.bell") != "off",
        vim=settings.get("chat.vim") == "on",
        keys=settings.get("chat.keys"),
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

    def from_clipboard(self) -> str | None:
        return self._pastes.from_clipboard()


def _missing_mentions(text: str, agent: "Agent") -> Sequence[str]:
    from kitbag.assembly.mentions import missing_mentions
    from kitbag.chat.commands import COMMANDS

    is_command = text.startswith("/") and text[1:].partition(" ")[0].lower() in COMMANDS
    if is_command or Submitted(text=text).shell_command:
        return ()
    environment = agent.environment
    return missing_mentions(text, environment.library, environment.workspace, environment.places.cwd)


def _completer_for(agent: "Agent") -> Completer:
    from kitbag.agent.session_list import list_sessions
    from kitbag.chat.input.completion import ChatCompleter, CompletionSources, prompt_descriptions
    from kitbag.tasks.board import Board

    board: list[Board] = []

    def tasks() -> Iterable[tuple[str, str]]:
        if not board:
            board.append(Board(agent.journal))
        here = board[0].newest(agent.environment.places.cwd, _MAX_TASKS)
        return [(task.id, f"{task.agent or 'Bash'}, {task.status}: {task.description}") for task in here]

    def sessions() -> Iterable[tuple[str, str]]:
        sessions_found = list_sessions(agent.journal, agent.environment.places.cwd, _MAX_SESSIONS)
        return [(one.id, one.about) for one in sessions_found if one.id != agent.session.id]

    sources = CompletionSources(
        library=lambda: agent.environment.library,
        workspace=agent.environment.workspace,
        directory=agent.environment.places.cwd,
        sessions=sessions,
        tasks=tasks,
        prompts=lambda: prompt_descriptions(agent.agent_servers),
        models=lambda: agent.sources.models,
    )
    return ChatCompleter(sources)
