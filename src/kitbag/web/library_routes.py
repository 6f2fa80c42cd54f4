"""`/api/library`: lists and shows items, explains which skills a message gets, changes states, edits skills.

Mounted by application, which imports it at the first request. Everything is read again for each request, in a thread.
"""

import asyncio
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kitbag.errors import UsageError
from kitbag.library.item_states import set_item_state
from kitbag.library.registry import Registry
from kitbag.library.scopes import Places
from kitbag.packing.routing_explanation import explain_routing, new_session_state
from kitbag.runtime.skill_history import use_history
from kitbag.views.blocks import Block, FieldsBlock
from kitbag.views.item_states import describe_override, describe_state
from kitbag.views.routing import explanation_fields
from kitbag.web.edited_files import ChangedOnDiskError
from kitbag.web.html.blocks import render_block
from kitbag.web.library_reader import audit_blocks, item_path, list_costs, list_library, show_item
from kitbag.web.requests import answer_json, handle_errors, read_body, state_of
from kitbag.web.skill_drafts import MAX_INDEX_SECONDS, SkillDrafts, explanation_json, open_for_editing, save_skill

_MAX_MATCHES: Final = 6
_MAX_MESSAGE: Final = 20_000


class TypedMessage(msgspec.Struct, frozen=True, kw_only=True):
    message: str


class StateRequest(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    key: str
    state: str
    project: bool = False
    """In the project's settings instead of the user's."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    key: str
    text: str
    message: str = ""
    version: str = ""
    """Of the file that the text is from."""


def _html(blocks: list[Block]) -> list[str]:
    return [str(render_block(block, str)) for block in blocks]


def _item_of(request: Request) -> tuple[Places, str, str]:
    query = request.query_params
    return state_of(request).places, query.get("kind", ""), query.get("key", "")


@handle_errors
async def listing(request: Request) -> Response:
    def read() -> dict[str, Any]:
        found = list_library(state_of(request).places)
        return {**found, "others": _html(found["others"])}

    return answer_json(await asyncio.to_thread(read))


@handle_errors
async def costs(request: Request) -> Response:
    return answer_json(await asyncio.to_thread(list_costs, state_of(request).places))


@handle_errors
async def show(request: Request) -> Response:
    def read() -> dict[str, Any]:
        shown = show_item(*_item_of(request))
        return {**shown, "blocks": _html(shown["blocks"]), "levels": _html(shown["levels"])}

    return answer_json(await asyncio.to_thread(read))


@handle_errors
async def audit(request: Request) -> Response:
    return answer_json({"blocks": await asyncio.to_thread(lambda: _html(audit_blocks(item_path(*_item_of(request)))))})


@handle_errors
async def explain(request: Request) -> Response:
    """Which skills a new session would describe and suggest for a message, as `kitbag skills explain`."""
    typed = await read_body(request, TypedMessage)
    places = state_of(request).places

    def compute() -> list[dict[str, Any]]:
        registry = Registry(places)
        use_history(registry)
        message, state = typed.message[:_MAX_MESSAGE], new_session_state(registry)
        found = explain_routing(registry, message, state, most=_MAX_MATCHES, wait=MAX_INDEX_SECONDS)
        return [
            {**explanation_json(one), "html": _html([FieldsBlock(tuple(explanation_fields(one)))])[0]}
            for one in found.skills
        ]

    return answer_json({"skills": await asyncio.to_thread(compute) if typed.message.strip() else []})


@handle_errors
async def change_state(request: Request) -> Response:
    wanted = await read_body(request, StateRequest)
    return answer_json({"text": await asyncio.to_thread(_set_state, state_of(request).places, wanted)})


def _set_state(places: Places, wanted: StateRequest) -> str:
    if wanted.kind == "plugin":
        from kitbag.library.plugins.store import set_plugin_enabled

        if wanted.state not in ("on", "off"):
            raise UsageError(f"a plugin can't be {wanted.state[:40]!r}", "enable or disable it")
        plugin = set_plugin_enabled(places.kitbag_home, wanted.key, wanted.state == "on")
        return f"{plugin.name} is now {'enabled' if plugin.enabled else 'disabled'}"
    if wanted.kind not in ("skill", "command", "agent"):
        raise UsageError(f"a {wanted.kind[:40]} has no state", "choose a persona when you start a chat")
    group = "agents" if wanted.kind == "agent" else "skills"
    change = set_item_state(Registry(places), group, wanted.key, wanted.state, project=wanted.project)
    return "; ".join(filter(None, (describe_state(change), describe_override(change))))


@handle_errors
async def edit(request: Request) -> Response:
    """The file for the editor."""
    file = await asyncio.to_thread(open_for_editing, *_item_of(request))
    return answer_json({"text": file.text, "version": file.version})


@handle_errors
async def evaluate_draft(request: Request) -> Response:
    draft = await read_body(request, Draft)
    places, drafts = state_of(request).places, _drafts(request)

    def compute() -> dict[str, Any]:
        found = drafts.evaluate(places, draft.kind, draft.key, draft.text, draft.message[:_MAX_MESSAGE])
        return {**found, "problems": _html(found["problems"]), "audit": _html(found["audit"])}

    return answer_json(await asyncio.to_thread(compute))


def _drafts(request: Request) -> SkillDrafts:
    state = state_of(request)
    if state.drafts is None:
        state.drafts = SkillDrafts()
    return state.drafts


@handle_errors
async def save(request: Request) -> Response:
    draft = await read_body(request, Draft)
    places = state_of(request).places
    try:
        return answer_json(
            await asyncio.to_thread(save_skill, places, draft.kind, draft.key, draft.text, draft.version)
        )
    except ChangedOnDiskError as error:
        return answer_json({"problem": error.problem, "fix": error.fix}, 409)


ROUTES = [
    Route("/items", listing, methods=["GET"]),
    Route("/costs", costs, methods=["GET"]),
    Route("/item", show, methods=["GET"]),
    Route("/audit", audit, methods=["GET"]),
    Route("/explain", explain, methods=["POST"]),
    Route("/state", change_state, methods=["POST"]),
    Route("/file", edit, methods=["GET"]),
    Route("/draft", evaluate_draft, methods=["POST"]),
    Route("/save", save, methods=["POST"]),
]
