"""Messages between user, model and tools: the values that all layers above exchange, and their JSON form.

A conversation is a list of Messages whose roles alternate, as providers require; every ToolCall in an assistant
message has exactly one ToolResult in the next message. Imports only errors.
"""

from typing import Any, Literal, NamedTuple, cast

from kitbag.errors import InvalidError

Role = Literal["user", "assistant"]


class Text(NamedTuple):
    text: str


class Image(NamedTuple):
    media_type: str
    data: str
    """Base64."""


class Thinking(NamedTuple):
    """The model's reasoning before its answer; sent back unchanged to the same provider."""

    text: str
    provider: str
    """Only this provider can read `opaque`; requests to others omit the part."""
    opaque: str = ""
    """A signature or the encrypted reasoning, as JSON text in the provider's format."""


class ToolCall(NamedTuple):
    id: str
    name: str
    arguments: dict[str, Any]
    problem: str = ""
    """Why the call is not executed and what the model can do about it: either its arguments could not be parsed (then
    `arguments` is empty), or the reply was cut off."""
    raw: str = ""
    """The arguments as received, if they could not be parsed."""


class ToolResult(NamedTuple):
    call_id: str
    content: tuple[Text | Image, ...]
    is_error: bool = False


Part = Text | Image | Thinking | ToolCall | ToolResult


class Message(NamedTuple):
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


class Usage(NamedTuple):
    """Tokens as counted by the provider. `input` excludes cache reads and cache writes."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    def __add__(self, other: object) -> "Usage":
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    @property
    def total_input(self) -> int:
        return self.input + self.cache_read + self.cache_write


def user_message(text: str) -> Message:
    return Message("user", (Text(text),))


_PART_TYPES: dict[str, type[Part]] = {
    "text": Text,
    "image": Image,
    "thinking": Thinking,
    "tool_call": ToolCall,
    "tool_result": ToolResult,
}
_TYPE_NAMES = {kind: name for name, kind in _PART_TYPES.items()}


def part_to_json(part: Part) -> dict[str, Any]:
    fields = part._asdict()
    if isinstance(part, ToolResult):
        fields["content"] = [part_to_json(inner) for inner in part.content]
    return {"type": _TYPE_NAMES[type(part)], **fields}


def message_to_json(message: Message) -> dict[str, Any]:
    return {"role": message.role, "parts": [part_to_json(part) for part in message.parts]}


def part_from_json(value: object) -> Part:
    """Raises InvalidError for anything that `part_to_json` does not produce."""
    fields = dict(cast("dict[str, Any]", value)) if isinstance(value, dict) else {}
    kind = _PART_TYPES.get(fields.pop("type", ""))
    if kind is None:
        raise InvalidError("a stored message has a part of an unknown kind", "it was written by a newer version")
    if kind is ToolResult:
        fields["content"] = tuple(part_from_json(inner) for inner in fields.get("content", ()))
    try:
        return kind(**fields)
    except TypeError as error:
        raise InvalidError(f"a stored message can't be read: {error}", "it was written by another version") from error


def message_from_json(value: object) -> Message:
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    role = fields.get("role")
    if role not in ("user", "assistant"):
        raise InvalidError("a stored message has no role", "it was written by another version")
    return Message(role, tuple(part_from_json(part) for part in fields.get("parts", ())))
