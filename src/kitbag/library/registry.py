"""The library's entry point: all skills, agents and personas by name, with their visibility.

Loads each kind on first use; `refresh` picks up changes on disk. One registry per session, no global state.
Used by packing, assembly and the interfaces; uses index, names, scopes, visibility and settings.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kitbag.errors import Diagnostic, InvalidError, KitbagError, NotFoundError, first_diagnostics, worst_first
from kitbag.library import index
from kitbag.library.discover import TeamFile
from kitbag.library.library_changes import Change, LibrarySnapshot, diff_snapshots, take_snapshot
from kitbag.library.names import LibraryItem, Namespace, normalize_name
from kitbag.library.scan_budget import TOO_SLOW, ScanBudget
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

if TYPE_CHECKING:  # imported lazily: not needed to list skills
    from kitbag.library.agents import AgentFile
    from kitbag.library.personas import Persona
    from kitbag.library.skills_manifest import ManifestEntry


T = TypeVar("T", bound=LibraryItem)
NO_PERSONA: Final = "none"
"""Passed instead of a persona's name: no persona, whatever the settings say. No persona can have this name."""


class _LoadedItems(Generic[T]):
    """All items of one kind, and the diagnostics from loading them."""

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
        budget: Callable[[], ScanBudget] = ScanBudget,
    ) -> None:
        """`omit_project`: ignores an untrusted workspace (`untrusted_items` lists what it contains). `is_still_trusted`
        is called when an item of the workspace was added or changed while the registry is in use. `budget`: makes what
        bounds the time of each search of the disk. Raises InvalidError if a link leads a directory of `extra` out of
        the workspace."""
        self.places = places or find_places()
        self.omit_project = omit_project
        self.is_still_trusted = is_still_trusted
        self.has_lost_trust = False
        """The workspace lost trust since the registry was created; reset once reported."""
        self._active_places = self.places._replace(project_dirs=()) if omit_project else self.places
        self.extra = tuple(os.path.abspath(directory) for directory in extra)
        for directory in self.extra:
            check_path_links(directory, self.places.project)
        self.settings = settings or self._load_settings()
        self.precedence: str = self.settings.get("precedence")
        self._use_index = use_index
        self._make_budget = budget
        self._budget = budget()
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
        """The snapshot from when changes were last reported, if there was a rescan since."""

    def _load_settings(self) -> Settings:
        places = self._active_places
        return load_settings(places.kitbag_home, places.project_dirs, places.snapshot)

    # -- items -----------------------------------------------------------------------------------

    @property
    def skills(self) -> Namespace[Skill]:
        return self._load_skills().namespace

    @property
    def agents(self) -> "Namespace[AgentFile]":
        return self._load_agents().namespace

    @property
    def personas(self) -> "Namespace[Persona]":
        return self._load_personas().namespace

    @property
    def manifest_entries(self) -> "Mapping[str, ManifestEntry]":
        """By the path of the skill."""
        self._load_skills()
        return self._manifest

    @property
    def uses_index(self) -> bool:
        return self._use_index

    def manifest_entry(self, skill: Skill) -> "ManifestEntry | None":
        return self._manifest.get(skill.path)

    def roots(self, kind: ItemKind) -> list[Root]:
        """The existing roots for `kind`, highest precedence first, without those of plugins."""
        roots = find_roots(
            self._active_places,
            kind,
            self.precedence,
            self.extra,
            link_targets=tuple(self.settings.get("library.link_targets")),
        )
        return [root for root in roots if not is_project_root(root, self.places)] if self.omit_project else roots

    # -- loading ---------------------------------------------------------------------------------

    def _plugin_roots(self, kinds: tuple[ItemKind, ...]) -> tuple[list[Root], list[Diagnostic]]:
        if not os.path.isdir(os.path.join(self.places.library_kitbag_home, "plugins")):
            return [], []
        from kitbag.library.plugins.installed import load_installed, plugin_roots

        plugins, diagnostics = load_installed(self.places.library_kitbag_home)
        roots = [
            root
            for position, plugin in enumerate(plugins)
            if plugin.enabled
            for root in plugin_roots(plugin, (PLUGIN_RANK, position))
            if root.kind in kinds
        ]
        return roots, diagnostics

    def _scan(self, root: Root, teams: frozenset[str]) -> index.CachedScan:
        key = (os.path.join(root.path, root.only_file), root.kind)
        cached = self._cached_scans.get(key)
        home = self.places.kitbag_home
        if cached is None and self._use_index and root.scope != "built-in":
            scanned = index.scan_indexed(home, root, teams, self._budget)
        else:
            scanned = index.scan_with_cache(root, cached, teams, self._budget)
        self._cached_scans[key] = scanned
        return scanned

    def _load_skills(self) -> _LoadedItems[Skill]:
        if self._skills is not None:
            return self._skills
        loaded: _LoadedItems[Skill] = _LoadedItems("skill")
        self._manifest, self._rooted_team_files = {}, []
        teams = self._declared_teams()
        plugin_roots, diagnostics = self._plugin_roots(("skills", "commands"))
        loaded.diagnostics.extend(diagnostics)
        roots = [*self.roots("skills"), *self.roots("commands"), *plugin_roots]
        # A skill wins over a command with the same name and rank, so commands come after skills.
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
        """Teams declared in personas folders; their skills folder may contain no team file."""
        roots = self.roots("personas")
        if not roots:
            return frozenset()
        from kitbag.library.item_files import find_persona_files
        from kitbag.library.personas import read_persona

        teams: set[str] = set()
        for root in roots:
            with self._budget.spend_on(root.path, []):
                for path, team in find_persona_files(root, [], self._budget):
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
        candidates: list[tuple[tuple[int, int], str, Root, TeamFile | None]] = []
        for root in [*self.roots("agents"), *plugin_roots]:
            with self._budget.spend_on(root.path, loaded.diagnostics):
                files = find_agent_files(root, loaded.diagnostics, budget=self._budget)
            candidates += [(root.rank, path, root, None) for path in files]
        for root, side in self._load_team_files():
            if side.kind == "subagent":
                candidates.append((root.rank, os.path.join(root.path, side.location), root, side))
        unread: dict[str, Diagnostic] = {}
        self._budget.start()
        for _, path, root, side in sorted(candidates, key=lambda candidate: candidate[:2]):
            if root.scope != "built-in" and not self._budget.take():
                unread.setdefault(root.path, self._budget.diagnostic(root.path, "agent files"))
                continue
            agent, diagnostics = read_agent(path, root)
            loaded.diagnostics.extend(diagnostics)
            if agent is not None:
                if side is not None:
                    agent = agent.in_team(side.team, side.persona)
                loaded.namespace.add(agent)
        self._budget.stop()
        loaded.diagnostics.extend(unread.values())
        self._agents = loaded
        return loaded

    def _load_personas(self) -> "_LoadedItems[Persona]":
        if self._personas is not None:
            return self._personas
        from kitbag.library.item_files import find_persona_files
        from kitbag.library.personas import read_persona

        loaded: _LoadedItems[Persona] = _LoadedItems("persona")
        candidates = [
            (root.rank, os.path.join(root.path, side.location), root, side.team)
            for root, side in self._load_team_files()
            if side.kind == "persona"
        ]
        for root in self.roots("personas"):
            with self._budget.spend_on(root.path, loaded.diagnostics):
                files = find_persona_files(root, loaded.diagnostics, self._budget)
            candidates += [(root.rank, path, root, team) for path, team in files]
        for _, path, root, team in sorted(candidates, key=lambda candidate: candidate[:2]):
            persona, diagnostics = read_persona(path, root, team)
            loaded.diagnostics.extend(diagnostics)
            if persona is not None:
                loaded.namespace.add(persona)
        self._personas = loaded
        return loaded

    # -- team, persona and visibility ------------------------------------------------------------

    @property
    def team(self) -> str:
        return self._select()[0]

    @property
    def persona(self) -> "Persona | None":
        return self._select()[1]

    def _select(self) -> "tuple[str, Persona | None]":
        """Raises NotFoundError for a requested team or persona that does not exist."""
        if self._selection is None:
            team, persona = self._requested
            if normalize_name(persona) == NO_PERSONA:
                self._selection = self._find_selection(team, "") if team else ("", None)
            elif team or persona:
                self._selection = self._find_selection(team, persona)
            else:
                self._selection = self._default_selection()
        return self._selection

    def _default_selection(self) -> "tuple[str, Persona | None]":
        """From settings; a name that does not exist is a diagnostic, not an error."""
        team, persona = self.settings.get("team"), self.settings.get("persona")
        if not team and not persona:
            return "", None
        try:
            return self._find_selection(team, persona)
        except KitbagError as error:
            source = self.settings.get_sourced("persona" if persona else "team").source
            self.settings.diagnostics.append(
                Diagnostic(
                    severity="warning", code="setting", file=source, line=0, problem=error.problem, fix=error.fix
                )
            )
            return "", None

    def _find_selection(self, team: str, persona_name: str) -> "tuple[str, Persona | None]":
        if persona_name:
            full_name = f"{team}/{persona_name}" if team and "/" not in persona_name else persona_name
            persona = self.find_persona(full_name)
            return persona.team or team, persona
        known = {normalize_name(name): name for name in self.teams()}
        if normalize_name(team) not in known:
            self._check_untrusted(team)
            self.check_links(team)
            fix = f"available teams: {', '.join(known.values()) or 'none'}"
            raise NotFoundError(f"no team named {team!r}", fix)
        return known[normalize_name(team)], None

    def teams(self) -> list[str]:
        names = {persona.team for persona in self.personas if persona.team}
        names |= {side.team for _, side in self._load_team_files() if side.team}
        return sorted(names)

    def team_prompt(self, problems: list[Diagnostic] | None = None) -> str:
        """The text of the selected team's `_team.md`; if it is unreadable, the reason is added to `problems`."""
        from kitbag.text.source_files import SourceError, read_text

        for root, side in self._load_team_files():
            if side.kind == "team" and normalize_name(side.team) == normalize_name(self.team):
                path = os.path.join(root.path, side.location)
                try:
                    return read_text(path, root.boundary)[0].strip()
                except SourceError as error:
                    if problems is not None:
                        problems.append(
                            Diagnostic(
                                severity="warning",
                                code=error.code,
                                file=path,
                                line=0,
                                problem=error.problem,
                                fix=error.fix,
                            )
                        )
                    return ""
        return ""

    def visibility_context(self, kind: str = "skills", agent: "AgentFile | None" = None) -> VisibilityContext:
        states = self.settings.states(kind)
        return VisibilityContext(
            team=self.team, persona=self.persona, states=states, agent_tools=agent.tools if agent is not None else None
        )

    def evaluate(self, item: "Skill | AgentFile", context: VisibilityContext | None = None) -> Verdict:
        if isinstance(item, Skill):
            return evaluate_skill(item, context or self.visibility_context())
        return evaluate_agent(item, context or self.visibility_context("agents"), self._agents_named_by_skills())

    def _agents_named_by_skills(self) -> frozenset[str]:
        if self._named_by_skills is None:
            view = self.visibility_context()
            names: set[str] = set()
            for skill in self.skills:
                visibility = evaluate_skill(skill, view) if skill.subagents else None
                if visibility and visibility.model and (visibility.searchable or not skill.team):
                    names.update(map(normalize_name, skill.subagents))
            self._named_by_skills = frozenset(names)
        return self._named_by_skills

    def visible_skills(self, agent: "AgentFile | None" = None) -> list[tuple[Skill, Verdict]]:
        """The skills for a model's catalog, sorted."""
        view = self.visibility_context(agent=agent)
        return [pair for pair in evaluate_skills(self.skills, view) if pair[1].listed]

    def visible_agents(self) -> "list[tuple[AgentFile, Verdict]]":
        view = self.visibility_context("agents")
        pairs = [(agent, self.evaluate(agent, view)) for agent in self.agents]
        return [(agent, visibility) for agent, visibility in pairs if visibility.listed]

    def find_skill(self, name: str) -> Skill:
        """The skill with this name; of several with this short name, the one that this session may use."""
        candidates = self.skills.candidates(name) or self._skills_in_folder(name)
        if len(candidates) > 1:
            view = self.visibility_context()
            usable = [skill for skill in candidates if evaluate_skill(skill, view).searchable]
            candidates = usable or candidates
        elif len(candidates) == 1 and candidates[0].team and self.skills.get_exact(name) is None:
            visibility = evaluate_skill(candidates[0], self.visibility_context())
            if not visibility.searchable:
                full_name = candidates[0].full_name
                raise NotFoundError(f"no skill named {name!r}", f"did you mean {full_name}? {visibility.reason}")
        return self._resolve(name, self.skills, candidates)

    def _resolve(self, name: str, names: Namespace[T], candidates: list[T]) -> T:
        if not candidates:
            self._check_untrusted(name)
            folder = self.check_links(name)
            try:
                return names.get(name, candidates)
            except NotFoundError as error:
                hint = f"; it may be in {folder}, a symbolic link that is not followed" if folder else ""
                raise NotFoundError(error.problem, f"{error.fix}{hint}") from error
        return names.get(name, candidates)

    def check_links(self, name: str) -> str:
        """Raises InvalidError if an item of this name was not read because a link leads out of its boundary. Returns a
        folder that was not searched for the same reason, else an empty string."""
        from kitbag.library.item_files import has_item_file, infer_item_name

        short_name = re.split(r"[:/]", name.strip())[-1]
        loaded = (self._load_skills(), self._load_agents(), self._load_personas())
        links = [diagnostic for part in loaded for diagnostic in part.diagnostics if diagnostic.code == LINK_OUTSIDE]
        for diagnostic in links:
            if normalize_name(infer_item_name(diagnostic.file)) == normalize_name(short_name) or has_item_file(
                short_name, diagnostic.file
            ):
                raise InvalidError(f"{diagnostic.file}: {diagnostic.problem}", diagnostic.fix)
        return next((diagnostic.file for diagnostic in links if os.path.isdir(diagnostic.file)), "")

    def find_persona(self, name: str) -> "Persona":
        return self._resolve(name, self.personas, self.personas.candidates(name))

    def _skills_in_folder(self, name: str) -> list[Skill]:
        """Skills whose folder has this name: other tools name skills after their folder."""
        folder = normalize_name(name)
        if not folder:
            return []
        suffix = f"/{folder}/skill.md"
        return [skill for skill in self.skills if f"/{normalize_name(skill.location)}".endswith(suffix)]

    def find_agent(self, name: str) -> "AgentFile":
        candidates = self.agents.candidates(name)
        if len(candidates) > 1:
            view = self.visibility_context("agents")
            usable = [agent for agent in candidates if self.evaluate(agent, view).model]
            candidates = usable or candidates
        return self._resolve(name, self.agents, candidates)

    # -- items of an untrusted workspace ---------------------------------------------------------

    def with_project(self) -> "Registry":
        """A separate registry that includes the workspace, as if it were trusted."""
        return Registry(self.places, extra=self.extra, budget=self._make_budget)

    def untrusted_items(self) -> list[UntrustedItem]:
        """The items that a trusted workspace would add, sorted."""
        places, registry = self.places, self.with_project()
        items = [
            UntrustedItem("command" if skill.kind == "command" else "skill", skill.full_name, skill.path)
            for skill in registry.skills
            if is_project_root(skill.root, places)
        ]
        items += [
            UntrustedItem("agent", item.full_name, item.path)
            for item in registry.agents
            if is_project_root(item.root, places)
        ]
        personas = (item for item in registry.personas if is_project_root(item.root, places))
        return sorted([*items, *(UntrustedItem("persona", item.full_name, item.path) for item in personas)])

    def _check_untrusted(self, name: str) -> None:
        """Raises UntrustedItemError if the name belongs to an untrusted item or its team."""
        if not self.omit_project:
            return
        key = normalize_name(name)
        for item in self.untrusted_items():
            full_name = normalize_name(item.full_name)
            if key == full_name or key in full_name.split("/"):
                problem = (
                    f"the {item.kind} {item.full_name!r} belongs to the workspace, which is not trusted: {item.path}"
                )
                fix = "run `kitbag trust` to review and trust it, or use --trust-workspace for one run"
                raise UntrustedItemError(problem, fix)
        self.with_project().check_links(name)

    # -- diagnostics -----------------------------------------------------------------------------

    def incomplete_searches(self) -> list[Diagnostic]:
        """Roots of the kinds loaded so far that were not searched to the end."""
        loaded = [part for part in (self._skills, self._agents, self._personas) if part is not None]
        codes = ("too-many-directories", TOO_SLOW)
        return worst_first(one for part in loaded for one in part.diagnostics if one.code in codes)

    def check_file(self, path: str) -> list[Diagnostic]:
        """Problems with the file of a loaded agent or persona."""
        loaded = [part for part in (self._agents, self._personas) if part is not None]
        found = (one for part in loaded for one in part.diagnostics if one.file == path)
        return worst_first(one for one in found if one.severity != "info")

    def check_persona(self) -> list[Diagnostic]:
        """Problems with the selected persona: those of its file, and names in it that do not exist."""
        if self.persona is None:
            return []
        from kitbag.library.library_checks import check_persona_names

        unknown = check_persona_names(self.persona, self.skills, self.agents)
        return first_diagnostics([*self.check_file(self.persona.path), *unknown])

    def diagnostics(self, file: str = "") -> list[Diagnostic]:
        """All diagnostics: files, settings, collisions, references to missing names. `file`: only those of this file,
        which is much faster in a large library."""
        from kitbag.library.library_checks import check_collisions, check_declared_names

        self._select()
        diagnostics = list(self.settings.diagnostics)
        for loaded in (self._load_skills(), self._load_agents(), self._load_personas()):
            diagnostics += loaded.diagnostics
            diagnostics += loaded.namespace.find_confusables(file)
        for namespace in (self.skills, self.agents, self.personas):
            diagnostics += check_collisions(namespace.shadowed, self.precedence, file)
        diagnostics += check_declared_names(self.skills, self.agents, self.personas, self.settings, file)
        return worst_first(one for one in diagnostics if not file or one.file == file)

    def problem_count(self) -> int:
        """The number of problems in what has been loaded so far: cheap, for a footer."""
        loaded = [part for part in (self._skills, self._agents, self._personas) if part is not None]
        diagnostics = [diagnostic for part in loaded for diagnostic in part.diagnostics] + self.settings.diagnostics
        return sum(diagnostic.severity != "info" for diagnostic in diagnostics)

    def describe_precedence(self, root: Root) -> str:
        return describe_precedence(root, self.precedence)

    # -- changes on disk -------------------------------------------------------------------------

    def refresh(self) -> list[Change]:
        """Rescans the disk, between turns, for the kinds loaded so far. Returns all changes since the last call."""
        self.rescan()
        before, self._unreported = self._unreported, None
        return diff_snapshots(before, self.take_snapshot()) if before is not None else []

    @property
    def has_unreported_changes(self) -> bool:
        """Whether there was a rescan since changes were last reported."""
        return self._unreported is not None

    def rescan(self) -> None:
        """Rescans the disk at any time; the next `refresh` reports the changes."""
        if self._skills is None:
            self.settings = self._load_settings()
            return
        if self._unreported is None:
            self._unreported = self.take_snapshot()
        before = self._project_items()
        self._reload()
        has_changed = any(before.get(path) != item for path, item in self._project_items().items())
        if has_changed and self.is_still_trusted is not None and not self.is_still_trusted():
            self.omit_project_items()

    def omit_project_items(self) -> None:
        """Drops the workspace's items: it is no longer what was trusted."""
        self.omit_project = self.has_lost_trust = True
        self._active_places = self.places._replace(project_dirs=())
        if self._skills is not None:
            self._reload()

    def _project_items(self) -> "dict[str, Skill | AgentFile | Persona]":
        """The items of a trusted workspace by path, to detect changed files."""
        if self.is_still_trusted is None or self.omit_project:
            return {}
        is_project: dict[str, bool] = {}
        items: dict[str, Skill | AgentFile | Persona] = {}
        for part in (self._skills, self._agents, self._personas):
            for item in part.namespace if part is not None else ():
                root = item.root
                if root.path not in is_project:
                    is_project[root.path] = is_project_root(root, self.places)
                if is_project[root.path]:
                    items[item.path] = item
        return items

    def _reload(self) -> None:
        self.settings = self._load_settings()
        had_agents, had_personas = self._agents is not None, self._personas is not None
        self._skills = self._agents = self._personas = self._named_by_skills = None
        self._budget = self._make_budget()
        self._load_skills()
        if had_agents:
            self._load_agents()
        if had_personas:
            self._load_personas()
            selection = self._selection
            self._selection = None
            try:
                self._select()
            except NotFoundError:
                self._selection = selection  # the selected persona was deleted: the session keeps it

    def take_snapshot(self) -> LibrarySnapshot:
        return take_snapshot(
            self._skills.namespace if self._skills is not None else (),
            self._agents.namespace if self._agents is not None else (),
            self._personas.namespace if self._personas is not None else (),
            self.settings,
        )
