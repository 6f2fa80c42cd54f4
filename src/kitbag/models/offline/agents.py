"""Agents as the offline model uses them: the ones that fit a request, chosen from the catalog it is shown.

Used by offline. What fits is decided by library/agent_routing, by words and file extensions and not by any name that
is known here; but for Explore, which searches where nobody fits better.
"""

import html
import re
from typing import Final

from kitbag.library.routing.agent_search import CALLED, Candidate, Match, paths_in, rank_agents
from kitbag.messages import ToolCall
from kitbag.models.offline.conversation import Talk, places_of

_CATALOG: Final = "available-agents"
_ENTRY = re.compile(r"^- (\S+?)(?:: (.*))?$", re.MULTILINE)
_EXTENSIONS = re.compile(r"(?:^| )\[(\.[^\s,\]]+(?:, \.[^\s,\]]+)*)\]$")
_QUESTION = re.compile(r"(?i)\b(?:what|who|why|how|where|which|explain|describe|about)\b")
_EXPLORER: Final = "Explore"
_MOST: Final = 3
_LONGEST_TITLE: Final = 60


def asks(talk: Talk) -> bool:
    """A question, and no work to be handed on."""
    return bool(_QUESTION.search(talk.words))


def listed_agents(talk: Talk) -> list[Candidate]:
    found: list[Candidate] = []
    for block in talk.request.system:
        for start, end in places_of(block.text, _CATALOG):
            for entry in _ENTRY.finditer(block.text[start:end]):
                found.append(_candidate(html.unescape(entry[1]), html.unescape(entry[2] or "")))
    return found


def _candidate(name: str, text: str) -> Candidate:
    extensions = _EXTENSIONS.search(text)
    if extensions is None:
        return Candidate(name, text)
    return Candidate(name, text[: extensions.start()], tuple(extensions[1].lower().split(", ")))


def fitting_agents(talk: Talk) -> list[Match]:
    """The one that the request is for; where it names files of several kinds, the one for each kind. A question goes
    only to one that is called by its name."""
    if "Task" not in talk.tools or talk.is_errand:
        return []
    least = CALLED if asks(talk) else 1
    sure = [match for match in rank_agents(listed_agents(talk), talk.words) if match.level >= least]
    by_files = [match for match in sure if match.files]
    if not by_files or not sure[0].files:
        return sure[:1]
    chosen: list[Match] = []
    for match in by_files:
        left = tuple(file for file in match.files if not any(file in other.files for other in chosen))
        if left and len(chosen) < _MOST:
            chosen.append(match._replace(files=left))
    return chosen


def task_calls(talk: Talk, agents: list[Match]) -> list[ToolCall]:
    """Each gets the request; of several, each with its own files in front."""
    words = talk.words.strip()
    title = words.split("\n", 1)[0][:_LONGEST_TITLE]
    calls: list[ToolCall] = []
    for agent in agents:
        prompt = words if len(agents) == 1 else f"Take {', '.join(agent.files)} of this request.\n\n{words}"
        calls.append(talk.call("Task", subagent_type=agent.name, prompt=prompt, description=title))
    return calls


def search_errand(talk: Talk) -> list[ToolCall]:
    """Somebody else searches, in a context of their own, where there is such an agent and no file is named."""
    listed = any(agent.name == _EXPLORER for agent in listed_agents(talk))
    if "Task" not in talk.tools or not listed or paths_in(talk.words):
        return []
    return [talk.call("Task", subagent_type=_EXPLORER, prompt=talk.words.strip(), description="search by words")]
