"""Selects agents for the offline model: the ones in the prompt's catalog that match the request.

Matches by words and file extensions (library.routing.agent_search), not by known names. Used by
offline.model.
"""

import html
import re
from typing import Final

from kitbag.library.routing.agent_search import CALLED_BY_NAME, AgentCandidate, AgentMatch, rank_agents
from kitbag.messages import ToolCall
from kitbag.models.offline.conversation import OfflineConversation, find_blocks

_CATALOG: Final = "available-agents"
_ENTRY = re.compile(r"^- (\S+?)(?:: (.*))?$", re.MULTILINE)
_EXTENSIONS = re.compile(r"(?:^| )\[(\.[^\s,\]]+(?:, \.[^\s,\]]+)*)\]$")
_QUESTION = re.compile(r"(?i)\b(?:what|who|why|how|where|which|explain|describe|about)\b")
_MAX_AGENTS: Final = 3
_MAX_TITLE: Final = 60


def is_question(conversation: OfflineConversation) -> bool:
    """True for a question, which is not delegated."""
    return bool(_QUESTION.search(conversation.prompt))


def parse_agent_catalog(conversation: OfflineConversation) -> list[AgentCandidate]:
    candidates: list[AgentCandidate] = []
    for block in conversation.request.system:
        for start, end in find_blocks(block.text, _CATALOG):
            for entry in _ENTRY.finditer(block.text[start:end]):
                candidates.append(_parse_candidate(html.unescape(entry[1]), html.unescape(entry[2] or "")))
    return candidates


def _parse_candidate(name: str, text: str) -> AgentCandidate:
    extensions = _EXTENSIONS.search(text)
    if extensions is None:
        return AgentCandidate(name, text)
    return AgentCandidate(name, text[: extensions.start()], tuple(extensions[1].lower().split(", ")))


def match_agents(conversation: OfflineConversation) -> list[AgentMatch]:
    """The best agent; if the request names files of several kinds, the best for each kind. A question goes only to an
    agent that it calls by name."""
    if "Task" not in conversation.tools or conversation.is_task:
        return []
    min_level = CALLED_BY_NAME if is_question(conversation) else 1
    matches = [
        match
        for match in rank_agents(parse_agent_catalog(conversation), conversation.prompt)
        if match.level >= min_level
    ]
    by_files = [match for match in matches if match.files]
    if not by_files or not matches[0].files:
        return matches[:1]
    chosen: list[AgentMatch] = []
    for match in by_files:
        unclaimed = tuple(file for file in match.files if not any(file in other.files for other in chosen))
        if unclaimed and len(chosen) < _MAX_AGENTS:
            chosen.append(match._replace(files=unclaimed))
    return chosen


def task_calls(conversation: OfflineConversation, agents: list[AgentMatch]) -> list[ToolCall]:
    """Each agent gets the request; several agents also get their own files at the start."""
    prompt_text = conversation.prompt.strip()
    title = prompt_text.split("\n", 1)[0][:_MAX_TITLE]
    calls: list[ToolCall] = []
    for agent in agents:
        prompt = (
            prompt_text
            if len(agents) == 1
            else f"Handle only {', '.join(agent.files)} from this prompt.\n\n{prompt_text}"
        )
        calls.append(conversation.make_call("Task", subagent_type=agent.name, prompt=prompt, description=title))
    return calls
