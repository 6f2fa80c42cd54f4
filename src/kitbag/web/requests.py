"""What every route needs: the shared state, a bounded and typed body, and answers as JSON.

Used by all `*_routes` modules. A KitbagError becomes `{"problem", "fix"}` with the status that fits it.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from kitbag.dialogs.form import FormAnswer
from kitbag.errors import AmbiguousError, KitbagError, NotFoundError, UsageError
from kitbag.web.server_state import WebState

MAX_BODY_BYTES: Final = 32 * 1024 * 1024
T = TypeVar("T")
Endpoint = Callable[[Request], Awaitable[Response]]


class BodyTooLargeError(KitbagError):
    """The request has more than MAX_BODY_BYTES."""


_STATUSES: Final = (
    (NotFoundError, 404),
    (AmbiguousError, 409),
    (UsageError, 400),
    (BodyTooLargeError, 413),
)
_OTHER_STATUS: Final = 422


class SentAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """To a question of a chat or a task."""

    question: str
    client: str = ""
    keys: tuple[str, ...] = ()
    text: str = ""
    is_canceled: bool = False

    @property
    def answer(self) -> FormAnswer | None:
        return None if self.is_canceled else FormAnswer(self.keys, self.text)


def state_of(request: Request) -> WebState:
    return request.app.state.kitbag


async def read_body(request: Request, kind: type[T]) -> T:
    """Raises UsageError if the body is not such a value."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise BodyTooLargeError(f"larger than {MAX_BODY_BYTES >> 20} MB", "put the text in a file and mention it")
        parts.append(part)
    try:
        return msgspec.json.decode(b"".join(parts), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"invalid request: {error}", "reload the page") from error


def read_number(request: Request, name: str, default: int, most: int) -> int:
    text = request.query_params.get(name, "")
    return min(int(text), most) if text.isascii() and text.isdigit() and len(text) < 16 else default


def answer_json(value: Any, status: int = 200) -> Response:
    return Response(
        msgspec.json.encode(value, enc_hook=str), status, {"cache-control": "no-store"}, media_type="application/json"
    )


def handle_errors(endpoint: Endpoint) -> Endpoint:
    """Answers errors of a route as JSON."""

    async def handled(request: Request) -> Response:
        try:
            return await endpoint(request)
        except KitbagError as error:
            status = next((status for kind, status in _STATUSES if isinstance(error, kind)), _OTHER_STATUS)
            return answer_json({"problem": error.problem, "fix": error.fix}, status)
        except ClientDisconnect:
            return Response(status_code=499)

    return handled
