"""`/env`: shows the system prompt exactly as the next request sends it, with its ledger; `/env tools`, `/env KIND`.

Nothing is summarized or omitted: the texts, joined, are what the model gets.
"""

import json
import os
from typing import TYPE_CHECKING

import msgspec

from kitbag.agent.context_ledger import ContextSnapshot, list_context_pieces
from kitbag.chat.commands import CommandContext
from kitbag.errors import NotFoundError
from kitbag.models.provider import ToolSpec
from kitbag.text.human_format import did_you_mean, format_count, shorten_path
from kitbag.views.blocks import Block, TableBlock, VerbatimBlock, text_block

if TYPE_CHECKING:
    from kitbag.runtime.agent import Agent


class EnvSection(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    """As in the ledger; `tool` for a tool description."""
    source: str
    scope: str
    tokens: int
    bytes: int
    note: str
    """What was omitted, and why."""
    text: str


async def env_command(chat: CommandContext, arguments: str) -> None:
    prompt, tools = env_sections(chat.agent)
    query = arguments.strip()
    if not query:
        chat.show(_ledger(prompt, tools), *(_text_block(section) for section in prompt))
        chat.show(
            text_block(
                f"tool definitions come before it ({format_count(len(tools), 'tool')}); show them with /env tools",
                "dim",
            )
        )
        return
    if query.casefold() == "tools":
        guidance = [section for section in prompt if section.kind == "tools"]
        chat.show(_ledger(guidance, tools, each_tool=True), *(_text_block(section) for section in (*guidance, *tools)))
        return
    matching = [section for section in (*prompt, *tools) if _matches(section, query)]
    if not matching:
        known = dict.fromkeys(("tools", *(one.kind for one in prompt), *(one.source for one in tools)))
        raise NotFoundError(f"no prompt section named {query!r}", did_you_mean(query, known))
    chat.show(_ledger(matching, []), *(_text_block(section) for section in matching))


def env_sections(agent: "Agent") -> tuple[list[EnvSection], list[EnvSection]]:
    """Sections of the prompt and of the tools, in request order."""
    specs = agent.toolset.specs()
    counted = [piece for piece in list_context_pieces(ContextSnapshot(agent.session), specs) if not piece.turn]
    entries = agent.session.prompt
    prompt = [
        EnvSection(
            kind=piece.kind,
            source=piece.name,
            scope=str(entry.get("scope", "")),
            tokens=piece.tokens,
            bytes=piece.bytes,
            note=_omission_note(
                str(entry.get("status", "")), int(entry.get("tokens_cut", 0)), str(entry.get("reason", ""))
            ),
            text=str(entry["text"]),
        )
        for piece, entry in zip(counted, entries, strict=False)
    ]
    tool_pieces = counted[len(entries) :]
    tools = [
        EnvSection(
            kind=piece.kind,
            source=piece.name,
            scope=_origin(spec),
            tokens=piece.tokens,
            bytes=piece.bytes,
            note="",
            text=_tool_text(spec),
        )
        for piece, spec in zip(tool_pieces, specs, strict=True)
    ]
    return prompt, tools


def _omission_note(status: str, tokens: int, reason: str) -> str:
    if status == "kept":
        return ""
    return f"{status}: {reason} ({format_count(tokens, 'token')} omitted)" if reason else status


def _origin(spec: ToolSpec) -> str:
    return "server" if spec.name.startswith("mcp__") else "built-in"


def _tool_text(spec: ToolSpec) -> str:
    return f"{spec.description}\n\n{json.dumps(spec.schema, ensure_ascii=False, indent=2)}"


def _matches(section: EnvSection, query: str) -> bool:
    names = (section.kind, section.source, os.path.basename(section.source), shorten_path(section.source))
    return query.casefold() in (name.casefold() for name in names)


def _ledger(prompt: list[EnvSection], tools: list[EnvSection], *, each_tool: bool = False) -> Block:
    rows = [_row(section) for section in prompt]
    if each_tool:
        rows += [_row(section) for section in tools]
    elif tools:
        tokens, size = sum(one.tokens for one in tools), sum(one.bytes for one in tools)
        rows.append(
            (
                "tool",
                f"{tokens:,}",
                f"{size:,}",
                "",
                f"{format_count(len(tools), 'tool')}: names, descriptions, schemas",
            )
        )
    sections = (*prompt, *tools)
    total = sum(section.tokens for section in sections)
    size = sum(section.bytes for section in sections)
    foot = f"{format_count(total, 'token')} ({size:,} bytes) before the first message"
    return TableBlock(
        headers=("KIND", "TOKENS", "BYTES", "SCOPE", "SOURCE"),
        rows=tuple(rows),
        title="Start of each request",
        foot=foot,
    )


def _row(section: EnvSection) -> tuple[str, ...]:
    source = shorten_path(section.source)
    note = f" ({section.note})" if section.note else ""
    return section.kind, f"{section.tokens:,}", f"{section.bytes:,}", section.scope, f"{source}{note}"


def _text_block(section: EnvSection) -> Block:
    title = f"{section.kind} · {shorten_path(section.source)} · {format_count(section.tokens, 'token')}"
    return VerbatimBlock(section.text, title)
