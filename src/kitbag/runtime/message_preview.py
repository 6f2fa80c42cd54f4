"""What would be sent now: the pieces that a message being typed would add to the next request, and what the ranking
does with each skill. Sends, runs and changes nothing.

Used by UIs for a running agent. The text of an invoked skill and of mentioned files is estimated from their files.
"""

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kitbag.agent.context_ledger import ContextSnapshot, list_context_pieces, tool_text
from kitbag.agent.model_config import ContextWindow
from kitbag.assembly.mention_syntax import find_mentions, list_targets
from kitbag.errors import KitbagError
from kitbag.library.registry import Registry
from kitbag.library.skill_files import read_skill_body
from kitbag.packing.routing_explanation import SkillExplanation, explain_routing
from kitbag.packing.suggestions import list_suggested
from kitbag.permissions.model import is_inside
from kitbag.text.tokens import estimate_tokens

if TYPE_CHECKING:
    from kitbag.runtime.agent import Agent

_COMMAND: Final = re.compile(r"/(\S+)")
_MAX_FILE_BYTES: Final = 480_000
"""A mention shows no more of a file."""
_BYTES_PER_TOKEN: Final = 4


class AddedPiece(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    """user, one-message, mentioned, suggestions or tool."""
    name: str
    tokens: int
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "tokens": self.tokens, "reason": self.reason}


class MessagePreview(msgspec.Struct, frozen=True, kw_only=True):
    tokens_before: int
    """Of the next request without the message."""
    window: int
    compacted_at: int
    added: tuple[AddedPiece, ...]
    skills: tuple[SkillExplanation, ...]
    """Best match first."""

    @property
    def tokens_added(self) -> int:
        return sum(piece.tokens for piece in self.added)

    def to_json(self) -> dict[str, Any]:
        return {
            "tokens_before": self.tokens_before,
            "tokens_added": self.tokens_added,
            "tokens": self.tokens_before + self.tokens_added,
            "window": self.window,
            "compacted_at": self.compacted_at,
            "added": [piece.to_json() for piece in self.added],
            "skills": [skill.to_json() for skill in self.skills],
        }


PreviewMessage = Callable[[str], MessagePreview]


def prepare_message_preview(agent: "Agent") -> Callable[[], PreviewMessage]:
    """Copies the state of the session. The first function counts it, in another thread; what that returns is called
    there for each change of the text. Prepare again after a turn."""
    carried, specs = ContextSnapshot(agent.session), agent.toolset.specs()
    library, info, toolset, messages = agent.environment.library, agent.chosen.info, agent.toolset, agent.user_messages
    workspace, directory = agent.context.workspace, agent.context.directory
    catalog = agent.system_blocks[0].text if agent.system_blocks else ""

    def count() -> PreviewMessage:
        pieces = list_context_pieces(carried, specs)
        before = sum(piece.tokens for piece in pieces)
        prefix = sum(piece.tokens for piece in pieces if not piece.turn)
        threshold = ContextWindow(size=info.window, max_output=info.max_output).compaction_threshold(prefix)
        whole = MessagePreview(tokens_before=before, window=info.window, compacted_at=threshold, added=(), skills=())
        return lambda text: preview(text.strip(), whole)

    def preview(text: str, whole: MessagePreview) -> MessagePreview:
        added: list[AddedPiece] = []
        skills: tuple[SkillExplanation, ...] = ()
        if text:
            reason = "you are typing it"
            added.append(AddedPiece(kind="user", name="", tokens=estimate_tokens(text), reason=reason))
            invoked = _find_invoked(library, text)
            added += invoked
            added += _find_mentioned(text, workspace.read_roots, directory)
            if block := messages.suggest(text, catalog, [one.name for one in invoked]):
                names = ", ".join(list_suggested(block))
                reason = "they match the message, and the catalog does not describe them"
                added.append(AddedPiece(kind="suggestions", name=names, tokens=estimate_tokens(block), reason=reason))
            for spec in toolset.list_described_for(text):
                tokens = estimate_tokens(tool_text(spec))
                added.append(AddedPiece(kind="tool", name=spec.name, tokens=tokens, reason="it matches the message"))
            skills = explain_routing(library, text, messages.routing_state(catalog)).skills
        return msgspec.structs.replace(whole, added=tuple(added), skills=skills)

    return count


def _find_invoked(library: Registry, text: str) -> list[AddedPiece]:
    command = _COMMAND.match(text)
    if command is None:
        return []
    try:
        skill = library.find_skill(command[1])
    except KitbagError:
        return []
    if not library.evaluate(skill).user:
        return []
    tokens = estimate_tokens(read_skill_body(skill).text)
    return [
        AddedPiece(kind="one-message", name=skill.full_name, tokens=tokens, reason="you invoke it for this message")
    ]


def _find_mentioned(text: str, roots: "tuple[str, ...]", directory: str) -> list[AddedPiece]:
    """Files of the workspace only: what else may be read is decided when the message is sent."""
    found: dict[str, AddedPiece] = {}
    for mention in find_mentions(text):
        for target in list_targets(mention):
            path = os.path.realpath(os.path.join(directory, os.path.expanduser(target.path)))
            if any(is_inside(path, root) for root in roots) and os.path.isfile(path):
                tokens = min(os.path.getsize(path), _MAX_FILE_BYTES) // _BYTES_PER_TOKEN
                piece = AddedPiece(kind="mentioned", name=target.path, tokens=tokens, reason="you mention it")
                found.setdefault(path, piece)
                break
    return list(found.values())
