"""`/doctor`: what is wrong with the files, the worst first, and how to fix it. Reads the disk anew, changes nothing."""

import asyncio
from typing import TYPE_CHECKING, Final

from kitbag.library.registry import Registry
from kitbag.runtime.doctor import Findings, examine
from kitbag.text.human_format import short_path
from kitbag.views.blocks import Block, Fields, Remark, Table, words
from kitbag.views.permissions import protection_in_words

if TYPE_CHECKING:
    from kitbag.chat.chat import Chat
    from kitbag.runtime.agent import Agent

_MOST: Final = 100


async def doctor_command(chat: "Chat", arguments: str) -> None:
    del arguments
    found = await asyncio.to_thread(_examine, chat.agent)
    chat.show(*_blocks(found))


def _examine(agent: "Agent") -> Findings:
    """With what a workspace brings that is not trusted: it is only read."""
    library = agent.ground.library
    persona = library.persona.full_name if library.persona is not None else ""
    registry = Registry(library.places, extra=library.extra, team=library.team, persona=persona)
    return examine(registry, agent.ground.diagnostics)


def _blocks(found: Findings) -> list[Block]:
    shown = found.diagnostics[:_MOST]
    blocks: list[Block] = [
        Remark(one.severity, f"{short_path(one.place)}: {one.problem} [{one.code}]", one.fix) for one in shown
    ]
    if len(found.diagnostics) > len(shown):
        blocks.append(words(f"and {len(found.diagnostics) - len(shown):,} more: kitbag doctor", "dim"))
    rows = tuple((root.kind, root.scope, str(root.items), short_path(root.path)) for root in found.roots)
    if rows:
        blocks.append(Table(("KIND", "SCOPE", "ITEMS", "FOUND IN"), rows))
    protection = found.protection
    sandbox = (("sandbox", protection_in_words(protection)), ("note", protection.problem), ("better", protection.fix))
    blocks.append(Fields(sandbox))
    blocks.append(words(f"{found.in_words()} · all good", "good") if found.is_good else words(found.in_words()))
    return blocks
