"""The catalog of skills and agents that a model starts with: names always, descriptions inside a budget.

Every text in it is escaped, so that no description can close the block or add an entry, and the same
files give the same bytes. Used by the prompt, by `kitbag skills list --format` and over MCP.
"""

import os
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from kitbag.library.skills import COMMAND, FLAT, REQUIRED, Skill
from kitbag.library.visibility import Verdict
from kitbag.settings import Settings
from kitbag.text.hidden import one_line, remove_hidden

if TYPE_CHECKING:
    from kitbag.library.agents import Agent

Format = Literal["list", "table", "xml"]
FORMATS: tuple[Format, ...] = ("list", "table", "xml")
SHORTEST = 60
"""A description cut below this says nothing; then fewer skills are described instead."""
DEFAULT_WINDOW = 200_000

_ENTITY = re.compile(r"&(?=#|[A-Za-z]{1,8};)")


class Budget(NamedTuple):
    descriptions: int = 8_000
    names: int = 24_000
    entry: int = 1_536


def budget_of(settings: Settings, window_tokens: int = DEFAULT_WINDOW) -> Budget:
    """The catalog's budget; a share of the window counts four characters a token."""
    written = str(settings.get("catalog.descriptions"))
    if written.endswith("%"):
        descriptions = int(window_tokens * 4 * float(written[:-1]) / 100)
    else:
        descriptions = int(written)
    return Budget(descriptions, settings.get("catalog.names"), settings.get("catalog.entry"))


class Entry(NamedTuple):
    """One line to be: what it would say if there were room."""

    name: str
    description: str
    suffix: str
    when: str
    rank: tuple[int, ...]
    """Who is described first when not all can be."""
    described: bool
    path: str


class Catalog(NamedTuple):
    text: str
    described: int
    listed: int
    total: int


def skill_entries(pairs: Iterable[tuple[Skill, Verdict]]) -> list[Entry]:
    return [
        Entry(
            skill.full_name,
            skill.description,
            "",
            skill.when_to_use,
            (0 if skill.flags & REQUIRED else 1, skill.root.rank[0]),
            verdict.described and bool(skill.summary),
            skill.path,
        )
        for skill, verdict in pairs
    ]


def render_skills(
    pairs: Sequence[tuple[Skill, Verdict]], budget: Budget | None = None, format: Format = "list"  # noqa: A002
) -> Catalog:
    """`pairs` in sorted order, as Registry.visible_skills gives them. No skills: no text at all."""
    by_name = {skill.full_name: skill for skill, _ in pairs}

    def suffix(name: str) -> str:
        skill = by_name[name]
        return _hint(skill.argument_hint) + _counts(skill)

    return _render(skill_entries(pairs), budget or Budget(), format, _SKILLS, suffix)


def render_agents(
    pairs: "Sequence[tuple[Agent, Verdict]]", budget: Budget | None = None, format: Format = "list"  # noqa: A002
) -> Catalog:
    extensions = {agent.full_name: agent.file_extensions for agent, _ in pairs}
    entries = [
        Entry(agent.full_name, agent.description, "", "", (1, agent.root.rank[0]), verdict.described, agent.path)
        for agent, verdict in pairs
    ]

    def suffix(name: str) -> str:
        return f" [{', '.join(_safe(text) for text in extensions[name])}]" if extensions[name] else ""

    return _render(entries, budget or Budget(), format, _AGENTS, suffix)


class _Words(NamedTuple):
    tag: str
    noun: str
    intro: str
    table_title: str
    table_intro: str
    search_tool: str


_SKILLS = _Words(
    "available-skills",
    "skills",
    "Use the Skill tool to load any of these before doing the work it covers:",
    "## Available Skills",
    "Use the `load_skill` tool to load any skill before using its capabilities.",
    "SearchSkills",
)
_AGENTS = _Words(
    "available-agents",
    "agents",
    "Available agent types for the Task tool:",
    "## Available Agents",
    "Use the `Task` tool to hand work to any of these agents.",
    "",
)


def _render(entries: list[Entry], budget: Budget, format: Format, words: _Words, suffix) -> Catalog:  # noqa: A002
    if not entries:
        return Catalog("", 0, 0, 0)
    chosen, longest = _fit(entries, budget)
    listed = _within_names(entries, chosen, budget.names)
    lines: list[str] = []
    for entry in listed:
        full = entry.name in chosen
        if format == "table":
            lines.append(_row(entry, longest if full else 0))
        elif format == "xml":
            lines.append(_xml(entry, longest if full else 0))
        else:
            lines.append(_line(entry, longest if full else 0, suffix(entry.name) if full else ""))
    count = _count_line(len(chosen), len(listed), len(entries), words)
    return Catalog(_frame(lines, count, format, words), len(chosen), len(listed), len(entries))


def _frame(lines: list[str], count: str, format: Format, words: _Words) -> str:  # noqa: A002
    body = "\n".join(lines)
    if format == "xml":
        tag = words.tag.replace("-", "_")
        return f"<{tag}>\n{body}\n</{tag}>"
    if format == "table":
        head = f"| {words.noun.capitalize()[:-1]} | Description | Use When |\n|-------|-------------|----------|"
        return f"{words.table_title}\n\n{words.table_intro}\n\n{head}\n{body}\n\n{count}"
    return f"<{words.tag}>\n{words.intro}\n\n{body}\n\n{count}\n</{words.tag}>"


def _count_line(described: int, listed: int, total: int, words: _Words) -> str:
    line = f"{described} of {total} {words.noun} are described"
    if described < listed:
        line += "; the others can be used by name all the same"
    if listed < total:
        found = f"; {words.search_tool} finds them" if words.search_tool else ""
        line += f"; {total - listed} more are not listed{found}"
    return f"({line}.)"


def _fit(entries: list[Entry], budget: Budget) -> tuple[set[str], int]:
    """Which entries are described, and how long a description may be."""
    wanted = [(entry, min(_length(entry), budget.entry)) for entry in entries if entry.described]
    if sum(length for _, length in wanted) <= budget.descriptions:
        return {entry.name for entry, _ in wanted}, budget.entry
    most = budget.descriptions // SHORTEST
    if len(wanted) > most:
        wanted.sort(key=lambda pair: (pair[0].rank, pair[0].name.lower()))
        kept: list[tuple[Entry, int]] = []
        left = budget.descriptions
        for entry, length in wanted:
            need = min(length, SHORTEST)
            if need > left:
                break
            left -= need
            kept.append((entry, length))
        wanted = kept
    lengths = [length for _, length in wanted]
    low, high = 0, budget.entry
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(length, middle) for length in lengths) <= budget.descriptions:
            low = middle
        else:
            high = middle - 1
    return {entry.name for entry, _ in wanted} if low else set(), low


def _length(entry: Entry) -> int:
    return len(entry.description) + len(entry.when) + bool(entry.when)


def _within_names(entries: list[Entry], chosen: set[str], limit: int) -> list[Entry]:
    """All names if they fit; else those that are described, and as many more as there is room for."""
    if sum(len(entry.name) for entry in entries) <= limit:
        return entries
    left = limit - sum(len(name) for name in chosen)
    listed: list[Entry] = []
    for entry in entries:
        if entry.name in chosen:
            listed.append(entry)
        elif len(entry.name) <= left:
            left -= len(entry.name)
            listed.append(entry)
    return listed


def _safe(text: str) -> str:
    """One line that can't be taken for markup."""
    return _ENTITY.sub("&amp;", remove_hidden(one_line(text))).replace("<", "&lt;")


def shorten(text: str, longest: int) -> str:
    """At most `longest` characters, cut at a word, with an ellipsis for what is gone."""
    if len(text) <= longest:
        return text
    cut = text[: longest - 1]
    if " " in cut[longest // 2 :]:
        cut = cut[: cut.rindex(" ")]
    return cut.rstrip(" ,;:.-") + "…"


def _line(entry: Entry, longest: int, suffix: str) -> str:
    if not longest:
        return f"- {_safe(entry.name)}"
    summary = f"{entry.description} {entry.when}" if entry.when else entry.description
    return f"- {_safe(entry.name)}: {_safe(shorten(one_line(summary), longest))}{suffix}"


def _row(entry: Entry, longest: int) -> str:
    description = shorten(one_line(entry.description), longest) if longest else ""
    when = shorten(one_line(entry.when), max(longest - len(description), 0)) if longest and entry.when else ""
    cells = (_safe(text).replace("|", "\\|") for text in (entry.name, description, when))
    return f"| {' | '.join(cells)} |"


def _xml(entry: Entry, longest: int) -> str:
    import html

    summary = f"{entry.description} {entry.when}" if entry.when else entry.description
    description = html.escape(remove_hidden(shorten(summary, longest))) if longest else ""
    name = html.escape(remove_hidden(entry.name))
    return (
        f"<skill>\n<name>\n{name}\n</name>\n<description>\n{description}\n</description>\n"
        f"<location>\n{html.escape(os.path.realpath(entry.path), quote=False)}\n</location>\n</skill>"
    )


def _hint(hint: str) -> str:
    if not hint:
        return ""
    text = _safe(shorten(one_line(hint), 80))
    return f" {text}" if text.startswith(("[", "&lt;")) else f" [{text}]"


def _counts(skill: Skill) -> str:
    """`[2 scripts, 1 reference]`: only for skills that are described, so that listing many stays cheap."""
    if skill.flags & (FLAT | COMMAND):
        return ""
    parts: list[str] = []
    for folder, noun in (("scripts", "script"), ("references", "reference")):
        try:
            names = os.listdir(os.path.join(skill.directory, folder))
        except OSError:
            continue
        count = sum(1 for name in names if name[0] != ".")
        if count:
            parts.append(f"{count} {noun}{'s' if count > 1 else ''}")
    return f" [{', '.join(parts)}]" if parts else ""
