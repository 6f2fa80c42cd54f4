"""`/api/context`: the model calls of a session, piece by piece; what would be sent now for a message being typed."""

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kitbag.web.requests import answer_json, handle_errors, read_body, state_of

if TYPE_CHECKING:
    from kitbag.web.context_reader import ContextReader

_NEWEST: Final = "-"
"""Instead of a session's id: the newest of the directory."""
_MIN_WIDTH, _MAX_WIDTH = 280, 1_600
"""Pixels of a picture."""
_MAX_TYPED: Final = 200_000
"""Characters of a message that are previewed."""


class TypedMessage(msgspec.Struct, frozen=True, kw_only=True):
    text: str


def _reader(request: Request) -> "ContextReader":
    return state_of(request).context_reader()


def _session(request: Request) -> str:
    name = request.path_params["session"]
    return "" if name == _NEWEST else name


def _number(request: Request, name: str, default: int = 0) -> int:
    """May be negative."""
    text = request.query_params.get(name, "")
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 10 else default


def _width(request: Request) -> int:
    return min(max(_number(request, "width", 960), _MIN_WIDTH), _MAX_WIDTH)


@handle_errors
async def overview(request: Request) -> Response:
    session, seen = _session(request), _number(request, "seen", -1)
    return answer_json(await asyncio.to_thread(_reader(request).overview, session, _width(request), seen))


@handle_errors
async def call(request: Request) -> Response:
    """`number`: 0 is what would be sent now."""
    number = _number(request, "number", -1)
    return answer_json(await asyncio.to_thread(_reader(request).call, _session(request), number, _width(request)))


@handle_errors
async def piece(request: Request) -> Response:
    number, index = _number(request, "number", -1), _number(request, "piece")
    return answer_json(await asyncio.to_thread(_reader(request).piece, _session(request), number, index))


@handle_errors
async def diff(request: Request) -> Response:
    first, second = _number(request, "first"), _number(request, "second", -1)
    return answer_json(await asyncio.to_thread(_reader(request).diff, _session(request), first, second))


@handle_errors
async def export(request: Request) -> Response:
    """`format`: html or svg."""
    number, reader = _number(request, "number", -1), _reader(request)
    is_picture = request.query_params.get("format") == "svg"
    export = reader.export_picture if is_picture else reader.export_page
    text = await asyncio.to_thread(export, _session(request), number)
    # As a file, never as a page of this server.
    headers = {"cache-control": "no-store", "content-disposition": "attachment"}
    return Response(text, 200, headers, "image/svg+xml" if is_picture else "text/html; charset=utf-8")


@handle_errors
async def preview(request: Request) -> Response:
    """A POST, because what is typed does not belong into a URL."""
    typed = await read_body(request, TypedMessage)
    count = state_of(request).chats.get(request.path_params["chat"]).message_preview()
    if count is None:
        return answer_json({})
    return answer_json(await asyncio.to_thread(lambda: count()(typed.text[:_MAX_TYPED]).to_json()))


ROUTES = [
    Route("/api/context/{session}", overview, methods=["GET"]),
    Route("/api/context/{session}/call", call, methods=["GET"]),
    Route("/api/context/{session}/piece", piece, methods=["GET"]),
    Route("/api/context/{session}/diff", diff, methods=["GET"]),
    Route("/api/context/{session}/export", export, methods=["GET"]),
    Route("/api/chats/{chat}/preview", preview, methods=["POST"]),
]
