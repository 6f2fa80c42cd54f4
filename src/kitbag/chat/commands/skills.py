"""`/skills`: each skill with its state, its cost, whether it is loaded, and why it is described to the model or not.

A panel in which they are switched, loaded and unloaded, where the face has panels; else a table, and words do the same.
Uses packing/skill_standing for the reasons, library/states to switch.
"""

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from kitbag.chat.commands import COMMANDS
from kitbag.chat.commands.switching import switch_item
from kitbag.chat.panel_columns import Cells, aligned
from kitbag.chat.ui import Action, Panel, Row
from kitbag.errors import Diagnostic, NotFoundError, UsageError
from kitbag.library.registry import Registry
from kitbag.library.skills import Skill
from kitbag.library.untrusted_items import LeftOut
from kitbag.packing.catalog import Budget, budget_of
from kitbag.packing.catalog_status import Standing, left_out_skills, standing_of, standings
from kitbag.settings import STATES, State
from kitbag.text.human_format import count, did_you_mean, short_path
from kitbag.views.blocks import Block, Fields, Remark, Span, Table, Tone, words

if TYPE_CHECKING:
    from kitbag.chat.chat import Chat

_VERBS: Final = (*STATES, "use", "unload", "all")
_ACTIONS: Final = (
    Action("space", "switch"),
    Action("enter", "show"),
    Action("l", "use once"),
    Action("u", "unload"),
)
_TONES: Final[dict[str, Tone]] = {"on": "good", "name-only": "accent", "user-only": "warning", "off": "bad"}
_UNTRUSTED: Final = "left out: the workspace is not trusted"
_MOST_ROWS: Final = 300


class _Seen(NamedTuple):
    standings: list[Standing]
    left_out: list[LeftOut]
    loaded: frozenset[str]
    hidden: int
    """Skills of other teams and personas, which nobody here can use."""


class _Asked(NamedTuple):
    """Taken from the agent in its own thread, for another one."""

    library: Registry
    catalog: str
    budget: Budget
    loaded: frozenset[str]


async def skills_command(chat: "Chat", arguments: str) -> None:
    verb, _, name = arguments.strip().partition(" ")
    name = name.strip().removeprefix("/")
    if verb in _VERBS and verb != "all" and not name:
        raise UsageError(f"/skills {verb} needs the name of a skill", f"type: /skills {verb} NAME")
    match verb:
        case "" | "all":
            await _list(chat, everything=verb == "all")
        case "use":
            _load(chat, name)
        case "unload":
            await _unload(chat, name)
        case _ if verb in STATES:
            chat.show(*await _switch(chat, name, verb))
        case _ if name and verb.lower() not in ("show",):
            await _show_or_tell(chat, arguments.strip().removeprefix("/"))
        case _:
            await _show(chat, name or verb.removeprefix("/"))


async def _show_or_tell(chat: "Chat", name: str) -> None:
    """A name may have blanks in it; else the first word was to be one of ours."""
    try:
        await _show(chat, name)
    except NotFoundError as error:
        verb = name.partition(" ")[0]
        near = did_you_mean(verb, _VERBS)
        raise NotFoundError(error.problem, near if near.startswith("did") else error.fix) from None


# All of them


async def _list(chat: "Chat", *, everything: bool) -> None:
    seen = await _look(chat, everything=everything)
    if not seen.standings and not seen.left_out:
        chat.show(words("there are no skills; `kitbag skills --help` tells how to get some"))
        return
    listed = [seen]

    def rows() -> tuple[Row, ...]:
        return _panel_rows(listed[0])

    async def act(key: str, name: str) -> None:
        await _act(chat, key, name)
        listed[0] = await _look(chat, everything=everything)

    if not await chat.face.open(
        Panel(f"Skills: {_sum(seen)} · tokens: listed + body", rows, _ACTIONS, act, "there are no skills")
    ):
        chat.show(_table(seen))


async def _look(chat: "Chat", *, everything: bool) -> _Seen:
    asked = _asked(chat)

    def look() -> _Seen:
        every = standings(asked.library, asked.catalog, asked.budget)
        shown = every if everything else [one for one in every if one.verdict.anywhere or one.verdict.state == "off"]
        return _Seen(shown, left_out_skills(asked.library), asked.loaded, len(every) - len(shown))

    return await asyncio.to_thread(look)


def _asked(chat: "Chat") -> _Asked:
    agent = chat.agent
    library = agent.ground.library
    entries = agent.session.prompt
    catalog = "".join(str(one["text"]) for one in entries if (one["kind"], one["source"]) == ("catalog", "skills"))
    budget = budget_of(library.settings, agent.chosen.known.window)
    return _Asked(library, catalog, budget, frozenset(agent.session.skills))


def _sum(seen: _Seen) -> str:
    listed = sum(one.listed_tokens for one in seen.standings)
    described = sum(one.shown in ("described", "shortened") for one in seen.standings)
    return f"{described:,} of {len(seen.standings):,} described, {listed:,} tokens · {len(seen.loaded):,} loaded"


def _state(one: Standing, seen: _Seen) -> str:
    return f"{one.verdict.state}, loaded" if one.name in seen.loaded else one.verdict.state


def _table(seen: _Seen) -> Block:
    rows = [
        (
            one.name,
            _state(one, seen),
            _source(one.skill),
            f"{one.listed_tokens:,}",
            f"{one.body_tokens:,}",
            f"{one.shown}: {one.why}" if one.why else one.shown,
        )
        for one in seen.standings[:_MOST_ROWS]
    ]
    rows += [(item.full_name, "-", "project", "0", "-", f"no: {_UNTRUSTED}") for item in seen.left_out[:_MOST_ROWS]]
    more = len(seen.standings) + len(seen.left_out) - len(rows)
    parts = [_sum(seen)]
    parts += [f"{count(more, 'more skill')}: /skills NAME shows one"] if more > 0 else []
    parts += [f"{seen.hidden:,} of other teams or personas: /skills all"] if seen.hidden else []
    parts.append("/skills off NAME switches one; also on, name-only, user-only, use, unload")
    headers = ("SKILL", "STATE", "FROM", "LISTED", "BODY", "DESCRIBED TO THE MODEL")
    return Table(headers, tuple(rows), "Skills, with their tokens", " · ".join(parts))


def _source(skill: Skill) -> str:
    scope = skill.root.plugin or skill.root.scope
    return f"{scope} command" if skill.kind == "command" else scope


def _panel_rows(seen: _Seen) -> tuple[Row, ...]:
    rows = [_cells(one, seen) for one in seen.standings]
    return aligned([*rows, *map(_left_out_cells, seen.left_out)], frozenset((3,)))


def _cells(one: Standing, seen: _Seen) -> Cells:
    state = one.verdict.state
    is_shown = one.shown in ("described", "shortened")
    shown = f"{one.shown if one.shown != 'no' else 'not listed'}{f': {one.why}' if one.why else ''}"
    spans = (
        Span("●" if one.name in seen.loaded else " ", "good"),
        Span(state, _TONES[state]),
        Span(one.name, "strong" if state == "on" else "plain"),
        Span(f"{one.listed_tokens:,} + {one.body_tokens:,}", "dim"),
        Span(f"{shown} · {_source(one.skill)}", "plain" if is_shown else "dim"),
    )
    return Cells(one.name, spans)


def _left_out_cells(item: LeftOut) -> Cells:
    spans = (Span(" "), Span("-", "dim"), Span(item.full_name, "dim"), Span(""), Span(_UNTRUSTED, "warning"))
    return Cells(f"!{item.full_name}", spans)


# One of them


async def _act(chat: "Chat", key: str, row: str) -> None:
    if row.startswith("!"):
        fix = "leave, then `kitbag trust` shows what it would run, and asks"
        chat.show(Remark("warning", f"{row[1:]}: {_UNTRUSTED}", fix))
    elif key == "space":
        current = chat.agent.ground.library.settings.states("skills").get(row.lower())
        before: State = current.value if current is not None else "on"
        chat.show(*await _switch(chat, row, STATES[(STATES.index(before) + 1) % len(STATES)]))
    elif key == "enter":
        await _show(chat, row)
    elif key == "l":
        _load(chat, row)
    elif key == "u":
        await _unload(chat, row)


async def _switch(chat: "Chat", name: str, wanted: str) -> list[Block]:
    library = chat.agent.ground.library
    skill = library.find_skill(name)
    blocks = await switch_item(chat, "skills", skill.full_name, wanted, library.judge(skill).state)
    if wanted in ("off", "user-only") and skill.full_name in chat.agent.session.skills:
        blocks.append(words(f"it is loaded still: /skills unload {skill.full_name}", "dim"))
    return blocks


async def _show(chat: "Chat", name: str) -> None:
    asked = _asked(chat)

    def look() -> list[Block]:
        from kitbag.views.skill_card import card, card_fields, file_rows

        library = asked.library
        skill = library.find_skill(name)
        found, standing = card(library, skill), standing_of(library, skill, asked.catalog, asked.budget)
        shown = standing.shown if standing.shown != "no" else "not listed"
        told = (
            ("to the model", f"{shown}: {standing.why}" if standing.why else shown),
            ("loaded", "now, in this conversation" if skill.full_name in asked.loaded else ""),
        )
        blocks: list[Block] = [Fields((*card_fields(library, skill, found), *told), skill.full_name)]
        if found["files"]:
            blocks.append(Table(("BYTES", "TOKENS", "FILE"), tuple((b, c, a) for a, b, c in file_rows(found))))
        for problem in found["problems"]:
            one = Diagnostic(**problem)
            blocks.append(Remark(one.severity, f"{short_path(one.place)}: {one.problem}", one.fix))
        return blocks

    chat.show(*await asyncio.to_thread(look))


def _load(chat: "Chat", name: str) -> None:
    """As if the person had typed it. Raises what a name can be wrong with, at once."""
    skill = chat.agent.skills.find(name, "user")
    if skill.full_name.lower() in COMMANDS:
        fix = f"ask for it in words: use the skill {skill.full_name}; or give it another name"
        raise UsageError(f"/{skill.full_name} is a command of the chat, so the skill can't be called by it", fix)
    chat.submit(f"/{skill.full_name}")


async def _unload(chat: "Chat", name: str) -> None:
    if chat.is_working:
        raise UsageError("a skill can't be unloaded while the model works with it", "wait, or press Esc first")
    agent = chat.agent
    found = agent.skills.unload(name) or (name if name in agent.session.skills else None)
    if found is None or found not in agent.session.skills:
        loaded = ", ".join(agent.session.skills)
        raise NotFoundError(f"the skill {name!r} is not loaded", f"loaded are {loaded}" if loaded else "none is")
    tokens = agent.session.skills[found].tokens
    await agent.session.drop_skill(found, "unloaded by the person")
    chat.show(words(f"{found} is unloaded; {tokens:,} tokens are free again"))
