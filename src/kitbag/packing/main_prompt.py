"""The main conversation's system prompt, as a ledger: base, tools, provider, memory, catalogs, extras, and last the
environment, so that all before it stays the same and can be cached (CONTRACT §3).

Used by runtime. Each section is capped and has an entry; joined, the entries are the prompt byte for byte. In the
`.md` files a line that ends with `<!-- Name Other -->` is there only when the run has these tools (`tools`: any).
"""

import os
import re
from collections.abc import Callable, Collection, Iterator
from typing import Final, Literal, NamedTuple

from kitbag.errors import Diagnostic
from kitbag.ledger import Entry, Ledger
from kitbag.library.dialects.permission_modes import Mode
from kitbag.library.registry import Registry
from kitbag.packing.agent_prompt import MODES, Environment
from kitbag.packing.catalog import budget_of, render_agents, render_skills
from kitbag.packing.memory_files import Memory, read_memory
from kitbag.text.hidden_characters import one_line, reveal_hidden
from kitbag.text.tokens import estimate_tokens

Kind = Literal[
    "base", "tools", "provider", "memory", "skills", "catalog", "team", "persona", "appended", "environment"
]  # fmt: skip
LONGEST_EXTRA: Final = 20_000
LONGEST_ENVIRONMENT: Final = 4_000
_HERE = os.path.dirname(__file__)
_PROVIDERS: Final = {
    "anthropic": "provider_anthropic.md",
    "openai": "provider_openai.md",
    **dict.fromkeys(("ollama", "llamacpp", "vllm", "lmstudio", "local"), "provider_local.md"),
}
_FOR_TOOLS = re.compile(r"^(?P<line>.*?)[ \t]*<!-- (?P<names>[\w ]+) -->$")
# The blocks that we make: no text of others may begin or end one.
_OUR_TAGS = re.compile(
    r"<(?=\s*/?\s*(?:available-(?:skills|agents)|suggested-skills|skill-invocation|library-changes"
    r"|session-changes|conversation-summary|task-notification|mentioned-(?:file|folder|agent|command)))",
    re.IGNORECASE,
)


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


class Section(NamedTuple):
    kind: Kind
    source: str
    text: str
    """With what separates it from the next."""
    scope: str = "built-in"
    level: str = ""
    left_out: str = ""
    """What a limit kept out."""
    reason: str = ""

    def entry(self, count: Callable[[str], int]) -> Entry:
        status = "cut" if self.left_out else "kept"
        cut = count(self.left_out) if self.left_out else 0
        return Entry(
            self.kind, self.source, self.scope, self.level, self.text, count(self.text), cut, status, self.reason
        )


def main_prompt(library: Registry, wanted: Wanted, count: Callable[[str], int] = estimate_tokens) -> MainPrompt:
    memories = read_memory(
        library.places, wanted.trusted, link_targets=tuple(library.settings.get("library.link_targets"))
    )
    problems = list(memories.problems)
    sections = [
        *_own("base", "main_base.md", wanted),
        *(_own("tools", "main_tools.md", wanted) if wanted.tools else ()),
        *_own("provider", _PROVIDERS.get(wanted.provider, "provider_other.md"), wanted),
        *_memory(memories.files, wanted),
        *_catalogs(library, wanted),
        *_extras(library, wanted, problems),
    ]
    environment = _environment(wanted)
    ledger = Ledger(tuple(section.entry(count) for section in (*sections, environment)))
    stable = "".join(section.text for section in sections)
    warnings = [
        Diagnostic("warning", "prompt-cut", one.source, 0, one.reason, "shorten it, or make a skill of it")
        for one in sections
        if one.left_out and one.kind != "memory"
    ]
    return MainPrompt(ledger, stable, environment.text, (*problems, *warnings))


def _own(kind: Kind, name: str, wanted: Wanted) -> Iterator[Section]:
    """A file of ours, with the lines that are true of this run."""
    with open(os.path.join(_HERE, name), encoding="utf-8") as file:
        lines = [_for_tools(line, wanted.tools) for line in file.read().strip().split("\n")]
    text = "\n".join(line for line in lines if line is not None)
    if text.strip():
        yield Section(kind, name, f"{text}\n\n")


def _for_tools(line: str, tools: Collection[str]) -> str | None:
    marked = _FOR_TOOLS.match(line)
    if marked is None:
        return line
    has_all = all(name in tools or (name == "tools" and tools) for name in marked["names"].split())
    return marked["line"] if has_all else None


def _memory(files: tuple[Memory, ...], wanted: Wanted) -> Iterator[Section]:
    if files:
        yield from _own("memory", "main_memory.md", wanted)
    for memory in files:
        source = one_line(reveal_hidden(memory.path))
        text = f"## From {_safe(source)}\n\n{_safe(memory.text)}\n\n"
        reason = "memory files share one limit" if memory.left_out else ""
        yield Section("memory", source, text, memory.scope, left_out=memory.left_out, reason=reason)


def _catalogs(library: Registry, wanted: Wanted) -> Iterator[Section]:
    """No skills: no block, and no word about them. The same for agents."""
    budget = budget_of(library.settings, wanted.window)
    if "Skill" in wanted.tools:
        catalog = render_skills(library.visible_skills(), budget).text
        if catalog:
            yield from _own("skills", "main_skills.md", wanted)
            yield Section("catalog", "skills", f"{catalog}\n\n", "", "L0")
    if "Task" in wanted.tools:
        catalog = render_agents(library.visible_agents(), budget).text
        if catalog:
            yield Section("catalog", "agents", f"{catalog}\n\n", "", "L0")


def _extras(library: Registry, wanted: Wanted, problems: list[Diagnostic]) -> Iterator[Section]:
    team, persona = library.team, library.persona
    extras: tuple[tuple[Kind, str, str, str], ...] = (
        ("team", team, "", library.team_prompt(problems) if team else ""),
        (
            "persona",
            one_line(reveal_hidden(persona.path)) if persona else "",
            persona.root.scope if persona else "",
            persona.system_prompt_additions if persona else "",
        ),
        ("appended", "--append-system-prompt", "command line", wanted.append),
    )
    for kind, source, scope, written in extras:
        text = _safe(reveal_hidden(written)).strip()
        if text:
            yield _capped(Section(kind, source, text, scope), LONGEST_EXTRA)


def _environment(wanted: Wanted) -> Section:
    title, words = MODES[wanted.mode]
    text = f"# Environment\n\n- Mode: {title}. {words}\n{_safe(reveal_hidden(wanted.environment.render()))}"
    return _capped(Section("environment", "main_prompt.environment", text), LONGEST_ENVIRONMENT, "\n")


def _capped(section: Section, limit: int, end: str = "\n\n") -> Section:
    if len(section.text) <= limit:
        return section._replace(text=f"{section.text}{end}")
    kept, left_out = section.text[:limit], section.text[limit:]
    note = f"[{len(left_out):,} more characters are left out.]"
    reason = f"longer than {limit:,} characters: {len(left_out):,} are left out"
    return section._replace(text=f"{kept}\n{note}{end}", left_out=left_out, reason=reason)


def _safe(text: str) -> str:
    return _OUR_TAGS.sub("&lt;", text)
