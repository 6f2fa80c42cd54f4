"""`/agents`: those that can be given work, with what they may do and cost; `/agents NAME` shows one.

A panel in which they are switched on and off where the face has panels; else a table, and `/agents off NAME`.
"""

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from kitbag.chat.commands.switching import switch_item
from kitbag.chat.panel_columns import Cells, aligned
from kitbag.chat.ui import Action, Panel, Row
from kitbag.errors import KitbagError, UsageError
from kitbag.library.agents import Agent
from kitbag.library.registry import Registry
from kitbag.library.visibility import Verdict
from kitbag.packing.catalog import listed_in, name_in_list
from kitbag.text.hidden_characters import one_line
from kitbag.text.human_format import count, short_home, short_path
from kitbag.text.tokens import estimate_tokens
from kitbag.views.agent_card import agent_fields, body_of, tools_in_words
from kitbag.views.blocks import Block, Fields, Remark, Span, Table, words

if TYPE_CHECKING:
    from kitbag.chat.chat import Chat

_ACTIONS: Final = (Action("enter", "show"), Action("space", "switch on or off"))
_TITLE: Final = "Agents: mode, tokens in the prompt + at its start, what for"
_UNTRUSTED: Final = "left out: the workspace is not trusted"


class _Listed(NamedTuple):
    agent: Agent
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
        chat.show(words("there are no agents"))
        return

    def rows() -> tuple[Row, ...]:
        return aligned([*map(_cells, seen[0].listed), *map(_left_out_cells, seen[0].left_out)], frozenset((3,)))

    async def act(key: str, name: str) -> None:
        if name.startswith("!"):
            chat.show(Remark("warning", f"{name[1:]}: {_UNTRUSTED}", "leave, then: kitbag trust"))
        elif key == "enter":
            await _show(chat, name)
        else:
            library = chat.agent.ground.library
            state = library.judge(library.find_agent(name)).state
            chat.show(*await _switch(chat, name, "on" if state == "off" else "off"))
            seen[0] = await _look(chat, everything=everything)

    if not await chat.face.open(Panel(_TITLE, rows, _ACTIONS, act, "there are no agents")):
        chat.show(_table(seen[0]))


async def _look(chat: "Chat", *, everything: bool) -> _Seen:
    library = chat.agent.ground.library
    entries = chat.agent.session.prompt
    catalog = "".join(str(one["text"]) for one in entries if (one["kind"], one["source"]) == ("catalog", "agents"))

    def look() -> _Seen:
        lines, view = listed_in(catalog), library.view("agents")
        every = [_listed(agent, library.judge(agent, view), lines) for agent in library.agents]
        shown = every if everything else [one for one in every if one.verdict.anywhere or one.verdict.state == "off"]
        untrusted = library.left_out() if library.leave_out_project else []
        names = [item.full_name for item in untrusted if item.kind == "agent"]
        return _Seen(shown, names, len(every) - len(shown))

    return await asyncio.to_thread(look)


def _listed(agent: Agent, verdict: Verdict, lines: dict[str, str]) -> _Listed:
    line = lines.get(name_in_list(agent), "")
    try:
        body = body_of(agent)
    except KitbagError:
        body = ""
    return _Listed(agent, verdict, estimate_tokens(line) if line else 0, estimate_tokens(body))


def _cells(one: _Listed) -> Cells:
    agent, state = one.agent, one.verdict.state
    spans = (
        Span(state, "bad" if state == "off" else "good"),
        Span(agent.full_name, "strong"),
        Span(agent.permission_mode),
        Span(f"{one.listed_tokens:,} + {one.body_tokens:,}", "dim"),
        Span(short_home(one.verdict.reason) or agent.description, "dim"),
    )
    return Cells(agent.full_name, spans)


def _left_out_cells(name: str) -> Cells:
    return Cells(f"!{name}", (Span("-", "dim"), Span(name, "dim"), Span(""), Span(""), Span(_UNTRUSTED, "warning")))


def _table(seen: _Seen) -> Block:
    rows = [
        (
            one.agent.full_name,
            one.verdict.state,
            one.agent.permission_mode,
            one.agent.model.name or "inherit",
            one.agent.root.plugin or one.agent.root.scope,
            f"{one.listed_tokens:,} + {one.body_tokens:,}",
            f"{tools_in_words(one.agent.tools)}: {short_home(one.verdict.reason) or one_line(one.agent.description)}",
        )
        for one in seen.listed
    ]
    rows += [(name, "-", "-", "-", "project", "-", _UNTRUSTED) for name in seen.left_out]
    hidden = f"{seen.hidden:,} of other teams or personas: /agents all · " if seen.hidden else ""
    foot = f"{hidden}tokens: in the prompt + at its start · /agents NAME shows one · /agents off NAME switches it off"
    headers = ("AGENT", "STATE", "MODE", "MODEL", "FROM", "TOKENS", "TOOLS: WHAT FOR")
    return Table(headers, tuple(rows), count(len(seen.listed), "agent"), foot)


async def _switch(chat: "Chat", name: str, wanted: str) -> list[Block]:
    library = chat.agent.ground.library
    agent = library.find_agent(name)
    return await switch_item(chat, "agents", agent.full_name, wanted, library.judge(agent).state)


async def _show(chat: "Chat", name: str) -> None:
    chat.show(*await asyncio.to_thread(_card, chat.agent.ground.library, name))


def _card(library: Registry, name: str) -> list[Block]:
    agent = library.find_agent(name)
    verdict = library.judge(agent)
    blocks: list[Block] = [Fields(tuple(agent_fields(library, agent, verdict, body_of(agent))), agent.full_name)]
    for found in library.diagnostics():
        if found.file == agent.path:
            blocks.append(Remark(found.severity, f"{short_path(found.place)}: {found.problem}", found.fix))
    return blocks
