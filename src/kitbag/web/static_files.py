"""The page's own files: HTML, style sheets, ES modules. Read once and compressed once; revalidated by hash.

Used by application. Only names that were found in the package at the first request are served.
"""

import gzip
import hashlib
import os
from functools import cache
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kitbag.views.pictures.svg import PAGE_CSS

_ROOT: Final = os.path.join(os.path.dirname(__file__), "static")
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGES: Final = (
    "/",
    "/chat",
    "/chat/{rest:path}",
    "/context",
    "/context/{rest:path}",
    "/tasks",
    "/tasks/{rest:path}",
    "/library",
    "/library/{rest:path}",
    "/pack",
)
"""Paths that all show index.html; the browser's modules choose the view."""


class _StaticFile(msgspec.Struct, frozen=True, kw_only=True):
    content: bytes
    compressed: bytes
    media_type: str
    etag: str


@cache
def _load_files() -> dict[str, _StaticFile]:
    """By path below the root, with slashes."""
    files: dict[str, _StaticFile] = {}
    for directory, _, names in os.walk(_ROOT):
        for name in names:
            media_type = _TYPES.get(os.path.splitext(name)[1])
            if media_type is None:
                continue
            path = os.path.join(directory, name)
            with open(path, "rb") as file:
                content = file.read()
            files[os.path.relpath(path, _ROOT).replace(os.sep, "/")] = _make_file(content, media_type)
    files["css/pictures.css"] = _make_file(PAGE_CSS.encode(), _TYPES[".css"])
    return files


def _make_file(content: bytes, media_type: str) -> _StaticFile:
    etag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    return _StaticFile(content=content, compressed=gzip.compress(content, 6, mtime=0), media_type=media_type, etag=etag)


def _answer(request: Request, name: str) -> Response:
    file = _load_files().get(name)
    if file is None:
        return Response("not found\n", 404, media_type="text/plain")
    headers = {"etag": file.etag, "cache-control": "no-cache", "vary": "accept-encoding"}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.compressed, 200, {**headers, "content-encoding": "gzip"}, file.media_type)
    return Response(file.content, 200, headers, file.media_type)


async def _page(request: Request) -> Response:
    return _answer(request, "index.html")


async def _file(request: Request) -> Response:
    return _answer(request, request.path_params["name"])


ROUTES = [
    *(Route(path, _page, methods=["GET"]) for path in PAGES),
    Route("/static/{name:path}", _file, methods=["GET"]),
]
