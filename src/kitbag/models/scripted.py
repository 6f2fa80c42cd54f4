"""A model that replays a script: for tests, for skill authors, and for other programs through kitbag.testing.

A script is a list of replies, or rules with a list each. The request alone determines the next reply, by the number
of replies it already holds, so many conversations can use one script at once. Exported by kitbag.testing, which is
why the class names are short.
"""

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from kitbag.errors import InvalidError
from kitbag.messages import Message, Part, Text, Thinking, Usage
from kitbag.models.adapters.wire import parse_tool_call
from kitbag.models.provider import (
    FailureKind,
    ModelError,
    ModelReply,
    ModelRequest,
    StopReason,
    StreamItem,
    TextChunk,
    ThinkingChunk,
    ToolCallBegun,
)
from kitbag.text.tokens import estimate_tokens

NAME = "scripted"
_MAX_DELAY = 3_600
_FAILURE_KINDS: dict[int, FailureKind] = {
    400: "bad-request", 401: "auth", 402: "spent", 403: "auth", 413: "too-long", 429: "overloaded", 529: "overloaded",
}  # fmt: skip


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a request that a script can match."""

    system: str
    last: str
    """Text of the last message: the user's, or tool results."""
    first: str
    """Text of the first message."""
    turns: int
    """Number of replies in the conversation."""
    tools: tuple[str, ...]


class Fault(msgspec.Struct, frozen=True):
    """A failure that happens the first `times` times."""

    times: int = 1
    status: int = 0
    headers: Mapping[str, str] = {}
    body: str = ""
    kind: str = ""
    """For a stream that starts successfully: error-event, cut-text, cut-call, no-end, idle, reset."""
    seconds: float = 0.0


class Step(msgspec.Struct, frozen=True):
    """One reply of a script."""

    text: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    """(id, name, arguments as JSON text, which may be invalid on purpose)."""
    stop: StopReason | None = None
    usage: Usage | None = None
    fault: Fault | None = None
    delay: float = 0.0
    """Seconds before the first chunk."""
    stop_reason: str = ""
    """Sent unchanged instead of the protocol's word for `stop`; for words that no adapter knows."""

    def message(self, name: str = NAME) -> Message:
        parts: list[Part] = [Thinking(text=self.thinking, provider=name, opaque="scripted")] if self.thinking else []
        parts += [Text(self.text)] if self.text else []
        parts += [parse_tool_call(*call) for call in self.calls]
        return Message("assistant", tuple(parts))

    @property
    def ends_with(self) -> StopReason:
        if self.stop_reason:
            return "other"
        return self.stop or ("tools" if self.calls else "end")


ReplyFunction = Callable[[Seen], "Step | str"]


class Rule(msgspec.Struct, frozen=True):
    """Replies for the conversations in which all given patterns are found."""

    steps: "Sequence[Step | ReplyFunction]"
    system: str = ""
    first: str = ""
    last: str = ""

    def applies(self, seen: Seen) -> bool:
        patterns = ((self.system, seen.system), (self.first, seen.first), (self.last, seen.last))
        return all(re.search(pattern, text) is not None for pattern, text in patterns if pattern)


class Script:
    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self._faults: dict[tuple[int, int, str], int] = {}

    def next(self, seen: Seen) -> tuple[Step, Fault | None]:
        """The next reply, and the fault to raise this time, if any."""
        for number, rule in enumerate(self.rules):
            if rule.applies(seen):
                return self._reply_of(number, rule, seen)
        return Step(text="(The script has no reply for this conversation.)"), None

    def _reply_of(self, number: int, rule: Rule, seen: Seen) -> tuple[Step, Fault | None]:
        if seen.turns >= len(rule.steps):
            return Step(text="(The script has ended.)"), None
        reply = rule.steps[seen.turns]
        if not isinstance(reply, Step):
            result = reply(seen)
            reply = result if isinstance(result, Step) else Step(text=result)
        if reply.fault is None:
            return reply, None
        key = (number, seen.turns, seen.first)
        self._faults[key] = self._faults.get(key, 0) + 1
        return reply, reply.fault if self._faults[key] <= reply.fault.times else None


def load_script(path: str) -> Script:
    """From a JSON file. Raises InvalidError that names the file and the position."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidError(f"{path}: {error}", "use a JSON file with a list of replies or rules") from error
    try:
        return script_of(value)
    except InvalidError as error:
        raise InvalidError(f"{path}: {error.problem}", error.fix) from None


def script_of(value: object) -> Script:
    """`["text", {...}]`, `{"replies": [...]}` or `{"rules": [{"system": "regex", "replies": [...]}]}`."""
    if isinstance(value, list):
        return Script((Rule(_parse_replies(cast("list[object]", value), "replies")),))
    fields = _require_object(value, "the script")
    rules: list[Rule] = []
    written = fields.get("rules", [])
    if not isinstance(written, list):
        raise InvalidError("`rules` must be a list", "write a list of rules")
    for at, item in enumerate(cast("list[object]", written)):
        rule = _require_object(item, f"rules[{at}]")
        patterns = {name: str(rule.get(name, "")) for name in ("system", "first", "last")}
        for name, pattern in patterns.items():
            try:
                re.compile(pattern)
            except re.error as error:
                raise InvalidError(f"rules[{at}].{name} is not a valid pattern: {error}", "fix the pattern") from error
        rules.append(Rule(_parse_replies(rule.get("replies"), f"rules[{at}].replies"), **patterns))
    if "replies" in fields:
        rules.append(Rule(_parse_replies(fields["replies"], "replies")))
    if not rules:
        raise InvalidError("the script has neither `replies` nor `rules`", "add a list of replies")
    return Script(rules)


def _parse_replies(value: object, position: str) -> list[Step]:
    if not isinstance(value, list):
        raise InvalidError(f"`{position}` must be a list", "write a list of replies")
    return [_parse_reply(item, f"{position}[{at}]") for at, item in enumerate(cast("list[object]", value))]


_FIELDS = frozenset(("text", "thinking", "calls", "stop", "usage", "fault", "delay", "stop_reason"))


def _parse_reply(value: object, position: str) -> Step:
    if isinstance(value, str):
        return Step(text=value)
    fields = _require_object(value, position)
    unknown = sorted(set(fields) - _FIELDS)
    if unknown:
        raise InvalidError(
            f"{position} has an unknown field `{unknown[0]}`", f"available fields: {', '.join(sorted(_FIELDS))}"
        )
    fault = fields.get("fault")
    delay = fields.get("delay", 0)
    if fields.get("stop") not in (None, "end", "tools", "length", "refusal"):
        raise InvalidError(
            f"invalid value for {position}.stop: {fields['stop']!r}", "use end, tools, length or refusal"
        )
    if not isinstance(delay, int | float) or not 0 <= delay <= _MAX_DELAY:
        raise InvalidError(f"invalid value for {position}.delay: {delay!r}", f"use seconds, from 0 to {_MAX_DELAY}")
    try:
        return Step(
            text=str(fields.get("text", "")),
            thinking=str(fields.get("thinking", "")),
            calls=tuple(
                _parse_call(item, f"{position}.calls[{at}]") for at, item in enumerate(fields.get("calls", ()))
            ),
            stop=fields.get("stop"),
            usage=Usage(**fields["usage"]) if "usage" in fields else None,
            fault=Fault(**fault) if fault else None,
            delay=float(delay),
            stop_reason=str(fields.get("stop_reason", "")),
        )
    except (TypeError, ValueError) as error:
        raise InvalidError(f"{position}: {error}", "fix the reply") from error


def _parse_call(value: object, position: str) -> tuple[str, str, str]:
    fields = _require_object(value, position)
    arguments = fields.get("arguments", {})
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return str(fields.get("id") or f"call_{os.urandom(6).hex()}"), str(fields.get("name", "")), text


def _require_object(value: object, position: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidError(f"{position} must be an object", "write a JSON object")
    return cast("dict[str, Any]", value)


def describe_request(request: ModelRequest) -> Seen:
    def text(message: Message) -> str:
        results = [piece.text for result in message.results for piece in result.content if isinstance(piece, Text)]
        return "\n".join([*results, message.text])

    return Seen(
        system="".join(block.text for block in request.system),
        last=text(request.messages[-1]) if request.messages else "",
        first=text(request.messages[0]) if request.messages else "",
        turns=sum(message.role == "assistant" for message in request.messages),
        tools=tuple(tool.name for tool in request.tools),
    )


class Scripted:
    """The script as a provider in this process, without a network."""

    def __init__(self, script: Script) -> None:
        self.name = NAME
        self.script = script
        self.requests: list[ModelRequest] = []
        self._part_tokens: dict[int, tuple[Part, int]] = {}

    async def close(self) -> None:
        return None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        self.requests.append(request)
        step, fault = self.script.next(describe_request(request))
        await asyncio.sleep(step.delay)
        if fault is not None:
            if fault.kind in ("cut-text", "no-end", "idle") and step.text:
                yield TextChunk(step.text[: len(step.text) // 2])
            if fault.kind == "idle":
                await asyncio.sleep(fault.seconds or _MAX_DELAY)
            kind = _FAILURE_KINDS.get(fault.status, "transient")
            raise ModelError(kind, fault.body or f"scripted fault {fault.status or fault.kind}", status=fault.status)
        if step.thinking:
            yield ThinkingChunk(step.thinking)
        for start in range(0, len(step.text), 40):
            yield TextChunk(step.text[start : start + 40])
        for call_id, name, _ in step.calls:
            yield ToolCallBegun(call_id, name)
        yield ModelReply(
            message=step.message(),
            stop=step.ends_with,
            usage=step.usage or estimate_usage(request, step, self._part_tokens),
            model=NAME,
            stop_reason=step.stop_reason,
        )


def estimate_usage(request: ModelRequest, step: Step, known: dict[int, tuple[Part, int]] | None = None) -> Usage:
    """Estimates what a provider would bill for the request and the reply. `known`: parts that were counted before, by
    their identity."""
    known = {} if known is None else known
    input_tokens = sum(estimate_tokens(block.text) for block in request.system)
    input_tokens += sum(
        estimate_tokens(f"{tool.name}{tool.description}{json.dumps(tool.schema)}") for tool in request.tools
    )
    for message in request.messages:
        for part in message.parts:
            if id(part) not in known:
                known[id(part)] = part, estimate_tokens(str(part))
            input_tokens += known[id(part)][1]
    output_tokens = estimate_tokens(step.text + step.thinking) + sum(estimate_tokens(call[2]) for call in step.calls)
    return Usage(input=input_tokens, output=output_tokens)
