"""What runs when no language model is at hand: it routes, loads, searches and quotes, and says that it does no more.

It sees exactly what a model would see, the request, and acts only through tools. A few plain requests it carries out
(offline_requests has the list). For all others it picks a skill by the words it shares with the request, loads it, lets
the agent Explore search and read the workspace, or does so itself, and answers with cited excerpts.
"""

import os
import re
from collections.abc import AsyncGenerator, Iterable
from typing import Final

from kitbag.library.router import words_of
from kitbag.messages import Message, Part, Text, ToolCall, Usage
from kitbag.models.offline_collect import next_in_collecting
from kitbag.models.offline_replace import next_in_replacing
from kitbag.models.offline_requests import FORMS, Collect, Replace, RunCommand, RunTests, Unclear, Wish, read_request
from kitbag.models.offline_run import next_in_running
from kitbag.models.offline_skills import skill_call, wanted_words
from kitbag.models.offline_talk import Hit, Talk, fenced, hits_in, is_setup, listen
from kitbag.models.provider import Piece, Reply, Request, TextPiece
from kitbag.text.tokens import estimate_tokens

FIRST_LINE: Final = "No language model is connected: this was found by words, and not understood."
_HOW_TO_CONNECT: Final = "To connect one, set ANTHROPIC_API_KEY or OPENAI_API_KEY, or start Ollama."
_NAME = re.compile(r"[\w./-]{3,}")
_NAMED_FILE = re.compile(r"(?<![\w/.-])(?:[\w.-]{1,80}/){0,20}[\w-]{1,80}\.[A-Za-z]\w{0,5}(?![\w/])")
_QUESTION = re.compile(r"(?i)\b(?:what|who|why|how|explain|describe|about)\b")
_EXPLORER = re.compile(r"<available-agents>[^<]*^- Explore\b", re.MULTILINE)
_SKILL_LINES, _HITS, _FILES, _READ_LINES, _LONGEST_ROW = 14, 8, 2, 16, 100


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
    """Look for a skill and search, then read, then answer."""
    wanted = wanted_words(talk.words)
    if not talk.steps:
        calls: list[Part] = [*skill_call(talk), *(_errand(talk, wanted) or _first_look(talk, wanted))]
        if not calls and "Glob" in talk.tools and _asks(talk):  # of the whole: then its own words about itself
            calls.append(talk.call("Glob", pattern="README*"))
        return calls or [Text(_answer(talk, wanted, unclear))]
    if "Read" in talk.tools and not talk.of("Read") and not talk.of("Task"):
        found = _best_files(_hits(talk), wanted) or [(path, 1) for path in _globbed(talk)]
        if found:
            return [_read(talk, path, line) for path, line in found]
    return [Text(_answer(talk, wanted, unclear))]


def _errand(talk: Talk, wanted: set[str]) -> list[ToolCall]:
    """Somebody else searches, in a context of their own, where there is such an agent and something to look for."""
    listed = any(_EXPLORER.search(block.text) for block in talk.request.system)
    if "Task" not in talk.tools or not listed or not _words_to_search(talk, wanted) or _NAMED_FILE.search(talk.words):
        return []
    return [talk.call("Task", subagent_type="Explore", prompt=talk.words.strip(), description="search by words")]


def _first_look(talk: Talk, wanted: set[str]) -> list[ToolCall]:
    named = _NAMED_FILE.findall(talk.words)[:_FILES]
    if "Read" in talk.tools and named:
        return [_read(talk, path, 1) for path in named]
    words = _words_to_search(talk, wanted)
    if "Grep" not in talk.tools or not words:
        return []
    pattern = "|".join(re.escape(word) for word in words)
    common = {"output_mode": "content", "ignore_case": True, "numbers": True, "head_limit": 200}
    return [talk.call("Grep", pattern=pattern, **common)]


def _asks(talk: Talk) -> bool:
    return "?" in talk.words or bool(_QUESTION.search(talk.words))


def _globbed(talk: Talk) -> list[str]:
    """Files that were found by name."""
    text = "\n".join(step.text for step in talk.of("Glob") if not step.is_error)
    return [row for row in text.splitlines() if row.startswith("README")][:_FILES]


def _words_to_search(talk: Talk, wanted: set[str]) -> list[str]:
    """As they are written, the longest first: short words are everywhere."""
    spoken = _NAME.findall(talk.words)
    kept = [word.strip(".-/") for word in spoken if words_of(word) & wanted and len(word) > 3]
    return sorted(dict.fromkeys(kept), key=len, reverse=True)[:4]


def _read(talk: Talk, path: str, line: int) -> ToolCall:
    return talk.call("Read", file_path=path, offset=max(1, line - 5), limit=_READ_LINES)


def _hits(talk: Talk) -> list[Hit]:
    found, _ = hits_in(step.text for step in talk.of("Grep") if not step.is_error)
    return [hit._replace(text=hit.text.strip()) for hit in found]


def _best_files(hits: Iterable[Hit], wanted: set[str]) -> list[tuple[str, int]]:
    """The files whose lines and names cover most of the request, each with its best line."""
    covered: dict[str, set[str]] = {}
    lines: dict[str, tuple[int, int]] = {}
    for path, line, text in hits:
        shared = words_of(text) & wanted
        covered.setdefault(path, words_of(os.path.basename(path)) & wanted).update(shared)
        if len(shared) > lines.get(path, (-1, 0))[0]:
            lines[path] = (len(shared), line)
    order = sorted(covered, key=lambda path: (is_setup(path), -len(covered[path]), -lines[path][0], path))
    return [(path, lines[path][1]) for path in order[:_FILES]]


def _answer(talk: Talk, wanted: set[str], unclear: Unclear | None) -> str:
    pieces = [f"{FIRST_LINE}\n{_HOW_TO_CONNECT}"]
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
    hits = sorted(_hits(talk), key=lambda hit: (is_setup(hit.path), -len(words_of(hit.text) & wanted)))
    if hits:
        rows = "\n".join(_row(hit) for hit in hits[:_HITS])
        more = f"\n- and {len(hits) - _HITS} more lines" if len(hits) > _HITS else ""
        pieces.append(f"Lines that share words with the request:\n\n{rows}{more}")
    if len(pieces) == 1 + (unclear is not None):
        pieces.append("Nothing in the skills or files here shares a word with the request.")
    return "\n\n".join(pieces)


def _found_by_agent(report: str) -> str:
    """What it found, without the words that stand at the beginning of this answer anyway."""
    answer = report.partition("<agent-answer>\n")[2].rpartition("\n</agent-answer>")[0]
    found = answer.removeprefix(f"{FIRST_LINE}\n{_HOW_TO_CONNECT}").strip()
    name = re.search(r"^Agent: (.+)\nTask: (\S+)$", report, re.MULTILINE)
    who = f"The agent {name[1]} (task {name[2]}) found:" if name else "An agent found:"
    return f"{who}\n\n{found}" if found else f"{who} nothing."


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
    shown = "\n".join(f"> {row}".rstrip() for row in rows[start : start + _SKILL_LINES])
    left = len(rows) - start - _SKILL_LINES
    return f"The skill {name} says:\n\n{shown}" + (f"\n>\n> ({left} more lines)" if left > 0 else "")


def _extract(messages: Iterable[Message]) -> str:
    """For a request without tools, such as one for a summary: the first line of each message."""
    rows: list[str] = []
    for message in messages:
        rows += [row for row in message.text.splitlines() if row.strip()]
    return "\n".join([FIRST_LINE, _HOW_TO_CONNECT, "", *rows[:40]])
