"""Adapter for all other providers through pydantic-ai's direct requests (the extra `models`).

pydantic-ai is imported at the first request and finds API keys in the user's environment. Opaque provider data
(signatures of thinking and calls) is stored in Thinking parts. Created by model_selection.
"""

import asyncio
import base64
import binascii
import json
import os
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, cast

from kitbag.errors import InvalidError
from kitbag.messages import Image, Message, Part, Text, Thinking, ToolCall, Usage
from kitbag.models.adapters.api_errors import shorten_message
from kitbag.models.adapters.wire import parse_tool_call
from kitbag.models.portable_names import portable_id, portable_name
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
from kitbag.models.reply_limits import ContentBudget, ReplyLimitError, ReplyLimits, StalledError, StreamWatch

INSTALL: Final = "pip install 'kitbag[models]'"
_NAMES: Final = {"gemini": "google", "vertex": "google-cloud", "xai": "xai", "grok": "xai", "moonshot": "moonshotai"}
"""Common provider names that pydantic-ai spells differently."""
_STOP_REASONS: Final[dict[str, StopReason]] = {
    "stop": "end",
    "tool_call": "tools",
    "length": "length",
    "content_filter": "refusal",
}
_WITHOUT_PROVIDER_REASON = ("function", "test", "xai")
"""Systems in pydantic-ai that don't pass on the provider's own finish reason."""
_WITHOUT_REASON = ("function", "test")
"""Those that give no finish reason at all."""
_EFFORTS = ("low", "medium", "high")
_OWN_DETAILS = ("id", "signature", "provider_name", "provider_details")
# By class names of pydantic-ai's errors and their bases, most specific first.
_FAILURE_KINDS: dict[str, FailureKind] = {
    "ModelAuthenticationError": "auth",
    "ModelContextWindowExceededError": "too-long",
    "ModelQuotaExceededError": "spent",
    "ModelRateLimitError": "overloaded",
    "ModelOverloadedError": "overloaded",
    "ModelUnavailableError": "transient",
    "ModelServerError": "transient",
    "ModelConnectionError": "cut",
    "ModelRequestTimeout": "cut",
    "ModelRequestRejectedError": "bad-request",
    "ContentFilterError": "bad-request",
    "UnexpectedModelBehavior": "cut",
}
_KEY_PROBLEM = re.compile(r"api.?key|environment variable|credential|token", re.IGNORECASE)


def _check_provider(provider: str) -> None:
    """Raises InvalidError for an unknown provider name; a missing package is reported at the first request."""
    providers: Any = import_module("pydantic_ai.providers")
    try:
        providers.infer_provider_class(provider)
    except ValueError as error:
        raise InvalidError(f"pydantic-ai does not support {provider!r}") from error
    except ImportError:
        pass


class PydanticAI:
    def __init__(self, provider: str, model: Any = None, limits: ReplyLimits = ReplyLimits()) -> None:  # noqa: B008 - immutable
        """`model`: a ready pydantic-ai model, for callers that create one. Raises InvalidError without pydantic-ai."""
        if find_spec("pydantic_ai") is None:
            problem = f"{provider} models require pydantic-ai, which is not installed"
            raise InvalidError(problem, f"{INSTALL}, or choose another model")
        if model is None:
            _check_provider(provider)
        self.name = provider
        self._limits = limits
        self._given_model = model
        self._models: dict[str, Any] = {}
        self._exit_stack = AsyncExitStack()
        """Closes the models' connections."""

    async def close(self) -> None:
        self._models.clear()
        await self._exit_stack.aclose()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamItem, None]:
        try:
            model = await self._model(request.model)
            direct: Any = import_module("pydantic_ai.direct")
            opened = direct.model_request_stream(
                model,
                _encode_messages(request, self.name),
                model_settings=_model_settings(request, model),
                model_request_parameters=_request_parameters(request),
                instrument=False,
            )
            async with opened as streamed:
                events = aiter(streamed)
                watch, budget = StreamWatch(self._limits, is_local=False), ContentBudget(self._limits)
                while (event := await watch.wait(anext(events, None))) is not None:
                    watch.received(1, is_event=True)
                    piece = _stream_item(event)
                    if isinstance(piece, TextChunk | ThinkingChunk):
                        budget.take(piece.text)
                        budget.check()
                    if piece is not None:
                        yield piece
                response = streamed.get()
        except ModelError:
            raise
        except StalledError as error:
            problem = f"{self.name} sent no data for {error.seconds:.0f} s"
            raise ModelError("stalled", problem, f"retry, or raise `{error.setting}`") from error
        except ReplyLimitError as error:
            fix = f"retry, or raise `{error.setting}`"
            raise ModelError("limit", f"the reply from {self.name} was truncated: {error.reason}", fix) from error
        except ImportError as error:
            problem = f"{self.name} models require a package that is not installed: {shorten_message(str(error))}"
            raise ModelError("bad-request", problem, f"pip install 'pydantic-ai-slim[{self.name}]'") from error
        except Exception as error:  # provider SDKs may raise anything
            raise _model_error(error, self.name) from error
        yield _read_reply(response, self.name, str(getattr(model, "system", "")))

    async def _model(self, name: str) -> Any:
        if name not in self._models:
            model = self._given_model
            if model is None:
                model = await asyncio.to_thread(_infer_model, f"{_NAMES.get(self.name, self.name)}:{name}")
            self._models[name] = await self._exit_stack.enter_async_context(model)
        return self._models[name]


def _infer_model(name: str) -> Any:
    """Imports pydantic-ai and the provider's SDK, which is slow."""
    models: Any = import_module("pydantic_ai.models")
    return models.infer_model(name)


# Requests


def _model_settings(request: ModelRequest, model: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {"max_tokens": request.max_output}
    if any(block.cache for block in request.system):
        settings["cache"] = True
    if request.effort in _EFFORTS:
        settings["thinking"] = request.effort
    if "max_retries" not in getattr(model, "unsupported_settings", ("max_retries",)):
        settings["max_retries"] = 0  # agent.ask_model retries
    return settings


def _request_parameters(request: ModelRequest) -> Any:
    models: Any = import_module("pydantic_ai.models")
    tools: Any = import_module("pydantic_ai.tools")
    library: Any = import_module("pydantic_ai.messages")
    definitions = [
        tools.ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=tool.schema)
        for tool in request.tools
    ]
    instructions = [
        library.InstructionPart(content=text, dynamic=not block.cache)
        for block in request.system
        if (text := block.text.strip())
    ]
    return models.ModelRequestParameters(function_tools=definitions, instruction_parts=instructions or None)


def _encode_messages(request: ModelRequest, provider: str) -> list[Any]:
    library: Any = import_module("pydantic_ai.messages")
    names = {call.id: portable_name(call.name) for message in request.messages for call in message.calls}
    instructions = "\n\n".join(text for block in request.system if (text := block.text.strip())) or None
    encoded: list[Any] = []
    for message in request.messages:
        if message.role == "assistant":
            encoded.append(library.ModelResponse(parts=list(_assistant_parts(message, provider, library))))
        else:
            parts = list(_user_parts(message, names, library))
            encoded.append(library.ModelRequest(parts=parts, instructions=instructions))
    return encoded


def _user_parts(message: Message, names: dict[str, str], library: Any) -> Iterator[Any]:
    for result in message.results:
        content = [_encode_content(part, library) for part in result.content]
        yield library.ToolReturnPart(
            tool_name=names.get(result.call_id, "unknown"),
            content="\n".join(content) if all(isinstance(item, str) for item in content) else content,
            tool_call_id=portable_id(result.call_id),
            outcome="failed" if result.is_error else "success",
        )
    content = [_encode_content(part, library) for part in message.parts if isinstance(part, Text | Image)]
    if content or not message.results:
        yield library.UserPromptPart(content=content or "(nothing)")


def _encode_content(part: Text | Image, library: Any) -> Any:
    if isinstance(part, Text):
        return part.text
    try:
        return library.BinaryContent(data=base64.b64decode(part.data), media_type=part.media_type)
    except binascii.Error:
        return "(unreadable image)"


def _assistant_parts(message: Message, provider: str, library: Any) -> Iterator[Any]:
    details: dict[str, dict[str, Any]] = {}
    """Keyed by call id; the empty key is for the next text."""
    for part in message.parts:
        match part:
            case Thinking(text=text, provider=author, opaque=opaque) if author == provider and opaque:
                fields = _parse_opaque(opaque)
                if "for" in fields:
                    details[str(fields.pop("for"))] = fields
                else:
                    yield library.ThinkingPart(content=text, **fields)
            case Text(text) if text.strip():
                yield library.TextPart(content=text, **details.pop("", {}))
            case ToolCall():
                extra_fields = details.pop(part.id, {})
                yield library.ToolCallPart(
                    tool_name=portable_name(part.name),
                    args=part.arguments,
                    tool_call_id=portable_id(part.id),
                    **extra_fields,
                )
            case _:
                pass


def _parse_opaque(opaque: str) -> dict[str, Any]:
    try:
        value: Any = json.loads(opaque)
    except (ValueError, RecursionError):
        return {}
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return {name: fields[name] for name in ("for", *_OWN_DETAILS) if name in fields}


# Replies


def _stream_item(event: Any) -> StreamItem | None:
    if event.event_kind == "part_start":
        part: Any = event.part
        if part.part_kind == "tool-call":
            return ToolCallBegun(str(part.tool_call_id), str(part.tool_name))
        return _text_chunk(part.part_kind, part, "content")
    if event.event_kind == "part_delta":
        delta: Any = event.delta
        return _text_chunk(delta.part_delta_kind, delta, "content_delta")
    return None


def _text_chunk(kind: str, part: Any, field: str) -> StreamItem | None:
    text = getattr(part, field, None)
    if not isinstance(text, str) or not text:
        return None
    return TextChunk(text) if kind == "text" else ThinkingChunk(text) if kind == "thinking" else None


def _read_reply(response: Any, provider: str, system: str) -> ModelReply:
    reason = str(response.finish_reason or "")
    details: dict[str, Any] = response.provider_details or {}
    provider_reason = str(details.get("finish_reason") or "")
    # pydantic-ai treats a stream that just ends as complete; without the provider's finish reason it is cut off.
    ended = (
        provider_reason
        or reason == "content_filter"
        or system in _WITHOUT_REASON
        or (system in _WITHOUT_PROVIDER_REASON and reason)
    )
    if response.state != "complete" or reason == "error" or not ended:
        raise ModelError("cut", f"the reply from {provider} ended early", "retry")
    message = Message(
        "assistant", tuple(converted for part in response.parts for converted in _read_parts(part, provider))
    )
    stop = _STOP_REASONS.get(reason or ("stop" if system in _WITHOUT_REASON else ""), "other")
    if stop == "end" and message.calls:
        stop = "tools"
    return ModelReply(
        message=message,
        stop=stop,
        usage=_read_usage(response.usage),
        model=str(response.model_name or ""),
        stop_reason=provider_reason or reason,
    )


def _read_parts(part: Any, provider: str) -> Iterator[Part]:
    """Thinking, text and tool calls; a provider's own searches and files are dropped."""
    details = _encode_details(part)
    match part.part_kind:
        case "thinking":
            yield Thinking(text=str(part.content or ""), provider=provider, opaque=details)
        case "text" if part.content:
            if details:
                yield Thinking(text="", provider=provider, opaque=_details_for("", details))
            yield Text(str(part.content))
        case "tool-call":
            call_id = str(part.tool_call_id) or f"call_{os.urandom(8).hex()}"
            if details:
                yield Thinking(text="", provider=provider, opaque=_details_for(call_id, details))
            arguments = part.args if isinstance(part.args, str) else json.dumps(part.args or {})
            yield parse_tool_call(call_id, str(part.tool_name), arguments)
        case _:
            pass


def _encode_details(part: Any) -> str:
    """JSON with the data to send back to the provider; empty if there is none."""
    details = {name: value for name in _OWN_DETAILS if (value := getattr(part, name, None))}
    if not details.keys() - {"provider_name"}:
        return ""
    try:
        return json.dumps(details)
    except (TypeError, ValueError):
        return ""


def _details_for(name: str, details: str) -> str:
    return json.dumps({"for": name, **json.loads(details)})


def _read_usage(usage: Any) -> Usage:
    read, write = max(usage.cache_read_tokens, 0), max(usage.cache_write_tokens, 0)
    return Usage(
        input=max(usage.input_tokens - read - write, 0),
        output=max(usage.output_tokens, 0),
        cache_read=read,
        cache_write=write,
    )


# Errors


def _model_error(error: Exception, provider: str) -> ModelError:
    class_names = {error_class.__name__ for error_class in type(error).__mro__}
    status = getattr(error, "status_code", 0)
    retry_after = getattr(error, "retry_after", None)
    message = shorten_message(str(getattr(error, "message", "") or error)) or type(error).__name__
    problem = f"{provider} failed: {message}"
    if "UserError" in class_names:
        return ModelError("auth" if _KEY_PROBLEM.search(message) else "bad-request", problem, "see the error message")
    kind = _classify_error(class_names, status)
    if kind == "cut" and getattr(error, "phase", "") in ("connect", "pool", None):
        kind = "unreachable"
    headers: dict[str, str] = getattr(error, "headers", None) or {}
    if (
        kind == "overloaded"
        and status == 429
        and retry_after is None
        and not any("ratelimit" in name for name in headers)
    ):
        kind = "spent"  # without a retry time it may be the account's limit
    return ModelError(kind, problem, _suggest_fix(kind, provider), retry_after=retry_after, status=status)


def _classify_error(class_names: set[str], status: int) -> FailureKind:
    for name, kind in _FAILURE_KINDS.items():
        if name in class_names:
            return kind
    return "transient" if status >= 500 or status in (408, 409, 425) else "bad-request"


def _suggest_fix(kind: FailureKind, provider: str) -> str:
    return {
        "auth": f"check the API key for {provider} in your environment",
        "spent": f"check the limits of your {provider} account; waiting may not help",
        "too-long": "start a new session, or choose a model with a larger context window",
        "bad-request": "check the model name and its settings",
        "unreachable": "check the URL and the network connection",
    }.get(kind, "retry")
