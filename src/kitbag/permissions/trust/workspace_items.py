"""Scans what a workspace contains: skills, agents, commands, personas, memory, settings, servers and hooks.

Reads files; runs, resolves and connects to nothing. Limited in files, bytes, directories and time; anything not read is
reported and sets `is_complete` to False. Used by `workspace_trust`; uses the library's walkers and `capabilities`.
"""

import json
import os
import time
from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple

import msgspec

from kitbag.errors import Diagnostic
from kitbag.library.agent_document import is_data_file, read_document
from kitbag.library.agents import read_agent
from kitbag.library.discover import RootScan, scan_root
from kitbag.library.index import load_index, scan_with_cache
from kitbag.library.item_files import find_agent_files, find_persona_files, infer_item_name
from kitbag.library.personas import read_persona
from kitbag.library.scan_budget import TOO_SLOW, ScanBudget
from kitbag.library.scopes import PROJECT_FOLDERS, Places, Root, find_roots
from kitbag.library.skills import COMMAND, FLAT, Skill, read_skill
from kitbag.library.skills_manifest import apply_manifest
from kitbag.permissions.trust.bounded_reader import BoundedReader, ReadLimitError, ReadLimits
from kitbag.permissions.trust.capabilities import (
    Capability,
    collect_strings,
    configuration_capabilities,
    document_capabilities,
    executed_files,
    field_capabilities,
    setting_capabilities,
    text_capabilities,
)
from kitbag.settings import parse_toml
from kitbag.text.human_format import format_count
from kitbag.text.source_files import LINK_OUTSIDE

WorkspaceItemKind = Literal[
    "skill", "command", "agent", "persona", "team", "manifest", "memory", "task", "settings", "configuration", "plugin",
    "hook", "link",
]  # fmt: skip
WORKSPACE_ITEM_KINDS: Final[tuple[WorkspaceItemKind, ...]] = (
    "settings", "configuration", "hook", "plugin", "skill", "command", "agent", "task", "persona", "team", "manifest",
    "memory", "link",
)  # fmt: skip
_MEMORY = (
    "CLAUDE.md", "CLAUDE.local.md", ".claude/CLAUDE.md", "AGENTS.md", "AGENTS.override.md", "GEMINI.md",
    ".gemini/GEMINI.md", ".kitbag/AGENTS.md", ".github/copilot-instructions.md", ".cursorrules", ".windsurfrules",
)  # fmt: skip
_MEMORY_FOLDERS = (".claude/rules", ".cursor/rules", ".github/instructions", ".kitbag/rules")
_MEMORY_FILES = (".md", ".mdc", ".markdown", ".txt")
_SERVER_FILES = (".mcp.json", ".kitbag/mcp.json", ".vscode/mcp.json", ".cursor/mcp.json", ".github/mcp.json")
_OWN_SERVERS = frozenset(_SERVER_FILES[:2])
_CONFIGURATION = (
    ".kitbag/hooks.json", ".claude/settings.json", ".claude/settings.local.json", ".gemini/settings.json",
    ".opencode/opencode.json", ".opencode/opencode.jsonc", "opencode.json", "opencode.jsonc", ".cursor/hooks.json",
    ".codex/config.toml", ".codex/hooks.json",
)  # fmt: skip
_PLUGIN_FILES = (".claude-plugin/plugin.json", ".claude-plugin/marketplace.json", "gemini-extension.json")
_HOOK_FOLDERS = (
    ".kitbag/hooks", ".claude/hooks", ".github/hooks", ".cursor/hooks", ".gemini/hooks", ".codex/hooks",
    ".opencode/plugin", ".opencode/plugins", ".opencode/tool", ".opencode/tools",
)  # fmt: skip
_TASKS: Final = ".kitbag/tasks"
_FOLDERS = (*PROJECT_FOLDERS, *_MEMORY_FOLDERS, *_HOOK_FOLDERS, _TASKS)
_TASK_FILES = (".json", ".yaml", ".yml", ".md")
_NOUNS: Final = {
    "memory": ("memory file", "memory files"),
    "settings": ("settings file", "settings files"),
    "configuration": ("settings file of another tool", "settings files of other tools"),
}
_NOT_RUN_NOTE: Final = "not run by Kitbag"


class WorkspaceItem(msgspec.Struct, frozen=True, kw_only=True):
    kind: WorkspaceItemKind
    name: str
    path: str
    """Relative to the workspace; absolute for the outside target of a link."""
    capabilities: tuple[Capability, ...] = ()
    problem: str = ""
    """Why it could not be read."""


def count_items(items: Iterable[WorkspaceItem]) -> str:
    """`2 skills, 1 agent, 3 memory files`"""
    counts: dict[str, int] = {}
    for item in items:
        counts[item.kind] = counts.get(item.kind, 0) + 1
    return ", ".join(
        f"{number:,} {_NOUNS[kind][number > 1]}" if kind in _NOUNS else format_count(number, kind)
        for kind, number in counts.items()
    )


class WorkspaceScan(NamedTuple):
    items: tuple[WorkspaceItem, ...]
    is_complete: bool
    """False if a limit was reached or a directory could not be read."""
    problems: tuple[str, ...]


def scan_workspace(
    places: Places,
    limits: ReadLimits = ReadLimits(),  # noqa: B008 - a NamedTuple can't be changed
    with_contents: bool = True,
    clock: Callable[[], int] = time.time_ns,
) -> WorkspaceScan:
    """`with_contents`: False lists skills and commands by name, without what they would run or allow."""
    return _WorkspaceScanner(places, BoundedReader(places, limits, clock), with_contents).run()


class _WorkspaceScanner:
    def __init__(self, places: Places, reader: BoundedReader, with_contents: bool) -> None:
        self.places = places
        self.with_contents = with_contents
        self.reader = reader
        self.items: list[WorkspaceItem] = []

    def run(self) -> WorkspaceScan:
        reader = self.reader
        try:
            for directory in self.places.project_dirs:
                self._settings(directory)
                self._configuration(directory)
                self._memory(directory)
                self._hook_folders(directory)
                self._tasks(directory)
            self._library()
            self._other_links()
        except ReadLimitError as error:
            reader.add_gap(f"{error}; the rest was not scanned")
        if self.with_contents:
            reader.cache.save(reader.is_complete)
        self.items.sort(key=lambda item: (WORKSPACE_ITEM_KINDS.index(item.kind), item.path))
        return WorkspaceScan(tuple(self.items), reader.is_complete, tuple(dict.fromkeys(reader.problems)))

    def _add(
        self, kind: WorkspaceItemKind, name: str, path: str, capabilities: list[Capability], problem: str = ""
    ) -> None:
        capabilities = (
            capabilities
            + _hash_scripts(capabilities, os.path.dirname(path), self.reader)
            + self.reader.link_capabilities(path, name, problem)
        )
        self.items.append(
            WorkspaceItem(
                kind=kind,
                name=name,
                path=self.reader.relative(path),
                capabilities=tuple(dict.fromkeys(capabilities)),
                problem=problem,
            )
        )

    # --- Files with known names ---------------------------------------------------------------------

    def _settings(self, directory: str) -> None:
        path = os.path.join(directory, ".kitbag", "settings.toml")
        if not os.path.lexists(path):
            return
        text, problem = self.reader.read_text(path)
        capabilities: list[Capability] = []
        if not problem:
            try:
                capabilities = setting_capabilities(parse_toml(text))
            except (ValueError, RecursionError):
                capabilities = [Capability(kind="setting", text=text)] if text.strip() else []
                problem = "not valid TOML; ignored"
        self._add("settings", "settings.toml", path, capabilities, problem)

    def _configuration(self, directory: str) -> None:
        named: tuple[tuple[WorkspaceItemKind, tuple[str, ...]], ...] = (
            ("configuration", _SERVER_FILES),
            ("configuration", _CONFIGURATION),
            ("plugin", _PLUGIN_FILES),
        )
        for kind, names in named:
            for name in names:
                path = os.path.join(directory, name)
                if os.path.lexists(path):
                    text, problem = self.reader.read_text(path)
                    capabilities, parse_problem = (
                        _parse_configuration(text, name, names is _SERVER_FILES) if not problem else ([], "")
                    )
                    self._add(kind, name, path, capabilities, problem or parse_problem)

    def _memory(self, directory: str) -> None:
        paths = [path for name in _MEMORY if os.path.lexists(path := os.path.join(directory, name))]
        for folder in _MEMORY_FOLDERS:
            paths += [
                path
                for path in self.reader.files_below(os.path.join(directory, folder))
                if path.endswith(_MEMORY_FILES)
            ]
        for path in paths:
            text, problem = self.reader.read_text(path)
            self._add("memory", os.path.basename(path), path, text_capabilities(text), problem)

    def _hook_folders(self, directory: str) -> None:
        for folder in _HOOK_FOLDERS:
            for path in self.reader.files_below(os.path.join(directory, folder)):
                capabilities, problem = self.reader.script_capabilities(path, self.reader.relative(path))
                self._add(
                    "hook",
                    os.path.basename(path),
                    path,
                    [msgspec.structs.replace(capability, note=_NOT_RUN_NOTE) for capability in capabilities],
                    problem,
                )

    def _tasks(self, directory: str) -> None:
        """Only tasks that would run something: a task is work to do, not configuration of the workspace."""
        for path in self.reader.files_below(os.path.join(directory, _TASKS), max_depth=0):
            if path.endswith(_TASK_FILES):
                text, problem = self.reader.read_text(path)
                capabilities = (
                    document_capabilities(text)[0] if path.endswith(".md") else _data_capabilities(text, path)
                )
                capabilities = [
                    capability for capability in capabilities if capability.kind in ("command", "environment")
                ]
                if capabilities or os.path.islink(path):
                    self._add("task", os.path.splitext(os.path.basename(path))[0], path, capabilities, problem)

    # --- Items of the library -----------------------------------------------------------------------

    def _roots(self, *kinds: Literal["skills", "commands", "agents", "personas"]) -> list[Root]:
        return [
            root for kind in kinds for root in find_roots(self.places, kind, builtin=False) if root.scope == "project"
        ]

    def _library(self) -> None:
        diagnostics: list[Diagnostic] = []
        personas = [
            (path, root, team)
            for root in self._roots("personas")
            for path, team in find_persona_files(root, diagnostics)
        ]
        self._links(diagnostics, "persona")
        agents: list[tuple[str, Root]] = []
        teams = self._teams(personas)
        for root in self._roots("skills", "commands"):
            scan = self._scan(root, teams if root.kind == "skills" else frozenset())
            skills = scan.skills
            manifest = os.path.join(root.path, "manifest.json")
            if root.kind == "skills" and os.path.lexists(manifest):
                self.reader.charge(1)
                found: list[Diagnostic] = []
                skills, _ = apply_manifest(root, skills, found)
                problem = next((one.problem for one in found if one.code == LINK_OUTSIDE), "")
                self._add("manifest", "manifest.json", manifest, [], problem)
            for skill in skills:
                self._skill(skill)
            for side in scan.team_files:
                path = os.path.join(root.path, side.location)
                if side.kind == "subagent":
                    agents.append((path, root))
                elif side.kind == "persona":
                    personas.append((path, root, side.team))
                else:
                    text, problem = self.reader.read_text(path)
                    self._add("team", side.team, path, text_capabilities(text), problem)
        for root in self._roots("agents"):
            diagnostics = []
            agents += [(path, root) for path in find_agent_files(root, diagnostics, self.reader.limits.agent_folders)]
            self._unseen(diagnostics)
            self._links(diagnostics, "agent")
        for path, root in agents:
            self._agent(path, root)
        for path, root, team in personas:
            self._persona(path, root, team)

    def _teams(self, personas: list[tuple[str, Root, str]]) -> frozenset[str]:
        """As in the registry: skill directories that are teams because a persona says so."""
        others = [root for root in find_roots(self.places, "personas", builtin=False) if root.scope != "project"]
        files = personas + [(path, root, team) for root in others for path, team in find_persona_files(root, [])]
        teams: set[str] = set()
        for path, root, team in files:
            self.reader.charge(1)
            if team:
                teams.add(team)
            elif (persona := read_persona(path, root)[0]) and persona.team:
                teams.add(persona.team)
        return frozenset(teams)

    def _scan(self, root: Root, teams: frozenset[str]) -> RootScan:
        def reader(
            root: Root, location: str, path: str, name: str, team: str, group: str, flags: int
        ) -> tuple[Skill | None, list[Diagnostic]]:
            self.reader.charge()
            return read_skill(root, location, path, name, team, group, flags)

        budget = ScanBudget(self.reader.seconds_left)
        limit = self.reader.limits.folders
        cached = load_index(self.places.kitbag_home, root) if self.reader.cache.is_usable else None
        if cached is not None and len(cached.scan.folders) + len(cached.scan.skills) <= limit:
            scan = scan_with_cache(root, cached, teams, budget).scan
        else:
            budget.start()
            scan = scan_root(root, reader, teams, limit, budget)
        self._unseen(scan.diagnostics)
        kind: WorkspaceItemKind = "command" if root.kind == "commands" else "skill"
        self._links(scan.diagnostics, kind)
        read = {skill.path for skill in scan.skills}
        for one in scan.diagnostics:
            if (
                one.severity == "error"
                and one.code != LINK_OUTSIDE
                and one.file not in read
                and os.path.lexists(one.file)
                and not os.path.isdir(one.file)
            ):
                self._add(kind, infer_item_name(one.file), one.file, [], one.problem)
        return scan

    def _links(self, diagnostics: list[Diagnostic], kind: WorkspaceItemKind) -> None:
        """Files and directories that are not read because a link leads out of the workspace."""
        for one in diagnostics:
            if one.code == LINK_OUTSIDE:
                self._add(kind, infer_item_name(one.file), one.file, [], one.problem)

    def _other_links(self) -> None:
        """Links in item directories that belong to no item: to a directory, dangling, or already listed."""
        known: set[str] = set()
        for path in self.reader.linked:
            while path and path not in known:
                known.add(path)
                path = os.path.dirname(path)
        for directory in self.places.project_dirs:
            for folder in _FOLDERS:
                for path in self.reader.links_below(directory, folder):
                    relative = self.reader.relative(path)
                    if relative not in known:
                        known.add(relative)
                        reason = self.reader.refusal_reason(path)
                        self._add("link", os.path.basename(path), path, [], f"not read: {reason}" if reason else "")

    def _unseen(self, diagnostics: list[Diagnostic]) -> None:
        """A directory that can't be listed, or too many of them."""
        for one in diagnostics:
            if one.code in ("too-many-directories", TOO_SLOW) or (one.code == "unreadable" and os.path.isdir(one.file)):
                self.reader.add_gap(f"{self.reader.relative(one.file)}: {one.problem}")

    def _skill(self, skill: Skill) -> None:
        kind: WorkspaceItemKind = "command" if skill.flags & COMMAND else "skill"
        if not self.with_contents:
            self.items.append(WorkspaceItem(kind=kind, name=skill.full_name, path=self.reader.relative(skill.path)))
            return
        capabilities, problem = self.reader.document_capabilities(skill.path)
        if not skill.flags & (FLAT | COMMAND):
            capabilities += self._bundle(skill)
        self._add(kind, skill.full_name, skill.path, capabilities, problem)

    def _bundle(self, skill: Skill) -> list[Capability]:
        """Files of a skill's directory that can run or allow something; prose and images can't."""
        capabilities: list[Capability] = []
        for path in self.reader.files_below(skill.directory):
            relative = path[len(skill.directory) + 1 :]
            if relative != os.path.basename(skill.location):
                scripts, problem = self.reader.script_capabilities(path, relative, only_executable=True)
                capabilities += scripts + (
                    self.reader.link_capabilities(path, relative, problem) if os.path.islink(path) else []
                )
        return capabilities

    def _agent(self, path: str, root: Root) -> None:
        self.reader.charge(1)
        agent, notes = read_agent(path, root)
        if agent is None:
            problem = next((note.problem for note in notes if note.severity == "error"), "")
            if problem:
                self._add("agent", os.path.basename(path), path, [], problem)
            return
        text, problem = self.reader.read_text(path)
        if is_data_file(path):
            document, _ = read_document(path, root.boundary)
            fields = document.metadata if document is not None else {}
            capabilities = field_capabilities(fields) + [
                capability for one in collect_strings(fields) for capability in text_capabilities(one, 0)
            ]
        else:
            capabilities = document_capabilities(text)[0]
        note = f"runs in {agent.permission_mode} mode"
        capabilities = [
            msgspec.structs.replace(capability, note=note) if capability.kind == "mode" else capability
            for capability in capabilities
        ]
        self._add("agent", agent.full_name, path, capabilities, problem)

    def _persona(self, path: str, root: Root, team: str) -> None:
        self.reader.charge(1)
        persona, notes = read_persona(path, root, team)
        if persona is None:
            self._add("persona", os.path.basename(path), path, [], notes[0].problem if notes else "cannot be read")
        else:
            self._add("persona", persona.full_name, path, text_capabilities(persona.system_prompt_additions, 0))


def hash_scripts(started_by: list[Capability], directory: str, places: Places) -> list[Capability]:
    """The workspace scripts that commands of a file in `directory` start, hashed now. If that takes too long, one that
    no one approved."""
    try:
        return _hash_scripts(started_by, directory, BoundedReader(places, ReadLimits()))
    except ReadLimitError as error:
        return [Capability(kind="script", text="", note=str(error))]


def _hash_scripts(started_by: list[Capability], directory: str, reader: BoundedReader) -> list[Capability]:
    """Workspace scripts started by commands, hooks and servers; what those run in turn is unknown. Never cached."""
    scripts: list[Capability] = []
    for words in executed_files(started_by):
        for word in words:
            path = reader.resolve_file(word, directory)
            if path:
                name = reader.relative(path)
                capabilities, problem = reader.script_capabilities(path, name, use_cache=False)
                # Bind unreadable files too: replacing one is a change.
                scripts += capabilities or [Capability(kind="script", text=name, note=problem)]
                scripts += reader.link_capabilities(path, name, problem)
                break
    return scripts


def _parse_configuration(text: str, name: str, is_server_map: bool) -> tuple[list[Capability], str]:
    problem = ""
    try:
        if name.endswith(".toml"):
            capabilities = configuration_capabilities(parse_toml(text))
        else:
            capabilities = configuration_capabilities(json.loads(text), is_server_map)
    except (ValueError, RecursionError):
        # Another tool may still be able to read it, so all of it counts.
        capabilities = [Capability(kind="hook", text=text)] if text.strip() else []
        problem = "cannot be parsed; treated as one hook"
    return [
        msgspec.structs.replace(capability, note="" if name in _OWN_SERVERS else _NOT_RUN_NOTE)
        for capability in capabilities
    ], problem


def _data_capabilities(text: str, path: str) -> list[Capability]:
    from kitbag.text.safe_yaml import YamlError, parse_yaml

    try:
        value: object = json.loads(text) if path.endswith(".json") else parse_yaml(text)[0]
    except (ValueError, RecursionError, YamlError):
        return text_capabilities(text)
    return [capability for one in collect_strings(value) for capability in text_capabilities(one, 0)]
