"""The resources of the server, and the methods of the skills extension: skills/list, skills/get and directories.

Used by server; uses skill_addresses and skill_entries. What looks at files is done off the event loop.
"""

import asyncio
import base64
import mimetypes
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
from kitbag.mcp_server.pagination import page
from kitbag.mcp_server.server_state import LEAST_SECONDS, House
from kitbag.mcp_server.skill_uris import MAIN, Addresses
from kitbag.mcp_server.skills_extension import entries_of, entry_of

RESOURCES_PAGE: Final = 500
SKILLS_PAGE: Final = 100
CACHE: Final[dict[str, Any]] = {"ttlMs": int(LEAST_SECONDS * 1_000), "cacheScope": "private"}
DIRECTORY: Final = "inode/directory"
T = TypeVar("T")
Context = ServerRequestContext[Any, Any]


class _OfSkill(RequestParams):
    uri: str


class _OfDirectory(PaginatedRequestParams):
    uri: str


class Resources:
    def __init__(self, house: House) -> None:
        self._house = house

    def add_to(self, server: Server[Any]) -> None:
        server.add_request_handler("resources/list", PaginatedRequestParams, self._list)
        server.add_request_handler("resources/templates/list", PaginatedRequestParams, self._templates)
        server.add_request_handler("resources/read", ReadResourceRequestParams, self._read)
        server.add_request_handler("skills/list", PaginatedRequestParams, self._list_skills)
        server.add_request_handler("skills/get", _OfSkill, self._get_skill)
        server.add_request_handler("resources/directory/read", _OfDirectory, self._read_directory)

    async def _work(self, look: Callable[[Addresses], T]) -> T:
        """Off the event loop; what can't be found or used is the request's fault."""
        await self._house.fresh(LEAST_SECONDS)

        def work() -> T:
            return look(self._house.addresses)

        try:
            return await asyncio.to_thread(work)
        except (NotFoundError, InvalidError) as error:
            raise MCPError(INVALID_PARAMS, f"{error.problem}. {error.fix}".rstrip(". ")) from None
        except (KitbagError, OSError) as error:
            raise MCPError(INTERNAL_ERROR, f"it could not be read: {error}") from None

    async def _list(self, _: Context, params: PaginatedRequestParams) -> ListResourcesResult:
        def look(addresses: Addresses) -> ListResourcesResult:
            shown, cursor = page(addresses.listed, params.cursor, RESOURCES_PAGE)
            found = [_resource(addresses, skill) for _, skill in shown]
            return ListResourcesResult(resources=found, next_cursor=cursor)

        return await self._work(look)

    async def _templates(self, _: Context, params: PaginatedRequestParams) -> ListResourceTemplatesResult:
        template = ResourceTemplate(
            uri_template="skill://{skill}/{+path}",
            name="skill-file",
            description="A file of a skill: SKILL.md, or what lies beside and below it.",
        )
        return ListResourceTemplatesResult(resource_templates=[template])

    async def _read(self, _: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        uri = str(params.uri)

        def look(addresses: Addresses) -> ReadResourceResult:
            found = addresses.find(uri)
            data = addresses.read(addresses.file(found.skill, found.path))
            kind = media_type(found.path)
            try:
                text = TextResourceContents(uri=uri, mime_type=kind, text=data.decode())
                return ReadResourceResult(contents=[text])
            except UnicodeDecodeError:
                kind = "application/octet-stream" if kind == "text/plain" else kind
                blob = base64.b64encode(data).decode()
                return ReadResourceResult(contents=[BlobResourceContents(uri=uri, mime_type=kind, blob=blob)])

        return await self._work(look)

    # The skills extension

    async def _list_skills(self, _: Context, params: PaginatedRequestParams) -> dict[str, Any]:
        def look(addresses: Addresses) -> dict[str, Any]:
            shown, cursor = page(addresses.listed, params.cursor, SKILLS_PAGE)
            more = {"nextCursor": cursor} if cursor is not None else {}
            return {"resultType": "complete", "skills": entries_of(addresses, shown), **more, **CACHE}

        return await self._work(look)

    async def _get_skill(self, _: Context, params: _OfSkill) -> dict[str, Any]:
        def look(addresses: Addresses) -> dict[str, Any]:
            found = addresses.find(params.uri)
            if found.path != MAIN:
                raise NotFoundError(f"no skill is served at {params.uri[:300]}", f"name the skill's {MAIN}")
            return {"resultType": "complete", "skill": entry_of(addresses, found.skill), **CACHE}

        return await self._work(look)

    async def _read_directory(self, _: Context, params: _OfDirectory) -> dict[str, Any]:
        def look(addresses: Addresses) -> dict[str, Any]:
            found = addresses.find(params.uri)
            children = addresses.children(found.skill, found.path)
            shown, cursor = page([(name, is_folder) for name, is_folder in children], params.cursor, RESOURCES_PAGE)
            more = {"nextCursor": cursor} if cursor is not None else {}
            listed: list[dict[str, Any]] = []
            for name, is_folder in shown:
                path = f"{found.path}/{name}" if found.path else name
                if path == MAIN:
                    resource = _resource(addresses, found.skill).model_dump(
                        by_alias=True, mode="json", exclude_none=True
                    )
                    listed.append(resource)
                    continue
                kind = DIRECTORY if is_folder else media_type(path)
                listed.append({"uri": addresses.uri(found.skill, path), "name": name, "mimeType": kind})
            return {"resultType": "complete", "resources": listed, **more}

        return await self._work(look)


def _resource(addresses: Addresses, skill: Skill) -> Resource:
    return Resource(
        uri=addresses.uri(skill), name=skill.name, description=skill.description or None, mime_type="text/markdown"
    )


def media_type(path: str) -> str:
    if path.lower().endswith((".md", ".markdown")):
        return "text/markdown"
    return mimetypes.guess_type(path, strict=False)[0] or "text/plain"
