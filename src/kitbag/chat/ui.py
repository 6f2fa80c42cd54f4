"""The side of the chat that a person sees: two kinds, a terminal and plain lines, behind one protocol.

`terminal` draws with prompt_toolkit, `plain` writes lines. The chat gives values (blocks, Live, Status, Form, Panel)
and gets deeds. A face cleans every text it draws; whoever uses it does not.
"""

from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple, Protocol

from kitbag.messages import Image
from kitbag.views.blocks import Block, StyledLine

# What a person does


class Submitted(NamedTuple):
    """A message, or a line that begins with `/` or `!`."""

    text: str
    images: tuple[Image, ...] = ()
    is_piped: bool = False
    """For all that was said before, also where it is a command: it comes from a file or a pipe."""
    typed: str = ""
    """What stood in the line, where a few words stood for a text that was pasted; else empty."""

    @property
    def display_text(self) -> str:
        return self.typed or self.text

    @property
    def shell_command(self) -> str:
        """What the person runs in their own shell: `!ls`. Only what is typed counts, and `!!` or several lines are
        words; then it is empty."""
        text = self.text.strip()
        is_one = text.startswith("!") and not text.startswith("!!") and "\n" not in text
        return text[1:].strip() if is_one and not self.is_piped and not self.images else ""


class KeyPressed(NamedTuple):
    """`cancel` Esc · `mode` Shift-Tab · `details` Ctrl-O · `unqueue` Up in an empty line while messages wait: the last
    of them comes back into the line."""

    name: Literal["cancel", "mode", "details", "unqueue"]


class ExitRequested(NamedTuple):
    """`now`: Ctrl-C twice, Ctrl-D in an empty line, the terminal has gone. Else the input is at its end: what was said
    is still done."""

    immediately: bool = True
    exit_code: int = 0
    """With which the program ends: 130 after Ctrl-C, 143 after SIGTERM, 129 when the terminal has gone."""


UserAction = Submitted | KeyPressed | ExitRequested


# What changes while it works


class RunningCall(NamedTuple):
    """A call that has no result yet."""

    name: str
    title: str
    progress: str = ""
    started_at: float = 0.0
    """time.monotonic()"""


class LiveState(NamedTuple):
    """Drawn above the line in which one types, and drawn over. All empty: nothing goes on."""

    activity: str = ""
    """`thinking`, `writing`, `waiting for the model`."""
    started_at: float = 0.0
    """When the work began: time.monotonic()"""
    tokens: int = 0
    """Said so far by the model, about."""
    tail: str = ""
    """Markdown that is not whole yet."""
    running: tuple[RunningCall, ...] = ()
    queued: tuple[str, ...] = ()
    """What the person said meanwhile."""
    todos: tuple[tuple[str, str], ...] = ()
    """(status, text), as TodoWrite has them: pending, in_progress, completed."""


class ChatStatus(NamedTuple):
    model: str = ""
    mode: str = ""
    persona: str = ""
    used: int = 0
    window: int = 0
    cost: float | None = 0.0
    """US dollars; None: not known."""
    tasks: int = 0
    """At work in the background."""
    questions: int = 0
    """Of background work, waiting for the person."""
    directory: str = ""


# What a person is asked


class FormOption(NamedTuple):
    key: str
    """What is typed to choose it: a letter or a number, unique in its form."""
    label: str
    note: str = ""


class Form(NamedTuple):
    """A question. `above` is shown first and stays in the scrollback."""

    prompt: str
    options: tuple[FormOption, ...] = ()
    above: tuple[Block, ...] = ()
    free_text_hint: str = ""
    """Not empty: words of one's own are an answer too; it says for what."""
    multiple: bool = False
    default: str = ""
    """The option on which the mark stands first. Without one nothing is chosen by Enter alone: what is allowed by
    accident can't be taken back."""
    initial_text: str = ""
    """What already stands in the line, where words are free."""
    secret: bool = False
    """What is typed is not shown, and not remembered."""
    cancel_effect: str = ""
    """What it means to leave it, behind the name of the key that does: `is no`. Empty: it is left, and that is all."""


class FormAnswer(NamedTuple):
    keys: tuple[str, ...] = ()
    text: str = ""


class PanelRow(NamedTuple):
    id: str
    line: StyledLine


class PanelAction(NamedTuple):
    key: str
    """`enter`, `space` or a letter."""
    label: str


class Panel(NamedTuple):
    """A list that lives: rows are asked for anew each second and after each action. Esc and q close it."""

    title: str
    rows: Callable[[], tuple[PanelRow, ...]]
    actions: tuple[PanelAction, ...]
    run_action: Callable[[str, str], Awaitable[None]]
    """(key, id of the row on which the mark stands). It may show blocks and ask forms."""
    empty_message: str = "nothing is here"


class ChatUI(Protocol):
    is_plain: bool
    """No marks that are drawn over, no panels; everything is said in words."""
    can_ask: bool
    """Somebody is there to answer; else every question is left."""
    hide: Callable[[str], str]
    """Takes secrets out of a text; set by the chat, used in the same place that cleans."""

    def show(self, *blocks: Block) -> None:
        """Kept, in this order, above what is drawn over."""
        ...

    def draw(self, live: LiveState, status: ChatStatus) -> None:
        """May be called on each piece of a reply; draws no more often than an eye can follow."""
        ...

    async def next(self) -> UserAction:
        """What the person does next. One caller at a time; what was done before it was called is not lost."""
        ...

    async def ask(self, form: Form) -> FormAnswer | None:
        """None: the person left the question (Esc, Ctrl-C, end of input). Questions wait for one another; what was
        typed before one appeared does not answer it. To be cancelled takes the question away."""
        ...

    async def open(self, panel: Panel) -> bool:
        """Until the person closes it. False: this face has no panels, and nothing was shown."""
        ...

    def insert(self, text: str) -> None:
        """Puts a text into the line in which one types, as after `unqueue`; where there is none, nothing."""
        ...

    def clear(self) -> None:
        """An empty screen, where there is one."""
        ...

    async def close(self) -> None:
        """The terminal is as it was. May be called twice."""
        ...


FlushEvents = Callable[[], Awaitable[None]]
"""Waits until the face has been given all that has happened so far: a question stands below what led to it."""


async def no_flush() -> None:
    """Where nothing else is shown."""
