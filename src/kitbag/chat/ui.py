"""The interface between the chat and what draws it: one protocol, `ChatUI`, and the values that pass through it.

Implemented by terminal/terminal_ui (prompt_toolkit), plain/plain_ui (lines of text) and web/web_ui (a browser). The
chat passes blocks, LiveState, ChatStatus, Panel and forms (dialogs/form), and gets user actions back. A UI sanitizes
every text it draws; callers do not.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol

import msgspec

from kitbag.dialogs.form import Form, FormAnswer
from kitbag.messages import Image
from kitbag.views.blocks import Block, StyledLine

# User actions


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """A message, a `/command`, or a `!command` for the user's shell."""

    text: str
    images: tuple[Image, ...] = ()
    is_piped: bool = False
    """Read from a file or a pipe. It waits for everything submitted before it, even if it is a command."""
    typed: str = ""
    """The input line as typed, if it contained placeholders for pasted text; otherwise empty."""
    waits: bool = False
    """Submitted with Tab: waits for the end of the current work instead of steering it."""

    @property
    def display_text(self) -> str:
        return self.typed or self.text

    @property
    def shell_command(self) -> str:
        """The `ls` of `!ls`; empty if this is no shell command. Piped input, `!!` and multi-line input are messages."""
        text = self.text.strip()
        is_command = text.startswith("!") and not text.startswith("!!") and "\n" not in text
        return text[1:].strip() if is_command and not self.is_piped and not self.images else ""


class KeyPressed(msgspec.Struct, frozen=True):
    """`cancel`: Esc. `mode`: Shift-Tab. `details`: Ctrl-O. `background`: Ctrl-B while the agent works. `unqueue`: Up in
    an empty input line while messages are pending; the last one returns to the input line."""

    name: Literal["cancel", "mode", "details", "background", "unqueue"]


class ExitRequested(msgspec.Struct, frozen=True, kw_only=True):
    """`immediately`: Ctrl-C twice, Ctrl-D in an empty input line, or a closed terminal. Otherwise the input ended, and
    queued messages are still processed."""

    immediately: bool = True
    exit_code: int = 0
    """Exit code of the program: 130 after Ctrl-C, 143 after SIGTERM, 129 after the terminal closed."""


UserAction = Submitted | KeyPressed | ExitRequested


# What the UI redraws


class RunningCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call without a result yet."""

    name: str
    title: str
    progress: str = ""
    started_at: float = 0.0
    """time.monotonic()"""


class LiveState(msgspec.Struct, frozen=True, kw_only=True):
    """State of the current run, redrawn above the input line. All fields empty: idle."""

    activity: str = ""
    """`thinking`, `writing`, `waiting for the model`."""
    started_at: float = 0.0
    """Start of the run, time.monotonic()."""
    tokens: int = 0
    """Approximate number of tokens generated so far."""
    tail: str = ""
    """Markdown of the reply that is not complete yet."""
    running: tuple[RunningCall, ...] = ()
    steering: tuple[str, ...] = ()
    """Messages that the model gets after the running tool calls."""
    queued: tuple[str, ...] = ()
    """Messages that wait for the end of the run."""
    todos: tuple[tuple[str, str], ...] = ()
    """(status, text) pairs from TodoWrite; status is pending, in_progress or completed."""


class ChatStatus(msgspec.Struct, frozen=True, kw_only=True):
    model: str = ""
    mode: str = ""
    persona: str = ""
    used: int = 0
    window: int = 0
    cost: float | None = 0.0
    """US dollars; None: unknown."""
    tasks: int = 0
    """Running background tasks."""
    questions: int = 0
    """Questions of background tasks that wait for the user."""
    directory: str = ""


# Panels


class PanelRow(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    line: StyledLine


class PanelAction(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    """`enter`, `space` or a letter."""
    label: str


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """A live list. Rows are requested every second and after each action; Esc and q close it."""

    title: str
    rows: Callable[[], tuple[PanelRow, ...]]
    actions: tuple[PanelAction, ...]
    run_action: Callable[[str, str], Awaitable[None]]
    """Takes (key, id of the selected row). May show blocks and ask forms."""
    empty_message: str = "nothing to show"


class ChatUI(Protocol):
    is_plain: bool
    """Writes lines of text only: redraws nothing and has no panels."""
    keeps_everything: bool
    """Holds the whole session and folds by itself: gets all earlier exchanges, and details in full."""
    can_ask: bool
    """A user can answer; otherwise every question is canceled."""
    keys: tuple[tuple[str, str], ...]
    """What each key does, for /help."""
    redact: Callable[[str], str]
    """Redacts secrets in a text. Set by the chat; applied where text is sanitized."""

    def show(self, *blocks: Block) -> None:
        """Appends blocks to the scrollback."""
        ...

    def hint(self, text: str) -> None:
        """Shows a text for a moment; a UI that redraws keeps no line of it."""
        ...

    def unfold(self, expanded: Sequence[Block]) -> None:
        """Shows the thinking and the tool results on the screen in full; `expanded`: those that contain more than what
        was shown. A UI that redraws nothing shows `expanded`."""
        ...

    def fold(self) -> None:
        """Collapses again what is still on the screen."""
        ...

    def draw(self, live: LiveState, status: ChatStatus) -> None:
        """Redraws the live state. Safe to call on every chunk of a reply: the UI limits the frame rate."""
        ...

    async def next(self) -> UserAction:
        """Waits for the next user action. One caller at a time; actions before the call are queued."""
        ...

    async def ask(self, form: Form) -> FormAnswer | None:
        """Returns None if the user cancels (Esc, Ctrl-C, end of input). Forms queue up. Keys typed before a form
        appeared do not answer it. Canceling the coroutine removes the form."""
        ...

    async def open(self, panel: Panel) -> bool:
        """Returns when the user closes the panel. False: this UI has no panels and showed nothing."""
        ...

    def insert(self, *submissions: Submitted) -> None:
        """Puts them into the input line with their pasted text and images, as after `unqueue`. No effect in a UI
        without an input line."""
        ...

    async def copy(self, text: str) -> bool:
        """Copies a text to the clipboard. False: there is none."""
        ...

    def clear(self) -> None:
        """Clears the screen, if there is one."""
        ...

    async def close(self) -> None:
        """Restores the terminal. Idempotent."""
        ...
