"""`/api/stream`: opens a browser's event stream, and changes which topics it carries."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from kitbag.errors import InvalidError, NotFoundError
from kitbag.web.requests import answer_json, handle_errors, read_body, state_of


class FollowedTopics(msgspec.Struct, frozen=True, kw_only=True):
    topics: dict[str, int]
    """The number of the last entry that the browser has of each topic, or -1."""
    server: str = ""
    """The server that the numbers are from."""
    restart: tuple[str, ...] = ()
    """Topics to send from their beginning, because another tab follows them now."""


@handle_errors
async def open_stream(request: Request) -> Response:
    wanted = await read_body(request, FollowedTopics)
    streams = state_of(request).streams
    if streams.is_full:
        raise InvalidError("too many browsers are connected", "close some tabs and retry")
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(streams.serve(wanted.topics, wanted.server), 200, headers, "text/event-stream")


@handle_errors
async def change_topics(request: Request) -> Response:
    wanted = await read_body(request, FollowedTopics)
    stream = state_of(request).streams.get(request.path_params["stream"])
    if stream is None:
        raise NotFoundError("the event stream has ended", "reconnect")
    stream.follow(wanted.topics, wanted.restart)
    return answer_json({})


ROUTES = [
    Route("/api/stream", open_stream, methods=["POST"]),
    Route("/api/stream/{stream}", change_topics, methods=["POST"]),
]
