"""The main conversation's system prompt, as a ledger: base, tools, provider, memory, catalogs, extras, and last the
environment, so that all before it stays the same and can be cached (CONTRACT §3).

Used by runtime. Each section is capped and has an entry; joined, the entries are the prompt byte for byte.
"""

import os
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from kitbag.errors import Diagnostic
from kitbag.ledger import Entry, Ledger, kept
from kitbag.library.modes import Mode
from kitbag.library.registry import Registry
from kitbag.packing.catalog import budget_of, render_agents, render_skills
from kitbag.packing.compose import MODES, Environment
from kitbag.packing.memory import read_memory
from kitbag.text.hidden import one_line, reveal_hidden
from kitbag.text.tokens import estimate_tokens

LONGEST_EXTRA: Final = 20_000
_HERE = os.path.dirname(__file__)
_PROVIDERS: Final = {"anthropic": "provider_anthropic.md", "openai": "provider_openai.md"}


class Wanted(NamedTuple):
    """What a prompt is made for."""

    provider: str
    window: int
    mode: Mode
    environment: Environment
    tools: Collection[str] = ()
    trusted: bool = False
    """Whether what the workspace brings may be used."""
    append: str = ""
    """The person's own addition, from the command line."""


class MainPrompt(NamedTuple):
    ledger: Ledger
    stable: str
    """All but the environment."""
    environment: str
    warnings: tuple[Diagnostic, ...]


def main_prompt(library: Registry, wanted: Wanted, count: Callable[[str], int] = estimate_tokens) -> MainPrompt:
    memories = read_memory(library.places, wanted.trusted)
    entries = [_file("base", "main_base.md", count)]
    if wanted.tools:
        entries.append(_file("tools", "main_tools.md", count))
    entries.append(_file("provider", _PROVIDERS.get(wanted.provider, "provider_local.md"), count))
    for memory in memories.files:
        name = one_line(reveal_hidden(memory.path))
        text = f"# From {name}\n\n{memory.text}\n\n"
        entry = kept("memory", memory.path, text, count, memory.scope)
        if memory.cut:
            entry = entry._replace(status="cut", tokens_cut=memory.cut // 4, reason="memory files share one limit")
        entries.append(entry)
    entries += _catalogs(library, wanted, count)
    entries += _extras(library, wanted, count)
    stable = "".join(entry.text for entry in entries)
    title, words = MODES[wanted.mode]
    last = f"# Environment\n\n- Mode: {title}. {words}\n{wanted.environment.render()}\n"
    entries.append(kept("environment", "main_prompt.environment", last, count))
    return MainPrompt(Ledger(tuple(entries)), stable, last, memories.problems)


def _catalogs(library: Registry, wanted: Wanted, count: Callable[[str], int]) -> list[Entry]:
    """No skills: no block, and no word about them. The same for agents."""
    budget = budget_of(library.settings, wanted.window)
    entries: list[Entry] = []
    if "Skill" in wanted.tools:
        catalog = render_skills(library.visible_skills(), budget).text
        if catalog:
            entries.append(_file("skills", "main_skills.md", count))
            entries.append(kept("catalog", "skills", f"{catalog}\n\n", count, level="L0"))
    if "Task" in wanted.tools:
        catalog = render_agents(library.visible_agents(), budget).text
        if catalog:
            entries.append(kept("catalog", "agents", f"{catalog}\n\n", count, level="L0"))
    return entries


def _extras(library: Registry, wanted: Wanted, count: Callable[[str], int]) -> list[Entry]:
    entries: list[Entry] = []
    persona = library.persona
    for kind, source, text in (
        ("team", library.team, library.team_prompt()),
        ("persona", persona.path if persona else "", persona.system_prompt_additions if persona else ""),
        ("appended", "--append-system-prompt", wanted.append),
    ):
        text = reveal_hidden(text).strip()
        if not text:
            continue
        cut = max(0, len(text) - LONGEST_EXTRA)
        entry = kept(kind, source, f"{text[:LONGEST_EXTRA]}\n\n", count)
        entries.append(
            entry._replace(status="cut", tokens_cut=cut // 4, reason=f"longer than {LONGEST_EXTRA:,} characters")
            if cut
            else entry
        )
    return entries


def _file(kind: str, name: str, count: Callable[[str], int]) -> Entry:
    with open(os.path.join(_HERE, name), encoding="utf-8") as file:
        return kept(kind, name, f"{file.read().strip()}\n\n", count, "built-in")
