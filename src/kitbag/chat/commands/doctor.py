"""`/doctor`: diagnoses configuration problems, worst first, and how to fix them. Reads files again, changes nothing."""

import asyncio
from typing import TYPE_CHECKING

from kitbag.chat.commands import CommandContext
from kitbag.library.registry import Registry
from kitbag.runtime.doctor import DoctorReport, diagnose
from kitbag.views.blocks import Block, diagnostic_block, text_block
from kitbag.views.doctor import group_diagnostics, root_table, sandbox_fields

if TYPE_CHECKING:
    from kitbag.runtime.agent import Agent


async def doctor_command(chat: CommandContext, arguments: str) -> None:
    del arguments
    findings = await asyncio.to_thread(_diagnose, chat.agent)
    chat.show(*_blocks(findings))


def _diagnose(agent: "Agent") -> DoctorReport:
    """Includes untrusted items of the workspace: they are only read."""
    library = agent.environment.library
    persona = library.persona.full_name if library.persona is not None else ""
    registry = Registry(library.places, extra=library.extra, team=library.team, persona=persona)
    return diagnose(registry, agent.environment.diagnostics)


def _blocks(findings: DoctorReport) -> list[Block]:
    blocks: list[Block] = []
    groups = group_diagnostics(findings.diagnostics)
    for group in groups:
        blocks += [diagnostic_block(diagnostic, with_code=True) for diagnostic in group.shown]
        if group.omitted:
            blocks.append(text_block(f"{group.omitted:,} more [{group.code}]", "dim"))
    if any(group.omitted for group in groups):
        blocks.append(text_block("list all with `kitbag doctor --details`", "dim"))
    if findings.roots:
        blocks.append(root_table(findings))
    blocks.append(sandbox_fields(findings))
    blocks.append(
        text_block(f"{findings.summarize()} · no problems", "good")
        if findings.is_healthy
        else text_block(findings.summarize())
    )
    return blocks
