"""Serves the web UI on loopback, with a token of this start.

Used by cli/web. The token is in the fragment of the URL, which a browser does not send, so it appears in no log, no
Referer and no other server's cookies; the page sends it as a bearer header.
"""

import asyncio
import contextlib
import os
import secrets
import threading
import webbrowser
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final

from kitbag.agent.shield import run_to_completion
from kitbag.library.scopes import Places
from kitbag.net.local_server import bind_socket, run_application
from kitbag.net.request_checks import RequestChecks
from kitbag.store import private_files
from kitbag.web.access_log import AccessLog
from kitbag.web.application import create_application
from kitbag.web.server_state import WebState

if TYPE_CHECKING:
    from kitbag.assembly.run_options import Options

_HOST: Final = "127.0.0.1"
_MAX_CONNECTIONS: Final = 1_000
_CLOSE_SECONDS: Final = 1.0
"""For the chats to end; the journal has everything that they would still write."""
_REDIRECT_SECONDS: Final = 60.0
"""How long the file that the browser is opened with exists."""


async def serve_web(
    places: Places, options: "Callable[[], Options]", port: int, announce: Callable[[str], None], *, opens: bool
) -> None:
    """Runs until cancelled. `announce` gets the URL once the server listens. Raises InvalidError for a port in use."""
    token = secrets.token_urlsafe(32)
    with bind_socket(_HOST, port) as listener:
        port = listener.getsockname()[1]
        hosts = frozenset((f"{_HOST}:{port}", f"localhost:{port}"))
        url = f"http://{_HOST}:{port}/#token={token}"
        state = WebState(places, options)
        application = create_application(state, RequestChecks(hosts, token), AccessLog(places.kitbag_home))
        announce(url)
        with _redirect_file(places.kitbag_home, port, url) if opens else contextlib.nullcontext() as path:
            if path:
                threading.Thread(target=webbrowser.open, args=(f"file://{path}",), daemon=True).start()
            serving = asyncio.ensure_future(run_application(application, listener, _MAX_CONNECTIONS))
            try:
                await asyncio.shield(serving)
            finally:
                await run_to_completion(_shut_down(state, serving))


async def _shut_down(state: WebState, serving: "asyncio.Future[None]") -> None:
    """Ends what keeps connections open first, so that the server need not wait for it."""
    state.streams.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await state.chats.close()
    serving.cancel()
    await asyncio.wait([serving])


@contextlib.contextmanager
def _redirect_file(kitbag_home: str, port: int, url: str) -> Generator[str, None, None]:
    """A private page that leads to `url`: as an argument of the browser, the token would be visible to other users."""
    name = f"web/open-{port}.html"
    page = (
        f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={url}"><title>Kitbag</title>'
    )
    private_files.write(kitbag_home, name, page.encode())
    path = os.path.join(kitbag_home, name)

    def remove() -> None:
        with contextlib.suppress(OSError):
            os.unlink(path)

    timer = asyncio.get_running_loop().call_later(_REDIRECT_SECONDS, remove)
    try:
        yield path
    finally:
        timer.cancel()
        remove()
