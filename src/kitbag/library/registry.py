"""Everything that was found, by name, with one visibility rule over it: the library's front door.

Lazy: skills, agents, personas and plugins are each looked for when first asked for. `refresh` sees
what changed on disk. One registry a session; nothing is global. Used by packing and the interfaces.
"""

import os
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kitbag.errors import Diagnostic, InvalidError, KitbagError, NotFoundError, worst_first
from kitbag.library import index
from kitbag.library.discover import TeamFile
from kitbag.library.library_changes import Change, LibrarySnapshot, diff_snapshots, take_snapshot
from kitbag.library.names import LibraryItem, Namespace
from kitbag.library.scopes import (
    PLUGIN_RANK,
    ItemKind,
    Places,
    Root,
    check_path_links,
    describe_precedence,
    find_places,
    find_roots,
)
from kitbag.library.skills import Skill
from kitbag.library.untrusted_items import UntrustedItem, UntrustedItemError, is_project_root
from kitbag.library.visibility import Verdict, VisibilityContext, evaluate_agent, evaluate_skill, evaluate_skills
from kitbag.settings import Settings, load_settings
from kitbag.text.source_files import LINK_OUTSIDE

if TYPE_CHECKING:  # what is not needed to list skills is imported where it is used
    from kitbag.library.agents import AgentFile
    from kitbag.library.personas import Persona
    from kitbag.library.skills_manifest import ManifestEntry


T = TypeVar("T", bound=LibraryItem)
NO_PERSONA: Final = "none"
"""In place of a persona's name: none, whatever the settings say. No persona can be called so."""


class _LoadedItems(Generic[T]):
    """All of one kind, and what was wrong with it."""

    __slots__ = ("diagnostics", "namespace")

    def __init__(self, noun: str) -> None:
        self.namespace: Namespace[T] = Namespace(noun)
        self.diagnostics: list[Diagnostic] = []


class Registry:
    def __init__(
        self,
        places: Places | None = None,
        *,
        extra: Iterable[str] = (),
        team: str = "",
        persona: str = "",
        settings: Settings | None = None,
        use_index: bool = True,
        omit_project: bool = False,
        is_still_trusted: Callable[[], bool] | None = None,
    ) -> None:
        """`leave_out_project`: of a workspace that is not trusted nothing is seen (left_out names what that is).
        `still_trusted` is asked when an item of the workspace has come or changed while the registry is in use. Raises
        InvalidError where a link leads a directory of `extra` out of the workspace."""
        self.places = places or find_places()
        self.omit_project = omit_project
        self.is_still_trusted = is_still_trusted
        self.has_lost_trust = False
        """Since it was made, and nobody has been told."""
        self._active_places = self.places._replace(project_dirs=()) if omit_project else self.places
        self.extra = tuple(os.path.abspath(directory) for directory in extra)
        for directory in self.extra:
            check_path_links(directory, self.places.project)
        self.settings = settings or load_settings(self._active_places.kitbag_home, self._active_places.project_dirs)
        self.precedence: str = self.settings.get("precedence")
        self._use_index = use_index
        self._cached_scans: dict[tuple[str, str], index.CachedScan] = {}
        self._requested = (team, persona)
        self._selection: tuple[str, Persona | None] | None = None
        self._skills: _LoadedItems[Skill] | None = None
        self._agents: _LoadedItems[AgentFile] | None = None
        self._personas: _LoadedItems[Persona] | None = None
        self._manifest: dict[str, ManifestEntry] = {}
        self._rooted_team_files: list[tuple[Root, TeamFile]] = []
        self._named_by_skills: frozenset[str] | None = None
        self._unreported: LibrarySnapshot | None = None
        """What there was when changes were last told, if somebody has looked again since."""

    # -- what there is ---------------------------------------------------------------------------

    @property
    def skills(self) -> Namespace[Skill]:
        return self._load_skills().namespace

    @property
    def agents(self) -> "Namespace[AgentFile]":
        return self._load_agents().namespace

    @property
    def personas(self) -> "Namespace[Persona]":
        return self._load_personas().namespace

    def manifest_entry(self, skill: Skill) -> "ManifestEntry | None":
        return self._manifest.get(skill.path)

    def roots(self, kind: ItemKind) -> list[Root]:
        """Existing directories that may hold `kind`, best first; plugins' own are not among them."""
        found = find_roots(
            self._active_places,
            kind,
            self.precedence,
            self.extra,
            link_targets=tuple(self.settings.get("library.link_targets")),
        )
        return [root for root in found if not is_project_root(root, self.places)] if self.omit_project else found

    # -- loading ---------------------------------------------------------------------------------

    def _plugin_roots(self, kinds: tuple[ItemKind, ...]) -> tuple[list[Root], list[Diagnostic]]:
        if not os.path.isdir(os.path.join(self.places.kitbag_home, "plugins")):
            return [], []
        from kitbag.library.plugins.installed import load_installed, plugin_roots

        plugins, diagnostics = load_installed(self.places.kitbag_home)
        roots = [
            root
            for at, plugin in enumerate(plugins)
            if plugin.enabled
            for root in plugin_roots(plugin, (PLUGIN_RANK, at))
            if root.kind in kinds
        ]
        return roots, diagnostics

    def _scan(self, root: Root, teams: frozenset[str]) -> index.CachedScan:
        key = (os.path.join(root.path, root.only_file), root.kind)
        before = self._cached_scans.get(key)
        home = self.places.kitbag_home
        if before is None and self._use_index and root.scope != "built-in":
            now = index.scan_indexed(home, root, teams)
        else:
            now = index.scan_with_cache(root, before, teams)
        self._cached_scans[key] = now
        return now

    def _load_skills(self) -> _LoadedItems[Skill]:
        if self._skills is not None:
            return self._skills
        loaded: _LoadedItems[Skill] = _LoadedItems("skill")
        self._manifest, self._rooted_team_files = {}, []
        teams = self._declared_teams()
        plugin_roots, diagnostics = self._plugin_roots(("skills", "commands"))
        loaded.diagnostics.extend(diagnostics)
        roots = [*self.roots("skills"), *self.roots("commands"), *plugin_roots]
        # A skill wins over a command of its name in the same place, so commands come after skills.
        for root in sorted(roots, key=lambda root: (root.rank[0], root.kind == "commands", root.rank)):
            scan = self._scan(root, teams if root.kind == "skills" else frozenset()).scan
            loaded.diagnostics.extend(scan.diagnostics)
            self._rooted_team_files.extend((root, side) for side in scan.team_files)
            skills = scan.skills
            if root.kind == "skills" and os.path.isfile(os.path.join(root.path, "manifest.json")):
                from kitbag.library.skills_manifest import apply_manifest

                skills, entries = apply_manifest(root, skills, loaded.diagnostics)
                self._manifest.update(entries)
            loaded.namespace.add_all(skills)
        self._skills = loaded
        return loaded

    def _load_team_files(self) -> list[tuple[Root, TeamFile]]:
        self._load_skills()
        return self._rooted_team_files

    def _declared_teams(self) -> frozenset[str]:
        """Teams that have a personas folder of their own name, though their skills folder has no mark."""
        roots = self.roots("personas")
        if not roots:
            return frozenset()
        from kitbag.library.item_files import find_persona_files
        from kitbag.library.personas import read_persona

        teams: set[str] = set()
        for root in roots:
            for path, team in find_persona_files(root, []):
                if team:
                    teams.add(team)
                elif (persona := read_persona(path, root)[0]) and persona.team:
                    teams.add(persona.team)
        return frozenset(teams)

    def _load_agents(self) -> "_LoadedItems[AgentFile]":
        if self._agents is not None:
            return self._agents
        from kitbag.library.agents import read_agent
        from kitbag.library.item_files import find_agent_files

        loaded: _LoadedItems[AgentFile] = _LoadedItems("agent")
        plugin_roots, diagnostics = self._plugin_roots(("agents",))
        loaded.diagnostics.extend(diagnostics)
        found: list[tuple[tuple[int, int], str, Root, TeamFile | None]] = []
        for root in [*self.roots("agents"), *plugin_roots]:
            found += [(root.rank, path, root, None) for path in find_agent_files(root, loaded.diagnostics)]
        for root, side in self._load_team_files():
            if side.kind == "subagent":
                found.append((root.rank, os.path.join(root.path, side.location), root, side))
        for _, path, root, side in sorted(found, key=lambda item: item[:2]):
            agent, diagnostics = read_agent(path, root)
            loaded.diagnostics.extend(diagnostics)
            if agent is not None:
                if side is not None:
                    agent = agent._replace(team=side.team, persona=side.persona)
                loaded.namespace.add(agent)
        self._agents = loaded
        return loaded

    def _load_personas(self) -> "_LoadedItems[Persona]":
        if self._personas is not None:
            return self._personas
        from kitbag.library.item_files import find_persona_files
        from kitbag.library.personas import read_persona

        loaded: _LoadedItems[Persona] = _LoadedItems("persona")
        found = [
            (root.rank, os.path.join(root.path, side.location), root, side.team)
            for root, side in self._load_team_files()
            if side.kind == "persona"
        ]
        for root in self.roots("personas"):
            found += [(root.rank, path, root, team) for path, team in find_persona_files(root, loaded.diagnostics)]
        for _, path, root, team in sorted(found, key=lambda item: item[:2]):
            persona, diagnostics = read_persona(path, root, team)
            loaded.diagnostics.extend(diagnostics)
            if persona is not None:
                loaded.namespace.add(persona)
        self._personas = loaded
        return loaded

    # -- who looks -------------------------------------------------------------------------------

    @property
    def team(self) -> str:
        return self._select()[0]

    @property
    def persona(self) -> "Persona | None":
        return self._select()[1]

    def _select(self) -> "tuple[str, Persona | None]":
        """Raises NotFoundError for a team or persona that was asked for and does not exist."""
        if self._selection is None:
            team, persona = self._requested
            if persona.strip().casefold() == NO_PERSONA:
                self._selection = self._find_selection(team, "") if team else ("", None)
            elif team or persona:
                self._selection = self._find_selection(team, persona)
            else:
                self._selection = self._default_selection()
        return self._selection

    def _default_selection(self) -> "tuple[str, Persona | None]":
        """From settings, where a name that does not exist here is a remark and not the end."""
        team, persona = self.settings.get("team"), self.settings.get("persona")
        if not team and not persona:
            return "", None
        try:
            return self._find_selection(team, persona)
        except KitbagError as error:
            source = self.settings.get_sourced("persona" if persona else "team").source
            self.settings.diagnostics.append(Diagnostic("warning", "setting", source, 0, error.problem, error.fix))
            return "", None

    def _find_selection(self, team: str, wanted: str) -> "tuple[str, Persona | None]":
        if wanted:
            full = f"{team}/{wanted}" if team and "/" not in wanted else wanted
            persona = self.find_persona(full)
            return persona.team or team, persona
        known = {name.casefold(): name for name in self.teams()}
        if team.casefold() not in known:
            self._check_untrusted(team)
            self.check_links(team)
            fix = f"teams that exist: {', '.join(known.values()) or 'none'}"
            raise NotFoundError(f"no team is called {team!r}", fix)
        return known[team.casefold()], None

    def teams(self) -> list[str]:
        names = {persona.team for persona in self.personas if persona.team}
        names |= {side.team for _, side in self._load_team_files() if side.team}
        return sorted(names)

    def team_prompt(self, problems: list[Diagnostic] | None = None) -> str:
        """The text of the chosen team's `_team.md`; why there is none is added to `problems`."""
        from kitbag.text.source_files import SourceError, read_text

        for root, side in self._load_team_files():
            if side.kind == "team" and side.team.casefold() == self.team.casefold():
                path = os.path.join(root.path, side.location)
                try:
                    return read_text(path, root.boundary)[0].strip()
                except SourceError as error:
                    if problems is not None:
                        problems.append(Diagnostic("warning", error.code, path, 0, error.problem, error.fix))
                    return ""
        return ""

    def visibility_context(self, kind: str = "skills", agent: "AgentFile | None" = None) -> VisibilityContext:
        states = self.settings.states(kind)
        return VisibilityContext(self.team, self.persona, states, agent.tools if agent is not None else None)

    def evaluate(self, item: "Skill | AgentFile", context: VisibilityContext | None = None) -> Verdict:
        if isinstance(item, Skill):
            return evaluate_skill(item, context or self.visibility_context())
        return evaluate_agent(item, context or self.visibility_context("agents"), self._agents_named_by_skills())

    def _agents_named_by_skills(self) -> frozenset[str]:
        if self._named_by_skills is None:
            view = self.visibility_context()
            names: set[str] = set()
            for skill in self.skills:
                verdict = evaluate_skill(skill, view) if skill.subagents else None
                if verdict and verdict.model and (verdict.searchable or not skill.team):
                    names.update(name.casefold() for name in skill.subagents)
            self._named_by_skills = frozenset(names)
        return self._named_by_skills

    def visible_skills(self, agent: "AgentFile | None" = None) -> list[tuple[Skill, Verdict]]:
        """What a model's catalog may show, in sorted order."""
        view = self.visibility_context(agent=agent)
        return [pair for pair in evaluate_skills(self.skills, view) if pair[1].listed]

    def visible_agents(self) -> "list[tuple[AgentFile, Verdict]]":
        view = self.visibility_context("agents")
        pairs = [(agent, self.evaluate(agent, view)) for agent in self.agents]
        return [(agent, verdict) for agent, verdict in pairs if verdict.listed]

    def find_skill(self, name: str) -> Skill:
        """The skill meant by a name: of several with that short name, the one this session may use."""
        candidates = self.skills.candidates(name) or self._skills_in_folder(name)
        if len(candidates) > 1:
            view = self.visibility_context()
            usable = [skill for skill in candidates if evaluate_skill(skill, view).searchable]
            candidates = usable or candidates
        elif len(candidates) == 1 and candidates[0].team and self.skills.get_exact(name) is None:
            verdict = evaluate_skill(candidates[0], self.visibility_context())
            if not verdict.searchable:
                full = candidates[0].full_name
                raise NotFoundError(f"no skill is called {name!r}", f"did you mean {full}? {verdict.reason}")
        return self._resolve(name, self.skills, candidates)

    def _resolve(self, name: str, names: Namespace[T], candidates: list[T]) -> T:
        if not candidates:
            self._check_untrusted(name)
            folder = self.check_links(name)
            try:
                return names.get(name, candidates)
            except NotFoundError as error:
                more = f"; or it lies in {folder}, a link that is not followed" if folder else ""
                raise NotFoundError(error.problem, f"{error.fix}{more}") from error
        return names.get(name, candidates)

    def check_links(self, name: str) -> str:
        """Raises InvalidError where there is an item of this name that is not read because a link leads away. Answers
        a folder that is not looked into for the same reason."""
        from kitbag.library.item_files import has_item_file, infer_item_name

        wanted = re.split(r"[:/]", name.strip())[-1]
        loaded = (self._load_skills(), self._load_agents(), self._load_personas())
        links = [found for part in loaded for found in part.diagnostics if found.code == LINK_OUTSIDE]
        for found in links:
            if infer_item_name(found.file).casefold() == wanted.casefold() or has_item_file(wanted, found.file):
                raise InvalidError(f"{found.file}: {found.problem}", found.fix)
        return next((found.file for found in links if os.path.isdir(found.file)), "")

    def find_persona(self, name: str) -> "Persona":
        return self._resolve(name, self.personas, self.personas.candidates(name))

    def _skills_in_folder(self, name: str) -> list[Skill]:
        """Other tools call a skill by its folder, whatever name it gives itself."""
        wanted = name.strip().casefold()
        ending = f"/{wanted}/skill.md"
        return [skill for skill in self.skills if f"/{skill.location.casefold()}".endswith(ending)] if wanted else []

    def find_agent(self, name: str) -> "AgentFile":
        candidates = self.agents.candidates(name)
        if len(candidates) > 1:
            view = self.visibility_context("agents")
            usable = [agent for agent in candidates if self.evaluate(agent, view).model]
            candidates = usable or candidates
        return self._resolve(name, self.agents, candidates)

    # -- what an untrusted workspace does not show ------------------------------------------------

    def with_project(self) -> "Registry":
        """As it would be if the workspace were trusted; nothing of it is loaded into this one."""
        return Registry(self.places, extra=self.extra)

    def untrusted_items(self) -> list[UntrustedItem]:
        """What would be used if the workspace were trusted, sorted."""
        places, whole = self.places, self.with_project()
        found = [
            UntrustedItem("command" if skill.kind == "command" else "skill", skill.full_name, skill.path)
            for skill in whole.skills
            if is_project_root(skill.root, places)
        ]
        found += [
            UntrustedItem("agent", one.full_name, one.path) for one in whole.agents if is_project_root(one.root, places)
        ]
        personas = (one for one in whole.personas if is_project_root(one.root, places))
        return sorted([*found, *(UntrustedItem("persona", one.full_name, one.path) for one in personas)])

    def _check_untrusted(self, name: str) -> None:
        """Raises LeftOutError when a name that nothing has is one of a left-out item, or of its team."""
        if not self.omit_project:
            return
        wanted = name.strip().casefold()
        for item in self.untrusted_items():
            full = item.full_name.casefold()
            if wanted == full or wanted in full.split("/"):
                what = f"the {item.kind} {item.full_name!r} is the workspace's, which is not trusted: {item.path}"
                fix = "`kitbag trust` shows what it would run, and asks; --trust-workspace trusts it for one run"
                raise UntrustedItemError(what, fix)
        self.with_project().check_links(name)

    # -- what is wrong ---------------------------------------------------------------------------

    def diagnostics(self) -> list[Diagnostic]:
        """All of it: files, settings, collisions, names that don't exist."""
        from kitbag.library.library_checks import check_collisions, check_declared_names

        self._select()
        found = list(self.settings.diagnostics)
        for loaded in (self._load_skills(), self._load_agents(), self._load_personas()):
            found += loaded.diagnostics
            found += loaded.namespace.find_confusables()
        for names in (self.skills, self.agents, self.personas):
            found += check_collisions(names.shadowed, self.precedence)
        found += check_declared_names(self.skills, self.agents, self.personas, self.settings)
        return worst_first(found)

    def problem_count(self) -> int:
        """How many problems are known from what has been read so far: cheap, for a footer."""
        loaded = [part for part in (self._skills, self._agents, self._personas) if part is not None]
        found = [d for part in loaded for d in part.diagnostics] + self.settings.diagnostics
        return sum(d.severity != "info" for d in found)

    def describe_precedence(self, root: Root) -> str:
        return describe_precedence(root, self.precedence)

    # -- live change -----------------------------------------------------------------------------

    def refresh(self) -> list[Change]:
        """Looks at the disk again: at a turn's boundary. What was never asked for is not looked at. Gives all that has
        changed since the last time, for whoever has to be told."""
        self.rescan()
        before, self._unreported = self._unreported, None
        return diff_snapshots(before, self.take_snapshot()) if before is not None else []

    @property
    def has_unreported_changes(self) -> bool:
        """Whether somebody has looked again since changes were last told."""
        return self._unreported is not None

    def rescan(self) -> None:
        """The same at any other time: what has changed is kept for the next `refresh` to tell."""
        if self._skills is None:
            self.settings = load_settings(self._active_places.kitbag_home, self._active_places.project_dirs)
            return
        if self._unreported is None:
            self._unreported = self.take_snapshot()
        before = self._project_items()
        self._reload()
        has_changed = any(before.get(path) != item for path, item in self._project_items().items())
        if has_changed and self.is_still_trusted is not None and not self.is_still_trusted():
            self.omit_project_items()

    def omit_project_items(self) -> None:
        """From here on: the workspace is not what was trusted any more."""
        self.omit_project = self.has_lost_trust = True
        self._active_places = self.places._replace(project_dirs=())
        if self._skills is not None:
            self._reload()

    def _project_items(self) -> "dict[str, Skill | AgentFile | Persona]":
        """The items of a workspace that was trusted, by path; if two differ, the file has changed."""
        if self.is_still_trusted is None or self.omit_project:
            return {}
        is_own: dict[str, bool] = {}
        found: dict[str, Skill | AgentFile | Persona] = {}
        for part in (self._skills, self._agents, self._personas):
            for item in part.namespace if part is not None else ():
                root = item.root
                if root.path not in is_own:
                    is_own[root.path] = is_project_root(root, self.places)
                if is_own[root.path]:
                    found[item.path] = item
        return found

    def _reload(self) -> None:
        self.settings = load_settings(self._active_places.kitbag_home, self._active_places.project_dirs)
        had_agents, had_personas = self._agents is not None, self._personas is not None
        self._skills = self._agents = self._personas = self._named_by_skills = None
        self._load_skills()
        if had_agents:
            self._load_agents()
        if had_personas:
            self._load_personas()
            chosen = self._selection
            self._selection = None
            try:
                self._select()
            except NotFoundError:
                self._selection = chosen  # the persona in use is gone: the session keeps what it chose

    def take_snapshot(self) -> LibrarySnapshot:
        return take_snapshot(
            self._skills.namespace if self._skills is not None else (),
            self._agents.namespace if self._agents is not None else (),
            self._personas.namespace if self._personas is not None else (),
            self.settings,
        )
