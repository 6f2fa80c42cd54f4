"""The main agent's system prompt as a ledger: base, tools, provider, memory, catalogs, extras, and the environment
last, so that the prefix stays the same and can be cached (CONTRACT §3). Used by assembly.

Each section is capped and has a ledger entry; the joined entries are the prompt, byte for byte. In the `.md` files,
a line ending in `<!-- Name Other -->` is included only if the run has these tools (`tools`: any tool).
"""

import os
import re
from collections.abc import Callable, Collection, Iterator
from typing import Final, Literal

import msgspec

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
# Tags of generated blocks: text from files may not open or close them.
_RESERVED_TAGS = re.compile(
    r"<(?=\s*/?\s*(?:available-(?:skills|agents)|suggested-skills|skill-invocation|library-changes"
    r"|session-changes|conversation-summary|task-notification|mentioned-(?:file|folder|agent|command)))",
    re.IGNORECASE,
)


class MainPromptInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What the main prompt depends on, besides the library."""

    provider: str
    window: int
    mode: PermissionMode
    environment: EnvironmentInfo
    tools: Collection[str] = ()
    trusted: bool = False
    """Whether the workspace is trusted."""
    append: str = ""
    """Value of --append-system-prompt."""


class MainPrompt(msgspec.Struct, frozen=True, kw_only=True):
    ledger: Ledger
    stable: str
    """Everything but the environment section."""
    environment: str
    warnings: tuple[Diagnostic, ...]


class PromptSection(msgspec.Struct, frozen=True, kw_only=True):
    kind: SectionKind
    source: str
    text: str
    """Includes the separator to the next section."""
    scope: str = "built-in"
    level: str = ""
    omitted: str = ""
    """Text dropped by a limit."""
    reason: str = ""

    def to_entry(self, count: Callable[[str], int]) -> Entry:
        status = "cut" if self.omitted else "kept"
        tokens_cut = count(self.omitted) if self.omitted else 0
        return Entry(
            kind=self.kind,
            source=self.source,
            scope=self.scope,
            level=self.level,
            text=self.text,
            tokens=count(self.text),
            tokens_cut=tokens_cut,
            status=status,
            reason=self.reason,
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
        Diagnostic(
            severity="warning",
            code="prompt-cut",
            file=section.source,
            line=0,
            problem=section.reason,
            fix="shorten it, or turn it into a skill",
        )
        for section in sections
        if section.omitted and section.kind != "memory"
    ]
    return MainPrompt(ledger=ledger, stable=stable, environment=environment.text, warnings=(*problems, *warnings))


def _file_sections(kind: SectionKind, name: str, inputs: MainPromptInputs) -> Iterator[PromptSection]:
    """A built-in prompt file, with the lines that apply to this run's tools."""
    with open(os.path.join(_PROMPT_DIR, name), encoding="utf-8") as file:
        lines = [_apply_tool_condition(line, inputs.tools) for line in file.read().strip().split("\n")]
    text = "\n".join(line for line in lines if line is not None)
    if text.strip():
        yield PromptSection(kind=kind, source=name, text=f"{text}\n\n")


def _apply_tool_condition(line: str, tools: Collection[str]) -> str | None:
    match = _TOOL_CONDITION.match(line)
    if match is None:
        return line
    has_all = all(name in tools or (name == "tools" and tools) for name in match["names"].split())
    return match["line"] if has_all else None


def _memory_sections(files: tuple[MemoryFile, ...], inputs: MainPromptInputs) -> Iterator[PromptSection]:
    if files:
        yield from _file_sections("memory", "main_memory.md", inputs)
    for memory in files:
        source = collapse_whitespace(reveal_hidden(memory.path))
        text = f"## From {_escape_reserved_tags(source)}\n\n{_escape_reserved_tags(memory.text)}\n\n"
        reason = "over the limit for all memory files" if memory.omitted else ""
        yield PromptSection(
            kind="memory", source=source, text=text, scope=memory.scope, omitted=memory.omitted, reason=reason
        )


def _catalog_sections(library: Registry, inputs: MainPromptInputs) -> Iterator[PromptSection]:
    """No skills: no block and no mention of skills. The same for agents."""
    budget = catalog_budget(library.settings, inputs.window)
    if "Skill" in inputs.tools:
        catalog = render_skills(library.visible_skills(), budget).text
        if catalog:
            yield from _file_sections("skills", "main_skills.md", inputs)
            yield PromptSection(kind="catalog", source="skills", text=f"{catalog}\n\n", scope="", level="L0")
    if "Task" in inputs.tools:
        catalog = render_agents(library.visible_agents(), budget).text
        if catalog:
            yield PromptSection(kind="catalog", source="agents", text=f"{catalog}\n\n", scope="", level="L0")


def _extra_sections(library: Registry, inputs: MainPromptInputs, problems: list[Diagnostic]) -> Iterator[PromptSection]:
    team, persona = library.team, library.persona
    extras: tuple[tuple[SectionKind, str, str, str], ...] = (
        ("team", team, "", library.team_prompt(problems) if team else ""),
        (
            "persona",
            collapse_whitespace(reveal_hidden(persona.path)) if persona else "",
            persona.root.scope if persona else "",
            persona.system_prompt_additions if persona else "",
        ),
        ("appended", "--append-system-prompt", "command line", inputs.append),
    )
    for kind, source, scope, content in extras:
        text = _escape_reserved_tags(reveal_hidden(content)).strip()
        if text:
            yield _cap_section(PromptSection(kind=kind, source=source, text=text, scope=scope), MAX_EXTRA_CHARACTERS)


def _environment_section(inputs: MainPromptInputs) -> PromptSection:
    title, description = MODE_DESCRIPTIONS[inputs.mode]
    text = (
        f"# Environment\n\n- Mode: {title}."
        f" {description}\n{_escape_reserved_tags(reveal_hidden(inputs.environment.render()))}"
    )
    return _cap_section(
        PromptSection(kind="environment", source="main_prompt.environment", text=text), MAX_ENVIRONMENT_CHARACTERS, "\n"
    )


def _cap_section(section: PromptSection, limit: int, end: str = "\n\n") -> PromptSection:
    if len(section.text) <= limit:
        return msgspec.structs.replace(section, text=f"{section.text}{end}")
    kept, omitted = section.text[:limit], section.text[limit:]
    note = f"[{len(omitted):,} more characters omitted.]"
    reason = f"longer than {limit:,} characters; {len(omitted):,} omitted"
    return msgspec.structs.replace(section, text=f"{kept}\n{note}{end}", omitted=omitted, reason=reason)


def _escape_reserved_tags(text: str) -> str:
    return _RESERVED_TAGS.sub("&lt;", text)
