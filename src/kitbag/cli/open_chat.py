"""From the options of the root command to the chat: first what is seen, then what is needed to answer."""

import asyncio
import gc
import importlib
from typing import TYPE_CHECKING, Any

from kitbag.chat.faces import draw_first, make_face
from kitbag.cli.request_options import check_options, options_of
from kitbag.library.scopes import find_places

if TYPE_CHECKING:
    from kitbag.runtime.agent import Agent


def open_chat(options: dict[str, Any]) -> int:
    """The exit code. Raises KitbagError for what keeps it from beginning."""
    check_options(options)
    # The start makes no garbage worth looking for, and a conversation may be long.
    gc.freeze()
    gc.enable()
    return asyncio.run(_talk(options))


async def _talk(options: dict[str, Any]) -> int:
    places = find_places(options["cwd"] or None)
    agents: list[Agent] = []
    face = make_face(places, lambda: agents[-1] if agents else None, plain=options["plain"])
    try:
        await draw_first(face, places.cwd)
        # In a thread, so that what is typed meanwhile is seen.
        start = await asyncio.to_thread(importlib.import_module, "kitbag.chat.start")
        return await start.talk(face, places, options_of(options), agents.append)
    finally:
        await face.close()
