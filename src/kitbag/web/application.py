"""The ASGI application: the routes of all views behind the guard.

Used by serve and by tests. A view is a module `*_routes` with its ROUTES.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import cast

from starlette.applications import Starlette
from starlette.routing import Mount

from kitbag.net.local_server import Application
from kitbag.net.request_checks import RequestChecks
from kitbag.web import chat_routes, context_routes, session_routes, static_files, stream_routes
from kitbag.web.access_log import AccessLog
from kitbag.web.guard import WebGuard
from kitbag.web.lazy_routes import LazyRoutes
from kitbag.web.server_state import WebState

ROUTES = [
    *static_files.ROUTES,
    *stream_routes.ROUTES,
    *chat_routes.ROUTES,
    *context_routes.ROUTES,
    *session_routes.ROUTES,
    Mount("/api/tasks", LazyRoutes("kitbag.web.task_routes")),
    Mount("/api/library", LazyRoutes("kitbag.web.library_routes")),
    Mount("/api/pack", LazyRoutes("kitbag.web.pack_routes")),
]


def create_application(state: WebState, checks: RequestChecks, log: AccessLog) -> Application:
    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
        closing = asyncio.create_task(state.chats.close_idle())
        try:
            yield
        finally:
            closing.cancel()
            state.close()
            log.close()

    inner = Starlette(routes=ROUTES, lifespan=lifespan)
    inner.state.kitbag = state
    return WebGuard(cast("Application", inner), checks, log)
