"""The catalog of skills and agents that a model starts with: names always, descriptions inside a budget.

Every text in it is escaped, so that no description can close the block or add an entry, and the same
files give the same bytes. Used by the prompt, by `kitbag skills list --format` and over MCP.
"""

import os
import re
from collections.abc import Callable, Sequence
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


class Catalog(NamedTuple):
    text: str
    described: int
    listed: int
    total: int


def render_skills(
    pairs: Sequence[tuple[Skill, Verdict]],
    budget: Budget | None = None,
    format: Format = "list",  # noqa: A002
) -> Catalog:
    """`pairs` in sorted order, as Registry.visible_skills gives them. No skills: no text at all."""
    lengths = [
        len(skill.description) + len(skill.when_to_use) + bool(skill.when_to_use) if verdict.described else 0
        for skill, verdict in pairs
    ]
    return _render(pairs, lengths, budget or Budget(), format, _SKILLS)


def render_agents(
    pairs: "Sequence[tuple[Agent, Verdict]]",
    budget: Budget | None = None,
    format: Format = "list",  # noqa: A002
) -> Catalog:
    lengths = [len(agent.description) if verdict.described else 0 for agent, verdict in pairs]
    return _render(pairs, lengths, budget or Budget(), format, _AGENTS)


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


def _render(
    pairs: "Sequence[tuple[Skill | Agent, Verdict]]",
    lengths: list[int],
    budget: Budget,
    format: Format,  # noqa: A002
    words: _Words,
) -> Catalog:
    if not pairs:
        return Catalog("", 0, 0, 0)
    chosen, longest = _fit(lengths, lambda at: _rank(pairs[at][0]), budget)
    listed = _within_names([item.full_name for item, _ in pairs], chosen, budget.names)
    line = {"table": _row, "xml": _xml, "list": _line}[format]
    lines = [line(pairs[at][0], longest if at in chosen else 0) for at in listed]
    count = _count_line(len(chosen), len(listed), len(pairs), words)
    return Catalog(_frame(lines, count, format, words), len(chosen), len(listed), len(pairs))


def _rank(item: "Skill | Agent") -> int:
    """Who is described first when not all can be: what is required, then by scope."""
    return -1 if isinstance(item, Skill) and item.flags & REQUIRED else item.root.rank[0]


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


def _fit(lengths: list[int], rank: "Callable[[int], int]", budget: Budget) -> tuple[set[int], int]:
    """Which entries are described (by position), and how long a description may be."""
    wanted = [at for at, length in enumerate(lengths) if length]
    if sum(min(lengths[at], budget.entry) for at in wanted) <= budget.descriptions:
        return set(wanted), budget.entry
    if len(wanted) > budget.descriptions // SHORTEST:
        wanted.sort(key=rank)  # stable: within a rank the order of names stays
        left = budget.descriptions
        for place, at in enumerate(wanted):
            left -= min(lengths[at], SHORTEST)
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


def _within_names(names: list[str], chosen: set[int], limit: int) -> Sequence[int]:
    """All names if they fit; else those that are described, and as many more as there is room for."""
    if sum(map(len, names)) <= limit:
        return range(len(names))
    left = limit - sum(len(names[at]) for at in chosen)
    listed: list[int] = []
    for at, name in enumerate(names):
        if at in chosen:
            listed.append(at)
        elif len(name) <= left:
            left -= len(name)
            listed.append(at)
    return listed


def _safe(text: str) -> str:
    """One line that can't be taken for markup."""
    if text.isascii() and text.isprintable() and "<" not in text and "&" not in text and "  " not in text:
        return text.strip()
    return _ENTITY.sub("&amp;", remove_hidden(one_line(text))).replace("<", "&lt;")


def shorten(text: str, longest: int) -> str:
    """At most `longest` characters, cut at a word, with an ellipsis for what is gone."""
    if len(text) <= longest:
        return text
    cut = text[: longest - 1]
    if " " in cut[longest // 2 :]:
        cut = cut[: cut.rindex(" ")]
    return cut.rstrip(" ,;:.-") + "…"


def _summary(item: "Skill | Agent") -> str:
    return item.summary if isinstance(item, Skill) else item.description


def _line(item: "Skill | Agent", longest: int) -> str:
    if not longest:
        return f"- {_safe(item.full_name)}"
    return f"- {_safe(item.full_name)}: {_safe(shorten(one_line(_summary(item)), longest))}{_suffix(item)}"


def _row(item: "Skill | Agent", longest: int) -> str:
    description = shorten(one_line(item.description), longest) if longest else ""
    when = item.when_to_use if isinstance(item, Skill) and longest else ""
    when = shorten(one_line(when), longest - len(description)) if longest > len(description) else ""
    cells = (_safe(text).replace("|", "\\|") for text in (item.full_name, description, when))
    return f"| {' | '.join(cells)} |"


def _xml(item: "Skill | Agent", longest: int) -> str:
    import html

    description = html.escape(remove_hidden(shorten(_summary(item), longest))) if longest else ""
    name = html.escape(remove_hidden(item.full_name))
    return (
        f"<skill>\n<name>\n{name}\n</name>\n<description>\n{description}\n</description>\n"
        f"<location>\n{html.escape(os.path.realpath(item.path), quote=False)}\n</location>\n</skill>"
    )


def _suffix(item: "Skill | Agent") -> str:
    if isinstance(item, Skill):
        return _hint(item.argument_hint) + _counts(item)
    return f" [{', '.join(_safe(text) for text in item.file_extensions)}]" if item.file_extensions else ""


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
