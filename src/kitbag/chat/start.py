"""`kitbag` without a request, at a face that is there: asks for trust, opens the agent, and person and model talk.

Used by the root command, which has drawn the face before this is imported.
"""

from collections.abc import Callable

from kitbag.chat.approver import ChatApprover
from kitbag.chat.asker import ChatAsker
from kitbag.chat.chat import Chat
from kitbag.chat.face import Face, Shown
from kitbag.chat.trusting import ask_for_trust
from kitbag.library.scopes import Places
from kitbag.runtime.agent import Agent
from kitbag.runtime.options import Options


async def talk(face: Face, places: Places, options: Options, tell: Callable[[Agent], None]) -> int:
    """The exit code. `tell` hears of every agent of the conversation. Raises KitbagError for what keeps it from
    beginning."""
    if not options.trust_workspace:
        trusted = await ask_for_trust(face, places)
        if trusted == "leave":
            return 0
        options = options._replace(trust_workspace=trusted == "once")
    chat: Chat | None = None

    async def shown() -> None:
        if chat is not None:
            await chat.shown()

    async with open_agent(face, options, shown) as agent:
        chat = Chat(face, agent, lambda wanted: open_agent(face, wanted, shown), tell)
        try:
            return await chat.converse()
        finally:
            await chat.agent.close()


def open_agent(face: Face, options: Options, shown: Shown) -> Agent:
    return Agent(options=options, approver=ChatApprover(face, shown), person=ChatAsker(face, shown))
