"""MCP resources, and the methods of the skills extension: skills/list, skills/get and resources/directory/read.

Used by server; uses skill_uris and skills_extension. Files are read off the event loop.
"""

import asyncio
import base64
import binascii
import mimetypes
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Final, TypeVar

from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    BlobResourceContents,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    RequestParams,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from kitbag.errors import InvalidError, KitbagError, NotFoundError
from kitbag.library.skills import Skill
from kitbag.mcp_server.server_state import MIN_REFRESH_SECONDS, ServerState
from kitbag.mcp_server.skill_uris import MAIN_FILE, SkillUris
from kitbag.mcp_server.skills_extension import build_entries, build_entry

RESOURCES_PAGE_SIZE: Final = 500
SKILLS_PAGE_SIZE: Final = 100
CACHE_HINTS: Final[dict[str, Any]] = {"ttlMs": int(MIN_REFRESH_SECONDS * 1_000), "cacheScope": "private"}
DIRECTORY_MEDIA_TYPE: Final = "inode/directory"
T = TypeVar("T")
Context = ServerRequestContext[Any, Any]


class _SkillParams(RequestParams):
    uri: str


class _DirectoryParams(PaginatedRequestParams):
    uri: str


class SkillResourceHandlers:
    def __init__(self, state: ServerState) -> None:
        self._state = state

    def register(self, server: Server[Any]) -> None:
        server.add_request_handler("resources/list", PaginatedRequestParams, self._list)
        server.add_request_handler("resources/templates/list", PaginatedRequestParams, self._list_templates)
        server.add_request_handler("resources/read", ReadResourceRequestParams, self._read)
        server.add_request_handler("skills/list", PaginatedRequestParams, self._list_skills)
        server.add_request_handler("skills/get", _SkillParams, self._get_skill)
        server.add_request_handler("resources/directory/read", _DirectoryParams, self._read_directory)

    async def _run_in_thread(self, read: Callable[[SkillUris], T]) -> T:
        """Runs `read` off the event loop; an unknown or unusable URI is the request's fault."""
        await self._state.refreshed(MIN_REFRESH_SECONDS)

        def work() -> T:
            return read(self._state.skill_uris)

        try:
            return await asyncio.to_thread(work)
        except (NotFoundError, InvalidError) as error:
            raise MCPError(INVALID_PARAMS, f"{error.problem}. {error.fix}".rstrip(". ")) from None
        except (KitbagError, OSError) as error:
            raise MCPError(INTERNAL_ERROR, f"cannot read resource: {error}") from None

    async def _list(self, _: Context, params: PaginatedRequestParams) -> ListResourcesResult:
        def read(uris: SkillUris) -> ListResourcesResult:
            shown, cursor = _paginate(uris.listed, params.cursor, RESOURCES_PAGE_SIZE)
            resources = [_skill_resource(uris, skill) for _, skill in shown]
            return ListResourcesResult(resources=resources, next_cursor=cursor)

        return await self._run_in_thread(read)

    async def _list_templates(self, _: Context, params: PaginatedRequestParams) -> ListResourceTemplatesResult:
        template = ResourceTemplate(
            uri_template="skill://{skill}/{+path}",
            name="skill-file",
            description="A file of a skill: SKILL.md, or a file in the skill's directory.",
        )
        return ListResourceTemplatesResult(resource_templates=[template])

    async def _read(self, _: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        uri = str(params.uri)

        def read(uris: SkillUris) -> ReadResourceResult:
            location = uris.find(uri)
            data = uris.read(uris.file(location.skill, location.path))
            kind = media_type(location.path)
            try:
                text = TextResourceContents(uri=uri, mime_type=kind, text=data.decode())
                return ReadResourceResult(contents=[text])
            except UnicodeDecodeError:
                kind = "application/octet-stream" if kind == "text/plain" else kind
                blob = base64.b64encode(data).decode()
                return ReadResourceResult(contents=[BlobResourceContents(uri=uri, mime_type=kind, blob=blob)])

        return await self._run_in_thread(read)

    # Skills extension

    async def _list_skills(self, _: Context, params: PaginatedRequestParams) -> dict[str, Any]:
        def read(uris: SkillUris) -> dict[str, Any]:
            shown, cursor = _paginate(uris.listed, params.cursor, SKILLS_PAGE_SIZE)
            more = {"nextCursor": cursor} if cursor is not None else {}
            return {"resultType": "complete", "skills": build_entries(uris, shown), **more, **CACHE_HINTS}

        return await self._run_in_thread(read)

    async def _get_skill(self, _: Context, params: _SkillParams) -> dict[str, Any]:
        def read(uris: SkillUris) -> dict[str, Any]:
            location = uris.find(params.uri)
            if location.path != MAIN_FILE:
                raise NotFoundError(f"no skill at {params.uri[:300]}", f"use the URI of the skill's {MAIN_FILE}")
            return {"resultType": "complete", "skill": build_entry(uris, location.skill), **CACHE_HINTS}

        return await self._run_in_thread(read)

    async def _read_directory(self, _: Context, params: _DirectoryParams) -> dict[str, Any]:
        def read(uris: SkillUris) -> dict[str, Any]:
            location = uris.find(params.uri)
            children = uris.children(location.skill, location.path)
            shown, cursor = _paginate(
                [(name, is_folder) for name, is_folder in children], params.cursor, RESOURCES_PAGE_SIZE
            )
            more = {"nextCursor": cursor} if cursor is not None else {}
            listed: list[dict[str, Any]] = []
            for name, is_folder in shown:
                path = f"{location.path}/{name}" if location.path else name
                if path == MAIN_FILE:
                    resource = _skill_resource(uris, location.skill).model_dump(
                        by_alias=True, mode="json", exclude_none=True
                    )
                    listed.append(resource)
                    continue
                kind = DIRECTORY_MEDIA_TYPE if is_folder else media_type(path)
                listed.append({"uri": uris.uri(location.skill, path), "name": name, "mimeType": kind})
            return {"resultType": "complete", "resources": listed, **more}

        return await self._run_in_thread(read)


def _skill_resource(uris: SkillUris, skill: Skill) -> Resource:
    return Resource(
        uri=uris.uri(skill), name=skill.name, description=skill.description or None, mime_type="text/markdown"
    )


def media_type(path: str) -> str:
    if path.lower().endswith((".md", ".markdown")):
        return "text/markdown"
    return mimetypes.guess_type(path, strict=False)[0] or "text/plain"


def _paginate(items: list[tuple[str, T]], cursor: str | None, size: int) -> tuple[list[tuple[str, T]], str | None]:
    """One page and the cursor of the next. `items`: sorted by name. A cursor names the last item of a page, so the list
    may change between pages. Raises MCPError for an invalid cursor."""
    start = bisect_right([name for name, _ in items], _decode_cursor(cursor)) if cursor is not None else 0
    shown = items[start : start + size]
    more = start + size < len(items)
    return shown, base64.urlsafe_b64encode(shown[-1][0].encode()).decode() if more else None


def _decode_cursor(cursor: str) -> str:
    try:
        return base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise MCPError(INVALID_PARAMS, "invalid cursor; start from the first page") from None
