"""`/api/sessions`: lists, searches, exports and deletes sessions."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kitbag.agent.session_list import SessionSummary, count_sessions, find_session, list_sessions, named_sessions
from kitbag.assembly.open_journal import open_journal
from kitbag.assembly.open_store import has_journal
from kitbag.errors import NotFoundError
from kitbag.library.scopes import Places
from kitbag.runtime.session_locks import is_session_open
from kitbag.store.journal import Journal
from kitbag.web.requests import answer_json, handle_errors, read_number, state_of

_MAX_LISTED: Final = 200
_MAX_SEARCHED: Final = 20_000
T = TypeVar("T")


def with_journal(places: Places, read: Callable[[Journal], T], default: T) -> T:
    """Blocks. `default` if there is no journal yet: reading creates none."""
    if not has_journal(places.kitbag_home):
        return default
    with open_journal(places.kitbag_home) as journal:
        return read(journal)


def find_summary(places: Places, session_id: str) -> SessionSummary:
    """Blocks. Raises NotFoundError."""
    found = with_journal(places, lambda journal: find_session(named_sessions(journal, session_id), session_id), None)
    if found is None:
        raise NotFoundError(f"no session named {session_id[:80]!r}", "there are no sessions yet")
    return found


@handle_errors
async def listing(request: Request) -> Response:
    """`q` searches in titles and ids; `all=1` lists the sessions of all directories."""
    state = state_of(request)
    query = request.query_params.get("q", "").casefold().split()
    directory = "" if request.query_params.get("all") == "1" else state.places.cwd
    offset = read_number(request, "offset", 0, _MAX_SEARCHED)
    limit = read_number(request, "limit", 50, _MAX_LISTED)

    def read(journal: Journal) -> dict[str, Any]:
        wanted = _MAX_SEARCHED if query else offset + limit
        found = [one for one in list_sessions(journal, directory, wanted) if one.turns or one.about or one.problem]
        if query:
            found = [one for one in found if all(word in f"{one.about} {one.id}".casefold() for word in query)]
        shown = [_describe(state.places, journal, one) for one in found[offset : offset + limit]]
        return {"sessions": shown, "total": len(found) if query else count_sessions(journal, directory)}

    empty: dict[str, Any] = {"sessions": [], "total": 0}
    return answer_json(await asyncio.to_thread(with_journal, state.places, read, empty))


def _describe(places: Places, journal: Journal, one: SessionSummary) -> dict[str, Any]:
    status = "damaged" if one.problem else one.status
    if not status:
        status = "open" if is_session_open(places.kitbag_home, one.id, journal) else "interrupted"
    return {**one.to_json(), "status": status}


@handle_errors
async def export(request: Request) -> Response:
    """`format`: markdown or json."""
    state = state_of(request)
    is_json = request.query_params.get("format") == "json"
    session_id = request.path_params["session"]
    text = await asyncio.to_thread(_export, state.places, session_id, is_json)
    headers = {"cache-control": "no-store"}
    return Response(text, 200, headers, "application/json" if is_json else "text/markdown; charset=utf-8")


def _export(places: Places, session_id: str, is_json: bool) -> str:
    from kitbag.agent.resume import resume
    from kitbag.runtime.export import collect_export_info, export_json, export_markdown

    def read(journal: Journal) -> str:
        summary = find_session(named_sessions(journal, session_id), session_id)
        info = collect_export_info(resume(journal, summary.id))
        return (export_json if is_json else export_markdown)(journal, info)

    return with_journal(places, read, "")


@handle_errors
async def delete(request: Request) -> Response:
    state = state_of(request)
    session_id = request.path_params["session"]
    summary = await asyncio.to_thread(find_summary, state.places, session_id)
    hosted = state.chats.of_session(summary.id)
    if hosted is not None:
        await hosted.close("deleted")
    report = await asyncio.to_thread(_delete, state.places, summary.id)
    return answer_json(report)


def _delete(places: Places, session_id: str) -> dict[str, Any]:
    from kitbag.runtime.retention import delete_session

    def remove(journal: Journal) -> dict[str, Any]:
        return delete_session(journal, places.kitbag_home, session_id).to_json()

    return with_journal(places, remove, {})


ROUTES = [
    Route("/api/sessions", listing, methods=["GET"]),
    Route("/api/sessions/{session}/export", export, methods=["GET"]),
    Route("/api/sessions/{session}/delete", delete, methods=["POST"]),
]
