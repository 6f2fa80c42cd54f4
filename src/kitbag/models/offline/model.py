"""The provider used without a language model: it routes, loads skills, searches and quotes, and says so.

It sees what a model would see and acts only through tools. It carries out the fixed forms in `commands`; for other
requests it picks a skill (`skills`) and an agent (`agents`) by shared words and files, searches, reads (`search`) and
quotes. Created by model_selection.
"""

import re
from collections.abc import AsyncGenerator, Iterable
from typing import Final

from kitbag.library.routing.light_stems import light_stems
from kitbag.messages import Message, Part, Text, ToolCall, Usage
from kitbag.models.offline.agents import is_question, match_agents, task_calls
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
)
from kitbag.models.offline.skill_quotes import is_answerable, quote_skill, uncovered_words
from kitbag.models.offline.skills import load_skill_calls, match_skill, significant_words
from kitbag.models.provider import ModelReply, ModelRequest, StreamItem, TextChunk
from kitbag.text.tokens import estimate_tokens

NO_MODEL_LINE: Final = "No language model is connected; these are keyword matches only."
_HOW_TO_CONNECT: Final = "To connect one, set ANTHROPIC_API_KEY or OPENAI_API_KEY, or start Ollama."
_MAX_HITS, _MAX_ROW = 8, 100


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
        input_tokens = sum(estimate_tokens(block.text) for block in request.system)
        input_tokens += sum(estimate_tokens(f"{tool.description}{tool.schema}") for tool in request.tools)
        input_tokens += sum(estimate_tokens(str(part)) for message in request.messages for part in message.parts)
        usage = Usage(input=input_tokens, output=estimate_tokens(text))
        yield ModelReply(
            message=Message("assistant", tuple(parts)), stop="tools" if calls else "end", usage=usage, model="offline"
        )


def _next_parts(request: ModelRequest) -> list[Part]:
    """The next step depends on the conversation alone."""
    if not request.tools:
        return [Text(_first_lines(request.messages))]
    conversation = read_conversation(request)
    parsed = parse_request(conversation.prompt)
    if parsed is None or isinstance(parsed, UnclearRequest):
        return _next_search_step(conversation, parsed)
    return _next_fixed_step(parsed, conversation)


def _next_fixed_step(request: OfflineRequest, conversation: OfflineConversation) -> list[Part]:
    match request:
        case ReplaceRequest():
            return next_replace_step(request, conversation)
        case CollectRequest():
            return next_collect_step(request, conversation)
        case RunCommandRequest() | RunTestsRequest():
            return next_run_step(request, conversation)


def _next_search_step(conversation: OfflineConversation, unclear: UnclearRequest | None) -> list[Part]:
    """First a skill and matching agents, or a search; then reading; then the answer."""
    keywords = significant_words(conversation.prompt)
    rare = uncovered_words(conversation, keywords)
    if not conversation.steps:
        calls = _first_calls(conversation, keywords)
    elif all(step.call.name == "Skill" for step in conversation.steps):
        calls = _search_besides_skill(conversation, rare)
    elif conversation.steps_of("Task"):
        has_searched = any(conversation.steps_of(tool) for tool in ("Grep", "Glob", "Read"))
        has_answer = any(not step.is_error for step in conversation.steps_of("Task"))
        calls = (
            []
            if has_answer
            else (
                next_read_calls(conversation, keywords) if has_searched else first_search_calls(conversation, keywords)
            )
        )
    else:
        calls = next_read_calls(conversation, rare, only_rare=rare != keywords)
    return list(calls) or [Text(_answer(conversation, keywords, unclear))]


def _search_besides_skill(conversation: OfflineConversation, rare: set[str]) -> list[ToolCall]:
    """A skill has answered what it contains; files are searched for the rest of the request only."""
    if any(not step.is_error for step in conversation.steps):
        return first_search_calls(conversation, rare)
    return _search_calls(conversation, rare)


def _first_calls(conversation: OfflineConversation, keywords: set[str]) -> list[ToolCall]:
    """The better match takes the request: an agent or a skill; both if the agent matches by files."""
    skill, agents = match_skill(conversation), match_agents(conversation)
    prefers_agent = bool(agents) and (skill is None or agents[0].score > skill.score)
    calls = load_skill_calls(conversation, skill) if skill is not None and not prefers_agent else []
    if prefers_agent or (agents and agents[0].files):
        return [*calls, *task_calls(conversation, agents)]
    if calls and is_answerable(conversation):
        return calls  # files are searched for what the skill doesn't say
    return [*calls, *_search_calls(conversation, uncovered_words(conversation, keywords))]


def _search_calls(conversation: OfflineConversation, keywords: set[str]) -> list[ToolCall]:
    calls = first_search_calls(conversation, keywords)
    if not calls and "Glob" in conversation.tools and ("?" in conversation.prompt or is_question(conversation)):
        calls.append(conversation.make_call("Glob", pattern=README_PATTERN))  # a question about the project as a whole
    return calls


def _answer(conversation: OfflineConversation, keywords: set[str], unclear: UnclearRequest | None) -> str:
    sections = [f"{NO_MODEL_LINE}\n{_HOW_TO_CONNECT}"]
    failed = [step for step in conversation.steps_of("Task") if step.is_error]
    if unclear is not None:
        forms = "\n".join(f"- {form}" for form in REQUEST_FORMS)
        sections.append(
            f"Nothing was changed or run. Without a model, only these prompts work, exactly as written:\n\n{forms}"
        )
    # Who asks for work gets the start of the skill, which says how it is done.
    asked = keywords if is_answerable(conversation) else frozenset[str]()
    for step in conversation.steps_of("Skill"):
        if step.text and not step.is_error:
            sections.append(quote_skill(str(step.call.arguments.get("skill", "")), step.text, asked))
    if "<skill-invocation" in conversation.message:
        sections.append(quote_skill("you asked for", conversation.message, asked))
    sections += [
        f"From {step.path}:\n\n{code_block(step.text)}"
        for step in conversation.steps_of("Read")
        if step.text and not step.is_error
    ]
    sections += [_quote_agent(step.text) for step in conversation.steps_of("Task") if not step.is_error]
    sections += [
        f"{_agent_name(step)} did not complete the task.\n\n{describe_denials([step]) or step.problem}"
        for step in failed
    ]
    rare = uncovered_words(conversation, keywords)
    hits = matching_lines(conversation, rare, only_rare=rare != keywords)
    hits.sort(key=lambda hit: (is_config_path(hit.path), -len(light_stems(hit.text) & keywords)))
    if hits:
        rows = "\n".join(_format_hit(hit) for hit in hits[:_MAX_HITS])
        more = f"\n- and {len(hits) - _MAX_HITS} more lines" if len(hits) > _MAX_HITS else ""
        sections.append(f"Lines with matching keywords:\n\n{rows}{more}")
    if len(sections) == 1 + (unclear is not None) + len(failed):
        sections.append("No skill or file matches the keywords in the prompt.")
    return "\n\n".join(sections)


def _quote_agent(report: str) -> str:
    """The agent's answer, without the introduction that this answer has too."""
    answer = report.partition("<agent-answer>\n")[2].rpartition("\n</agent-answer>")[0]
    found = answer.removeprefix(f"{NO_MODEL_LINE}\n{_HOW_TO_CONNECT}").strip()
    name = re.search(r"^Agent: (.+)\nTask: (\S+)$", report, re.MULTILINE)
    introduction = f"The agent {name[1]} (task {name[2]}) found:" if name else "An agent found:"
    return f"{introduction}\n\n{found}" if found else f"{introduction} nothing."


def _agent_name(step: ToolStep) -> str:
    return f"The agent {step.call.arguments.get('subagent_type', '')}"


def _format_hit(hit: GrepHit) -> str:
    row = f"- {hit.path}:{hit.line}: {hit.text}"
    return row if len(row) <= _MAX_ROW else f"{row[:_MAX_ROW]} ..."


def _first_lines(messages: Iterable[Message]) -> str:
    """For a request without tools, such as a summary: the first lines of the messages."""
    rows: list[str] = []
    for message in messages:
        rows += [row for row in message.text.splitlines() if row.strip()]
    return "\n".join([NO_MODEL_LINE, _HOW_TO_CONNECT, "", *rows[:40]])
