"""How a POST is answered over HTTP: with plain JSON if nothing can precede the response, otherwise with a stream of
events.

A stream costs server and client about twice the CPU time. Used by http_guard, which looks at the request, and by http,
which gives the choice to the SDK.
"""

import asyncio
import weakref
from contextvars import ContextVar
from typing import Any, Final

import msgspec

MAX_PEEKED_BYTES: Final = 64 * 1024
_JSON_METHODS: Final = frozenset(
    (
        "initialize",
        "ping",
        "server/discover",
        "tools/list",
        "prompts/list",
        "completion/complete",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "resources/directory/read",
        "skills/list",
        "skills/get",
    )
)
_JSON_TOOLS: Final = frozenset(
    ("list_loaded_skills", "search_skills", "read_skill_file", "unload_skill", "list_agents")
)
"""Short calls that report no progress, ask nothing, and need not be stopped when the client disconnects."""
_json_request: "ContextVar[weakref.ref[asyncio.Task[Any]] | None]" = ContextVar("json_request", default=None)
"""The task of a request that is answered with JSON. A session's own tasks inherit the context of its first request."""


class _Params(msgspec.Struct):
    name: str = ""


class _Request(msgspec.Struct):
    method: str
    params: _Params = msgspec.field(default_factory=_Params)


class JsonIfPossible:
    """True during a request that is answered with JSON. The SDK takes it as its setting."""

    def __bool__(self) -> bool:
        task = _json_request.get()
        return task is not None and task() is asyncio.current_task()


def choose_response_format(body: bytes) -> None:
    """For the current request. `body`: the whole body of a POST."""
    try:
        request = msgspec.json.decode(body, type=_Request) if len(body) <= MAX_PEEKED_BYTES else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        request = None
    called = request.params.name if request is not None and request.method == "tools/call" else ""
    task = asyncio.current_task()
    if task is not None and request is not None and (request.method in _JSON_METHODS or called in _JSON_TOOLS):
        _json_request.set(weakref.ref(task))
