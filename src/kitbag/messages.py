"""Messages between user, model and tools: the values that all layers above exchange, and their JSON form.

A conversation is a list of Messages whose roles alternate, as providers require; every ToolCall in an assistant
message has exactly one ToolResult in the next message. Imports only errors and record_fields.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal, cast

import msgspec

from kitbag.errors import InvalidError
from kitbag.record_fields import RecordFields

Role = Literal["user", "assistant"]


class Text(msgspec.Struct, frozen=True):
    text: str


class Image(msgspec.Struct, frozen=True, kw_only=True):
    media_type: str
    data: str
    """Base64."""


class Thinking(msgspec.Struct, frozen=True, kw_only=True):
    """The model's reasoning before its answer; sent back unchanged to the same provider."""

    text: str
    provider: str
    """Only this provider can read `opaque`; requests to others omit the part."""
    opaque: str = ""
    """A signature or the encrypted reasoning, as JSON text in the provider's format."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    arguments: dict[str, Any]
    problem: str = ""
    """Why the call is not executed and what the model can do about it: either its arguments could not be parsed (then
    `arguments` is empty), or the reply was cut off."""
    raw: str = ""
    """The arguments as received, if they could not be parsed."""


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    call_id: str
    content: tuple[Text | Image, ...]
    is_error: bool = False


Part = Text | Image | Thinking | ToolCall | ToolResult


class Message(msgspec.Struct, frozen=True):
    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The text parts joined: a reply's without separator, a user's as separate paragraphs."""
        separator = "" if self.role == "assistant" else "\n\n"
        return separator.join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolResult))


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens as counted by the provider. `input` excludes cache reads and cache writes."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def __add__(self, other: object) -> "Usage":
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
        )

    @property
    def total_input(self) -> int:
        return self.input + self.cache_read + self.cache_write


def user_message(text: str) -> Message:
    return Message("user", (Text(text),))


_PART_FIELDS: Final[dict[str, RecordFields[Any]]] = {
    "text": RecordFields(Text, "text"),
    "image": RecordFields(Image, "media_type", "data"),
    "thinking": RecordFields(Thinking, "text", "provider", "opaque"),
    "tool_call": RecordFields(ToolCall, "id", "name", "arguments", "problem", "raw"),
    "tool_result": RecordFields(ToolResult, "call_id", "content", "is_error"),
}
_TYPE_NAMES: Final[dict[type[Part], str]] = {
    Text: "text",
    Image: "image",
    Thinking: "thinking",
    ToolCall: "tool_call",
    ToolResult: "tool_result",
}
_USAGE_FIELDS: Final = RecordFields(Usage, "input", "output", "cache_read", "cache_write")


def part_to_json(part: Part) -> dict[str, Any]:
    name = _TYPE_NAMES[type(part)]
    fields = _PART_FIELDS[name].write(part)
    if isinstance(part, ToolResult):
        fields["content"] = [part_to_json(inner) for inner in part.content]
    return {"type": name, **fields}


def message_to_json(message: Message) -> dict[str, Any]:
    return {"role": message.role, "parts": [part_to_json(part) for part in message.parts]}


def part_from_json(value: object) -> Part:
    """Raises InvalidError for anything that `part_to_json` does not produce."""
    fields = dict(cast("dict[str, Any]", value)) if isinstance(value, dict) else {}
    name = fields.pop("type", "")
    if name not in _PART_FIELDS:
        raise InvalidError("a stored message has an unknown part", "it was written by a newer version")
    if name == "tool_result":
        fields["content"] = tuple(part_from_json(inner) for inner in fields.get("content", ()))
    try:
        return _PART_FIELDS[name].read(fields, exact=True)
    except TypeError as error:
        raise InvalidError(f"a stored message can't be read: {error}", "it was written by another version") from error


def message_from_json(value: object) -> Message:
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    role = fields.get("role")
    if role not in ("user", "assistant"):
        raise InvalidError("a stored message has no role", "it was written by another version")
    return Message(role, tuple(part_from_json(part) for part in fields.get("parts", ())))


def usage_to_json(usage: Usage) -> dict[str, int]:
    return _USAGE_FIELDS.write(usage)


def usage_to_record(usage: Usage) -> list[int]:
    """The journal stores the counts in this order, without names."""
    return [usage.input, usage.output, usage.cache_read, usage.cache_write]


def usage_from_record(counts: Sequence[int]) -> Usage:
    """A record of an earlier version may have fewer counts. Raises TypeError if it has more."""
    if len(counts) > 4:
        raise TypeError("the record has counts unknown to this version")
    return Usage(**dict(zip(("input", "output", "cache_read", "cache_write"), counts, strict=False)))
