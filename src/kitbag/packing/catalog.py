"""The catalog of skills and agents in a system prompt: all names that fit, descriptions within a budget.

All text is escaped, so no description can close the block or add an entry; the same files give the same bytes.
Used by main_prompt, agent_prompt, `kitbag skills list --format` and mcp_server; uses library.
"""

import os
import re
from collections.abc import Callable, Collection, Sequence
from itertools import compress, repeat
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from kitbag.library.skills import COMMAND, FLAT, REQUIRED, Skill
from kitbag.library.visibility import Verdict
from kitbag.settings import Settings
from kitbag.text.hidden_characters import collapse_whitespace, remove_hidden, reveal_hidden

if TYPE_CHECKING:
    from kitbag.library.agents import AgentFile

CatalogFormat = Literal["list", "table", "xml"]
CATALOG_FORMATS: tuple[CatalogFormat, ...] = ("list", "table", "xml")
MIN_DESCRIPTION = 60
"""Descriptions are not shortened below this; fewer skills are described instead."""
DEFAULT_WINDOW = 200_000
MAX_HINT = 80

_ENTITY = re.compile(r"&(?=#|[A-Za-z]{1,8};)")
_CUT_ENTITY = re.compile(r"&(?:#?\w{0,8})\Z")


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """In escaped characters. Tags, bullets and the closing line are not counted."""

    descriptions: int = 8_000
    """Total for descriptions with their hints and counts."""
    names: int = 24_000
    entry: int = 1_536
    """Limit for one description."""


def catalog_budget(settings: Settings, window_tokens: int = DEFAULT_WINDOW) -> Budget:
    """The budget from settings; a percentage of the window counts four characters per token."""
    setting = str(settings.get("catalog.descriptions"))
    if setting.endswith("%"):
        descriptions = int(window_tokens * 4 * float(setting[:-1]) / 100)
    else:
        descriptions = int(setting)
    return Budget(descriptions=descriptions, names=settings.get("catalog.names"), entry=settings.get("catalog.entry"))


class Catalog(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    described: int
    listed: int
    total: int

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "described": self.described, "listed": self.listed, "total": self.total}


def render_skills(
    pairs: Sequence[tuple[Skill, Verdict]],
    budget: Budget | None = None,
    format: CatalogFormat = "list",  # noqa: A002
    *,
    over_mcp: bool = False,
) -> Catalog:
    """`pairs`: sorted, as returned by Registry.visible_skills; the text is empty if there are none. `over_mcp`: for a
    model that has the MCP server's tools instead of Kitbag's own."""
    lengths = [
        (len(skill.summary) if skill.when_to_use else len(skill.description)) if verdict.described else 0
        for skill, verdict in pairs
    ]
    return _render(pairs, lengths, budget or Budget(), format, _SKILLS_OVER_MCP if over_mcp else _SKILLS)


def render_agents(
    pairs: "Sequence[tuple[AgentFile, Verdict]]",
    budget: Budget | None = None,
    format: CatalogFormat = "list",  # noqa: A002
) -> Catalog:
    lengths = [len(agent.description) if verdict.described else 0 for agent, verdict in pairs]
    return _render(pairs, lengths, budget or Budget(), format, _AGENTS)


def render_entry(skill: Skill, max_length: int = 400) -> str:
    """One line of the list format, for use outside the catalog."""
    return _list_entry(skill, _list_cut(*_list_texts(skill, max_length), max_length))


def parse_catalog_lines(text: str) -> dict[str, str]:
    """Maps each escaped name in a list-format catalog to its line."""
    return {line[2:].partition(": ")[0]: line for line in text.split("\n") if line.startswith("- ")}


def catalog_name(item: "Skill | AgentFile") -> str:
    """The name as escaped in the catalog."""
    return _escape(item.full_name)


class _Wording(msgspec.Struct, frozen=True, kw_only=True):
    noun: str
    intro: str
    table_intro: str
    table_instructions: str
    """What follows the table."""
    search_tool: str


_SKILLS = _Wording(
    noun="skill",
    intro="Use the Skill tool to load any of these before doing the work it covers:",
    table_intro="Use the `Skill` tool to load any skill before using its capabilities.",
    table_instructions="**Instructions**: Before starting a complex task, load the relevant skill(s) to get detailed "
    "guidance.",
    search_tool="SearchSkills",
)
_SKILLS_OVER_MCP = msgspec.structs.replace(
    _SKILLS,
    intro="Use the load_skill tool to load any of these before doing the work it covers:",
    table_intro="Use the `load_skill` tool to load any skill before using its capabilities.",
    search_tool="search_skills",
)
_AGENTS = _Wording(
    noun="agent",
    intro="Available agent types for the Task tool:",
    table_intro="Use the `Task` tool to delegate work to any of these agents.",
    table_instructions="",
    search_tool="",
)


def _render(
    pairs: "Sequence[tuple[Skill | AgentFile, Verdict]]",
    lengths: list[int],
    budget: Budget,
    format: CatalogFormat,  # noqa: A002
    wording: _Wording,
) -> Catalog:
    if not pairs:
        return Catalog(text="", described=0, listed=0, total=0)

    cached_ranks: list[int] = []

    def ranks() -> list[int]:
        """Priority for descriptions if not all fit: required skills first, then by scope."""
        if not cached_ranks:
            cached_ranks.extend([item.root.rank[0] for item, _ in pairs])
            for at, (item, _) in enumerate(pairs):
                if isinstance(item, Skill) and item.flags & REQUIRED:
                    cached_ranks[at] = -1
        return cached_ranks

    formatter = _FORMATTERS[format]
    chosen, longest = _choose_described(lengths, ranks, budget)
    names = [item.full_name for item, _ in pairs]
    listed = _choose_listed(names, lambda: sorted(sorted(chosen), key=ranks().__getitem__), budget.names)
    chosen.intersection_update(listed)
    # Texts are escaped only now. Escapes and hints can make them longer than the raw lengths.
    texts = {at: formatter.texts(pairs[at][0], longest) for at in chosen}
    if sum(len(first) + len(second) for first, second in texts.values()) > budget.descriptions:
        order = sorted(chosen)
        exact_lengths = [len("".join(texts[at])) for at in order]
        positions, longest = _choose_described(exact_lengths, lambda: list(map(ranks().__getitem__, order)), budget)
        chosen = {order[position] for position in positions}
    lines = [
        formatter.entry(pairs[at][0], formatter.cut(*texts[at], longest) if at in chosen else None) for at in listed
    ]
    count = _count_line(len(chosen), len(listed), len(pairs), wording)
    if format == "xml" and len(chosen) == len(pairs):
        count = ""  # byte for byte the output of the reference library
    return Catalog(
        text=formatter.frame(lines, count, wording), described=len(chosen), listed=len(listed), total=len(pairs)
    )


def _count_line(described: int, listed: int, total: int, wording: _Wording) -> str:
    line = f"{described} of {total} {wording.noun}s are described"
    if described < listed:
        line += f", {listed - described} more by name only"
    if listed < total:
        line += f", {total - listed} are not listed"
        line += f": {wording.search_tool} finds them" if wording.search_tool else ""
    if described < total:
        line += f"; all can be {'used' if wording is _AGENTS else 'loaded'} by name"
    return f"({line}.)"


def _choose_described(lengths: list[int], ranks: Callable[[], list[int]], budget: Budget) -> tuple[set[int], int]:
    """Positions of the entries to describe, and the length limit for each description."""
    candidates = list(compress(range(len(lengths)), lengths))
    fits = sum(lengths) <= budget.descriptions
    if fits or (max(lengths) > budget.entry and sum(map(min, lengths, repeat(budget.entry))) <= budget.descriptions):
        return set(candidates), budget.entry
    if len(candidates) > budget.descriptions // MIN_DESCRIPTION:
        order = ranks()
        if min(order) != max(order):
            candidates.sort(key=order.__getitem__)  # stable: keeps the order of names within a rank
        remaining = budget.descriptions
        for position, at in enumerate(candidates):
            remaining -= min(lengths[at], MIN_DESCRIPTION)
            if remaining < 0:
                del candidates[position:]
                break
    low, high = 0, budget.entry
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(lengths[at], middle) for at in candidates) <= budget.descriptions:
            low = middle
        else:
            high = middle - 1
    return set(candidates) if low else set(), low


def _choose_listed(names: list[str], best_first: Callable[[], list[int]], limit: int) -> Collection[int]:
    """All names if they fit; else the described ones, best first, then as many others as fit."""
    joined = "".join(names)
    if len(joined) <= limit and _escaped_length(joined) <= limit:
        return range(len(names))
    length_of = len if _escaped_length(joined) == len(joined) else _escaped_length
    remaining = limit
    listed: set[int] = set()
    for at in best_first():
        if (length := length_of(names[at])) <= remaining:
            remaining -= length
            listed.add(at)
    for at, name in enumerate(names):
        if remaining <= 0:
            break
        if (length := length_of(name)) <= remaining and at not in listed:
            remaining -= length
            listed.add(at)
    return sorted(listed)


def _escaped_length(text: str) -> int:
    """Upper bound of the length after escaping."""
    return len(text) + 3 * text.count("<") + 4 * text.count("&")


def _escape(text: str) -> str:
    """One line that can't be read as markup."""
    plain = text.removesuffix("…")  # added by shorten, and needs no escaping
    if plain.isascii() and plain.isprintable() and "<" not in plain and "&" not in plain and "  " not in plain:
        return text.strip()
    return _ENTITY.sub("&amp;", remove_hidden(collapse_whitespace(text))).replace("<", "&lt;")


def shorten(text: str, max_length: int) -> str:
    """At most `max_length` characters, cut at a word boundary, with an ellipsis."""
    if len(text) <= max_length:
        return text
    if max_length < 1:
        return ""
    cut = text[: max_length - 1]
    if " " in cut[max_length // 2 :]:
        cut = cut[: cut.rindex(" ")]
    cut = _CUT_ENTITY.sub("", cut.rstrip(" ,;:.-"))
    # A joiner or tag character at the cut without its neighbor is a hidden character.
    return remove_hidden(cut) + "…"


def _summary(item: "Skill | AgentFile") -> str:
    return item.summary if isinstance(item, Skill) else item.description


class _Formatter(msgspec.Struct, frozen=True, kw_only=True):
    """The functions of one output format."""

    texts: "Callable[[Skill | AgentFile, int], tuple[str, str]]"
    """Two escaped texts that describe an item, from at most the given number of source characters."""
    cut: Callable[[str, str, int], tuple[str, str]]
    """Shortens both texts to at most the given length in total."""
    entry: "Callable[[Skill | AgentFile, tuple[str, str] | None], str]"
    frame: Callable[[list[str], str, _Wording], str]


# -- list format: `- name: description [argument-hint] [2 scripts, 1 reference]` -----------------


def _list_texts(item: "Skill | AgentFile", max_length: int) -> tuple[str, str]:
    return _escape(shorten(collapse_whitespace(_summary(item)), max_length)), _format_suffix(item)


def _list_cut(text: str, suffix: str, max_length: int) -> tuple[str, str]:
    if len(text) + len(suffix) > max_length and max_length - len(suffix) < MIN_DESCRIPTION:
        suffix = ""
    return shorten(text, max_length - len(suffix)), suffix


def _list_entry(item: "Skill | AgentFile", texts: tuple[str, str] | None) -> str:
    name = _escape(item.full_name)
    return f"- {name}: {texts[0]}{texts[1]}" if texts else f"- {name}"


def _list_frame(lines: list[str], count: str, wording: _Wording) -> str:
    tag = f"available-{wording.noun}s"
    return "\n".join((f"<{tag}>", wording.intro, "", *lines, "", count, f"</{tag}>"))


def _format_suffix(item: "Skill | AgentFile") -> str:
    if isinstance(item, Skill):
        return _format_hint(item.argument_hint) + _format_counts(item)
    return f" [{_escape(', '.join(item.file_extensions))}]" if item.file_extensions else ""


def _format_hint(hint: str) -> str:
    if not hint:
        return ""
    text = _escape(shorten(collapse_whitespace(hint), MAX_HINT))
    return f" {text}" if text.startswith(("[", "&lt;")) else f" [{text}]"


def _format_counts(skill: Skill) -> str:
    """`[2 scripts, 1 reference]`; only for described skills, to keep large catalogs cheap."""
    if skill.flags & (FLAT | COMMAND):
        return ""
    try:
        names_inside = os.listdir(skill.directory)
    except OSError:
        return ""
    parts: list[str] = []
    for folder, noun in (("scripts", "script"), ("references", "reference")):
        if folder not in names_inside:
            continue
        path = os.path.join(skill.directory, folder)
        if os.path.islink(path):
            continue  # list_resources does not follow it either
        try:
            names = os.listdir(path)
        except OSError:
            continue
        count = sum(1 for name in names if name[0] != ".")
        if count:
            parts.append(f"{count} {noun}{'s' if count > 1 else ''}")
    return f" [{', '.join(parts)}]" if parts else ""


# -- table format: Skill | Description | Use When ------------------------------------------------


def _table_texts(item: "Skill | AgentFile", max_length: int) -> tuple[str, str]:
    description = shorten(collapse_whitespace(item.description), max_length)
    when = collapse_whitespace(item.when_to_use) if isinstance(item, Skill) else ""
    return _table_cell(description), _table_cell(shorten(when, max_length - len(description)))


def _table_cut(description: str, when: str, max_length: int) -> tuple[str, str]:
    description = shorten(description, max_length)
    return description, shorten(when, max_length - len(description))


def _table_cell(text: str) -> str:
    return _escape(text).replace("\\|", "\\\\|").replace("|", "\\|")


def _table_entry(item: "Skill | AgentFile", texts: tuple[str, str] | None) -> str:
    return f"| {' | '.join((_table_cell(item.full_name), *(texts or ('', ''))))} |"


def _table_frame(lines: list[str], count: str, wording: _Wording) -> str:
    noun = wording.noun.capitalize()
    header = (f"| {noun} | Description | Use When |", "|-------|-------------|----------|")
    after = ("", wording.table_instructions) if wording.table_instructions else ()
    return "\n".join((f"## Available {noun}s", "", wording.table_intro, "", *header, *lines, *after, "", count))


# -- Agent Skills XML format ---------------------------------------------------------------------


def _xml_texts(item: "Skill | AgentFile", max_length: int) -> tuple[str, str]:
    return _escape_xml(shorten(_summary(item), max_length)), ""


def _xml_cut(text: str, _: str, max_length: int) -> tuple[str, str]:
    return shorten(text, max_length), ""


def _escape_xml(text: str) -> str:
    import html

    return html.escape(remove_hidden(text))


def _xml_entry(item: "Skill | AgentFile", texts: tuple[str, str] | None) -> str:
    import html

    tag = "skill" if isinstance(item, Skill) else "agent"
    location = html.escape(reveal_hidden(os.path.realpath(item.path)), quote=False)
    return (
        f"<{tag}>\n<name>\n{_escape_xml(item.full_name)}\n</name>\n<description>\n{texts[0] if texts else ''}\n"
        f"</description>\n<location>\n{location}\n</location>\n</{tag}>"
    )


def _xml_frame(lines: list[str], count: str, wording: _Wording) -> str:
    tag = f"available_{wording.noun}s"
    note = [f"<!-- {count.strip('()')} -->"] if count else []
    return "\n".join((f"<{tag}>", *lines, *note, f"</{tag}>"))


_FORMATTERS: dict[CatalogFormat, _Formatter] = {
    "list": _Formatter(texts=_list_texts, cut=_list_cut, entry=_list_entry, frame=_list_frame),
    "table": _Formatter(texts=_table_texts, cut=_table_cut, entry=_table_entry, frame=_table_frame),
    "xml": _Formatter(texts=_xml_texts, cut=_xml_cut, entry=_xml_entry, frame=_xml_frame),
}
