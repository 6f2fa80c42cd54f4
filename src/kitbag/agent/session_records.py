"""Records of a session besides its messages: header, switches, loaded skills, totals and compactions.

Values only; session writes and reads them.
"""

from typing import Final, Literal

import msgspec

from kitbag.agent.user_text import text_of_user
from kitbag.messages import Message, Usage
from kitbag.packing.session_skills import FoundBy, LoadedSkill, RequestedBy
from kitbag.record_fields import RecordFields

_MAX_ABOUT_CHARS: Final = 120


def about_message(message: Message) -> str:
    """The start of what the user wrote, for listings."""
    return " ".join(text_of_user(message).split())[:_MAX_ABOUT_CHARS]


class SessionHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is resumed with: its options at the start, updated by every switch."""

    directory: str
    model: str
    mode: str
    agent: str = ""
    team: str = ""
    persona: str = ""
    forked_from: str = ""
    forked_at: int = 0
    """The last record of the original session that belongs to the fork."""
    started: str = ""
    task: str = ""
    """The task, if another agent started the session; empty: a user did."""
    model_said: bool = False
    """The user chose the model, so a persona can't change it."""
    append: str = ""
    effort: str = ""
    only_tools: str = ""
    """One rule a line, as are `no_tools`; `extra` has one directory a line."""
    no_tools: str = ""
    extra: str = ""


HEADER_FIELDS: Final = RecordFields(
    SessionHeader, "directory", "model", "mode", "agent", "team", "persona", "forked_from", "forked_at", "started",
    "task", "model_said", "append", "effort", "only_tools", "no_tools", "extra",
)  # fmt: skip
OPTION_FIELDS: Final = {
    "append": "--append-system-prompt",
    "effort": "--effort",
    "only_tools": "--allowed-tools",
    "no_tools": "--disallowed-tools",
    "extra": "--dir",
}
"""Header fields, each with the option that sets it."""
SWITCHABLE_FIELDS: Final = ("model", "mode", "team", "persona", "model_said", *OPTION_FIELDS)
"""Header fields that can change while the session is open."""


class SessionSwitch(msgspec.Struct, frozen=True, kw_only=True):
    """One change of the header and the notice that the next user message carries to the model."""

    what: Literal["persona", "model", "mode", "skills", "options"]
    before: str
    after: str
    model_notice: str = ""


class SkillUse(msgspec.Struct, frozen=True, kw_only=True):
    """A skill delivered in this session: the fields of session_skills.LoadedSkill and the call that delivered it."""

    name: str
    tokens: int
    at: str
    by: RequestedBy
    digest: str
    arguments: str
    text: str
    call_id: str = ""
    """The call whose result contains the text."""
    found: FoundBy = ""

    def as_loaded(self) -> LoadedSkill:
        return LoadedSkill(
            name=self.name,
            tokens=self.tokens,
            loaded_at=self.at,
            loaded_by=self.by,
            digest=self.digest,
            arguments=self.arguments,
            text=self.text,
            found=self.found,
        )


def make_skill_use(loaded: LoadedSkill, call_id: str = "") -> SkillUse:
    return SkillUse(
        name=loaded.name,
        tokens=loaded.tokens,
        at=loaded.loaded_at,
        by=loaded.loaded_by,
        digest=loaded.digest,
        arguments=loaded.arguments,
        text=loaded.text,
        call_id=call_id,
        found=loaded.found,
    )


SWITCH_FIELDS: Final = RecordFields(SessionSwitch, "what", "before", "after", model_notice="told")
SKILL_USE_FIELDS: Final = RecordFields(
    SkillUse, "name", "tokens", "at", "by", "digest", "arguments", "text", "call_id", "found"
)


class SessionTotals(msgspec.Struct, frozen=True, kw_only=True):
    turns: int = 0
    usage: Usage = Usage()
    cost: float = 0.0
    unpriced: bool = False
    """Some usage has no known price, so `cost` is too low."""


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """Replaces the older part of a conversation."""

    summary: str
    keep_from: int
    """The first record that stays."""
    keep_also: int = 0
    """One earlier record that stays: the last user message."""
    attached: tuple[tuple[str, str], ...] = ()
    """(name, text): skills attached to the summary, or a line that says why one is not."""
    skills: tuple[SkillUse, ...] = ()
    """All skills that stay loaded."""
    before: int = 0
    after: int = 0
    """Tokens."""
    usage: Usage = Usage()
    cost: float | None = 0.0
    """Of the summary request."""
    instructions: str = ""
    """What to keep, in the user's words."""
    max_transcript: int = 0
    """Tokens of the messages that the summary request carried; 0 in records of earlier versions."""


COMPACTION_FIELDS: Final = RecordFields(
    Compaction, "summary", "keep_from", "keep_also", "attached", "skills", "before", "after", "usage", "cost",
    "instructions", "max_transcript",
)  # fmt: skip
