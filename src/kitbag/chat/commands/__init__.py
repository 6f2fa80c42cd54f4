"""The table of chat commands (`/name arguments`), with their help.

Used by chat, completion, unknown_commands and commands/help. Each command is a function in a module of this package;
the module is imported when the command is first used.
"""

import importlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kitbag.chat.ui import ChatUI
from kitbag.views.blocks import Block

if TYPE_CHECKING:
    from kitbag.assembly.run_options import Options
    from kitbag.chat.background import BackgroundMonitor
    from kitbag.runtime.agent import Agent


class CommandContext(Protocol):
    """What commands can do to the chat. Implemented by `Chat`."""

    @property
    def agent(self) -> "Agent": ...
    @property
    def ui(self) -> ChatUI: ...
    @property
    def background(self) -> "BackgroundMonitor": ...
    @property
    def is_working(self) -> bool:
        """Whether a foreground task is running."""
        ...

    def show(self, *blocks: Block) -> None: ...

    def refresh(self) -> None:
        """Redraws the status line after a change."""
        ...

    def reset_usage(self) -> None:
        """Estimates the used tokens again, until the provider counts them."""
        ...

    def submit(self, text: str) -> None:
        """Handles a text as if the user had typed it."""
        ...

    async def cancel(self) -> bool:
        """Cancels the foreground task and waits until it ends. False: nothing was running."""
        ...

    def request_exit(self) -> None: ...

    async def open_session(self, options: "Options") -> None:
        """Replaces the current session with a new one, or with `options.resume`. Raises KitbagError and then keeps the
        current session."""
        ...

    async def run_activity(self, activity: str, work: Coroutine[Any, Any, None]) -> None:
        """Awaits `work` with a spinner and the elapsed time; Esc cancels it."""
        ...


CommandFunction = Callable[[CommandContext, str], Awaitable[None]]
"""Takes (chat, arguments). Raises KitbagError for user errors, which the chat shows."""


class ChatCommand(NamedTuple):
    name: str
    arguments: str
    """As help shows them, such as `[NAME]`; empty: none."""
    help: str
    module: str
    """The function is `kitbag.chat.commands.<module>.<name>_command`."""
    while_working: bool = True
    """Runs beside the foreground task; otherwise it is queued like a message."""

    def load(self) -> CommandFunction:
        module = importlib.import_module(f"kitbag.chat.commands.{self.module}")
        return getattr(module, f"{self.name}_command")


COMMANDS = {
    command.name: command
    for command in (
        ChatCommand("help", "[NAME]", "What can be typed here.", "help"),
        ChatCommand(
            "persona",
            "[[TEAM/]NAME|none] [--preview]",
            "Who you are here: other skills, agents and words.",
            "persona",
            False,
        ),
        ChatCommand(
            "skills",
            "[NAME|use|unload|on|name-only|user-only|off NAME]",
            "Skills, their cost, and why each is described or not.",
            "skills",
        ),
        ChatCommand("agents", "[NAME|on|off NAME]", "Agents that can be given work.", "agents"),
        ChatCommand("model", "[NAME]", "Which model answers.", "model", False),
        ChatCommand(
            "mode", "[NAME]", "What it may do without asking: plan, default, acceptEdits, autonomous, locked.", "mode"
        ),
        ChatCommand("context", "", "What fills the window.", "context"),
        ChatCommand("env", "[tools|KIND]", "The exact prompt, with its ledger.", "env"),
        ChatCommand("tasks", "[show|stop|resume|answer ID]", "Background work: read, answer, stop, resume.", "tasks"),
        ChatCommand("stop", "[ID|all]", "Stop what works in front, or a task.", "tasks"),
        ChatCommand("resume", "[ID|last]", "Go on with an earlier conversation.", "sessions", False),
        ChatCommand("clear", "", "Begin a new conversation.", "sessions", False),
        ChatCommand("compact", "[WHAT TO KEEP]", "Make the conversation shorter.", "sessions", False),
        ChatCommand("export", "[FILE]", "Write the conversation to a file, as Markdown or JSON.", "export"),
        ChatCommand("permissions", "[test TOOL ARGUMENT]", "The rules, and what one of them decides.", "permissions"),
        ChatCommand("undo", "[N|redo]", "Take back what the last request did to your files.", "undo", False),
        ChatCommand("doctor", "", "What is wrong with your files, and how to fix it.", "doctor"),
        ChatCommand("reload", "", "Read skills, agents, settings and memory anew.", "reload", False),
        ChatCommand("exit", "", "Leave. Background work goes on.", "help"),
    )
}
