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
from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.library.registry import Registry
from kitbag.packing.agent_prompt import MODE_DESCRIPTIONS, EnvironmentInfo
from kitbag.packing.catalog import catalog_budget, render_agents, render_skills
from kitbag.packing.memory_files import MemoryFile, read_memory_files
from kitbag.text.hidden_characters import collapse_whitespace, reveal_hidden
from kitbag.text.tokens import estimate_tokens

SectionKind = Literal[
    "base", "tools", "provider", "memory", "skills", "catalog", "team", "persona", "appended", "environment"
]  # fmt: skip
MAX_EXTRA_CHARACTERS: Final = 20_000
MAX_ENVIRONMENT_CHARACTERS: Final = 4_000
_PROMPT_DIR = os.path.dirname(__file__)
_PROVIDERS: Final = {
    "anthropic": "provider_anthropic.md",
    "openai": "provider_openai.md",
    **dict.fromkeys(("ollama", "llamacpp", "vllm", "lmstudio", "local"), "provider_local.md"),
}
_TOOL_CONDITION = re.compile(r"^(?P<line>.*?)[ \t]*<!-- (?P<names>[\w ]+) -->$")
# The blocks that we make: no text of others may begin or end one.
_RESERVED_TAGS = re.compile(
    r"<(?=\s*/?\s*(?:available-(?:skills|agents)|suggested-skills|skill-invocation|library-changes"
    r"|session-changes|conversation-summary|task-notification|mentioned-(?:file|folder|agent|command)))",
    re.IGNORECASE,
)


class MainPromptInputs(NamedTuple):
    """What a prompt is made for."""

    provider: str
    window: int
    mode: PermissionMode
    environment: EnvironmentInfo
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


class PromptSection(NamedTuple):
    kind: SectionKind
    source: str
    text: str
    """With what separates it from the next."""
    scope: str = "built-in"
    level: str = ""
    omitted: str = ""
    """What a limit kept out."""
    reason: str = ""

    def to_entry(self, count: Callable[[str], int]) -> Entry:
        status = "cut" if self.omitted else "kept"
        cut = count(self.omitted) if self.omitted else 0
        return Entry(
            self.kind, self.source, self.scope, self.level, self.text, count(self.text), cut, status, self.reason
        )


def build_main_prompt(
    library: Registry, inputs: MainPromptInputs, count: Callable[[str], int] = estimate_tokens
) -> MainPrompt:
    memories = read_memory_files(
        library.places, inputs.trusted, link_targets=tuple(library.settings.get("library.link_targets"))
    )
    problems = list(memories.problems)
    sections = [
        *_file_sections("base", "main_base.md", inputs),
        *(_file_sections("tools", "main_tools.md", inputs) if inputs.tools else ()),
        *_file_sections("provider", _PROVIDERS.get(inputs.provider, "provider_other.md"), inputs),
        *_memory_sections(memories.files, inputs),
        *_catalog_sections(library, inputs),
        *_extra_sections(library, inputs, problems),
    ]
    environment = _environment_section(inputs)
    ledger = Ledger(tuple(section.to_entry(count) for section in (*sections, environment)))
    stable = "".join(section.text for section in sections)
    warnings = [
        Diagnostic("warning", "prompt-cut", one.source, 0, one.reason, "shorten it, or make a skill of it")
        for one in sections
        if one.omitted and one.kind != "memory"
    ]
    return MainPrompt(ledger, stable, environment.text, (*problems, *warnings))


def _file_sections(kind: SectionKind, name: str, wanted: MainPromptInputs) -> Iterator[PromptSection]:
    """A file of ours, with the lines that are true of this run."""
    with open(os.path.join(_PROMPT_DIR, name), encoding="utf-8") as file:
        lines = [_apply_tool_condition(line, wanted.tools) for line in file.read().strip().split("\n")]
    text = "\n".join(line for line in lines if line is not None)
    if text.strip():
        yield PromptSection(kind, name, f"{text}\n\n")


def _apply_tool_condition(line: str, tools: Collection[str]) -> str | None:
    marked = _TOOL_CONDITION.match(line)
    if marked is None:
        return line
    has_all = all(name in tools or (name == "tools" and tools) for name in marked["names"].split())
    return marked["line"] if has_all else None


def _memory_sections(files: tuple[MemoryFile, ...], wanted: MainPromptInputs) -> Iterator[PromptSection]:
    if files:
        yield from _file_sections("memory", "main_memory.md", wanted)
    for memory in files:
        source = collapse_whitespace(reveal_hidden(memory.path))
        text = f"## From {_escape_reserved_tags(source)}\n\n{_escape_reserved_tags(memory.text)}\n\n"
        reason = "memory files share one limit" if memory.omitted else ""
        yield PromptSection("memory", source, text, memory.scope, omitted=memory.omitted, reason=reason)


def _catalog_sections(library: Registry, wanted: MainPromptInputs) -> Iterator[PromptSection]:
    """No skills: no block, and no word about them. The same for agents."""
    budget = catalog_budget(library.settings, wanted.window)
    if "Skill" in wanted.tools:
        catalog = render_skills(library.visible_skills(), budget).text
        if catalog:
            yield from _file_sections("skills", "main_skills.md", wanted)
            yield PromptSection("catalog", "skills", f"{catalog}\n\n", "", "L0")
    if "Task" in wanted.tools:
        catalog = render_agents(library.visible_agents(), budget).text
        if catalog:
            yield PromptSection("catalog", "agents", f"{catalog}\n\n", "", "L0")


def _extra_sections(library: Registry, wanted: MainPromptInputs, problems: list[Diagnostic]) -> Iterator[PromptSection]:
    team, persona = library.team, library.persona
    extras: tuple[tuple[SectionKind, str, str, str], ...] = (
        ("team", team, "", library.team_prompt(problems) if team else ""),
        (
            "persona",
            collapse_whitespace(reveal_hidden(persona.path)) if persona else "",
            persona.root.scope if persona else "",
            persona.system_prompt_additions if persona else "",
        ),
        ("appended", "--append-system-prompt", "command line", wanted.append),
    )
    for kind, source, scope, written in extras:
        text = _escape_reserved_tags(reveal_hidden(written)).strip()
        if text:
            yield _cap_section(PromptSection(kind, source, text, scope), MAX_EXTRA_CHARACTERS)


def _environment_section(wanted: MainPromptInputs) -> PromptSection:
    title, words = MODE_DESCRIPTIONS[wanted.mode]
    text = (
        f"# Environment\n\n- Mode: {title}."
        f" {words}\n{_escape_reserved_tags(reveal_hidden(wanted.environment.render()))}"
    )
    return _cap_section(PromptSection("environment", "main_prompt.environment", text), MAX_ENVIRONMENT_CHARACTERS, "\n")


def _cap_section(section: PromptSection, limit: int, end: str = "\n\n") -> PromptSection:
    if len(section.text) <= limit:
        return section._replace(text=f"{section.text}{end}")
    kept, left_out = section.text[:limit], section.text[limit:]
    note = f"[{len(left_out):,} more characters are left out.]"
    reason = f"longer than {limit:,} characters: {len(left_out):,} are left out"
    return section._replace(text=f"{kept}\n{note}{end}", omitted=left_out, reason=reason)


def _escape_reserved_tags(text: str) -> str:
    return _RESERVED_TAGS.sub("&lt;", text)
