"""What runs when no language model is at hand: it routes, loads, searches and quotes, and says that it does no more.

It sees exactly what a model would see, the request, and acts only through tools. A few plain requests it carries out
(offline_requests has the list). For all others it picks a skill and an agent from the catalogs by the words and files
they share with the request (offline_skills, offline_agents), searches and reads (offline_search), and quotes.
"""

import re
from collections.abc import AsyncGenerator, Iterable
from typing import Final

from kitbag.library.routing.skill_search import words_of
from kitbag.messages import Message, Part, Text, ToolCall, Usage
from kitbag.models.offline.agents import asks, fitting_agents, search_errand, task_calls
from kitbag.models.offline.collect import next_in_collecting
from kitbag.models.offline.commands import FORMS, Collect, Replace, RunCommand, RunTests, Unclear, Wish, read_request
from kitbag.models.offline.conversation import Hit, Step, Talk, fenced, is_setup, listen
from kitbag.models.offline.replace import next_in_replacing
from kitbag.models.offline.run_command import next_in_running, refusals
from kitbag.models.offline.search import README, first_look, found_lines, next_look, words_to_search
from kitbag.models.offline.skills import fitting_skill, skill_call, wanted_words
from kitbag.models.provider import Piece, Reply, Request, TextPiece
from kitbag.text.tokens import estimate_tokens

FIRST_LINE: Final = "No language model is connected: this was found by words, and not understood."
_HOW_TO_CONNECT: Final = "To connect one, set ANTHROPIC_API_KEY or OPENAI_API_KEY, or start Ollama."
_SKILL_LINES, _HITS, _LONGEST_ROW = 14, 8, 100


class Offline:
    def __init__(self) -> None:
        self.name = "offline"

    async def close(self) -> None:
        return None

    async def stream(self, request: Request) -> AsyncGenerator[Piece, None]:
        parts = _next(request)
        text = "".join(part.text for part in parts if isinstance(part, Text))
        for line in text.splitlines(keepends=True):
            yield TextPiece(line)
        calls = any(isinstance(part, ToolCall) for part in parts)
        shown = sum(estimate_tokens(block.text) for block in request.system)
        shown += sum(estimate_tokens(f"{tool.description}{tool.schema}") for tool in request.tools)
        shown += sum(estimate_tokens(str(part)) for message in request.messages for part in message.parts)
        usage = Usage(shown, estimate_tokens(text))
        yield Reply(Message("assistant", tuple(parts)), "tools" if calls else "end", usage, "offline")


def _next(request: Request) -> list[Part]:
    """The next step follows from the conversation alone."""
    if not request.tools:
        return [Text(_extract(request.messages))]
    talk = listen(request)
    wish = read_request(talk.words)
    if wish is None or isinstance(wish, Unclear):
        return _next_in_quoting(talk, wish)
    return _next_in_work(wish, talk)


def _next_in_work(wish: Wish, talk: Talk) -> list[Part]:
    match wish:
        case Replace():
            return next_in_replacing(wish, talk)
        case Collect():
            return next_in_collecting(wish, talk)
        case RunCommand() | RunTests():
            return next_in_running(wish, talk)


def _next_in_quoting(talk: Talk, unclear: Unclear | None) -> list[Part]:
    """A skill and whoever fits, or a search; then reading; then an answer."""
    wanted = wanted_words(talk.words)
    if not talk.steps:
        calls = _first_calls(talk, wanted)
    elif talk.of("Task"):
        looked = any(talk.of(tool) for tool in ("Grep", "Glob", "Read"))
        was_done = any(not step.is_error for step in talk.of("Task"))
        calls = [] if was_done else (next_look(talk, wanted) if looked else first_look(talk, wanted))
    else:
        calls = next_look(talk, wanted)
    return list(calls) or [Text(_answer(talk, wanted, unclear))]


def _first_calls(talk: Talk, wanted: set[str]) -> list[ToolCall]:
    """Who covers more of the request takes it: an agent alone, or a skill. Both where files call for the agent."""
    skill, agents = fitting_skill(talk), fitting_agents(talk)
    is_better = bool(agents) and (skill is None or agents[0].score > skill.score)
    calls = skill_call(talk, skill) if skill is not None and not is_better else []
    if is_better or (agents and agents[0].files):
        return [*calls, *task_calls(talk, agents)]
    look = first_look(talk, wanted)
    calls += (search_errand(talk) if words_to_search(talk, wanted) else []) or look
    if not calls and "Glob" in talk.tools and ("?" in talk.words or asks(talk)):
        calls.append(talk.call("Glob", pattern=README))  # of the whole: then its own words about itself
    return calls


def _answer(talk: Talk, wanted: set[str], unclear: Unclear | None) -> str:
    pieces = [f"{FIRST_LINE}\n{_HOW_TO_CONNECT}"]
    failed = [step for step in talk.of("Task") if step.is_error]
    if unclear is not None:
        forms = "\n".join(f"- {form}" for form in FORMS)
        pieces.append(f"Nothing was changed or run: I carry out only these forms, word for word:\n\n{forms}")
    for step in talk.of("Skill"):
        if step.text and not step.is_error:
            pieces.append(_about_skill(str(step.call.arguments.get("skill", "")), step.text, wanted))
    if "<skill-invocation" in talk.said:
        pieces.append(_about_skill("you asked for", talk.said, wanted))
    pieces += [
        f"From {step.path}:\n\n{fenced(step.text)}" for step in talk.of("Read") if step.text and not step.is_error
    ]
    pieces += [_found_by_agent(step.text) for step in talk.of("Task") if not step.is_error]
    pieces += [f"{_who(step)} did not do it.\n\n{refusals([step]) or step.problem}" for step in failed]
    hits = found_lines(talk)
    hits.sort(key=lambda hit: (is_setup(hit.path), -len(words_of(hit.text) & wanted)))
    if hits:
        rows = "\n".join(_row(hit) for hit in hits[:_HITS])
        more = f"\n- and {len(hits) - _HITS} more lines" if len(hits) > _HITS else ""
        pieces.append(f"Lines that share words with the request:\n\n{rows}{more}")
    if len(pieces) == 1 + (unclear is not None) + len(failed):
        pieces.append("Nothing in the skills or files here shares a word with the request.")
    return "\n\n".join(pieces)


def _found_by_agent(report: str) -> str:
    """What it found, without the words that stand at the beginning of this answer anyway."""
    answer = report.partition("<agent-answer>\n")[2].rpartition("\n</agent-answer>")[0]
    found = answer.removeprefix(f"{FIRST_LINE}\n{_HOW_TO_CONNECT}").strip()
    name = re.search(r"^Agent: (.+)\nTask: (\S+)$", report, re.MULTILINE)
    who = f"The agent {name[1]} (task {name[2]}) found:" if name else "An agent found:"
    return f"{who}\n\n{found}" if found else f"{who} nothing."


def _who(step: Step) -> str:
    return f"The agent {step.call.arguments.get('subagent_type', '')}"


def _row(hit: Hit) -> str:
    row = f"- {hit.path}:{hit.line}: {hit.text}"
    return row if len(row) <= _LONGEST_ROW else f"{row[:_LONGEST_ROW]} ..."


def _about_skill(name: str, block: str, wanted: set[str]) -> str:
    rest = block[max(block.find("<skill-invocation"), 0) :]
    body = rest.partition("\n\n")[2].partition("</skill-invocation>")[0].strip()
    rows = body.splitlines()
    shared = [len(words_of(row) & wanted) for row in rows]
    best = shared.index(max(shared)) if shared else 0
    # The end of a skill is the arguments it was given.
    start = best if _SKILL_LINES < best < len(rows) - 2 and shared[best] > 1 else 0
    shown = "\n".join(f"> {row}".rstrip() for row in rows[start : start + _SKILL_LINES]).rstrip("> \n")
    left = len(rows) - start - _SKILL_LINES
    return f"The skill {name} says:\n\n{shown}" + (f"\n>\n> ({left} more lines)" if left > 0 else "")


def _extract(messages: Iterable[Message]) -> str:
    """For a request without tools, such as one for a summary: the first line of each message."""
    rows: list[str] = []
    for message in messages:
        rows += [row for row in message.text.splitlines() if row.strip()]
    return "\n".join([FIRST_LINE, _HOW_TO_CONNECT, "", *rows[:40]])
