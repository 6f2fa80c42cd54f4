"""`/api/chats`: opens chats, passes on what the user does, answers questions, completes what is typed."""

import asyncio
import base64
import binascii
import os
from typing import Any, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kitbag.chat.ui import KeyPressed, Submitted
from kitbag.errors import InvalidError, NotFoundError, UsageError
from kitbag.messages import Image
from kitbag.web.hosted_chats import HostedChat
from kitbag.web.requests import SentAnswer, answer_json, handle_errors, read_body, read_number, state_of

_MAX_IMAGES: Final = 20
_MAX_BLOCKS: Final = 500


class NewChat(msgspec.Struct, frozen=True, kw_only=True):
    resume: str = ""
    """A session."""
    fork: bool = False
    directory: str = ""
    """Empty: the session's, or the one that is served."""
    model: str = ""
    mode: str = ""
    team: str = ""
    persona: str = ""
    agent: str = ""


class SentImage(msgspec.Struct, frozen=True, kw_only=True):
    media_type: str
    data: str
    """Base64."""


class SentMessage(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    client: str = ""
    images: tuple[SentImage, ...] = ()
    waits: bool = False


class SentKey(msgspec.Struct, frozen=True, kw_only=True):
    key: Literal["cancel", "mode", "background", "unqueue"]
    client: str = ""


class TypedText(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    """Up to the cursor."""


@handle_errors
async def open_chat(request: Request) -> Response:
    wanted = await read_body(request, NewChat)
    state = state_of(request)
    directory = wanted.directory or await asyncio.to_thread(_session_directory, request, wanted.resume)
    if not os.path.isdir(directory):
        raise InvalidError(f"the directory {directory} does not exist", "recreate it, or start a new chat")
    names = ("resume", "fork", "model", "mode", "team", "persona", "agent")
    changes = {name: value for name in names if (value := getattr(wanted, name))}
    chat = state.chats.open(directory, **changes)
    return answer_json(_describe(chat))


def _session_directory(request: Request, session_id: str) -> str:
    from kitbag.web.session_routes import find_summary

    state = state_of(request)
    return find_summary(state.places, session_id).directory if session_id else state.places.cwd


def _describe(chat: HostedChat) -> dict[str, Any]:
    return {"chat": chat.id, "topic": chat.ui.topic.name, "session": chat.session_id, "directory": chat.places.cwd}


@handle_errors
async def send_message(request: Request) -> Response:
    sent = await read_body(request, SentMessage)
    chat = _open_chat(request)
    if not sent.text.strip() and not sent.images:
        raise UsageError("the message is empty", "type a message")
    if len(sent.images) > _MAX_IMAGES:
        raise UsageError(f"{len(sent.images)} images in one message", f"send at most {_MAX_IMAGES}")
    if chat.ui.is_full:
        raise InvalidError("too many messages are waiting", "retry when some are processed")
    images = tuple(map(_decode_image, sent.images))
    chat.ui.act(Submitted(text=sent.text, images=images, waits=sent.waits), sent.client)
    return answer_json({}, 202)


def _decode_image(image: SentImage) -> Image:
    if image.media_type not in ("image/png", "image/jpeg", "image/gif", "image/webp"):
        raise UsageError(f"{image.media_type} is not an image type that models accept", "use PNG, JPEG, GIF or WebP")
    try:
        base64.b64decode(image.data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError("the image is damaged", "paste it again") from error
    return Image(media_type=image.media_type, data=image.data)


@handle_errors
async def press_key(request: Request) -> Response:
    sent = await read_body(request, SentKey)
    _open_chat(request).ui.act(KeyPressed(sent.key), sent.client)
    return answer_json({}, 202)


@handle_errors
async def answer_question(request: Request) -> Response:
    sent = await read_body(request, SentAnswer)
    if not _open_chat(request).ui.answer(sent.question, sent.answer, sent.client):
        return answer_json({"problem": "this question was already answered", "fix": ""}, 409)
    return answer_json({}, 202)


@handle_errors
async def complete(request: Request) -> Response:
    """A POST, because what is typed does not belong into a URL."""
    typed = await read_body(request, TypedText)
    chat = _open_chat(request)
    completer = chat.completer()
    if completer is None:
        return answer_json({"completions": []})
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    found = [
        {
            "text": completion.text,
            "start": completion.start_position,
            "label": completion.display_text,
            "description": completion.display_meta_text,
        }
        async for completion in completer.get_completions_async(Document(typed.text), CompleteEvent())
    ]
    return answer_json({"completions": found})


@handle_errors
async def check_mentions(request: Request) -> Response:
    """`@` mentions of a message that name nothing; asked before it is sent."""
    typed = await read_body(request, TypedText)
    agent = _open_chat(request).agent
    if agent is None:
        return answer_json({"missing": []})
    from kitbag.chat.input.agent_completer import list_missing_mentions

    return answer_json({"missing": await asyncio.to_thread(list_missing_mentions, typed.text, agent)})


@handle_errors
async def earlier_blocks(request: Request) -> Response:
    chat = state_of(request).chats.get(request.path_params["chat"])
    before = read_number(request, "before", 0, 1 << 40)
    limit = read_number(request, "limit", 100, _MAX_BLOCKS)
    blocks, is_complete = await asyncio.to_thread(chat.ui.topic.entries_before, before, limit)
    return answer_json({"blocks": blocks, "is_complete": is_complete})


def _open_chat(request: Request) -> HostedChat:
    """Raises NotFoundError if it has ended."""
    chat = state_of(request).chats.get(request.path_params["chat"])
    if chat.is_closed:
        raise NotFoundError("this chat has ended", "open its session again")
    return chat


ROUTES = [
    Route("/api/chats", open_chat, methods=["POST"]),
    Route("/api/chats/{chat}/messages", send_message, methods=["POST"]),
    Route("/api/chats/{chat}/keys", press_key, methods=["POST"]),
    Route("/api/chats/{chat}/answers", answer_question, methods=["POST"]),
    Route("/api/chats/{chat}/completions", complete, methods=["POST"]),
    Route("/api/chats/{chat}/mentions", check_mentions, methods=["POST"]),
    Route("/api/chats/{chat}/blocks", earlier_blocks, methods=["GET"]),
]
