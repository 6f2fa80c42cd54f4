"""One message of a conversation as it was recorded, and as the next request shows it: with a line where a skill was
that is not there any more.

Used by session.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from kitbag.messages import Message, Text, ToolResult


class RecordedMessage(NamedTuple):
    """A message, and which skills stand in it: (part, name)."""

    message: Message
    seq: int
    one_turn: tuple[tuple[int, str], ...] = ()
    """Until the person speaks again."""
    attached: tuple[tuple[int, str], ...] = ()
    """Until they are unloaded."""

    def as_sent(self, *, is_expired: bool, detached: Collection[str], unloaded: Mapping[str, str]) -> Message:
        """`is_over`: the person has spoken since. `detached`: skills that stood behind a summary and are unloaded;
        `unloaded`: the call that delivered a skill, and which."""
        parts = list(self.message.parts)
        for index, name in self.one_turn:
            if is_expired and index < len(parts):
                parts[index] = Text(f"[The skill {name} was shown here for one turn.]")
        for index, name in self.attached:
            if name in detached and index < len(parts):
                parts[index] = _unloaded_stub(name)
        for index, part in enumerate(parts):
            if isinstance(part, ToolResult) and part.call_id in unloaded:
                parts[index] = part._replace(content=(_unloaded_stub(unloaded[part.call_id]),))
        return Message(self.message.role, tuple(parts))


def _unloaded_stub(skill: str) -> Text:
    return Text(f"[The skill {skill} was here and has been unloaded.]")
