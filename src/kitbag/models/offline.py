"""What runs when no language model is at hand: it routes, loads, searches and quotes, and says that it does no more.

It sees exactly what a model would see, the request, and acts only through tools: picks a skill from the catalog by
the words it shares with the request, loads it, searches and reads the workspace, and answers with cited excerpts.
"""

import html
import os
import re
from collections.abc import AsyncGenerator, Iterable, Iterator
from typing import Any, Final, NamedTuple

from kitbag.library.router import words_of
from kitbag.messages import Message, Part, Text, ToolCall, Usage
from kitbag.models.provider import Piece, Reply, Request, TextPiece
from kitbag.text.tokens import estimate_tokens

FIRST_LINE: Final = (
    "No language model is connected: this is what the skills and files say, found by words. To connect one, set"
    " ANTHROPIC_API_KEY or OPENAI_API_KEY, start Ollama, or give --model."
)
_ENTRY = re.compile(r"^- (\S+?)(?:: (.*))?$", re.MULTILINE)
_CATALOGS: Final = ("available-skills", "suggested-skills")
_TAGS: Final = (*_CATALOGS, "library-changes", "skill-invocation", "standard-input", "conversation-summary")
"""What stands in a message besides the words of the person."""
_HIT = re.compile(r"^(.+?)[:-](\d+)[:-](.*)$")
_NAME = re.compile(r"[\w./-]{3,}")
_NAMED_FILE = re.compile(r"(?<![\w/.-])(?:[\w.-]{1,80}/){0,20}[\w-]{1,80}\.[A-Za-z]\w{0,5}(?![\w/])")
_QUESTION = re.compile(r"(?i)\b(?:what|who|why|how|explain|describe|about)\b")
_EMPTY_WORDS: Final = frozenset(
    words_of(
        "what which where who why does did do can could would should please show tell find give make want need help me"
        " my our your have has about into file files code project repository repo work works there here"
    )
)
_SKILL_LINES, _HITS, _FILES, _READ_LINES = 14, 8, 2, 30
_LONGEST_REQUEST, _MOST_BLOCKS = 20_000, 50


class _Found(NamedTuple):
    name: str
    words: list[str]
    score: float


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
    """The next step follows from the conversation alone: look for a skill and search, then read, then answer."""
    said, steps = _since_the_person_spoke(request.messages)
    if not request.tools:
        return [Text(_extract(request.messages))]
    tools = {tool.name: tool.schema.get("properties", {}) for tool in request.tools}
    wanted = words_of(_spoken(said)) - _EMPTY_WORDS
    if not steps:
        calls = _first_calls(request, said, wanted, tools)
        if not calls and "Glob" in tools and _asks(said):  # of the whole: then its own words about itself
            calls.append(_call("Glob", {"pattern": "README*"}, tools["Glob"]))
        return calls or [Text(_answer(said, wanted, steps))]
    if "Read" in tools and not any(call.name == "Read" for call, _ in steps):
        found = _best_files(steps, wanted) or [(path, 1) for path in _globbed(steps)]
        reads = [_read(path, line, tools["Read"]) for path, line in found]
        if reads:
            return list(reads)
    return [Text(_answer(said, wanted, steps))]


def _since_the_person_spoke(messages: Iterable[Message]) -> tuple[str, list[tuple[ToolCall, str]]]:
    said = ""
    calls: dict[str, ToolCall] = {}
    results: dict[str, str] = {}
    for message in messages:
        if message.role == "user" and message.text.strip():
            said, calls, results = message.text, {}, {}
        calls |= {call.id: call for call in message.calls}
        for result in message.results:
            text = "".join(part.text for part in result.content if isinstance(part, Text))
            results[result.call_id] = text if not result.is_error else ""
    return said, [(call, results.get(call_id, "")) for call_id, call in calls.items()]


def _places(text: str, tag: str) -> Iterator[tuple[int, int]]:
    """Where blocks of that name stand. In one pass, whatever the text is."""
    at = 0
    while (start := text.find(f"<{tag}", at)) >= 0:
        end = text.find(f"</{tag}>", start)
        if end < 0:
            return
        at = end + len(tag) + 3
        yield start, at


def _spoken(said: str) -> str:
    """The words of the person."""
    for tag in _TAGS:
        places = list(_places(said, tag))
        for start, end in reversed(places[:_MOST_BLOCKS]):
            said = f"{said[:start]} {said[end:]}"
    return said[:_LONGEST_REQUEST]


def _first_calls(request: Request, said: str, wanted: set[str], tools: dict[str, Any]) -> list[Part]:
    calls: list[Part] = []
    if "Skill" in tools and "<skill-invocation" not in said:
        found = best_skill(request, said, wanted)
        if found is not None:
            calls.append(_call("Skill", {"skill": found.name}, tools["Skill"]))
    named = _NAMED_FILE.findall(_spoken(said))[:_FILES]
    if "Read" in tools and named:
        calls += [_read(path, 1, tools["Read"]) for path in named]
        return calls
    words = _words_to_search(said, wanted)
    if "Grep" in tools and words:
        pattern = "|".join(re.escape(word) for word in words)
        arguments = {"pattern": pattern, "output_mode": "content", "-i": True, "-n": True, "head_limit": 200}
        calls.append(_call("Grep", arguments, tools["Grep"]))
    return calls


def _asks(said: str) -> bool:
    return "?" in _spoken(said) or bool(_QUESTION.search(_spoken(said)))


def _globbed(steps: list[tuple[ToolCall, str]]) -> list[str]:
    """Files that were found by name."""
    text = "\n".join(result for call, result in steps if call.name == "Glob")
    return [row for row in text.splitlines() if row.startswith("README")][:_FILES]


def best_skill(request: Request, said: str, wanted: set[str]) -> _Found | None:
    """From the catalog in the prompt and the suggestions beside the message."""
    catalogs = [block.text for block in request.system] + [said]
    best: _Found | None = None
    for text in catalogs:
        for start, end in (place for tag in _CATALOGS for place in _places(text, tag)):
            for entry in _ENTRY.finditer(text[start:end]):
                found = _score(html.unescape(entry[1]), html.unescape(entry[2] or ""), said, wanted)
                if found.score >= 2.0 and (best is None or found.score > best.score):
                    best = found
    return best


def _score(name: str, description: str, said: str, wanted: set[str]) -> _Found:
    in_name = wanted & words_of(name.replace("-", " ").replace(":", " "))
    in_description = (wanted & words_of(description)) - in_name
    score = 2.0 * len(in_name) + len(in_description)
    spoken = _spoken(said).lower()
    if re.search(rf"(?<![\w-]){re.escape(name.lower())}(?![\w-])", spoken):
        score += 10
    return _Found(name, sorted(in_name | in_description), score)


def _words_to_search(said: str, wanted: set[str]) -> list[str]:
    """As they are written, the longest first: short words are everywhere."""
    spoken = _NAME.findall(_spoken(said))
    kept = [word.strip(".-/") for word in spoken if words_of(word) & wanted and len(word) > 3]
    return sorted(dict.fromkeys(kept), key=len, reverse=True)[:4]


def _call(tool: str, arguments: dict[str, Any], known: dict[str, Any]) -> ToolCall:
    return ToolCall(f"offline_{os.urandom(6).hex()}", tool, {key: arguments[key] for key in arguments if key in known})


def _read(path: str, line: int, known: dict[str, Any]) -> ToolCall:
    return _call("Read", {"file_path": path, "offset": max(1, line - 5), "limit": _READ_LINES}, known)


def _hits(steps: list[tuple[ToolCall, str]]) -> list[tuple[str, int, str]]:
    text = "\n".join(result for call, result in steps if call.name == "Grep")
    return [(hit[1], int(hit[2]), hit[3].strip()) for row in text.splitlines() if (hit := _HIT.match(row))]


def _best_files(steps: list[tuple[ToolCall, str]], wanted: set[str]) -> list[tuple[str, int]]:
    """The files whose lines and names cover most of the request, each with its best line."""
    covered: dict[str, set[str]] = {}
    lines: dict[str, tuple[int, int]] = {}
    for path, line, text in _hits(steps):
        shared = words_of(text) & wanted
        covered.setdefault(path, words_of(os.path.basename(path)) & wanted).update(shared)
        if len(shared) > lines.get(path, (-1, 0))[0]:
            lines[path] = (len(shared), line)
    order = sorted(covered, key=lambda path: (_is_setup(path), -len(covered[path]), -lines[path][0], path))
    return [(path, lines[path][1]) for path in order[:_FILES]]


def _is_setup(path: str) -> bool:
    """Skills, agents and tools' settings: what they say has been searched already, by the catalog."""
    return any(part.startswith(".") and part not in (".", "..") for part in path.split("/"))


def _answer(said: str, wanted: set[str], steps: list[tuple[ToolCall, str]]) -> str:
    pieces = [FIRST_LINE]
    for call, result in steps:
        if call.name == "Skill" and result:
            pieces.append(_about_skill(str(call.arguments.get("skill", "")), result, wanted))
    if "<skill-invocation" in said:
        pieces.append(_about_skill("you asked for", said, wanted))
    for call, result in steps:
        if call.name == "Read" and result:
            pieces.append(f"From {call.arguments.get('file_path', '')}:\n\n{_fenced(result)}")
    hits = sorted(_hits(steps), key=lambda hit: (_is_setup(hit[0]), -len(words_of(hit[2]) & wanted)))
    if hits:
        rows = "\n".join(f"- {path}:{line}: {text[:160]}" for path, line, text in hits[:_HITS])
        more = f"\n- and {len(hits) - _HITS} more lines" if len(hits) > _HITS else ""
        pieces.append(f"Lines that share words with the request:\n\n{rows}{more}")
    if len(pieces) == 1:
        pieces.append("Nothing in the skills or files here shares a word with the request.")
    return "\n\n".join(pieces)


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


def _fenced(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"


def _extract(messages: Iterable[Message]) -> str:
    """For a request without tools, such as one for a summary: the first line of each message."""
    rows: list[str] = []
    for message in messages:
        rows += [row for row in message.text.splitlines() if row.strip()]
    return "\n".join([FIRST_LINE, "", *rows[:40]])
