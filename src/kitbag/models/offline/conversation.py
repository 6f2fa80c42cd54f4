"""The conversation as the offline model sees it: the user's last message, and its own tool calls since then.

The next step depends on nothing else, so a resumed session continues where it was. Also helpers to parse Grep output
and to format Markdown. Used by all modules of offline.
"""

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from kitbag.messages import Message, Text, ToolCall
from kitbag.models.provider import ModelRequest

FIXED_RULES_LINE: Final = "No language model is connected; this prompt was handled by fixed rules."
TASK_START_MESSAGE: Final = "Start your task."
"""The first message to a subagent."""
_TASK: Final = "## Your Task\n"
CATALOG_TAGS: Final = ("available-skills", "suggested-skills")
_BLOCK_TAGS: Final = (
    *CATALOG_TAGS, "library-changes", "session-changes", "skill-invocation", "standard-input", "conversation-summary",
    "mentioned-file", "mentioned-folder", "mentioned-agent", "mentioned-command",
)  # fmt: skip
"""Blocks that a user message may contain besides the typed text."""
_MAX_REQUEST, _MAX_BLOCKS = 20_000, 50
_HIT = re.compile(r"(.+?):(\d+):(.*)", re.DOTALL)
_NOTE = re.compile(r"\[(.+)\]|No matches \((.+)\)\.")
_REGEX_SIGNS = re.compile(r"[\\.+*?()|\[\]{}^$]")


class ToolStep(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call and its result."""

    call: ToolCall
    text: str
    is_error: bool

    @property
    def path(self) -> str:
        return str(self.call.arguments.get("file_path", ""))

    @property
    def is_denied(self) -> bool:
        """Denied by permissions, not failed in the tool."""
        return self.is_error and " is not allowed: " in self.text

    @property
    def problem(self) -> str:
        return self.text.removeprefix("Error: ").strip()


_UNADVERTISED = frozenset(("timeout",))
"""Arguments of Grep and Glob that are not in their schemas."""


class GrepHit(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    line: int
    text: str


class OfflineConversation(msgspec.Struct, frozen=True, kw_only=True):
    request: ModelRequest
    message: str
    """The user's last message, including generated blocks."""
    steps: tuple[ToolStep, ...]
    """Tool calls since then, in order."""
    tools: dict[str, dict[str, Any]]
    """Tool name to the properties of its arguments."""
    is_task: bool = False
    """Whether this is a subagent."""

    @property
    def prompt(self) -> str:
        return typed_text(self.message)

    def steps_of(self, tool: str) -> list[ToolStep]:
        return [step for step in self.steps if step.call.name == tool]

    def make_call(self, tool: str, **arguments: Any) -> ToolCall:
        """Drops arguments that the tool does not have. `ignore_case` and `numbers` become `-i` and `-n`."""
        known = self.tools[tool]
        named = {{"ignore_case": "-i", "numbers": "-n"}.get(key, key): value for key, value in arguments.items()}
        accepted = {
            key: value for key, value in named.items() if key in known or (key in _UNADVERTISED and "path" in known)
        }
        return ToolCall(id=f"offline_{os.urandom(6).hex()}", name=tool, arguments=accepted)

    def missing_tools(self, *tools: str) -> list[str]:
        return [tool for tool in tools if tool not in self.tools]


def read_conversation(request: ModelRequest) -> OfflineConversation:
    last_message = ""
    calls: dict[str, ToolCall] = {}
    results: dict[str, tuple[str, bool]] = {}
    for message in request.messages:
        if _is_user_message(message):
            last_message, calls, results = message.text, {}, {}
        calls |= {call.id: call for call in message.calls}
        for result in message.results:
            text = "".join(part.text for part in result.content if isinstance(part, Text))
            results[result.call_id] = (_without_suggestions(text), result.is_error)
    steps = tuple(_tool_step(call, *results.get(call_id, ("", True))) for call_id, call in calls.items())
    is_task = last_message.strip() == TASK_START_MESSAGE
    if is_task:  # the task is in the system prompt
        last_message = "".join(block.text for block in request.system).rpartition(_TASK)[2].strip()
    tools = {tool.name: tool.schema.get("properties", {}) for tool in request.tools}
    return OfflineConversation(request=request, message=last_message, steps=steps, tools=tools, is_task=is_task)


def _is_user_message(message: Message) -> bool:
    """False for messages with only a summary or reattached skills."""
    if message.role != "user" or not message.text.strip():
        return False
    return bool(typed_text(message.text).strip()) or "<standard-input" in message.text


def _without_suggestions(text: str) -> str:
    """A tool result may end with suggested skills for its file."""
    start = text.rfind("<suggested-skills>")
    ends = start >= 0 and text.rstrip().endswith("</suggested-skills>")
    return text[:start].rstrip() if ends else text


def find_blocks(text: str, tag: str) -> Iterator[tuple[int, int]]:
    """Start and end of each block with this tag, in linear time."""
    at = 0
    while (start := text.find(f"<{tag}", at)) >= 0:
        end = text.find(f"</{tag}>", start)
        if end < 0:
            return
        at = end + len(tag) + 3
        yield start, at


def typed_text(message: str) -> str:
    """The text that the user typed, without generated blocks."""
    for tag in _BLOCK_TAGS:
        blocks = list(find_blocks(message, tag))
        for start, end in reversed(blocks[:_MAX_BLOCKS]):
            message = f"{message[:start]} {message[end:]}"
    return message[:_MAX_REQUEST]


def parse_hits(results: Iterable[str]) -> tuple[list[GrepHit], list[str]]:
    """The matching lines in Grep output, each once, and its notes about omitted results."""
    found: dict[tuple[str, int], GrepHit] = {}
    notes: list[str] = []
    for row in "\n".join(results).split("\n"):
        if (hit := _HIT.fullmatch(row)) is not None:
            found.setdefault((hit[1], int(hit[2])), GrepHit(path=hit[1], line=int(hit[2]), text=hit[3]))
        elif (note := _NOTE.fullmatch(row)) is not None:
            notes.append(note[1] or note[2])
    return list(found.values()), notes


def is_config_path(path: str) -> bool:
    """True for skills, agents and tool settings, which the catalogs already cover."""
    return any(part.startswith(".") and part not in (".", "..") for part in path.split("/"))


def escape_regex(text: str) -> str:
    """A regular expression that matches the text in every dialect."""
    return _REGEX_SIGNS.sub(r"\\\g<0>", text)


def code_span(text: str) -> str:
    """A Markdown code span, whatever the text contains."""
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


def format_count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _tool_step(call: ToolCall, text: str, is_error: bool) -> ToolStep:
    return ToolStep(call=call, text=text, is_error=is_error)
