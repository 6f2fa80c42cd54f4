"""Finds skills, agents, commands and plugins below a path, and the files that belong to each.

Works by name: opens only the start of Markdown files that may be agents. Follows no link; limits folders, files and
depth, and reports what it omits. Used by run. Walks on its own: what git ignores is audited too, and a folder that
can't be read or entered is a finding.
"""

import contextlib
import itertools
import os
from typing import Final, NamedTuple

import msgspec

from kitbag.audit.findings import AuditFile, AuditItem, AuditItemKind, UnreadPath
from kitbag.errors import UsageError
from kitbag.library.agents import read_agent
from kitbag.library.discover import MEMORY_FILES, is_container_folder, scan_root
from kitbag.library.item_files import TOOL_FOLDERS, find_agent_files, find_item_folder
from kitbag.library.plugins.archives import is_archive
from kitbag.library.plugins.manifest import GEMINI_MANIFEST, MANIFESTS, find_manifest
from kitbag.library.scopes import AGENT_FOLDERS, COMMAND_FOLDERS, check_path_links, extra_roots, find_places
from kitbag.text.source_files import SourceError, parent_boundary, read_bytes

MAX_FILES: Final = 20_000
MAX_FOLDERS: Final = 50_000
MAX_DEPTH: Final = 40
LOCK_FILE: Final = "kitbag.lock"
_MAX_NAMED = 50
_NEVER_ENTERED = frozenset((".git", ".hg", ".svn", "__pycache__"))
_VENDOR = frozenset(
    (
        "node_modules", "bower_components", "site-packages", ".venv", "venv", ".tox", ".nox", ".mypy_cache",
        ".pytest_cache", ".ruff_cache", ".cache", ".gradle", ".terraform",
    )
)  # fmt: skip
_STEERING_FILES = frozenset(
    (
        "claude.md", "claude.local.md", "agents.md", "gemini.md", ".cursorrules", ".windsurfrules", ".clinerules",
        ".mcp.json", "opencode.json", "opencode.jsonc",
    )
)  # fmt: skip
_VSCODE_FILES = frozenset(("mcp.json", "tasks.json", "settings.json"))
_MANIFEST_ENTRIES = frozenset((GEMINI_MANIFEST, *(path.split("/")[0] for path in MANIFESTS)))
_DOCUMENTS = frozenset(("readme.md", "changelog.md", "license.md", "contributing.md"))
_MARKDOWN_SUFFIXES = (".md", ".mdc")
_DATA_SUFFIXES = (".yaml", ".yml", ".toml", ".json")


class AuditTarget(msgspec.Struct, frozen=True, kw_only=True):
    root: str
    """Absolute; paths in findings and lock files are relative to it."""
    requested_paths: tuple[str, ...]
    """Relative to the root."""
    items: tuple[AuditItem, ...]
    unread: tuple[UnreadPath, ...]


def find_items(paths: tuple[str, ...], lock_file: str = "") -> AuditTarget:
    """Without a path, the workspace. Excludes `lock_file`. Raises UsageError for a bad path, InvalidError if a link
    leads out of the workspace."""
    resolved = [_resolve_path(path) for path in paths] or [os.path.realpath(find_places().project)]
    root = os.path.commonpath([find_audit_root(path_found) for path_found in resolved])
    items: dict[tuple[str, str], AuditItem] = {}
    unread: set[UnreadPath] = set()
    for path_found, path in zip(resolved, paths or ("",), strict=True):
        found = (
            _Walk(path_found, root, lock_file, is_requested=bool(path)).run()
            if os.path.isdir(path_found)
            else _single_file(path_found, root)
        )
        if path and not found.items:
            problem = f"no skill, agent, command or plugin found in {path}"
            raise UsageError(problem, "specify a directory that contains SKILL.md files, an agent file or a workspace")
        items.update({(item.path, item.kind): item for item in found.items})
        unread.update(found.unread)
    requested = tuple(os.path.relpath(path_found, root) for path_found in resolved)
    return AuditTarget(
        root=root,
        requested_paths=requested,
        items=tuple(items[key] for key in sorted(items)),
        unread=tuple(sorted(unread)),
    )


def _resolve_path(path: str) -> str:
    fix = "specify a skill's directory, a file, or a directory that contains them"
    if "\0" in path or not os.path.exists(path):
        raise UsageError(f"{path}: no such file or directory", fix)
    check_path_links(path)
    resolved = os.path.realpath(path)
    if not os.path.isdir(resolved) and not os.path.isfile(resolved):
        raise UsageError(f"{path} is neither a file nor a directory", fix)
    # A skill is its whole folder, even if its file is given.
    return os.path.dirname(resolved) if os.path.basename(resolved).lower() == "skill.md" else resolved


def find_audit_root(path: str) -> str:
    """The git root, so that paths are the same wherever the audit starts; else the path itself."""
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    places = find_places(folder)
    outermost = places.project_dirs[-1] if places.project_dirs else folder
    return outermost if os.path.lexists(os.path.join(outermost, ".git")) else folder


class _FoundItems(NamedTuple):
    items: tuple[AuditItem, ...]
    unread: tuple[UnreadPath, ...]


def _single_file(path: str, root: str) -> _FoundItems:
    folder, name = os.path.split(path)
    if is_archive(path):
        raise UsageError(f"{path} is an archive, and archives are not audited", "unpack it and audit the directory")
    relative = os.path.relpath(path, root)
    kind = _kind_by_folder(relative.split(os.sep)[:-1], name) or ("agent" if _has_frontmatter(path) else "workspace")
    return _FoundItems(
        (AuditItem(kind=kind, folder=folder, path=relative, main_file=name, files=(_audit_file(path, name),)),), ()
    )


def _audit_file(path: str, relative: str) -> AuditFile:
    try:
        status = os.lstat(path)
    except OSError:
        return AuditFile(path=path, relative=relative, kind="special", size=0, executable=False)
    kind = {0o100000: "file", 0o120000: "link"}.get(status.st_mode & 0o170000, "special")
    known = "file" if kind == "file" else "link" if kind == "link" else "special"
    return AuditFile(
        path=path,
        relative=relative,
        kind=known,
        size=status.st_size,
        executable=known == "file" and bool(status.st_mode & 0o111),
    )


def _has_frontmatter(path: str) -> bool:
    with contextlib.suppress(SourceError):
        data, _, _ = read_bytes(path, parent_boundary(path), 64)
        return data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"---")
    return False


def _kind_by_folder(folders: list[str], name: str) -> AuditItemKind | None:
    """The kind of a file by its location; None if that is not conclusive."""
    lower = [folder.lower() for folder in folders]
    at_home = not TOOL_FOLDERS.isdisjoint(lower)
    markdown = name.lower().endswith(_MARKDOWN_SUFFIXES)
    at = find_item_folder(folders)
    folder = lower[at] if at >= 0 else ""
    is_command_file = markdown or (at_home and name.endswith(".toml"))
    if is_command_file and name.lower() != "readme.md" and name not in MEMORY_FILES and folder in COMMAND_FOLDERS:
        return "command"
    if name.lower() in _DOCUMENTS or name.lower() in _STEERING_FILES:
        return None
    if folder in AGENT_FOLDERS and (markdown or ((at_home or "_subagents" in lower) and _is_data_file(name))):
        return "agent"
    if name.lower().endswith((".agent.md", ".chatmode.md")):
        return "agent"
    if markdown and at_home and ("skills" in lower or "skill" in lower) and name[0] not in "._":
        return "skill"
    return None


def _is_data_file(name: str) -> bool:
    return name.lower().endswith(_DATA_SUFFIXES)


class _ItemBuilder:
    """An item whose files are still being collected."""

    __slots__ = ("entries", "folder", "kind", "main", "unread")

    def __init__(self, kind: AuditItemKind, folder: str, main: str) -> None:
        self.kind: AuditItemKind = kind
        self.folder = folder
        self.main = main
        self.entries: list[AuditFile] = []
        self.unread: list[UnreadPath] = []


class _Walk:
    def __init__(self, top: str, root: str, lock_file: str, is_requested: bool) -> None:
        self.top = top
        self.is_requested = is_requested
        self.root = root
        self.lock_files = {os.path.join(root, LOCK_FILE), os.path.realpath(lock_file) if lock_file else ""}
        self.builders: list[_ItemBuilder] = []
        self.single_file_items: list[AuditItem] = []
        self.unread: list[UnreadPath] = []
        self.files = 0
        self.folders = 0
        self.omitted: dict[_ItemBuilder, int] = {}
        self.workspace = _ItemBuilder("workspace", root, "")
        """Files that steer agents in a workspace and belong to no other item."""

    def run(self) -> _FoundItems:
        pending: list[tuple[str, int, _ItemBuilder | None]] = [(self.top, 0, None)]
        while pending:
            folder, depth, owner = pending.pop()
            pending += reversed(self._read_folder(folder, depth, owner))
        if self.is_requested:
            self._add_listed_agents()
            self._add_listed_skills()
        for owner, count in self.omitted.items():
            reason = f"{count:,} more files or directories: an audit reads at most {MAX_FILES:,} files"
            owner.unread.append(UnreadPath(self._relative(owner.folder), f"{reason} and {MAX_FOLDERS:,} directories"))
        items = [self._build_item(owner) for owner in self.builders] + self.single_file_items
        if self.workspace.entries or self.workspace.unread:
            items.append(self._build_item(self.workspace))
        items.sort(key=lambda item: (item.path, item.kind))
        return _FoundItems(tuple(items), tuple(sorted(self.unread)))

    def _add_listed_agents(self) -> None:
        """Adds the agents that `kitbag agents list --dir` finds here and that are not known by their location."""
        known = {os.path.join(item.folder, item.main_file) for item in self.single_file_items}
        added: set[str] = set()
        for root in extra_roots(self.top, "agents"):
            for path in find_agent_files(root, [], MAX_FOLDERS):
                if path in known or path in added or os.path.islink(path) or self.files >= MAX_FILES:
                    continue
                if read_agent(path, root)[0] is not None:
                    added.add(path)
                    self.files += 1
                    self._add_single_file(path, "agent")
        for builder in (*self.builders, self.workspace) if added else ():
            builder.entries = [entry for entry in builder.entries if entry.path not in added]

    def _add_listed_skills(self) -> None:
        """Adds the skills and commands that `kitbag skills list --dir` finds here and that no item has: those of teams
        are single files."""
        known = {entry.path for builder in self.builders for entry in builder.entries}
        known.update(os.path.join(item.folder, item.main_file) for item in self.single_file_items)
        for root in (*extra_roots(self.top, "skills"), *extra_roots(self.top, "commands")):
            for skill in scan_root(root).skills:
                if skill.path in known or os.path.islink(skill.path) or self.files >= MAX_FILES:
                    continue
                known.add(skill.path)
                self.files += 1
                self._add_single_file(skill.path, "command" if skill.kind == "command" else "skill")
                self.workspace.entries = [entry for entry in self.workspace.entries if entry.path != skill.path]

    def _build_item(self, owner: _ItemBuilder) -> AuditItem:
        path = self._relative(owner.folder)
        return AuditItem(
            kind=owner.kind,
            folder=owner.folder,
            path=path,
            main_file=owner.main,
            files=tuple(sorted(owner.entries)),
            unread=tuple(owner.unread),
        )

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self.root)

    def _add_unread(self, owner: _ItemBuilder | None, path: str, reason: str) -> None:
        unread = self.unread if owner is None else owner.unread
        if len(unread) < _MAX_NAMED:
            unread.append(UnreadPath(self._relative(path), reason))
        elif len(unread) == _MAX_NAMED:
            unread.append(UnreadPath(self._relative(path), "and more"))

    def _count_omitted(self, owner: _ItemBuilder | None, count: int = 1) -> None:
        """Counts files beyond a limit. They become a finding, because they could contain anything."""
        if count:
            builder = owner or self.workspace
            self.omitted[builder] = self.omitted.get(builder, 0) + count

    def _read_folder(
        self, folder: str, depth: int, owner: _ItemBuilder | None
    ) -> list[tuple[str, int, _ItemBuilder | None]]:
        self.folders += 1
        if self.folders > MAX_FOLDERS or depth > MAX_DEPTH:
            if depth > MAX_DEPTH:
                self._add_unread(owner, folder, f"more than {MAX_DEPTH} directories deep")
            else:
                self._count_omitted(owner)
            return []
        try:
            with os.scandir(folder) as scan:
                entries = sorted(itertools.islice(scan, MAX_FOLDERS), key=lambda entry: entry.name)
                self._count_omitted(owner, sum(1 for _ in scan))
        except OSError as error:
            self._add_unread(owner, folder, f"cannot list directory: {(error.strerror or '').lower()}")
            return []
        names = {entry.name.lower(): entry.name for entry in entries}
        owner = self._find_owner(folder, depth, names, owner)
        below: list[tuple[str, int, _ItemBuilder | None]] = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if self._should_enter(entry, owner):
                    below.append((entry.path, depth + 1, owner))
            else:
                self._add_file(entry, owner)
        return below

    def _find_owner(
        self, folder: str, depth: int, names: dict[str, str], owner: _ItemBuilder | None
    ) -> _ItemBuilder | None:
        """The item that starts at this folder, or the one it is part of."""
        skill = names.get("skill.md")
        is_below_item_folder = depth or os.path.basename(folder).lower() in AGENT_FOLDERS | COMMAND_FOLDERS
        if skill and skill != "SKILL.md" and is_below_item_folder and find_item_folder(self._folders(folder)) >= 0:
            skill = None  # `commands/skill.md` is the command `/skill`
        inside = owner is not None and owner.kind == "skill" and not (self._may_contain_skills(owner))
        if skill and not inside:
            builder = _ItemBuilder("skill", folder, skill)
        elif owner is None and self._is_plugin(folder, names):
            builder = _ItemBuilder("plugin", folder, "")
        else:
            return owner
        self.builders.append(builder)
        return builder

    def _may_contain_skills(self, owner: _ItemBuilder) -> bool:
        """A repository or plugin may have a skill at its top and others below; otherwise all below is its own."""
        if is_container_folder(owner.folder):
            return True
        if owner.folder != self.top:
            return False
        return any(os.path.lexists(os.path.join(self.top, name)) for name in (".git", ".claude-plugin", "skills"))

    def _is_plugin(self, folder: str, names: dict[str, str]) -> bool:
        return not names.keys().isdisjoint(_MANIFEST_ENTRIES) and bool(find_manifest(folder))

    def _should_enter(self, entry: "os.DirEntry[str]", owner: _ItemBuilder | None) -> bool:
        if entry.name in _NEVER_ENTERED:
            if owner is not None and owner.kind == "skill":
                self._add_unread(owner, entry.path, "nested repository or cache")
            return False
        if entry.name in _VENDOR and (owner is None or owner.kind != "skill"):
            self._add_unread(None, entry.path, "third-party packages and caches are not searched for skills")
            return False
        return True

    def _add_file(self, entry: "os.DirEntry[str]", owner: _ItemBuilder | None) -> None:
        folders = self._relative(entry.path).split(os.sep)[:-1]
        if entry.path in self.lock_files:
            self._add_unread(None, entry.path, "Kitbag lock file")
            return
        if self.files >= MAX_FILES:
            self._count_omitted(owner)
            return
        if owner is None or owner.kind != "skill":
            kind = self._single_file_kind(entry)
            if kind is not None:
                self.files += 1
                self._add_single_file(entry.path, kind)
                return
        if owner is None:
            if not self._is_steering_file(entry.name, folders):
                return
            owner = self.workspace
        self.files += 1
        owner.entries.append(_audit_file(entry.path, os.path.relpath(entry.path, owner.folder)))

    def _single_file_kind(self, entry: "os.DirEntry[str]") -> AuditItemKind | None:
        if entry.is_symlink() or not entry.is_file(follow_symlinks=False):
            return None
        folder = os.path.dirname(entry.path)
        kind = _kind_by_folder(self._folders(folder), entry.name)
        if kind is None and folder == self.top and entry.name.lower().endswith(".md") and self._is_agents_root():
            lower = entry.name.lower()
            kind = "agent" if lower not in _DOCUMENTS and lower not in _STEERING_FILES else None
        if kind is None or _is_data_file(entry.name) or _has_frontmatter(entry.path) or kind == "command":
            return kind
        return None

    def _folders(self, folder: str) -> list[str]:
        """The names of a folder and those above it. The name of the requested folder counts; folders above the root do
        not."""
        relative = os.path.relpath(folder, self.root)
        below = [] if relative == "." else relative.split(os.sep)
        return [os.path.basename(self.top), *below] if self.top == self.root else below

    def _is_agents_root(self) -> bool:
        """Whether the Markdown files at the top may be agents, as for `kitbag agents list --dir`."""
        if os.path.lexists(os.path.join(self.top, ".git")):
            return False
        return any(root.path == self.top for root in extra_roots(self.top, "agents"))

    def _add_single_file(self, path: str, kind: AuditItemKind) -> None:
        folder, name = os.path.split(path)
        self.single_file_items.append(
            AuditItem(
                kind=kind,
                folder=folder,
                path=self._relative(path),
                main_file=name,
                files=(_audit_file(path, name),),
            )
        )

    def _is_steering_file(self, name: str, folders: list[str]) -> bool:
        """Files that instruct agents or configure what tools run."""
        lower = [folder.lower() for folder in folders]
        if ".vscode" in lower:
            return name.lower() in _VSCODE_FILES
        if ".github" in lower:
            return name.lower() == "copilot-instructions.md" or lower[-1] in ("instructions", "hooks", "skills")
        return name.lower() in _STEERING_FILES or not TOOL_FOLDERS.isdisjoint(lower)
