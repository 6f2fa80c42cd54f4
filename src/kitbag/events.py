"""What happens in a run, told to whoever watches: terminal, web page, MCP client, `--output-format stream-json`.

An event follows the commit of what it tells. Only the deltas are told before: they are pieces of a message that
is not whole yet. Each start has exactly one end.
"""

from typing import Any, Literal, NamedTuple

from kitbag.messages import Message, Usage

RunStatus = Literal["completed", "empty", "failed", "cancelled", "max-turns", "max-tokens", "max-cost"]


class RunStarted(NamedTuple):
    session: str
    model: str
    mode: str
    directory: str
    skills: int
    agents: int
    tools: tuple[str, ...]


class TextDelta(NamedTuple):
    text: str


class ThinkingDelta(NamedTuple):
    text: str


class Discarded(NamedTuple):
    """The deltas since the last message are void: the reply broke off and is asked for again."""

    reason: str


class MessageAdded(NamedTuple):
    message: Message


class ToolStarted(NamedTuple):
    call_id: str
    name: str
    arguments: dict[str, Any]
    title: str


class ToolFinished(NamedTuple):
    call_id: str
    name: str
    is_error: bool
    summary: str
    """For a person, one line."""
    seconds: float
    details: str = ""
    """For a person who wants to see more: a diff, a list, what a command printed."""
    result: str = ""
    """What the model gets, as far as it is text."""


class ToolProgress(NamedTuple):
    """What goes on in a call that takes long; not kept."""

    call_id: str
    text: str


class SkillLoaded(NamedTuple):
    name: str
    tokens: int
    by: Literal["model", "user", "preload"]
    rights: str = ""
    """What it allows and takes away until the person speaks again, in words."""


class SkillUnloaded(NamedTuple):
    name: str
    reason: str


class Switched(NamedTuple):
    """The person has made it another persona, model or mode since they spoke last, or it has lost skills that were
    loaded; told when the model hears of it."""

    what: Literal["persona", "model", "mode", "skills"]
    before: str
    after: str
    """Names; empty: none."""
    told: str = ""
    """What the model is told; nothing where another model goes on."""


class Compacted(NamedTuple):
    before: int
    after: int
    """Tokens."""


class Retrying(NamedTuple):
    attempt: int
    seconds: float
    reason: str


class Notice(NamedTuple):
    severity: Literal["error", "warning", "info"]
    text: str
    fix: str = ""


class TurnEnded(NamedTuple):
    turn: int
    usage: Usage
    cost: float | None
    """US dollars; None where the price is not known."""


class RunEnded(NamedTuple):
    status: RunStatus
    text: str
    """The last text of the model."""
    turns: int
    usage: Usage
    cost: float | None
    error: str = ""
    fix: str = ""


Event = (
    RunStarted
    | TextDelta
    | ThinkingDelta
    | Discarded
    | MessageAdded
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | SkillLoaded
    | SkillUnloaded
    | Switched
    | Compacted
    | Retrying
    | Notice
    | TurnEnded
    | RunEnded
)
