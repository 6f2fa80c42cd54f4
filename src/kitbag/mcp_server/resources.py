"""MCP resources, and the methods of the skills extension: skills/list, skills/get and resources/directory/read.

Used by server; uses skill_uris and skills_extension. Files are read off the event loop.
"""

import base64
import mimetypes
from collections.abc import Callable
from typing import Any, Final, TypeVar

from mcp.server import Server, ServerRequestContext
from mcp_types import (
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

from kitbag.errors import NotFoundError
from kitbag.library.skills import Skill
from kitbag.mcp_server.library_requests import paginate, read_library
from kitbag.mcp_server.server_state import MIN_REFRESH_SECONDS, ServerState
from kitbag.mcp_server.skill_uris import MAIN_FILE, SkillUris
from kitbag.mcp_server.skills_extension import build_entries, build_entry

RESOURCES_PAGE_SIZE: Final = 500
SKILLS_PAGE_SIZE: Final = 100
CACHE_HINTS: Final[dict[str, Any]] = {"ttlMs": int(MIN_REFRESH_SECONDS * 1_000), "cacheScope": "private"}
SKILL_TEMPLATE: Final = "skill://{skill}/{+path}"
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

    async def _read_uris(self, read: Callable[[SkillUris], T], uri: str = "") -> T:
        return await read_library(self._state, lambda: read(self._state.skill_uris), uri)

    async def _list(self, _: Context, params: PaginatedRequestParams) -> ListResourcesResult:
        def read(uris: SkillUris) -> ListResourcesResult:
            shown, cursor = paginate(uris.listed, params.cursor, RESOURCES_PAGE_SIZE)
            resources = [_skill_resource(uris, skill) for _, skill in shown]
            return ListResourcesResult(resources=resources, next_cursor=cursor)

        return await self._read_uris(read)

    async def _list_templates(self, _: Context, params: PaginatedRequestParams) -> ListResourceTemplatesResult:
        template = ResourceTemplate(
            uri_template=SKILL_TEMPLATE,
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

        return await self._read_uris(read, uri)

    # Skills extension

    async def _list_skills(self, _: Context, params: PaginatedRequestParams) -> dict[str, Any]:
        def read(uris: SkillUris) -> dict[str, Any]:
            shown, cursor = paginate(uris.listed, params.cursor, SKILLS_PAGE_SIZE)
            more = {"nextCursor": cursor} if cursor is not None else {}
            return {"resultType": "complete", "skills": build_entries(uris, shown), **more, **CACHE_HINTS}

        return await self._read_uris(read)

    async def _get_skill(self, _: Context, params: _SkillParams) -> dict[str, Any]:
        def read(uris: SkillUris) -> dict[str, Any]:
            location = uris.find(params.uri)
            if location.path != MAIN_FILE:
                raise NotFoundError(f"no skill at {params.uri[:300]}", f"use the URI of the skill's {MAIN_FILE}")
            return {"resultType": "complete", "skill": build_entry(uris, location.skill), **CACHE_HINTS}

        return await self._read_uris(read, params.uri)

    async def _read_directory(self, _: Context, params: _DirectoryParams) -> dict[str, Any]:
        def read(uris: SkillUris) -> dict[str, Any]:
            location = uris.find(params.uri)
            children = uris.children(location.skill, location.path)
            shown, cursor = paginate(
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

        return await self._read_uris(read, params.uri)


def _skill_resource(uris: SkillUris, skill: Skill) -> Resource:
    return Resource(
        uri=uris.uri(skill), name=skill.name, description=skill.description or None, mime_type="text/markdown"
    )


def media_type(path: str) -> str:
    if path.lower().endswith((".md", ".markdown")):
        return "text/markdown"
    return mimetypes.guess_type(path, strict=False)[0] or "text/plain"
