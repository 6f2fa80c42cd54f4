"""A session's skills: the catalog it starts with, what has been loaded since, and what that costs (seed 002).

One for each session, never global. Built on the library's registry; used by whoever embeds Kitbag in
an agent program, and by the interfaces.
"""

import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from kitbag.errors import Diagnostic, InvalidError, KitbagError, NotFoundError
from kitbag.library.changes import Change
from kitbag.library.names import key_of
from kitbag.library.registry import Registry
from kitbag.library.scopes import Places, find_places
from kitbag.library.skill_files import Details, read_details
from kitbag.library.skills import Skill
from kitbag.packing.catalog import DEFAULT_WINDOW, Catalog, Format, budget_of, render_agents, render_skills
from kitbag.packing.delivery import deliver
from kitbag.text.source import Stamp, stamp_of
from kitbag.text.tokens import estimate_tokens

if TYPE_CHECKING:
    from kitbag.library.agents import Agent


class SkillMetadata(NamedTuple):
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


class SkillIndex(NamedTuple):
    """Metadata only: what a session knows at start."""

    skills: dict[str, Skill]
    subagents: "dict[str, Agent]"
    diagnostics: list[Diagnostic]

    @property
    def token_estimate(self) -> int:
        """What the names and descriptions in it cost."""
        texts = [f"- {skill.full_name}: {skill.summary}" for skill in self.skills.values()]
        texts += [f"- {agent.full_name}: {agent.description}" for agent in self.subagents.values()]
        return estimate_tokens("\n".join(texts))


class SkillDefinition(NamedTuple):
    metadata: SkillMetadata
    content: str
    """The instructions, without the head."""
    text: str
    """As a model gets it: `<skill-invocation>`."""
    tokens: int
    problems: tuple[Diagnostic, ...]


class LoadedSkillContext(NamedTuple):
    loaded_skills: list[str]
    total_tokens: int
    timestamp: str
    """When the last of them was loaded."""


class _Loaded(NamedTuple):
    definition: SkillDefinition
    stamp: Stamp
    at: float


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
        self._loaded: dict[str, _Loaded] = {}

    def scan_skills(self) -> SkillIndex:
        """Heads only; raises NotFoundError for a team or persona that does not exist."""
        skills = {skill.full_name: skill for skill, _ in self.library.visible_skills()}
        return SkillIndex(skills, self.get_available_subagents(), self.library.diagnostics())

    def get_skill_catalog(self, format: Format = "table", window_tokens: int = DEFAULT_WINDOW) -> str:  # noqa: A002
        return self.catalog(format, window_tokens).text

    def catalog(self, format: Format = "list", window_tokens: int = DEFAULT_WINDOW) -> Catalog:  # noqa: A002
        budget = budget_of(self.library.settings, window_tokens)
        return render_skills(self.library.visible_skills(), budget, format)

    def agent_catalog(self, format: Format = "list", window_tokens: int = DEFAULT_WINDOW) -> Catalog:  # noqa: A002
        budget = budget_of(self.library.settings, window_tokens)
        return render_agents(self.library.visible_agents(), budget, format)

    def get_available_subagents(self) -> "dict[str, Agent]":
        return {agent.full_name: agent for agent, _ in self.library.visible_agents()}

    def list_skill_names(self) -> list[str]:
        """Every skill that a model may load, listed in the catalog or not."""
        view = self.library.view()
        return [skill.full_name for skill in self.library.skills if self.library.judge(skill, view).model]

    def has_skill(self, skill_name: str) -> bool:
        """A model may load it."""
        try:
            return self.library.judge(self.library.find_skill(skill_name)).model
        except KitbagError:
            return False

    def is_skill_loaded(self, skill_name: str) -> bool:
        return self._loaded_name(skill_name) is not None

    def load_skill(self, skill_name: str) -> SkillDefinition:
        """The whole skill; read from disk at first use and again when its file changed.

        Raises NotFoundError or AmbiguousError for the name, InvalidError for a skill that is closed to models
        or whose file can't be read any more.
        """
        skill = self._find(skill_name)
        stamp = current_stamp(skill)
        known = self._loaded.get(skill.full_name)
        if known is not None and known.stamp == stamp:
            return known.definition
        delivery = deliver(skill)
        failed = next((problem for problem in delivery.problems if problem.severity == "error"), None)
        if stamp is None or failed is not None:
            what = failed.problem if failed else "can't be read any more"
            raise InvalidError(f"{skill.path}: {what}", failed.fix if failed else "restore the file")
        definition = SkillDefinition(
            metadata_of(skill, read_details(skill)),
            delivery.body,
            delivery.text,
            estimate_tokens(delivery.text),
            delivery.problems,
        )
        self._loaded[skill.full_name] = _Loaded(definition, stamp, time.time())
        return definition

    def _find(self, skill_name: str) -> Skill:
        """A skill that a model may load. Only such ones are suggested for a name that is unknown."""
        try:
            skill = self.library.find_skill(skill_name)
        except NotFoundError as error:
            skills, view = self.library.skills, self.library.view()
            close = [skills.get(name) for name in skills.close(skill_name, 20)]
            names = [skill.full_name for skill in close if self.library.judge(skill, view).model][:5]
            hint = f"did you mean {', '.join(names)}?" if names else "use a name from the catalog, or search"
            raise NotFoundError(error.problem, hint) from None
        verdict = self.library.judge(skill)
        if not verdict.model:
            raise InvalidError(f"{skill.full_name!r} can't be loaded by a model: {verdict.reason}")
        return skill

    def _loaded_name(self, skill_name: str) -> str | None:
        """What was loaded under that name, also when its file is gone since."""
        wanted = key_of(skill_name)
        for name in self._loaded:
            if key_of(name) == wanted:
                return name
        try:
            name = self.library.find_skill(skill_name).full_name
        except KitbagError:
            return None
        return name if name in self._loaded else None

    def unload_skill(self, skill_name: str) -> bool:
        """False when it was not loaded."""
        name = self._loaded_name(skill_name)
        return name is not None and self._loaded.pop(name, None) is not None

    def loaded(self) -> LoadedSkillContext:
        newest = max((loaded.at for loaded in self._loaded.values()), default=0.0)
        return LoadedSkillContext(
            list(self._loaded),
            sum(loaded.definition.tokens for loaded in self._loaded.values()),
            _time(newest) if newest else "",
        )

    def get_loaded_skills_summary(self) -> str:
        if not self._loaded:
            return "No skills are loaded."
        lines = [
            f"- {name}: {loaded.definition.tokens} tokens, loaded {_time(loaded.at)}"
            for name, loaded in self._loaded.items()
        ]
        context = self.loaded()
        lines.append(f"{len(lines)} loaded, {context.total_tokens} tokens in all.")
        return "\n".join(lines)

    def refresh(self) -> list[Change]:
        """At a turn's boundary: what was added (`+`), edited (`~`) or removed (`-`) since."""
        return self.library.refresh()


def current_stamp(skill: Skill) -> Stamp | None:
    try:
        return stamp_of(os.stat(skill.path))
    except OSError:
        return None


def metadata_of(skill: Skill, details: Details) -> SkillMetadata:
    return SkillMetadata(
        skill.name,
        skill.full_name,
        details.display_name,
        skill.description,
        skill.when_to_use,
        details.version,
        details.tags,
        details.triggers,
        details.requires,
        skill.subagents,
        skill.path,
    )


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
