"""`/agents`: lists subagents with their mode, tools and token cost; `/agents NAME` shows one.

Opens a panel to turn agents on and off; a UI without panels shows a table, and `/agents off NAME` does the same.
"""

import asyncio
from typing import Final, NamedTuple

import msgspec

from kitbag.chat.commands import CommandContext
from kitbag.chat.commands.switching import switch_item
from kitbag.chat.panel_columns import PanelCells, align_rows
from kitbag.chat.ui import Panel, PanelAction, PanelRow
from kitbag.errors import KitbagError, UsageError
from kitbag.library.agents import AgentFile
from kitbag.library.registry import Registry
from kitbag.library.visibility import Verdict
from kitbag.packing.catalog import catalog_name, parse_catalog_lines
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.text.human_format import format_count, shorten_home
from kitbag.text.tokens import estimate_tokens
from kitbag.views.agent_card import agent_fields, format_tool_access, read_agent_body
from kitbag.views.blocks import Block, FieldsBlock, NoticeBlock, Span, TableBlock, diagnostic_block, text_block

_ACTIONS: Final = (PanelAction(key="enter", label="show"), PanelAction(key="space", label="enable or disable"))
_TITLE: Final = "Agents: mode, tokens (in prompt + at start), description"
_UNTRUSTED: Final = "omitted: the workspace is not trusted"


class _AgentRow(msgspec.Struct, frozen=True, kw_only=True):
    agent: AgentFile
    verdict: Verdict
    listed_tokens: int
    body_tokens: int


class _AgentListing(NamedTuple):
    listed: list[_AgentRow]
    untrusted: list[str]
    hidden: int


async def agents_command(chat: CommandContext, arguments: str) -> None:
    verb, _, name = arguments.strip().partition(" ")
    name = name.strip()
    if verb in ("on", "off"):
        if not name:
            raise UsageError(f"/agents {verb} needs an agent name", f"type /agents {verb} NAME")
        chat.show(*await _switch(chat, name, verb))
    elif verb in ("", "all"):
        await _show_list(chat, show_all=verb == "all")
    else:
        await _show_agent(chat, name if verb == "show" and name else arguments.strip())


async def _show_list(chat: CommandContext, *, show_all: bool) -> None:
    listing = [await _load_list(chat, show_all=show_all)]
    if not listing[0].listed and not listing[0].untrusted:
        chat.show(text_block("no agents found"))
        return

    def rows() -> tuple[PanelRow, ...]:
        return align_rows(
            [*map(_row_cells, listing[0].listed), *map(_untrusted_cells, listing[0].untrusted)],
            frozenset((3,)),
        )

    async def act(key: str, name: str) -> None:
        if name.startswith("!"):
            chat.show(
                NoticeBlock(
                    "warning", f"{name[1:]}: {_UNTRUSTED}", "exit and run `kitbag trust` to review what it would run"
                )
            )
        elif key == "enter":
            await _show_agent(chat, name)
        else:
            library = chat.agent.environment.library
            state = library.evaluate(library.find_agent(name)).state
            chat.show(*await _switch(chat, name, "on" if state == "off" else "off"))
            listing[0] = await _load_list(chat, show_all=show_all)

    if not await chat.ui.open(
        Panel(title=_TITLE, rows=rows, actions=_ACTIONS, run_action=act, empty_message="no agents found")
    ):
        chat.show(_table(listing[0]))


async def _load_list(chat: CommandContext, *, show_all: bool) -> _AgentListing:
    library = chat.agent.environment.library
    entries = chat.agent.session.prompt
    catalog = "".join(str(one["text"]) for one in entries if (one["kind"], one["source"]) == ("catalog", "agents"))

    def load() -> _AgentListing:
        lines, view = parse_catalog_lines(catalog), library.visibility_context("agents")
        all_rows = [_agent_row(agent, library.evaluate(agent, view), lines) for agent in library.agents]
        shown = (
            all_rows if show_all else [one for one in all_rows if one.verdict.is_usable or one.verdict.state == "off"]
        )
        untrusted = library.untrusted_items() if library.omit_project else []
        names = [item.full_name for item in untrusted if item.kind == "agent"]
        return _AgentListing(shown, names, len(all_rows) - len(shown))

    return await asyncio.to_thread(load)


def _agent_row(agent: AgentFile, verdict: Verdict, lines: dict[str, str]) -> _AgentRow:
    line = lines.get(catalog_name(agent), "")
    try:
        body = read_agent_body(agent)
    except KitbagError:
        body = ""
    return _AgentRow(
        agent=agent,
        verdict=verdict,
        listed_tokens=estimate_tokens(line) if line else 0,
        body_tokens=estimate_tokens(body),
    )


def _row_cells(one: _AgentRow) -> PanelCells:
    agent, state = one.agent, one.verdict.state
    spans = (
        Span(state, "bad" if state == "off" else "good"),
        Span(agent.full_name, "strong"),
        Span(agent.permission_mode),
        Span(f"{one.listed_tokens:,} + {one.body_tokens:,}", "dim"),
        Span(shorten_home(one.verdict.reason) or agent.description, "dim"),
    )
    return PanelCells(id=agent.full_name, spans=spans)


def _untrusted_cells(name: str) -> PanelCells:
    return PanelCells(
        id=f"!{name}", spans=(Span("-", "dim"), Span(name, "dim"), Span(""), Span(""), Span(_UNTRUSTED, "warning"))
    )


def _table(listing: _AgentListing) -> Block:
    rows = [
        (
            one.agent.full_name,
            one.verdict.state,
            one.agent.permission_mode,
            one.agent.model.name or "inherit",
            one.agent.root.plugin or one.agent.root.scope,
            f"{one.listed_tokens:,} + {one.body_tokens:,}",
            f"{format_tool_access(one.agent.tools)}:"
            f" {shorten_home(one.verdict.reason) or collapse_whitespace(one.agent.description)}",
        )
        for one in listing.listed
    ]
    rows += [(name, "-", "-", "-", "project", "-", _UNTRUSTED) for name in listing.untrusted]
    hidden = f"{listing.hidden:,} from other teams or personas (/agents all) · " if listing.hidden else ""
    foot = f"{hidden}tokens: in prompt + at start · show one with /agents NAME · disable one with /agents off NAME"
    headers = ("AGENT", "STATE", "MODE", "MODEL", "SCOPE", "TOKENS", "TOOLS: DESCRIPTION")
    return TableBlock(headers=headers, rows=tuple(rows), title=format_count(len(listing.listed), "agent"), foot=foot)


async def _switch(chat: CommandContext, name: str, new_state: str) -> list[Block]:
    library = chat.agent.environment.library
    agent = library.find_agent(name)
    return await switch_item(chat, "agents", agent.full_name, new_state, library.evaluate(agent).state)


async def _show_agent(chat: CommandContext, name: str) -> None:
    chat.show(*await asyncio.to_thread(_card, chat.agent.environment.library, name))


def _card(library: Registry, name: str) -> list[Block]:
    agent = library.find_agent(name)
    verdict = library.evaluate(agent)
    blocks: list[Block] = [
        FieldsBlock(tuple(agent_fields(library, agent, verdict, read_agent_body(agent))), agent.full_name)
    ]
    problems = library.diagnostics(agent.path)
    return [*blocks, *map(diagnostic_block, problems)]
