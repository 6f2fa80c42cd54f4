"""`/doctor`: diagnoses configuration problems, worst first, and how to fix them. Reads files again, changes nothing."""

import asyncio
from typing import TYPE_CHECKING, Final

from kitbag.library.registry import Registry
from kitbag.runtime.doctor import DoctorReport, diagnose
from kitbag.text.human_format import shorten_path
from kitbag.views.blocks import Block, FieldsBlock, NoticeBlock, TableBlock, text_block
from kitbag.views.permissions import describe_protection

if TYPE_CHECKING:
    from kitbag.chat.chat import Chat
    from kitbag.runtime.agent import Agent

_MOST: Final = 100


async def doctor_command(chat: "Chat", arguments: str) -> None:
    del arguments
    found = await asyncio.to_thread(_examine, chat.agent)
    chat.show(*_blocks(found))


def _examine(agent: "Agent") -> DoctorReport:
    """Includes untrusted items of the workspace: they are only read."""
    library = agent.environment.library
    persona = library.persona.full_name if library.persona is not None else ""
    registry = Registry(library.places, extra=library.extra, team=library.team, persona=persona)
    return diagnose(registry, agent.environment.diagnostics)


def _blocks(found: DoctorReport) -> list[Block]:
    shown = found.diagnostics[:_MOST]
    blocks: list[Block] = [
        NoticeBlock(one.severity, f"{shorten_path(one.place)}: {one.problem} [{one.code}]", one.fix) for one in shown
    ]
    if len(found.diagnostics) > len(shown):
        blocks.append(text_block(f"and {len(found.diagnostics) - len(shown):,} more: kitbag doctor", "dim"))
    rows = tuple((root.kind, root.scope, str(root.items), shorten_path(root.path)) for root in found.roots)
    if rows:
        blocks.append(TableBlock(("KIND", "SCOPE", "ITEMS", "FOUND IN"), rows))
    protection = found.protection
    sandbox = (("sandbox", describe_protection(protection)), ("note", protection.problem), ("better", protection.fix))
    blocks.append(FieldsBlock(sandbox))
    blocks.append(
        text_block(f"{found.summarize()} · all good", "good") if found.is_healthy else text_block(found.summarize())
    )
    return blocks
