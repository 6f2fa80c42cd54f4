"""`/skills`: lists skills with their state, token cost, whether they are loaded, and why they are listed for the model
or not.

Opens a panel to switch, load and unload skills; a UI without panels shows a table, and arguments do the same. Uses
packing/catalog_status and library/item_states.
"""

import asyncio
from typing import Final

import msgspec

from kitbag.chat.commands import COMMANDS, CommandContext
from kitbag.chat.commands.switching import switch_item
from kitbag.chat.panel_columns import PanelCells, align_rows
from kitbag.chat.ui import Panel, PanelAction, PanelRow
from kitbag.errors import Diagnostic, NotFoundError, UsageError
from kitbag.library.names import normalize_name
from kitbag.library.registry import Registry
from kitbag.library.skills import Skill
from kitbag.library.untrusted_items import UntrustedItem
from kitbag.packing.catalog import Budget, catalog_budget
from kitbag.packing.catalog_status import SkillStatus, skill_status, skill_statuses, skills_awaiting_trust
from kitbag.settings import ITEM_STATES, ItemState
from kitbag.text.human_format import did_you_mean, format_count
from kitbag.views.blocks import Block, FieldsBlock, NoticeBlock, Span, TableBlock, Tone, diagnostic_block, text_block

_VERBS: Final = (*ITEM_STATES, "use", "unload", "all")
_ACTIONS: Final = (
    PanelAction(key="space", label="change state"),
    PanelAction(key="enter", label="show"),
    PanelAction(key="l", label="use once"),
    PanelAction(key="u", label="unload"),
)
_TONES: Final[dict[str, Tone]] = {"on": "good", "name-only": "accent", "user-only": "warning", "off": "bad"}
_UNTRUSTED: Final = "omitted: the workspace is not trusted"
_MAX_ROWS: Final = 300


class _SkillListing(msgspec.Struct, frozen=True, kw_only=True):
    statuses: list[SkillStatus]
    untrusted: list[UntrustedItem]
    loaded: frozenset[str]
    hidden: int
    """Number of skills of other teams and personas, which can't be used here."""


class _SkillSources(msgspec.Struct, frozen=True, kw_only=True):
    """Read from the agent in its own thread, for use in another one."""

    library: Registry
    catalog: str
    budget: Budget
    loaded: frozenset[str]


async def skills_command(chat: CommandContext, arguments: str) -> None:
    verb, _, name = arguments.strip().partition(" ")
    name = name.strip().removeprefix("/")
    if verb in _VERBS and verb != "all" and not name:
        raise UsageError(f"/skills {verb} needs a skill name", f"type /skills {verb} NAME")
    match verb:
        case "" | "all":
            await _show_list(chat, show_all=verb == "all")
        case "use":
            _load(chat, name)
        case "unload":
            await _unload(chat, name)
        case _ if verb in ITEM_STATES:
            chat.show(*await _switch(chat, name, verb))
        case _ if name and verb.lower() not in ("show",):
            await _show_or_suggest(chat, arguments.strip().removeprefix("/"))
        case _:
            await _show(chat, name or verb.removeprefix("/"))


async def _show_or_suggest(chat: CommandContext, name: str) -> None:
    """A name may contain spaces; otherwise the first word may be a misspelled subcommand."""
    try:
        await _show(chat, name)
    except NotFoundError as error:
        verb = name.partition(" ")[0]
        suggestion = did_you_mean(verb, _VERBS)
        raise NotFoundError(error.problem, suggestion if suggestion.startswith("did") else error.fix) from None


# The list


async def _show_list(chat: CommandContext, *, show_all: bool) -> None:
    listing = await _load_list(chat, show_all=show_all)
    if not listing.statuses and not listing.untrusted:
        chat.show(text_block("no skills found; see `kitbag skills --help`"))
        return
    listed = [listing]

    def rows() -> tuple[PanelRow, ...]:
        return _panel_rows(listed[0])

    async def act(key: str, name: str) -> None:
        await _act(chat, key, name)
        listed[0] = await _load_list(chat, show_all=show_all)

    if not await chat.ui.open(
        Panel(
            title=f"Skills: {_totals(listing)} · tokens: listed + when loaded",
            rows=rows,
            actions=_ACTIONS,
            run_action=act,
            empty_message="no skills found",
        )
    ):
        chat.show(_table(listing))


async def _load_list(chat: CommandContext, *, show_all: bool) -> _SkillListing:
    sources = _sources(chat)

    def load() -> _SkillListing:
        all_skills = skill_statuses(sources.library, sources.catalog, sources.budget)
        shown = (
            all_skills
            if show_all
            else [one for one in all_skills if one.verdict.is_usable or one.verdict.state == "off"]
        )
        return _SkillListing(
            statuses=shown,
            untrusted=skills_awaiting_trust(sources.library),
            loaded=sources.loaded,
            hidden=len(all_skills) - len(shown),
        )

    return await asyncio.to_thread(load)


def _sources(chat: CommandContext) -> _SkillSources:
    agent = chat.agent
    library = agent.environment.library
    entries = agent.session.prompt
    catalog = "".join(str(one["text"]) for one in entries if (one["kind"], one["source"]) == ("catalog", "skills"))
    budget = catalog_budget(library.settings, agent.chosen.info.window)
    return _SkillSources(library=library, catalog=catalog, budget=budget, loaded=frozenset(agent.session.skills))


def _totals(listing: _SkillListing) -> str:
    listed = sum(one.listed_tokens for one in listing.statuses)
    described = sum(one.listing in ("described", "shortened") for one in listing.statuses)
    in_prompt = f"{described:,} of {len(listing.statuses):,} described in the prompt ({listed:,} tokens)"
    return f"{in_prompt} · {len(listing.loaded):,} loaded"


def _state(one: SkillStatus, listing: _SkillListing) -> str:
    return f"{one.verdict.state}, loaded" if one.name in listing.loaded else one.verdict.state


def _table(listing: _SkillListing) -> Block:
    rows = [
        (
            one.name,
            _state(one, listing),
            _source(one.skill),
            f"{one.listed_tokens:,}",
            f"{one.loaded_tokens:,}",
            f"{one.listing}: {one.reason}" if one.reason else one.listing,
        )
        for one in listing.statuses[:_MAX_ROWS]
    ]
    rows += [(item.full_name, "-", "project", "0", "-", f"no: {_UNTRUSTED}") for item in listing.untrusted[:_MAX_ROWS]]
    more = len(listing.statuses) + len(listing.untrusted) - len(rows)
    parts = [_totals(listing)]
    parts += [f"{format_count(more, 'more skill')}; show one with /skills NAME"] if more > 0 else []
    parts += [f"{listing.hidden:,} from other teams or personas (/skills all)"] if listing.hidden else []
    parts.append("/skills off NAME disables a skill; also: on, name-only, user-only, use, unload")
    headers = ("SKILL", "STATE", "SCOPE", "LISTED", "LOADED", "IN PROMPT")
    return TableBlock(
        headers=headers, rows=tuple(rows), title="Skills (tokens when listed and when loaded)", foot=" · ".join(parts)
    )


def _source(skill: Skill) -> str:
    scope = skill.root.plugin or skill.root.scope
    return f"{scope} command" if skill.kind == "command" else scope


def _panel_rows(listing: _SkillListing) -> tuple[PanelRow, ...]:
    rows = [_row_cells(one, listing) for one in listing.statuses]
    return align_rows([*rows, *map(_untrusted_cells, listing.untrusted)], frozenset((3,)))


def _row_cells(one: SkillStatus, listing: _SkillListing) -> PanelCells:
    state = one.verdict.state
    is_shown = one.listing in ("described", "shortened")
    shown = f"{one.listing if one.listing != 'no' else 'not listed'}{f': {one.reason}' if one.reason else ''}"
    spans = (
        Span("●" if one.name in listing.loaded else " ", "good"),
        Span(state, _TONES[state]),
        Span(one.name, "strong" if state == "on" else "plain"),
        Span(f"{one.listed_tokens:,} + {one.loaded_tokens:,}", "dim"),
        Span(f"{shown} · {_source(one.skill)}", "plain" if is_shown else "dim"),
    )
    return PanelCells(id=one.name, spans=spans)


def _untrusted_cells(item: UntrustedItem) -> PanelCells:
    spans = (Span(" "), Span("-", "dim"), Span(item.full_name, "dim"), Span(""), Span(_UNTRUSTED, "warning"))
    return PanelCells(id=f"!{item.full_name}", spans=spans)


# One skill


async def _act(chat: CommandContext, key: str, row: str) -> None:
    if row.startswith("!"):
        fix = "exit and run `kitbag trust` to review what it would run"
        chat.show(NoticeBlock("warning", f"{row[1:]}: {_UNTRUSTED}", fix))
    elif key == "space":
        current = chat.agent.environment.library.settings.states("skills").get(normalize_name(row))
        before: ItemState = current.value if current is not None else "on"
        chat.show(*await _switch(chat, row, ITEM_STATES[(ITEM_STATES.index(before) + 1) % len(ITEM_STATES)]))
    elif key == "enter":
        await _show(chat, row)
    elif key == "l":
        _load(chat, row)
    elif key == "u":
        await _unload(chat, row)


async def _switch(chat: CommandContext, name: str, new_state: str) -> list[Block]:
    library = chat.agent.environment.library
    skill = library.find_skill(name)
    blocks = await switch_item(chat, "skills", skill.full_name, new_state, library.evaluate(skill).state)
    if new_state in ("off", "user-only") and skill.full_name in chat.agent.session.skills:
        blocks.append(
            text_block(f"still loaded in this session; unload it with /skills unload {skill.full_name}", "dim")
        )
    return blocks


async def _show(chat: CommandContext, name: str) -> None:
    sources = _sources(chat)

    def load() -> list[Block]:
        from kitbag.views.skill_card import skill_card, skill_card_fields, skill_file_rows

        library = sources.library
        skill = library.find_skill(name)
        card_data, status = skill_card(library, skill), skill_status(library, skill, sources.catalog, sources.budget)
        shown = status.listing if status.listing != "no" else "not listed"
        chat_fields = (
            ("in prompt", f"{shown}: {status.reason}" if status.reason else shown),
            ("loaded", "in this session" if skill.full_name in sources.loaded else ""),
        )
        blocks: list[Block] = [
            FieldsBlock((*skill_card_fields(library, skill, card_data), *chat_fields), skill.full_name)
        ]
        if card_data["files"]:
            blocks.append(
                TableBlock(
                    headers=("BYTES", "TOKENS", "FILE"), rows=tuple((b, c, a) for a, b, c in skill_file_rows(card_data))
                )
            )
        return [*blocks, *(diagnostic_block(Diagnostic(**problem)) for problem in card_data["problems"])]

    chat.show(*await asyncio.to_thread(load))


def _load(chat: CommandContext, name: str) -> None:
    """Calls the skill as if the user had typed `/name`. Raises at once if the name can't be used."""
    skill = chat.agent.skills.find(name, "user")
    if skill.full_name.lower() in COMMANDS:
        fix = "ask for the skill in a message, or rename it"
        raise UsageError(f"/{skill.full_name} is a built-in command and shadows the skill", fix)
    chat.submit(f"/{skill.full_name}")


async def _unload(chat: CommandContext, name: str) -> None:
    if chat.is_working:
        raise UsageError("can't unload a skill while the agent is working", "wait until it finishes, or press Esc")
    agent = chat.agent
    full_name = agent.skills.unload(name) or (name if name in agent.session.skills else None)
    if full_name is None or full_name not in agent.session.skills:
        loaded = ", ".join(agent.session.skills)
        raise NotFoundError(f"skill {name!r} is not loaded", f"unload one of: {loaded}" if loaded else "")
    tokens = agent.session.skills[full_name].tokens
    await agent.session.drop_skill(full_name, "unloaded by the user")
    chat.show(text_block(f"unloaded {full_name}; {tokens:,} tokens freed"))
