"""The catalog of skills and agents that a model starts with: names always, descriptions inside a budget.

Every text in it is escaped, so that no description can close the block or add an entry, and the same
files give the same bytes. Used by the prompt, by `kitbag skills list --format` and over MCP.
"""

import os
import re
from collections.abc import Callable, Collection, Sequence
from itertools import compress, repeat
from typing import TYPE_CHECKING, Literal, NamedTuple

from kitbag.library.skills import COMMAND, FLAT, REQUIRED, Skill
from kitbag.library.visibility import Verdict
from kitbag.settings import Settings
from kitbag.text.hidden_characters import collapse_whitespace, remove_hidden, reveal_hidden

if TYPE_CHECKING:
    from kitbag.library.agents import AgentFile

CatalogFormat = Literal["list", "table", "xml"]
CATALOG_FORMATS: tuple[CatalogFormat, ...] = ("list", "table", "xml")
MIN_DESCRIPTION = 60
"""A description cut below this says nothing; then fewer skills are described instead."""
DEFAULT_WINDOW = 200_000
MAX_HINT = 80

_ENTITY = re.compile(r"&(?=#|[A-Za-z]{1,8};)")
_CUT_ENTITY = re.compile(r"&(?:#?\w{0,8})\Z")


class Budget(NamedTuple):
    """In characters as they stand in the prompt, escaped. Tags, bullets and the closing line are not counted."""

    descriptions: int = 8_000
    """Descriptions with their hints and counts."""
    names: int = 24_000
    entry: int = 1_536
    """The longest description of one item."""


def catalog_budget(settings: Settings, window_tokens: int = DEFAULT_WINDOW) -> Budget:
    """The catalog's budget; a share of the window counts four characters a token."""
    written = str(settings.get("catalog.descriptions"))
    if written.endswith("%"):
        descriptions = int(window_tokens * 4 * float(written[:-1]) / 100)
    else:
        descriptions = int(written)
    return Budget(descriptions, settings.get("catalog.names"), settings.get("catalog.entry"))


class Catalog(NamedTuple):
    text: str
    described: int
    listed: int
    total: int


def render_skills(
    pairs: Sequence[tuple[Skill, Verdict]],
    budget: Budget | None = None,
    format: CatalogFormat = "list",  # noqa: A002
    *,
    over_mcp: bool = False,
) -> Catalog:
    """`pairs` in sorted order, as Registry.visible_skills gives them. No skills: no text at all. `over_mcp`: for a
    model that has the tools of the MCP server instead of Kitbag's own."""
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
    """One line of the list, for a skill that is told of outside the catalog."""
    return _list_entry(skill, _list_cut(*_list_texts(skill, max_length), max_length))


def parse_catalog_lines(text: str) -> dict[str, str]:
    """What a catalog in the form of a list has: name, as it stands there, to line."""
    return {line[2:].partition(": ")[0]: line for line in text.split("\n") if line.startswith("- ")}


def catalog_name(item: "Skill | AgentFile") -> str:
    """As it stands there."""
    return _escape(item.full_name)


class _Wording(NamedTuple):
    noun: str
    intro: str
    table_intro: str
    search_tool: str


_SKILLS = _Wording(
    "skill",
    "Use the Skill tool to load any of these before doing the work it covers:",
    "Use the `load_skill` tool to load any skill before using its capabilities.",
    "SearchSkills",
)
_SKILLS_OVER_MCP = _SKILLS._replace(
    intro="Use the load_skill tool to load any of these before doing the work it covers:",
    search_tool="search_skills",
)
_AGENTS = _Wording(
    "agent",
    "Available agent types for the Task tool:",
    "Use the `Task` tool to hand work to any of these agents.",
    "",
)


def _render(
    pairs: "Sequence[tuple[Skill | AgentFile, Verdict]]",
    lengths: list[int],
    budget: Budget,
    format: CatalogFormat,  # noqa: A002
    words: _Wording,
) -> Catalog:
    if not pairs:
        return Catalog("", 0, 0, 0)

    known: list[int] = []

    def ranks() -> list[int]:
        """Who is described first when not all can be: what is required, then by scope."""
        if not known:
            known.extend([item.root.rank[0] for item, _ in pairs])
            for at, (item, _) in enumerate(pairs):
                if isinstance(item, Skill) and item.flags & REQUIRED:
                    known[at] = -1
        return known

    form = _FORMATTERS[format]
    chosen, longest = _choose_described(lengths, ranks, budget)
    names = [item.full_name for item, _ in pairs]
    listed = _choose_listed(names, lambda: sorted(sorted(chosen), key=ranks().__getitem__), budget.names)
    chosen.intersection_update(listed)
    # Only now is any text made ready. Escapes and hints make some longer than was reckoned with.
    texts = {at: form.texts(pairs[at][0], longest) for at in chosen}
    if sum(len(first) + len(second) for first, second in texts.values()) > budget.descriptions:
        order = sorted(chosen)
        exact = [len("".join(texts[at])) for at in order]
        places, longest = _choose_described(exact, lambda: list(map(ranks().__getitem__, order)), budget)
        chosen = {order[place] for place in places}
    lines = [form.entry(pairs[at][0], form.cut(*texts[at], longest) if at in chosen else None) for at in listed]
    count = _count_line(len(chosen), len(listed), len(pairs), words)
    if format == "xml" and len(chosen) == len(pairs):
        count = ""  # then it is byte for byte what the reference library makes
    return Catalog(form.frame(lines, count, words), len(chosen), len(listed), len(pairs))


def _count_line(described: int, listed: int, total: int, words: _Wording) -> str:
    line = f"{described} of {total} {words.noun}s are described"
    if described < listed:
        line += f", {listed - described} more by name only"
    if listed < total:
        line += f", {total - listed} are not listed"
        line += f": {words.search_tool} finds them" if words.search_tool else ""
    if described < total:
        line += f"; every one can be {'used' if words is _AGENTS else 'loaded'} by its name"
    return f"({line}.)"


def _choose_described(lengths: list[int], ranks: Callable[[], list[int]], budget: Budget) -> tuple[set[int], int]:
    """Which entries are described (by position), and how long a description may be."""
    wanted = list(compress(range(len(lengths)), lengths))
    fits = sum(lengths) <= budget.descriptions
    if fits or (max(lengths) > budget.entry and sum(map(min, lengths, repeat(budget.entry))) <= budget.descriptions):
        return set(wanted), budget.entry
    if len(wanted) > budget.descriptions // MIN_DESCRIPTION:
        order = ranks()
        if min(order) != max(order):
            wanted.sort(key=order.__getitem__)  # stable: within a rank the order of names stays
        left = budget.descriptions
        for place, at in enumerate(wanted):
            left -= min(lengths[at], MIN_DESCRIPTION)
            if left < 0:
                del wanted[place:]
                break
    low, high = 0, budget.entry
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(lengths[at], middle) for at in wanted) <= budget.descriptions:
            low = middle
        else:
            high = middle - 1
    return set(wanted) if low else set(), low


def _choose_listed(names: list[str], best_first: Callable[[], list[int]], limit: int) -> Collection[int]:
    """All names if they fit; else those that are described, best first, and as many more as there is room for."""
    joined = "".join(names)
    if len(joined) <= limit and _escaped_length(joined) <= limit:
        return range(len(names))
    length_of = len if _escaped_length(joined) == len(joined) else _escaped_length
    left = limit
    kept: set[int] = set()
    for at in best_first():
        if (length := length_of(names[at])) <= left:
            left -= length
            kept.add(at)
    for at, name in enumerate(names):
        if left <= 0:
            break
        if (length := length_of(name)) <= left and at not in kept:
            left -= length
            kept.add(at)
    return sorted(kept)


def _escaped_length(text: str) -> int:
    """At most this many characters when escaped."""
    return len(text) + 3 * text.count("<") + 4 * text.count("&")


def _escape(text: str) -> str:
    """One line that can't be taken for markup."""
    plain = text.removesuffix("…")  # our own mark, which alone would call for the careful way
    if plain.isascii() and plain.isprintable() and "<" not in plain and "&" not in plain and "  " not in plain:
        return text.strip()
    return _ENTITY.sub("&amp;", remove_hidden(collapse_whitespace(text))).replace("<", "&lt;")


def shorten(text: str, max_length: int) -> str:
    """At most `longest` characters, cut at a word, with an ellipsis for what is gone."""
    if len(text) <= max_length:
        return text
    if max_length < 1:
        return ""
    cut = text[: max_length - 1]
    if " " in cut[max_length // 2 :]:
        cut = cut[: cut.rindex(" ")]
    cut = _CUT_ENTITY.sub("", cut.rstrip(" ,;:.-"))
    # A joiner or a flag's tag that has lost its neighbour is a hidden character.
    return remove_hidden(cut) + "…"


def _summary(item: "Skill | AgentFile") -> str:
    return item.summary if isinstance(item, Skill) else item.description


class _Formatter(NamedTuple):
    """How one format says it."""

    texts: "Callable[[Skill | AgentFile, int], tuple[str, str]]"
    """Two texts that describe an item, escaped; no more of them than so many characters of the source."""
    cut: Callable[[str, str, int], tuple[str, str]]
    """Both, in at most so many characters."""
    entry: "Callable[[Skill | AgentFile, tuple[str, str] | None], str]"
    frame: Callable[[list[str], str, _Wording], str]


# -- a list: `- name: description [argument-hint] [2 scripts, 1 reference]` ----------------------


def _list_texts(item: "Skill | AgentFile", longest: int) -> tuple[str, str]:
    return _escape(shorten(collapse_whitespace(_summary(item)), longest)), _format_suffix(item)


def _list_cut(text: str, suffix: str, longest: int) -> tuple[str, str]:
    if len(text) + len(suffix) > longest and longest - len(suffix) < MIN_DESCRIPTION:
        suffix = ""
    return shorten(text, longest - len(suffix)), suffix


def _list_entry(item: "Skill | AgentFile", texts: tuple[str, str] | None) -> str:
    name = _escape(item.full_name)
    return f"- {name}: {texts[0]}{texts[1]}" if texts else f"- {name}"


def _list_frame(lines: list[str], count: str, words: _Wording) -> str:
    tag = f"available-{words.noun}s"
    return "\n".join((f"<{tag}>", words.intro, "", *lines, "", count, f"</{tag}>"))


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
    """`[2 scripts, 1 reference]`: only for skills that are described, so that listing many stays cheap."""
    if skill.flags & (FLAT | COMMAND):
        return ""
    try:
        inside = os.listdir(skill.directory)
    except OSError:
        return ""
    parts: list[str] = []
    for folder, noun in (("scripts", "script"), ("references", "reference")):
        if folder not in inside:
            continue
        path = os.path.join(skill.directory, folder)
        if os.path.islink(path):
            continue  # as list_resources has it: what lies there is not the skill's
        try:
            names = os.listdir(path)
        except OSError:
            continue
        count = sum(1 for name in names if name[0] != ".")
        if count:
            parts.append(f"{count} {noun}{'s' if count > 1 else ''}")
    return f" [{', '.join(parts)}]" if parts else ""


# -- a table: Skill | Description | Use When -----------------------------------------------------


def _table_texts(item: "Skill | AgentFile", longest: int) -> tuple[str, str]:
    description = shorten(collapse_whitespace(item.description), longest)
    when = collapse_whitespace(item.when_to_use) if isinstance(item, Skill) else ""
    return _table_cell(description), _table_cell(shorten(when, longest - len(description)))


def _table_cut(description: str, when: str, longest: int) -> tuple[str, str]:
    description = shorten(description, longest)
    return description, shorten(when, longest - len(description))


def _table_cell(text: str) -> str:
    return _escape(text).replace("\\|", "\\\\|").replace("|", "\\|")


def _table_entry(item: "Skill | AgentFile", texts: tuple[str, str] | None) -> str:
    return f"| {' | '.join((_table_cell(item.full_name), *(texts or ('', ''))))} |"


def _table_frame(lines: list[str], count: str, words: _Wording) -> str:
    noun = words.noun.capitalize()
    head = (f"| {noun} | Description | Use When |", "|-------|-------------|----------|")
    return "\n".join((f"## Available {noun}s", "", words.table_intro, "", *head, *lines, "", count))


# -- the Agent Skills XML ------------------------------------------------------------------------


def _xml_texts(item: "Skill | AgentFile", longest: int) -> tuple[str, str]:
    return _escape_xml(shorten(_summary(item), longest)), ""


def _xml_cut(text: str, _: str, longest: int) -> tuple[str, str]:
    return shorten(text, longest), ""


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


def _xml_frame(lines: list[str], count: str, words: _Wording) -> str:
    tag = f"available_{words.noun}s"
    note = [f"<!-- {count.strip('()')} -->"] if count else []
    return "\n".join((f"<{tag}>", *lines, *note, f"</{tag}>"))


_FORMATTERS: dict[CatalogFormat, _Formatter] = {
    "list": _Formatter(_list_texts, _list_cut, _list_entry, _list_frame),
    "table": _Formatter(_table_texts, _table_cut, _table_entry, _table_frame),
    "xml": _Formatter(_xml_texts, _xml_cut, _xml_entry, _xml_frame),
}
