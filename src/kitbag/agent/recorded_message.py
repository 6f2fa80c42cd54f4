"""A recorded message, and how the next request shows it: with a stub in place of each skill that is no longer loaded.

Used by session.
"""

from collections.abc import Collection, Mapping

import msgspec

from kitbag.messages import Message, Text, ToolResult


class RecordedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message and the skills in it, each as (part index, skill name)."""

    message: Message
    seq: int
    one_turn: tuple[tuple[int, str], ...] = ()
    """Shown until the next user message."""
    attached: tuple[tuple[int, str], ...] = ()
    """Shown until they are unloaded."""

    def as_sent(self, *, is_expired: bool, detached: Collection[str], unloaded: Mapping[str, str]) -> Message:
        """`is_expired`: a later user message exists. `detached`: unloaded skills that were attached to the summary.
        `unloaded`: skill name by the call that delivered it."""
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
