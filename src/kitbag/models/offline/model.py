"""What runs when no language model is at hand: it routes, loads, searches and quotes, and says that it does no more.

It sees exactly what a model would see, the request, and acts only through tools. A few plain requests it carries out
(offline_requests has the list). For all others it picks a skill and an agent from the catalogs by the words and files
they share with the request (offline_skills, offline_agents), searches and reads (offline_search), and quotes.
"""

import re
from collections.abc import AsyncGenerator, Iterable
from typing import Final

from kitbag.library.routing.skill_search import stem_words
from kitbag.messages import Message, Part, Text, ToolCall, Usage
from kitbag.models.offline.agents import explore_calls, is_question, match_agents, task_calls
from kitbag.models.offline.collect import next_collect_step
from kitbag.models.offline.commands import (
    REQUEST_FORMS,
    CollectRequest,
    OfflineRequest,
    ReplaceRequest,
    RunCommandRequest,
    RunTestsRequest,
    UnclearRequest,
    parse_request,
)
from kitbag.models.offline.conversation import (
    GrepHit,
    OfflineConversation,
    ToolStep,
    code_block,
    is_config_path,
    read_conversation,
)
from kitbag.models.offline.replace import next_replace_step
from kitbag.models.offline.run_command import describe_denials, next_run_step
from kitbag.models.offline.search import (
    README_PATTERN,
    first_search_calls,
    matching_lines,
    next_read_calls,
    search_words,
)
from kitbag.models.offline.skills import load_skill_calls, match_skill, significant_words
from kitbag.models.provider import ModelReply, ModelRequest, StreamItem, TextChunk
from kitbag.text.tokens import estimate_tokens

NO_MODEL_LINE: Final = "No language model is connected: this was found by words, and not understood."
_HOW_TO_CONNECT: Final = "To connect one, set ANTHROPIC_API_KEY or OPENAI_API_KEY, or start Ollama."
_SKILL_LINES, _MAX_HITS, _MAX_ROW = 14, 8, 100


class OfflineModel:
    def __init__(self) -> None:
        self.name = "offline"

    async def close(self) -> None:
        return None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        parts = _next_parts(request)
        text = "".join(part.text for part in parts if isinstance(part, Text))
        for line in text.splitlines(keepends=True):
            yield TextChunk(line)
        calls = any(isinstance(part, ToolCall) for part in parts)
        shown = sum(estimate_tokens(block.text) for block in request.system)
        shown += sum(estimate_tokens(f"{tool.description}{tool.schema}") for tool in request.tools)
        shown += sum(estimate_tokens(str(part)) for message in request.messages for part in message.parts)
        usage = Usage(shown, estimate_tokens(text))
        yield ModelReply(Message("assistant", tuple(parts)), "tools" if calls else "end", usage, "offline")


def _next_parts(request: ModelRequest) -> list[Part]:
    """The next step follows from the conversation alone."""
    if not request.tools:
        return [Text(_first_lines(request.messages))]
    talk = read_conversation(request)
    wish = parse_request(talk.prompt)
    if wish is None or isinstance(wish, UnclearRequest):
        return _next_search_step(talk, wish)
    return _next_fixed_step(wish, talk)


def _next_fixed_step(wish: OfflineRequest, talk: OfflineConversation) -> list[Part]:
    match wish:
        case ReplaceRequest():
            return next_replace_step(wish, talk)
        case CollectRequest():
            return next_collect_step(wish, talk)
        case RunCommandRequest() | RunTestsRequest():
            return next_run_step(wish, talk)


def _next_search_step(talk: OfflineConversation, unclear: UnclearRequest | None) -> list[Part]:
    """A skill and whoever fits, or a search; then reading; then an answer."""
    wanted = significant_words(talk.prompt)
    if not talk.steps:
        calls = _first_calls(talk, wanted)
    elif talk.steps_of("Task"):
        looked = any(talk.steps_of(tool) for tool in ("Grep", "Glob", "Read"))
        was_done = any(not step.is_error for step in talk.steps_of("Task"))
        calls = [] if was_done else (next_read_calls(talk, wanted) if looked else first_search_calls(talk, wanted))
    else:
        calls = next_read_calls(talk, wanted)
    return list(calls) or [Text(_answer(talk, wanted, unclear))]


def _first_calls(talk: OfflineConversation, wanted: set[str]) -> list[ToolCall]:
    """Who covers more of the request takes it: an agent alone, or a skill. Both where files call for the agent."""
    skill, agents = match_skill(talk), match_agents(talk)
    is_better = bool(agents) and (skill is None or agents[0].score > skill.score)
    calls = load_skill_calls(talk, skill) if skill is not None and not is_better else []
    if is_better or (agents and agents[0].files):
        return [*calls, *task_calls(talk, agents)]
    look = first_search_calls(talk, wanted)
    calls += (explore_calls(talk) if search_words(talk, wanted) else []) or look
    if not calls and "Glob" in talk.tools and ("?" in talk.prompt or is_question(talk)):
        calls.append(talk.make_call("Glob", pattern=README_PATTERN))  # of the whole: then its own words about itself
    return calls


def _answer(talk: OfflineConversation, wanted: set[str], unclear: UnclearRequest | None) -> str:
    pieces = [f"{NO_MODEL_LINE}\n{_HOW_TO_CONNECT}"]
    failed = [step for step in talk.steps_of("Task") if step.is_error]
    if unclear is not None:
        forms = "\n".join(f"- {form}" for form in REQUEST_FORMS)
        pieces.append(f"Nothing was changed or run: I carry out only these forms, word for word:\n\n{forms}")
    for step in talk.steps_of("Skill"):
        if step.text and not step.is_error:
            pieces.append(_quote_skill(str(step.call.arguments.get("skill", "")), step.text, wanted))
    if "<skill-invocation" in talk.message:
        pieces.append(_quote_skill("you asked for", talk.message, wanted))
    pieces += [
        f"From {step.path}:\n\n{code_block(step.text)}"
        for step in talk.steps_of("Read")
        if step.text and not step.is_error
    ]
    pieces += [_quote_agent(step.text) for step in talk.steps_of("Task") if not step.is_error]
    pieces += [f"{_agent_name(step)} did not do it.\n\n{describe_denials([step]) or step.problem}" for step in failed]
    hits = matching_lines(talk)
    hits.sort(key=lambda hit: (is_config_path(hit.path), -len(stem_words(hit.text) & wanted)))
    if hits:
        rows = "\n".join(_format_hit(hit) for hit in hits[:_MAX_HITS])
        more = f"\n- and {len(hits) - _MAX_HITS} more lines" if len(hits) > _MAX_HITS else ""
        pieces.append(f"Lines that share words with the request:\n\n{rows}{more}")
    if len(pieces) == 1 + (unclear is not None) + len(failed):
        pieces.append("Nothing in the skills or files here shares a word with the request.")
    return "\n\n".join(pieces)


def _quote_agent(report: str) -> str:
    """What it found, without the words that stand at the beginning of this answer anyway."""
    answer = report.partition("<agent-answer>\n")[2].rpartition("\n</agent-answer>")[0]
    found = answer.removeprefix(f"{NO_MODEL_LINE}\n{_HOW_TO_CONNECT}").strip()
    name = re.search(r"^Agent: (.+)\nTask: (\S+)$", report, re.MULTILINE)
    who = f"The agent {name[1]} (task {name[2]}) found:" if name else "An agent found:"
    return f"{who}\n\n{found}" if found else f"{who} nothing."


def _agent_name(step: ToolStep) -> str:
    return f"The agent {step.call.arguments.get('subagent_type', '')}"


def _format_hit(hit: GrepHit) -> str:
    row = f"- {hit.path}:{hit.line}: {hit.text}"
    return row if len(row) <= _MAX_ROW else f"{row[:_MAX_ROW]} ..."


def _quote_skill(name: str, block: str, wanted: set[str]) -> str:
    rest = block[max(block.find("<skill-invocation"), 0) :]
    body = rest.partition("\n\n")[2].partition("</skill-invocation>")[0].strip()
    rows = body.splitlines()
    shared = [len(stem_words(row) & wanted) for row in rows]
    best = shared.index(max(shared)) if shared else 0
    # The end of a skill is the arguments it was given.
    start = best if _SKILL_LINES < best < len(rows) - 2 and shared[best] > 1 else 0
    shown = "\n".join(f"> {row}".rstrip() for row in rows[start : start + _SKILL_LINES]).rstrip("> \n")
    left = len(rows) - start - _SKILL_LINES
    return f"The skill {name} says:\n\n{shown}" + (f"\n>\n> ({left} more lines)" if left > 0 else "")


def _first_lines(messages: Iterable[Message]) -> str:
    """For a request without tools, such as one for a summary: the first line of each message."""
    rows: list[str] = []
    for message in messages:
        rows += [row for row in message.text.splitlines() if row.strip()]
    return "\n".join([NO_MODEL_LINE, _HOW_TO_CONNECT, "", *rows[:40]])
