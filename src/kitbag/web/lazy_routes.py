"""Routes whose module is imported at the first request to them, so that the server starts quickly.

Used by application for views that need much more than the chat's first page.
"""

import asyncio
import importlib

from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send


class LazyRoutes:
    """An ASGI application."""

    def __init__(self, module: str) -> None:
        """`module` has ROUTES, relative to where this is mounted."""
        self._module = module
        self._router: Router | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._router is None:
            self._router = Router(await asyncio.to_thread(self.load))
        await self._router(scope, receive, send)

    def load(self) -> list[Route]:
        return importlib.import_module(self._module).ROUTES
