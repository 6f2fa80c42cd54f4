"""Agents as the offline model uses them: the ones that fit a request, chosen from the catalog it is shown.

Used by offline. What fits is decided by library/agent_routing, by words and file extensions and not by any name that
is known here; but for Explore, which searches where nobody fits better.
"""

import html
import re
from typing import Final

from kitbag.library.routing.agent_search import CALLED_BY_NAME, AgentCandidate, AgentMatch, find_paths, rank_agents
from kitbag.messages import ToolCall
from kitbag.models.offline.conversation import OfflineConversation, find_blocks

_CATALOG: Final = "available-agents"
_ENTRY = re.compile(r"^- (\S+?)(?:: (.*))?$", re.MULTILINE)
_EXTENSIONS = re.compile(r"(?:^| )\[(\.[^\s,\]]+(?:, \.[^\s,\]]+)*)\]$")
_QUESTION = re.compile(r"(?i)\b(?:what|who|why|how|where|which|explain|describe|about)\b")
_EXPLORER: Final = "Explore"
_MAX_AGENTS: Final = 3
_MAX_TITLE: Final = 60


def is_question(talk: OfflineConversation) -> bool:
    """A question, and no work to be handed on."""
    return bool(_QUESTION.search(talk.prompt))


def parse_agent_catalog(talk: OfflineConversation) -> list[AgentCandidate]:
    found: list[AgentCandidate] = []
    for block in talk.request.system:
        for start, end in find_blocks(block.text, _CATALOG):
            for entry in _ENTRY.finditer(block.text[start:end]):
                found.append(_parse_candidate(html.unescape(entry[1]), html.unescape(entry[2] or "")))
    return found


def _parse_candidate(name: str, text: str) -> AgentCandidate:
    extensions = _EXTENSIONS.search(text)
    if extensions is None:
        return AgentCandidate(name, text)
    return AgentCandidate(name, text[: extensions.start()], tuple(extensions[1].lower().split(", ")))


def match_agents(talk: OfflineConversation) -> list[AgentMatch]:
    """The one that the request is for; where it names files of several kinds, the one for each kind. A question goes
    only to one that is called by its name."""
    if "Task" not in talk.tools or talk.is_task:
        return []
    least = CALLED_BY_NAME if is_question(talk) else 1
    sure = [match for match in rank_agents(parse_agent_catalog(talk), talk.prompt) if match.level >= least]
    by_files = [match for match in sure if match.files]
    if not by_files or not sure[0].files:
        return sure[:1]
    chosen: list[AgentMatch] = []
    for match in by_files:
        left = tuple(file for file in match.files if not any(file in other.files for other in chosen))
        if left and len(chosen) < _MAX_AGENTS:
            chosen.append(match._replace(files=left))
    return chosen


def task_calls(talk: OfflineConversation, agents: list[AgentMatch]) -> list[ToolCall]:
    """Each gets the request; of several, each with its own files in front."""
    words = talk.prompt.strip()
    title = words.split("\n", 1)[0][:_MAX_TITLE]
    calls: list[ToolCall] = []
    for agent in agents:
        prompt = words if len(agents) == 1 else f"Take {', '.join(agent.files)} of this request.\n\n{words}"
        calls.append(talk.make_call("Task", subagent_type=agent.name, prompt=prompt, description=title))
    return calls


def explore_calls(talk: OfflineConversation) -> list[ToolCall]:
    """Somebody else searches, in a context of their own, where there is such an agent and no file is named."""
    listed = any(agent.name == _EXPLORER for agent in parse_agent_catalog(talk))
    if "Task" not in talk.tools or not listed or find_paths(talk.prompt):
        return []
    return [talk.make_call("Task", subagent_type=_EXPLORER, prompt=talk.prompt.strip(), description="search by words")]
