"""SkillRegistry, the public API to a session's skills: catalog, loading, unloading and token cost (seed 002).

One instance per session, never global. Used by programs that embed Kitbag and by integrations; uses
library.registry and session_skills.
"""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from kitbag.errors import Diagnostic, InvalidError, KitbagError
from kitbag.library.library_changes import Change
from kitbag.library.registry import Registry
from kitbag.library.scopes import Places, find_places
from kitbag.library.skill_files import SkillDetails, read_skill_details
from kitbag.library.skills import Skill
from kitbag.packing.catalog import DEFAULT_WINDOW, Catalog, CatalogFormat, catalog_budget, render_agents, render_skills
from kitbag.packing.session_skills import SessionSkills
from kitbag.text.source_files import FileStamp, file_stamp
from kitbag.text.tokens import estimate_tokens

if TYPE_CHECKING:
    from kitbag.library.agents import AgentFile


class SkillMetadata(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    full_name: str
    display_name: str
    description: str
    when_to_use: str
    version: str
    tags: tuple[str, ...]
    triggers: tuple[str, ...]
    requires: tuple[str, ...]
    subagents: tuple[str, ...]
    path: str


class SkillIndex(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata of all visible skills and subagents."""

    skills: dict[str, Skill]
    subagents: "dict[str, AgentFile]"
    diagnostics: list[Diagnostic]

    @property
    def token_estimate(self) -> int:
        """Tokens of all names and descriptions."""
        texts = [f"- {skill.full_name}: {skill.summary}" for skill in self.skills.values()]
        texts += [f"- {agent.full_name}: {agent.description}" for agent in self.subagents.values()]
        return estimate_tokens("\n".join(texts))


class SkillDefinition(msgspec.Struct, frozen=True, kw_only=True):
    metadata: SkillMetadata
    content: str
    """The instructions, without frontmatter."""
    text: str
    """The `<skill-invocation>` block as a model gets it."""
    tokens: int
    problems: tuple[Diagnostic, ...]


class LoadedSkillContext(msgspec.Struct, frozen=True, kw_only=True):
    loaded_skills: list[str]
    total_tokens: int
    timestamp: str
    """When the most recent one was loaded."""


class SkillRegistry:
    def __init__(
        self,
        team: str = "",
        persona: str = "",
        *,
        cwd: str | None = None,
        extra: Iterable[str] = (),
        places: Places | None = None,
        library: Registry | None = None,
    ) -> None:
        self.library = library or Registry(places or find_places(cwd), extra=extra, team=team, persona=persona)
        self.session = SessionSkills(self.library)
        self._read: dict[str, tuple[FileStamp, SkillDefinition]] = {}

    def scan_skills(self) -> SkillIndex:
        """Reads metadata only; raises NotFoundError for an unknown team or persona."""
        skills = {skill.full_name: skill for skill, _ in self.library.visible_skills()}
        return SkillIndex(
            skills=skills, subagents=self.get_available_subagents(), diagnostics=self.library.diagnostics()
        )

    def get_skill_catalog(self, format: CatalogFormat = "table", window_tokens: int = DEFAULT_WINDOW) -> str:  # noqa: A002
        """The table names the tool `load_skill`, as over MCP; the other formats are for Kitbag's own agents."""
        return self.catalog(format, window_tokens).text

    def catalog(self, format: CatalogFormat = "list", window_tokens: int = DEFAULT_WINDOW) -> Catalog:  # noqa: A002
        budget = catalog_budget(self.library.settings, window_tokens)
        return render_skills(self.library.visible_skills(), budget, format, over_mcp=format == "table")

    def agent_catalog(self, format: CatalogFormat = "list", window_tokens: int = DEFAULT_WINDOW) -> Catalog:  # noqa: A002
        budget = catalog_budget(self.library.settings, window_tokens)
        return render_agents(self.library.visible_agents(), budget, format)

    def get_available_subagents(self) -> "dict[str, AgentFile]":
        return {agent.full_name: agent for agent, _ in self.library.visible_agents()}

    def list_skill_names(self) -> list[str]:
        """All skills that a model may load, whether or not the catalog lists them."""
        view = self.library.visibility_context()
        return [skill.full_name for skill in self.library.skills if self.library.evaluate(skill, view).model]

    def has_skill(self, skill_name: str) -> bool:
        """True if a model may load it."""
        try:
            return self.library.evaluate(self.library.find_skill(skill_name)).model
        except KitbagError:
            return False

    def is_skill_loaded(self, skill_name: str) -> bool:
        return self.session.loaded_name(skill_name) is not None

    def load_skill(self, skill_name: str) -> SkillDefinition:
        """The whole skill; read from disk on first use and again if its file changed.

        Raises NotFoundError or AmbiguousError for the name, InvalidError if models may not load it or its file can't be
        read.
        """
        skill = self.session.find(skill_name)
        stamp = skill_file_stamp(skill)
        cached = self._read.get(skill.full_name)
        if cached is not None and cached[0] == stamp and self.is_skill_loaded(skill.full_name):
            return cached[1]
        delivered = self.session.load(skill.full_name)
        rendered = delivered.rendered
        if stamp is None or rendered is None:  # the file was just removed
            raise InvalidError(f"{skill.path}: the file no longer exists", "restore the file")
        definition = SkillDefinition(
            metadata=skill_metadata(skill, read_skill_details(skill)),
            content=rendered.body,
            text=rendered.text,
            tokens=estimate_tokens(rendered.text),
            problems=delivered.problems,
        )
        self._read[skill.full_name] = (stamp, definition)
        return definition

    def unload_skill(self, skill_name: str) -> bool:
        """False if it was not loaded."""
        return self.session.unload(skill_name) is not None

    def loaded(self) -> LoadedSkillContext:
        loaded = self.session.loaded()
        return LoadedSkillContext(
            loaded_skills=[skill.name for skill in loaded],
            total_tokens=sum(skill.tokens for skill in loaded),
            timestamp=max((skill.loaded_at for skill in loaded), default=""),
        )

    def get_loaded_skills_summary(self) -> str:
        loaded = self.session.loaded()
        if not loaded:
            return "No skills are loaded."
        lines = [f"- {skill.name}: {skill.tokens} tokens, loaded {skill.loaded_at}" for skill in loaded]
        lines.append(f"{len(lines)} loaded, {sum(skill.tokens for skill in loaded)} tokens in total.")
        return "\n".join(lines)

    def refresh(self) -> list[Change]:
        """Call between turns: what was added (`+`), edited (`~`) or removed (`-`)."""
        return self.library.refresh()


def skill_file_stamp(skill: Skill) -> FileStamp | None:
    try:
        return file_stamp(os.stat(skill.path))
    except OSError:
        return None


def skill_metadata(skill: Skill, details: SkillDetails) -> SkillMetadata:
    return SkillMetadata(
        name=skill.name,
        full_name=skill.full_name,
        display_name=details.display_name,
        description=skill.description,
        when_to_use=skill.when_to_use,
        version=details.version,
        tags=details.tags,
        triggers=details.triggers,
        requires=details.requires,
        subagents=skill.subagents,
        path=skill.path,
    )
