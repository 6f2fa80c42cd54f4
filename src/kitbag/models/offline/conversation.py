"""What the offline model sees: the words of the person, and what came of its own calls since they were said.

Used by offline and by the modules for its pieces of work. Everything it does next follows from this and from nothing
else, so that a session that is resumed goes on where it was.
"""

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from kitbag.messages import Message, Text, ToolCall
from kitbag.models.provider import ModelRequest

FIXED_RULES_LINE: Final = "No language model is connected: requests like this one are done by fixed rules."
TASK_START_MESSAGE: Final = "Begin with your task."
"""What an agent is told that another one has started."""
_TASK: Final = "## Your Task\n"
CATALOG_TAGS: Final = ("available-skills", "suggested-skills")
_BLOCK_TAGS: Final = (
    *CATALOG_TAGS, "library-changes", "session-changes", "skill-invocation", "standard-input", "conversation-summary",
    "mentioned-file", "mentioned-folder", "mentioned-agent", "mentioned-command",
)  # fmt: skip
"""What stands in a message besides the words of the person."""
_MAX_REQUEST, _MAX_BLOCKS = 20_000, 50
_HIT = re.compile(r"(.+?):(\d+):(.*)", re.DOTALL)
_NOTE = re.compile(r"\[(.+)\]|No matches \((.+)\)\.")
_REGEX_SIGNS = re.compile(r"[\\.+*?()|\[\]{}^$]")


class ToolStep(NamedTuple):
    """A call and what came of it."""

    call: ToolCall
    text: str
    is_error: bool

    @property
    def path(self) -> str:
        return str(self.call.arguments.get("file_path", ""))

    @property
    def is_denied(self) -> bool:
        """By the permissions, not by the tool."""
        return self.is_error and " is not allowed: " in self.text

    @property
    def problem(self) -> str:
        return self.text.removeprefix("Error: ").strip()


class GrepHit(NamedTuple):
    path: str
    line: int
    text: str


class OfflineConversation(NamedTuple):
    request: ModelRequest
    message: str
    """The person's last message, with all that stands in it."""
    steps: tuple[ToolStep, ...]
    """Since then, in their order."""
    tools: dict[str, dict[str, Any]]
    """Name to the arguments it takes."""
    is_task: bool = False
    """Another agent has started this one."""

    @property
    def prompt(self) -> str:
        return typed_text(self.message)

    def steps_of(self, tool: str) -> list[ToolStep]:
        return [step for step in self.steps if step.call.name == tool]

    def make_call(self, tool: str, **arguments: Any) -> ToolCall:
        """Only with arguments that the tool knows. `ignore_case` and `numbers` stand for `-i` and `-n`."""
        known = self.tools[tool]
        named = {{"ignore_case": "-i", "numbers": "-n"}.get(key, key): value for key, value in arguments.items()}
        kept = {key: value for key, value in named.items() if key in known}
        return ToolCall(f"offline_{os.urandom(6).hex()}", tool, kept)

    def missing_tools(self, *tools: str) -> list[str]:
        return [tool for tool in tools if tool not in self.tools]


def read_conversation(request: ModelRequest) -> OfflineConversation:
    said = ""
    calls: dict[str, ToolCall] = {}
    results: dict[str, tuple[str, bool]] = {}
    for message in request.messages:
        if _is_user_message(message):
            said, calls, results = message.text, {}, {}
        calls |= {call.id: call for call in message.calls}
        for result in message.results:
            text = "".join(part.text for part in result.content if isinstance(part, Text))
            results[result.call_id] = (_without_suggestions(text), result.is_error)
    steps = tuple(ToolStep(call, *results.get(call_id, ("", True))) for call_id, call in calls.items())
    is_errand = said.strip() == TASK_START_MESSAGE
    if is_errand:  # then what is to be done stands in the prompt
        said = "".join(block.text for block in request.system).rpartition(_TASK)[2].strip()
    tools = {tool.name: tool.schema.get("properties", {}) for tool in request.tools}
    return OfflineConversation(request, said, steps, tools, is_errand)


def _is_user_message(message: Message) -> bool:
    """A summary or a skill that is attached again is nobody's request."""
    if message.role != "user" or not message.text.strip():
        return False
    return bool(typed_text(message.text).strip()) or "<standard-input" in message.text


def _without_suggestions(text: str) -> str:
    """A result may end in skills for the file that it is about."""
    start = text.rfind("<suggested-skills>")
    ends = start >= 0 and text.rstrip().endswith("</suggested-skills>")
    return text[:start].rstrip() if ends else text


def find_blocks(text: str, tag: str) -> Iterator[tuple[int, int]]:
    """Where blocks of that name stand. In one pass, whatever the text is."""
    at = 0
    while (start := text.find(f"<{tag}", at)) >= 0:
        end = text.find(f"</{tag}>", start)
        if end < 0:
            return
        at = end + len(tag) + 3
        yield start, at


def typed_text(said: str) -> str:
    """The words of the person."""
    for tag in _BLOCK_TAGS:
        places = list(find_blocks(said, tag))
        for start, end in reversed(places[:_MAX_BLOCKS]):
            said = f"{said[:start]} {said[end:]}"
    return said[:_MAX_REQUEST]


def parse_hits(results: Iterable[str]) -> tuple[list[GrepHit], list[str]]:
    """The lines that Grep found, each once, and what it says was kept out."""
    found: dict[tuple[str, int], GrepHit] = {}
    notes: list[str] = []
    for row in "\n".join(results).split("\n"):
        if (hit := _HIT.fullmatch(row)) is not None:
            found.setdefault((hit[1], int(hit[2])), GrepHit(hit[1], int(hit[2]), hit[3]))
        elif (note := _NOTE.fullmatch(row)) is not None:
            notes.append(note[1] or note[2])
    return list(found.values()), notes


def is_config_path(path: str) -> bool:
    """Skills, agents and tools' settings: what they say has been searched already, by the catalog."""
    return any(part.startswith(".") and part not in (".", "..") for part in path.split("/"))


def escape_regex(text: str) -> str:
    """As a regular expression that means the same in every dialect."""
    return _REGEX_SIGNS.sub(r"\\\g<0>", text)


def code_span(text: str) -> str:
    """As a code span in Markdown, whatever is in it."""
    fence = "`"
    while fence in text:
        fence += "`"
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def code_block(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"


def format_count(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
