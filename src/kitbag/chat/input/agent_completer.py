"""Completions and checks of mentions for the agent of a chat.

Used by terminal/make_terminal and by the web UI, for each agent that a chat uses.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from kitbag.agent.session_list import list_sessions
from kitbag.assembly.mentions import missing_mentions
from kitbag.chat.commands import COMMANDS
from kitbag.chat.input.completion import ChatCompleter, CompletionSources, prompt_descriptions
from kitbag.chat.ui import Submitted
from kitbag.runtime.agent import Agent
from kitbag.tasks.board import Board

_MAX_SESSIONS: Final = 20
_MAX_TASKS: Final = 200


def list_missing_mentions(text: str, agent: Agent) -> Sequence[str]:
    """`@` mentions in a message that name nothing."""
    is_command = text.startswith("/") and text[1:].partition(" ")[0].lower() in COMMANDS
    if is_command or Submitted(text=text).shell_command:
        return ()
    environment = agent.environment
    return missing_mentions(text, environment.library, environment.workspace, environment.places.cwd)


def make_completer(agent: Agent) -> ChatCompleter:
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
