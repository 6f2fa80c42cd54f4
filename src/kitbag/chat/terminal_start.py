"""The terminal face with all that belongs to it: history, pastes, and completions of what the conversation has.

Used by start, where somebody sits at a terminal. The completions follow the conversation: after /persona or /resume
others are offered.
"""

from collections.abc import Callable, Iterable

from prompt_toolkit.completion import Completer, DynamicCompleter

from kitbag.agent.sessions import list_sessions
from kitbag.chat.blocks import Remark
from kitbag.chat.completion import Around, ChatCompleter, offered_prompts
from kitbag.chat.history import History
from kitbag.chat.pasting import Pastes
from kitbag.chat.terminal import Terminal
from kitbag.library.scopes import Places
from kitbag.runtime.agent import Agent
from kitbag.tasks.board import Board

_MOST_SESSIONS = 20


def make_terminal(places: Places, agent_now: Callable[[], Agent | None]) -> Terminal:
    """`agent_now`: of the conversation, once there is one."""
    completers: dict[int, Completer] = {}

    def completer() -> Completer | None:
        agent = agent_now()
        if agent is None:
            return None
        if id(agent) not in completers:
            completers.clear()
            completers[id(agent)] = ChatCompleter(_around(agent))
        return completers[id(agent)]

    def tell(remark: str) -> None:
        terminal.show(Remark("warning", remark))

    def hide(text: str) -> str:
        return terminal.hide(text)  # which is another one once there is a conversation

    history = History(places.kitbag_home, places.cwd, hide, tell)
    terminal = Terminal(history=history, completer=DynamicCompleter(completer), pastes=Pastes(tell))
    return terminal


def _around(agent: Agent) -> Around:
    board: list[Board] = []

    def tasks() -> Iterable[tuple[str, str]]:
        if not board:
            board.append(Board(agent.journal))
        here = [task for task in board[0].all() if task.directory == agent.ground.places.cwd]
        return [(task.id, f"{task.agent or 'Bash'}, {task.status}: {task.description}") for task in reversed(here)]

    def sessions() -> Iterable[tuple[str, str]]:
        found = list_sessions(agent.journal, agent.ground.places.cwd)
        return [(one.id, one.about) for one in found[:_MOST_SESSIONS] if one.id != agent.session.id]

    return Around(
        lambda: agent.ground.library,
        agent.ground.workspace,
        agent.ground.places.cwd,
        sessions,
        tasks,
        lambda: offered_prompts(agent.offered),
        lambda: agent.sources.models,
    )
