"""Starts an interactive chat: asks for workspace trust, opens the agent, runs the chat loop.

Used by cli/open_chat, which draws the UI before importing this module.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from kitbag.assembly.run_options import Options
from kitbag.chat.chat import Chat
from kitbag.chat.dialog import ChatDialog, FlushEvents
from kitbag.chat.trust_prompt import ask_for_trust
from kitbag.chat.ui import ChatStatus, ChatUI, ExitRequested, KeyPressed, LiveState, Submitted, UserAction
from kitbag.dialogs.approver import ApprovalStyle, DialogApprover
from kitbag.dialogs.asker import DialogAsker
from kitbag.library.scopes import Places
from kitbag.runtime.agent import Agent

_IDLE_SECONDS: Final = 0.5
"""After the prompt has appeared."""
_MAX_EARLY_ACTIONS: Final = 100
"""Lines of piped input read before the chat starts."""


async def run_chat(
    ui: ChatUI,
    places: Places,
    options: Options,
    on_agent: Callable[[Agent], None],
    messages: Sequence[str] = (),
) -> int:
    """Returns the exit code. `on_agent` is called with every agent the chat uses. `messages` are from the command line.
    Raises KitbagError if the chat can't start."""
    if not options.trust_workspace:
        answer = await ask_for_trust(ui, places)
        if answer.choice == "leave":
            return 0
        options = msgspec.structs.replace(options, trust_workspace=answer.fingerprint or False)
    chat: Chat | None = None

    async def flush() -> None:
        if chat is not None:
            await chat.flush()

    def interrupt() -> None:
        if chat is not None:
            chat.interrupt()

    ui.draw(LiveState(activity="starting", started_at=time.monotonic()), ChatStatus(directory=places.cwd))
    agent = make_agent(ui, options, flush, interrupt)
    try:
        early_actions = await _open_agent(agent, ui)
        if isinstance(early_actions, ExitRequested):
            return early_actions.exit_code
        agent.import_ahead(_IDLE_SECONDS)
        chat = Chat(
            ui,
            agent,
            lambda wanted: make_agent(ui, wanted, flush, interrupt),
            on_agent,
            [*map(_first_message, messages), *early_actions],
        )
        return await chat.run()
    finally:
        if chat is not None:
            await chat.agent.close()
        await agent.close()


def _first_message(text: str) -> Submitted:
    """A script may have built it from text of others, so it starts no command of the user's shell."""
    return Submitted(text=text, is_piped=text.lstrip().startswith("!"))


async def _open_agent(agent: Agent, ui: ChatUI) -> list[UserAction] | ExitRequested:
    """Opens the agent and returns the user's actions meanwhile: MCP servers may be slow to start. ExitRequested if the
    user exits first."""
    early_actions: list[UserAction] = []
    opening = asyncio.ensure_future(agent.__aenter__())
    try:
        while not opening.done() and len(early_actions) < _MAX_EARLY_ACTIONS:
            action = await _next_action_before(opening, ui)
            if isinstance(action, ExitRequested) and action.immediately:
                return action
            if action is not None and action != KeyPressed("cancel"):  # nothing to cancel yet
                early_actions.append(action)
        await opening
    finally:
        opening.cancel()
        await asyncio.wait([opening])
    return early_actions


async def _next_action_before(opening: "asyncio.Future[Agent]", ui: ChatUI) -> UserAction | None:
    next_action = asyncio.ensure_future(ui.next())
    try:
        await asyncio.wait((opening, next_action), return_when=asyncio.FIRST_COMPLETED)
        return next_action.result() if next_action.done() else None
    finally:
        next_action.cancel()


def make_agent(ui: ChatUI, options: Options, flush: FlushEvents, interrupt: Callable[[], None]) -> Agent:
    """`interrupt` cancels the turn."""
    dialog = ChatDialog(ui, flush)
    approver = DialogApprover(dialog, ApprovalStyle(leaving_interrupts=True), interrupt)
    return Agent(options=options, approver=approver, person=DialogAsker(dialog))
