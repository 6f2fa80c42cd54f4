"""Events of a run, for every subscriber: terminal, web page, MCP client, `--output-format stream-json`.

An event is emitted after the change it reports is committed. Only deltas come earlier: they are parts of a message
that is still incomplete. Every start event has exactly one end event.
"""

from typing import Any, Literal

import msgspec

from kitbag.messages import Message, Usage

RunStatus = Literal["completed", "empty", "failed", "cancelled", "max-turns", "over-budget"]


class RunStarted(msgspec.Struct, frozen=True, kw_only=True):
    session: str
    model: str
    mode: str
    directory: str
    skills: int
    agents: int
    tools: tuple[str, ...]


class TextDelta(msgspec.Struct, frozen=True):
    text: str


class ThinkingDelta(msgspec.Struct, frozen=True):
    text: str


class Discarded(msgspec.Struct, frozen=True):
    """Drop the deltas since the last message: the reply broke off and is requested again."""

    reason: str


class MessageAdded(msgspec.Struct, frozen=True):
    message: Message


class MessageDelivered(msgspec.Struct, frozen=True, kw_only=True):
    """A message that waited in the inbox is part of the conversation now; the next request carries it."""

    id: int
    """As in the inbox."""
    text: str
    images: int = 0


class ToolStarted(msgspec.Struct, frozen=True, kw_only=True):
    call_id: str
    name: str
    arguments: dict[str, Any]
    title: str


class ToolFinished(msgspec.Struct, frozen=True, kw_only=True):
    call_id: str
    name: str
    is_error: bool
    summary: str
    """One line for the user."""
    seconds: float
    details: str = ""
    """More detail for the user: a diff, a list, the output of a command."""
    result: str = ""
    """What the model receives, as far as it is text."""


class ToolProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a long-running call; not stored."""

    call_id: str
    text: str


class SkillLoaded(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    tokens: int
    by: Literal["model", "user", "preload"]
    rights: str = ""
    """Describes what it allows and denies until the user's next message."""


class SkillUnloaded(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    reason: str


class Switched(msgspec.Struct, frozen=True, kw_only=True):
    """The user switched the persona, model, mode or options since their last message, or loaded skills were lost;
    emitted when the model is notified."""

    what: Literal["persona", "model", "mode", "skills", "options"]
    before: str
    after: str
    """Names; empty means none."""
    model_notice: str = ""
    """The notice for the model; empty if another model continues."""


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    before: int
    after: int
    """In tokens."""


class Retrying(msgspec.Struct, frozen=True, kw_only=True):
    attempt: int
    seconds: float
    reason: str


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """Still waiting for the model; emitted from time to time, not stored."""

    provider: str
    seconds: float
    """Since the last output."""
    retry_in: float = 0.0
    """Seconds until the next attempt; 0: a request is running."""
    reason: str = ""
    """Why the request is not sent yet, if Kitbag holds it back."""

    def line(self) -> str:
        if self.reason:
            return f"{self.reason}; waiting {self.retry_in:.0f} s"
        if self.retry_in:
            return f"retrying {self.provider} in {self.retry_in:.0f} s"
        return f"no output from {self.provider} for {self.seconds:.0f} s; still waiting"


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    severity: Literal["error", "warning", "info"]
    text: str
    fix: str = ""

    def line(self) -> str:
        """The text and the fix, where only one line is shown or stored."""
        return f"{self.text}; {self.fix}" if self.fix else self.text


class TurnEnded(msgspec.Struct, frozen=True, kw_only=True):
    turn: int
    usage: Usage
    cost: float | None
    """US dollars; None if the price is unknown."""
    model: str = ""
    """The one that replied, as the provider reports it."""
    stop: str = ""
    """Why the reply ended (models/provider.StopReason)."""


class RunEnded(msgspec.Struct, frozen=True, kw_only=True):
    status: RunStatus
    text: str
    """The model's last text."""
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
    | MessageDelivered
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | SkillLoaded
    | SkillUnloaded
    | Switched
    | Compacted
    | Retrying
    | Waiting
    | Notice
    | TurnEnded
    | RunEnded
)
