"""`/agents`: lists subagents with their mode, tools and token cost; `/agents NAME` shows one.

Opens a panel to turn agents on and off; a UI without panels shows a table, and `/agents off NAME` does the same.
"""

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from kitbag.chat.commands.switching import switch_item
from kitbag.chat.panel_columns import PanelCells, align_rows
from kitbag.chat.ui import Panel, PanelAction, PanelRow
from kitbag.errors import KitbagError, UsageError
from kitbag.library.agents import AgentFile
from kitbag.library.registry import Registry
from kitbag.library.visibility import Verdict
from kitbag.packing.catalog import catalog_name, parse_catalog_lines
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.text.human_format import format_count, shorten_home, shorten_path
from kitbag.text.tokens import estimate_tokens
from kitbag.views.agent_card import agent_fields, format_tool_access, read_agent_body
from kitbag.views.blocks import Block, FieldsBlock, NoticeBlock, Span, TableBlock, text_block

if TYPE_CHECKING:
    from kitbag.chat.chat import Chat

_ACTIONS: Final = (PanelAction("enter", "show"), PanelAction("space", "switch on or off"))
_TITLE: Final = "Agents: mode, tokens in the prompt + at its start, what for"
_UNTRUSTED: Final = "left out: the workspace is not trusted"


class _Listed(NamedTuple):
    agent: AgentFile
    verdict: Verdict
    listed_tokens: int
    body_tokens: int


class _Seen(NamedTuple):
    listed: list[_Listed]
    left_out: list[str]
    hidden: int


async def agents_command(chat: "Chat", arguments: str) -> None:
    verb, _, name = arguments.strip().partition(" ")
    name = name.strip()
    if verb in ("on", "off"):
        if not name:
            raise UsageError(f"/agents {verb} needs the name of an agent", f"type: /agents {verb} NAME")
        chat.show(*await _switch(chat, name, verb))
    elif verb in ("", "all"):
        await _list(chat, everything=verb == "all")
    else:
        await _show(chat, name if verb == "show" and name else arguments.strip())


async def _list(chat: "Chat", *, everything: bool) -> None:
    seen = [await _look(chat, everything=everything)]
    if not seen[0].listed and not seen[0].left_out:
        chat.show(text_block("there are no agents"))
        return

    def rows() -> tuple[PanelRow, ...]:
        return align_rows([*map(_cells, seen[0].listed), *map(_left_out_cells, seen[0].left_out)], frozenset((3,)))

    async def act(key: str, name: str) -> None:
        if name.startswith("!"):
            chat.show(NoticeBlock("warning", f"{name[1:]}: {_UNTRUSTED}", "leave, then: kitbag trust"))
        elif key == "enter":
            await _show(chat, name)
        else:
            library = chat.agent.environment.library
            state = library.evaluate(library.find_agent(name)).state
            chat.show(*await _switch(chat, name, "on" if state == "off" else "off"))
            seen[0] = await _look(chat, everything=everything)

    if not await chat.ui.open(Panel(_TITLE, rows, _ACTIONS, act, "there are no agents")):
        chat.show(_table(seen[0]))


async def _look(chat: "Chat", *, everything: bool) -> _Seen:
    library = chat.agent.environment.library
    entries = chat.agent.session.prompt
    catalog = "".join(str(one["text"]) for one in entries if (one["kind"], one["source"]) == ("catalog", "agents"))

    def look() -> _Seen:
        lines, view = parse_catalog_lines(catalog), library.visibility_context("agents")
        every = [_listed(agent, library.evaluate(agent, view), lines) for agent in library.agents]
        shown = every if everything else [one for one in every if one.verdict.is_usable or one.verdict.state == "off"]
        untrusted = library.untrusted_items() if library.omit_project else []
        names = [item.full_name for item in untrusted if item.kind == "agent"]
        return _Seen(shown, names, len(every) - len(shown))

    return await asyncio.to_thread(look)


def _listed(agent: AgentFile, verdict: Verdict, lines: dict[str, str]) -> _Listed:
    line = lines.get(catalog_name(agent), "")
    try:
        body = read_agent_body(agent)
    except KitbagError:
        body = ""
    return _Listed(agent, verdict, estimate_tokens(line) if line else 0, estimate_tokens(body))


def _cells(one: _Listed) -> PanelCells:
    agent, state = one.agent, one.verdict.state
    spans = (
        Span(state, "bad" if state == "off" else "good"),
        Span(agent.full_name, "strong"),
        Span(agent.permission_mode),
        Span(f"{one.listed_tokens:,} + {one.body_tokens:,}", "dim"),
        Span(shorten_home(one.verdict.reason) or agent.description, "dim"),
    )
    return PanelCells(agent.full_name, spans)


def _left_out_cells(name: str) -> PanelCells:
    return PanelCells(
        f"!{name}", (Span("-", "dim"), Span(name, "dim"), Span(""), Span(""), Span(_UNTRUSTED, "warning"))
    )


def _table(seen: _Seen) -> Block:
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
        for one in seen.listed
    ]
    rows += [(name, "-", "-", "-", "project", "-", _UNTRUSTED) for name in seen.left_out]
    hidden = f"{seen.hidden:,} of other teams or personas: /agents all · " if seen.hidden else ""
    foot = f"{hidden}tokens: in the prompt + at its start · /agents NAME shows one · /agents off NAME switches it off"
    headers = ("AGENT", "STATE", "MODE", "MODEL", "FROM", "TOKENS", "TOOLS: WHAT FOR")
    return TableBlock(headers, tuple(rows), format_count(len(seen.listed), "agent"), foot)


async def _switch(chat: "Chat", name: str, wanted: str) -> list[Block]:
    library = chat.agent.environment.library
    agent = library.find_agent(name)
    return await switch_item(chat, "agents", agent.full_name, wanted, library.evaluate(agent).state)


async def _show(chat: "Chat", name: str) -> None:
    chat.show(*await asyncio.to_thread(_card, chat.agent.environment.library, name))


def _card(library: Registry, name: str) -> list[Block]:
    agent = library.find_agent(name)
    verdict = library.evaluate(agent)
    blocks: list[Block] = [
        FieldsBlock(tuple(agent_fields(library, agent, verdict, read_agent_body(agent))), agent.full_name)
    ]
    for found in library.diagnostics():
        if found.file == agent.path:
            blocks.append(NoticeBlock(found.severity, f"{shorten_path(found.place)}: {found.problem}", found.fix))
    return blocks
