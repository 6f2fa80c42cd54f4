"""What is written down about a session besides its messages: how it began, what was changed about it since, its skills,
its sums, what was compacted.

Values only; session writes and reads them.
"""

from typing import Final, Literal, NamedTuple

from kitbag.messages import Usage
from kitbag.packing.session_skills import RequestedBy
from kitbag.record_fields import RecordFields


class SessionHeader(NamedTuple):
    """What a session began with, what was changed about that since, and what it is resumed with."""

    directory: str
    model: str
    mode: str
    agent: str = ""
    team: str = ""
    persona: str = ""
    forked_from: str = ""
    forked_at: int = 0
    """The last record of the other session that counts here too."""
    started: str = ""
    task: str = ""
    """Of an agent that another one started; empty: a person began it."""
    model_said: bool = False
    """The person chose the model, so no persona chooses another."""


HEADER_FIELDS: Final = RecordFields(
    SessionHeader, "directory", "model", "mode", "agent", "team", "persona", "forked_from", "forked_at", "started",
    "task", "model_said",
)  # fmt: skip
SWITCHABLE_FIELDS: Final = ("model", "mode", "team", "persona", "model_said")
"""What of a header can become another while the session goes on."""


class SessionSwitch(NamedTuple):
    """One change of those, and what the model is told of it with the next thing the person says."""

    what: Literal["persona", "model", "mode", "skills"]
    before: str
    after: str
    told: str = ""


class SkillUse(NamedTuple):
    """A skill that was delivered to this conversation; the fields of session_skills.Loaded, and where it stands."""

    name: str
    tokens: int
    at: str
    by: RequestedBy
    digest: str
    arguments: str
    text: str
    call_id: str = ""
    """The call whose result holds it."""


SWITCH_FIELDS: Final = RecordFields(SessionSwitch, "what", "before", "after", "told")
SKILL_USE_FIELDS: Final = RecordFields(SkillUse, "name", "tokens", "at", "by", "digest", "arguments", "text", "call_id")


class SessionTotals(NamedTuple):
    turns: int = 0
    usage: Usage = Usage()
    cost: float = 0.0
    unpriced: bool = False
    """Some of it has no known price, so `cost` is less than the truth."""


class Compaction(NamedTuple):
    """What takes the place of the older part of a conversation."""

    summary: str
    keep_from: int
    """The first record that stays."""
    keep_also: int = 0
    """One before it that stays too: what the person asked for last."""
    attached: tuple[tuple[str, str], ...] = ()
    """Skills that stand behind the summary, or a line on why one does not: (name, text)."""
    skills: tuple[SkillUse, ...] = ()
    """All that are loaded from here on."""
    before: int = 0
    after: int = 0
    """Tokens."""
    usage: Usage = Usage()
    cost: float | None = 0.0
    """Of the summary."""


COMPACTION_FIELDS: Final = RecordFields(
    Compaction, "summary", "keep_from", "keep_also", "attached", "skills", "before", "after", "usage", "cost"
)
