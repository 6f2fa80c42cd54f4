"""`kitbag` without a request: chooses the face, asks for trust, opens the agent and lets person and model talk.

Used by the root command. What draws is imported here, when it is known that it will be used.
"""

import os
import sys
from collections.abc import Callable
from io import TextIOBase

from kitbag.chat.approver import ChatApprover
from kitbag.chat.asker import ChatAsker
from kitbag.chat.chat import Chat
from kitbag.chat.face import Face, Shown
from kitbag.chat.trusting import ask_for_trust
from kitbag.errors import UsageError
from kitbag.library.scopes import Places, find_places
from kitbag.runtime.agent import Agent
from kitbag.runtime.options import Options
from kitbag.settings import load_settings


async def run_chat(options: Options, *, plain: bool = False) -> int:
    """The exit code. Raises KitbagError for what keeps it from beginning."""
    if options.directory and not os.path.isdir(options.directory):
        raise UsageError(f"{options.directory} is no directory", "give one that exists")
    places = find_places(options.directory or None)
    chat: Chat | None = None
    face = make_face(places, lambda: chat.agent if chat is not None else None, plain=plain)
    try:
        if not options.trust_workspace:
            trusted = await ask_for_trust(face, places)
            if trusted == "leave":
                return 0
            options = options._replace(trust_workspace=trusted == "once")

        async def shown() -> None:
            if chat is not None:
                await chat.shown()

        async with open_agent(face, options, shown) as agent:
            chat = Chat(face, agent, lambda wanted: open_agent(face, wanted, shown))
            try:
                return await chat.converse()
            finally:
                await chat.agent.close()
    finally:
        await face.close()


def open_agent(face: Face, options: Options, shown: Shown) -> Agent:
    return Agent(options=options, approver=ChatApprover(face, shown), person=ChatAsker(face, shown))


def make_face(places: Places, agent_now: Callable[[], Agent | None], *, plain: bool) -> Face:
    """Plain where there is no terminal that could be drawn on, or where the person wants it so."""
    streams: tuple[object, ...] = (sys.stdin, sys.stdout)  # None where it is closed
    is_terminal = all(isinstance(one, TextIOBase) and one.isatty() for one in streams)
    wants = load_settings(places.kitbag_home, ()).get("chat.plain") == "on"
    if plain or wants or not is_terminal or os.environ.get("TERM", "dumb") == "dumb":
        from kitbag.chat.plain import Plain

        return Plain(sys.stdin, sys.stdout)
    from kitbag.chat.terminal_start import make_terminal

    return make_terminal(places, agent_now)
