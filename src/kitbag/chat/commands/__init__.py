"""The table of chat commands (`/name arguments`), with their help.

Used by chat, completion, unknown_commands and commands/help. Each command is a function in a module of this package;
the module is imported when the command is first used.
"""

import importlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

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


class ChatCommand(msgspec.Struct, frozen=True, kw_only=True):
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
        ChatCommand(name="help", arguments="[NAME]", help="Show commands and keys", module="help"),
        ChatCommand(
            name="persona",
            arguments="[[TEAM/]NAME|none] [--preview]",
            help="Switch persona (skills, agents and instructions)",
            module="persona",
            while_working=False,
        ),
        ChatCommand(
            name="skills",
            arguments="[NAME|use|unload|on|name-only|user-only|off NAME]",
            help="List skills with their token cost; use, unload, enable or disable them",
            module="skills",
        ),
        ChatCommand(
            name="agents", arguments="[NAME|on|off NAME]", help="List agents; enable or disable them", module="agents"
        ),
        ChatCommand(
            name="model",
            arguments="[NAME [EFFORT]]",
            help="Choose a model and its reasoning effort",
            module="model",
            while_working=False,
        ),
        ChatCommand(
            name="mode",
            arguments="[NAME]",
            help="Choose a permission mode: plan, default, acceptEdits, autonomous, locked",
            module="mode",
        ),
        ChatCommand(name="context", arguments="", help="Show context window usage", module="context"),
        ChatCommand(name="cost", arguments="", help="Show the tokens and the cost of the session", module="cost"),
        ChatCommand(
            name="env",
            arguments="[tools|KIND]",
            help="Show the system prompt exactly as sent, with the tokens of each section",
            module="env",
        ),
        ChatCommand(
            name="tasks",
            arguments="[show|send|stop|resume|answer ID]",
            help="List background tasks; show, steer, answer, stop or resume them",
            module="tasks",
        ),
        ChatCommand(
            name="stop",
            arguments="[ID|all]",
            help="Interrupt the agent, or stop a background task",
            module="tasks",
        ),
        ChatCommand(
            name="resume",
            arguments="[ID|last]",
            help="Resume an earlier session",
            module="sessions",
            while_working=False,
        ),
        ChatCommand(name="clear", arguments="", help="Start a new session", module="sessions", while_working=False),
        ChatCommand(
            name="compact",
            arguments="[WHAT TO KEEP]",
            help="Compact the session to free up context",
            module="sessions",
            while_working=False,
        ),
        ChatCommand(
            name="export",
            arguments="[FILE]",
            help="Export the session to a Markdown or JSON file",
            module="export",
        ),
        ChatCommand(name="copy", arguments="", help="Copy the last reply to the clipboard", module="copy"),
        ChatCommand(
            name="init",
            arguments="[WHAT ELSE TO COVER]",
            help="Let the model write AGENTS.md for this project",
            module="init",
            while_working=False,
        ),
        ChatCommand(name="memory", arguments="", help="List memory files with their tokens", module="memory"),
        ChatCommand(name="config", arguments="[KEY [VALUE]]", help="Show settings; change your own", module="config"),
        ChatCommand(name="mcp", arguments="", help="List MCP servers with their state and tools", module="mcp"),
        ChatCommand(
            name="permissions",
            arguments="[test TOOL ARGUMENT]",
            help="Show permission rules; test what they decide",
            module="permissions",
        ),
        ChatCommand(
            name="undo",
            arguments="[N|redo]",
            help="Undo or redo the file changes of a message",
            module="undo",
            while_working=False,
        ),
        ChatCommand(
            name="rewind",
            arguments="[N|undo]",
            help="Restore the conversation, the files or both to before a message",
            module="rewind",
            while_working=False,
        ),
        ChatCommand(name="doctor", arguments="", help="Diagnose configuration problems", module="doctor"),
        ChatCommand(
            name="reload",
            arguments="",
            help="Reload skills, agents, settings and memory",
            module="reload",
            while_working=False,
        ),
        ChatCommand(name="exit", arguments="", help="Exit; background tasks keep running", module="help"),
    )
}
