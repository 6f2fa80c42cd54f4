"""Walks one skills root: finds skills, folders of skills, commands and team files.

A directory with SKILL.md is a skill; everything below belongs to it, including examples of other skills.
Any other directory is searched, up to six levels deep. Used by index; uses skills and gitignore.
Walks on its own: it follows links to skills, and a start pays for every call.
"""

import contextlib
import os
from collections.abc import Callable
from typing import NamedTuple

from kitbag.errors import Diagnostic, Severity
from kitbag.library.gitignore import GitignoreRules
from kitbag.library.names import sanitize_name
from kitbag.library.scan_budget import ScanBudget
from kitbag.library.scopes import AGENT_FOLDERS, COMMAND_FOLDERS, Root
from kitbag.library.skills import COMMAND, FLAT, Skill, read_skill
from kitbag.text.source_files import LINK_OUTSIDE

MAX_DEPTH = 6
MAX_DIRECTORIES = 50_000
SKIPPED_FOLDERS = frozenset(
    (".git", ".hg", ".svn", "node_modules", "bower_components", "site-packages", "__pycache__", "_subagents")
)
_TOOL_FOLDERS = frozenset(
    (
        ".agents", ".bundle", ".claude", ".codex", ".config", ".copilot", ".cursor", ".devcontainer", ".direnv",
        ".eggs",
        ".gemini", ".github", ".gitlab", ".gradle", ".husky", ".idea", ".ipynb_checkpoints", ".jj", ".kitbag", ".next",
        ".nox", ".npm", ".nuxt", ".opencode", ".parcel", ".pnpm-store", ".svelte-kit", ".terraform", ".tox", ".turbo",
        ".venv", ".vs", ".vscode", ".yarn", ".zed",
    )
)  # fmt: skip
"""Hidden folders of tools: their own roots, packages and settings."""
_SET_ASIDE_FOLDERS = frozenset(
    (
        ".archive", ".archived", ".attic", ".backup", ".backups", ".bak", ".deleted", ".disabled", ".draft", ".drafts",
        ".hidden", ".old", ".removed", ".temp", ".tmp", ".trash",
    )
)  # fmt: skip
_OTHER_ITEM_FOLDERS = AGENT_FOLDERS | COMMAND_FOLDERS
_CONTAINER_FOLDERS = frozenset(("skills", "skill"))
MEMORY_FILES = frozenset(("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "GEMINI.md"))
_DOCUMENTATION_FILES = frozenset(
    ("readme.md", "changelog.md", "license.md", "contributing.md", "claude.md", "agents.md")
)

FolderStamp = tuple[int, ...] | None
"""(mtime, ctime, inode) of a listed folder or of another file that affects the result; (inode,) if only its
existence matters; None for a file that does not exist."""


def is_container_folder(path: str) -> bool:
    """Whether a folder called `skills` holds skills also if it has a SKILL.md. Not in a folder of skills: there it is a
    skill with that name."""
    parent, name = os.path.split(path)
    return name in _CONTAINER_FOLDERS and os.path.basename(parent) not in _CONTAINER_FOLDERS


class TeamFile(NamedTuple):
    """A file in a skills root that belongs to a team."""

    kind: str
    """persona, subagent or team."""
    location: str
    team: str
    persona: str


class RootScan(NamedTuple):
    root: Root
    skills: list[Skill]
    team_files: list[TeamFile]
    folders: dict[str, FolderStamp]
    """Every listed folder by absolute path; if none changed, nothing was added or removed."""
    diagnostics: list[Diagnostic]
    is_stable: bool
    """False if the result may change without a change of a folder: broken links, unreadable folders."""


HIDDEN_FOLDER_FIX = "no action needed if that is intended; otherwise rename it without the dot"


def hidden_folder_problem(name: str, parent: str) -> str | None:
    """Why a folder whose name starts with a dot is not searched; empty for folders of tools, which need no report.

    None: it is searched, as `skills/.curated` and Codex's `.system` are. `parent`: its folder, relative to the root.
    """
    lower = name.lower()
    if lower in SKIPPED_FOLDERS or lower in _TOOL_FOLDERS or lower.endswith("cache") or lower[:6] == ".trash":
        return ""
    if lower in _SET_ASIDE_FOLDERS:
        return f"not searched: {name} is taken to be set aside"
    if parent[:1] == "." or "/." in parent:
        return "not searched: a hidden directory inside another"
    return None


SkillReader = Callable[[Root, str, str, str, str, str, int], tuple[Skill | None, list[Diagnostic]]]
"""`read_skill`, or a version of it with a cache."""


def scan_root(
    root: Root,
    reader: SkillReader = read_skill,
    teams: frozenset[str] = frozenset(),
    max_directories: int = MAX_DIRECTORIES,
    budget: ScanBudget | None = None,
) -> RootScan:
    """`teams`: folders that are teams although they contain no team file. `budget`: already started."""
    return _RootWalker(root, reader, teams, max_directories, budget or _start_budget()).run()


def _start_budget() -> ScanBudget:
    budget = ScanBudget()
    budget.start()
    return budget


def _folder_stamp(status: os.stat_result) -> FolderStamp:
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


class _Folder(NamedTuple):
    path: str
    relative: str
    depth: int
    team: str
    group: str
    link: bool


def _sort_key(skill: Skill) -> tuple[str, bool, int, str]:
    """By name; then a folder of the same name first, then by depth, then alphabetically."""
    folder = os.path.dirname(skill.location)
    return (skill.full_name.lower(), os.path.basename(folder) != skill.name, folder.count("/"), folder)


class _RootWalker:
    def __init__(
        self, root: Root, reader: SkillReader, teams: frozenset[str], max_directories: int, budget: ScanBudget
    ) -> None:
        self.root = root
        self.budget = budget
        self.reader = reader
        self.teams = teams
        self.max_directories = max_directories
        self.skills: list[Skill] = []
        self.team_files: list[TeamFile] = []
        self.folders: dict[str, FolderStamp] = {}
        self.diagnostics: list[Diagnostic] = []
        self.is_stable = True
        self.visited: set[str] = set()
        self.links: list[_Folder] = []
        self.is_following_links = False
        self.count = 0
        self.has_reported_depth = False
        self.ignore_rules: GitignoreRules | None = None

    def run(self) -> RootScan:
        start = _Folder(path=os.path.realpath(self.root.path), relative="", depth=0, team="", group="", link=False)
        pending = [start]
        if self._is_out_of_bounds(self.root.path, start.path) or (
            self.root.kind == "skills" and self._read_skill_in(start)
        ):
            pending = []
        self._walk(pending)
        if start.path != self.root.path:
            self._watch(self.root.path)
        while self.links:
            # Links come last, so that a link to a directory already visited adds nothing.
            links, self.links = sorted(self.links), []
            self.is_following_links = True
            for link in links:
                self._follow(link)
        self.skills.sort(key=_sort_key)
        if self.budget.is_cut:
            self.is_stable = False
            self.diagnostics.append(self.budget.diagnostic(self.root.path))
        return RootScan(
            root=self.root,
            skills=self.skills,
            team_files=self.team_files,
            folders=self.folders,
            diagnostics=self.diagnostics,
            is_stable=self.is_stable,
        )

    def _follow(self, link: _Folder) -> None:
        if not self.budget.take("link"):
            return
        real = os.path.realpath(link.path)
        self._watch(link.path)
        if self._is_out_of_bounds(link.path, real):
            return
        if real in self.visited or (self.root.kind == "skills" and self._read_skill_in(link)):
            return
        self._walk([self._with_group(link._replace(path=real))])

    def _is_out_of_bounds(self, path: str, real: str) -> bool:
        if reason := self.root.refusal(real):
            self.is_stable = False
            fix = self.root.boundary.fix if self.root.boundary is not None else ""
            self._report("error", LINK_OUTSIDE, path, f"not read: {reason}", fix)
        return bool(reason)

    def _watch(self, path: str) -> None:
        """Records the stamp of a path that affects the result without being listed."""
        try:
            self.folders[path] = _folder_stamp(os.stat(path))
        except OSError:
            self.is_stable = False

    def _with_group(self, child: _Folder) -> _Folder:
        """A subfolder of a team is a group: core, or a persona's."""
        return child._replace(group=os.path.basename(child.relative)) if child.team and not child.group else child

    def _walk(self, pending: list[_Folder]) -> None:
        """Breadth first, so that the shallowest of two equal names comes first."""
        while pending:
            deeper: list[_Folder] = []
            for folder in pending:
                deeper += self._list_folder(folder)
            pending = deeper

    def _read_skill_in(self, folder: _Folder) -> bool:
        """Reads the folder's SKILL.md; False if it has none."""
        if self.is_following_links and folder.path in self.visited:
            return True
        path = folder.path + "/SKILL.md"
        relative = folder.relative + "/SKILL.md" if folder.relative else "SKILL.md"
        name = os.path.basename(folder.path)
        try:
            skill, diagnostics = self.reader(self.root, relative, path, name, folder.team, folder.group, 0)
        except (FileNotFoundError, NotADirectoryError):
            return False
        self._add_skill(skill, diagnostics)
        if name in _CONTAINER_FOLDERS and self._holds_skills(folder):
            problem = "at the top of a directory of skills: many tools ignore it"
            self._report("info", "skill-not-in-folder", path, problem, "move it into a directory of its own")
            return False
        self.visited.add(os.path.realpath(folder.path) if folder.link else folder.path)
        return True

    def _holds_skills(self, folder: _Folder) -> bool:
        """Whether a folder called `skills` with a SKILL.md has other skills beside it, which must not be lost."""
        if not is_container_folder(folder.path):
            return False
        self._watch(folder.path)
        with contextlib.suppress(OSError), os.scandir(folder.path) as entries:
            return any(os.path.lexists(f"{entry.path}/SKILL.md") for entry in entries)
        return False

    def _add_skill(self, skill: Skill | None, diagnostics: list[Diagnostic]) -> None:
        if skill is not None:
            self.skills.append(skill)
        elif diagnostics:
            self.is_stable = False
        self.diagnostics += diagnostics

    def _report(self, severity: Severity, code: str, path: str, problem: str, fix: str) -> None:
        self.diagnostics.append(Diagnostic(severity=severity, code=code, file=path, line=0, problem=problem, fix=fix))

    def _list_folder(self, folder: _Folder) -> list[_Folder]:
        """Lists a folder that is not a skill; returns the subfolders to search."""
        if folder.path in self.visited or not self.budget.take("listing"):
            return []
        self.visited.add(folder.path)
        try:
            status = os.stat(folder.path)
            with os.scandir(folder.path) as listing:
                entries = list(listing)
        except OSError as error:
            self.is_stable = False
            reason = (error.strerror or "").lower()
            self._report(
                "error",
                "unreadable",
                folder.path,
                f"cannot list directory: {reason}",
                "make it readable: chmod u+rx",
            )
            return []
        self.folders[folder.path] = _folder_stamp(status)
        if folder.depth and any(entry.name == "pyvenv.cfg" for entry in entries):
            return []
        if folder.depth and self.root.kind == "skills" and self._read_misspelled_skill(folder, entries):
            return []
        if self.root.kind == "commands":
            self._read_commands(folder, entries)
        else:
            folder = self._read_team_files(folder, entries)
        return self._descend(folder, entries)

    def _descend(self, folder: _Folder, entries: list["os.DirEntry[str]"]) -> list[_Folder]:
        subfolders: list[_Folder] = []
        if self.root.only_file:
            return subfolders
        finds_skills = self.root.kind == "skills"
        for entry in entries:
            name = entry.name
            if name in SKIPPED_FOLDERS or (name[0] == "." and not self._should_search_hidden(folder, entry)):
                continue
            is_link = entry.is_symlink()
            if is_link:
                if not self._link_to_directory(entry):
                    continue
            elif not entry.is_dir(follow_symlinks=False):
                continue
            if self.count >= self.max_directories:
                self._limit_reached()
                return []
            if not self.budget.take("directory"):
                break
            self.count += 1
            relative = f"{folder.relative}/{name}" if folder.relative else name
            child = _Folder(
                path=entry.path,
                relative=relative,
                depth=folder.depth + 1,
                team=folder.team,
                group=folder.group,
                link=is_link,
            )
            if is_link:
                self.links.append(child)
            elif not finds_skills or not self._read_skill_in(child):
                subfolders.append(self._with_group(child))
        return [child for child in subfolders if self._should_descend(child)]

    def _should_search_hidden(self, folder: _Folder, entry: "os.DirEntry[str]") -> bool:
        """Whether a hidden folder of skills is searched; reports one that is not, except those of tools."""
        if not entry.is_dir(follow_symlinks=False):
            return False
        problem = hidden_folder_problem(entry.name, folder.relative)
        if problem is None and self.root.kind != "skills":
            problem = "not searched: the directory is hidden"
        if problem is None and os.path.lexists(f"{entry.path}/SKILL.md"):
            problem = "not loaded: the skill's directory is hidden"
        if problem is None:
            return True
        if problem:
            self._watch(entry.path)
            self._report("info", "hidden-folder", entry.path, problem, HIDDEN_FOLDER_FIX)
        return False

    def _link_to_directory(self, entry: "os.DirEntry[str]") -> bool:
        try:
            if entry.is_dir():
                return True
            is_broken = not os.path.exists(entry.path)
        except OSError:
            is_broken = True
        if not is_broken:
            self._watch(entry.path)
        else:
            self.is_stable = False
            problem = "broken symbolic link"
            self._report("warning", "broken-link", entry.path, problem, "remove it, or restore its target")
        return False

    def _should_descend(self, child: _Folder) -> bool:
        if child.depth >= MAX_DEPTH:
            if not self.has_reported_depth:
                self.has_reported_depth = True
                problem = f"directories more than {MAX_DEPTH} levels below {self.root.path} are not searched"
                self._report("info", "too-deep", child.path, problem, "move the skills to a higher level")
            self._watch(child.path)
            return False
        if self.root.scope != "project" or child.team:
            return True
        if self.ignore_rules is None:
            self.ignore_rules = GitignoreRules(os.path.realpath(self.root.path))
            for path, stamp in self.ignore_rules.stamps.items():
                self.folders[path] = stamp
        if self.ignore_rules.is_ignored(child.path):
            problem = "not searched: the directory is ignored by git"
            self._report(
                "info",
                "ignored-folder",
                child.path,
                problem,
                "move the skills elsewhere, or remove the directory from .gitignore",
            )
            self._watch(child.path)
            return False
        return True

    def _limit_reached(self) -> None:
        if self.count == self.max_directories:
            self.count += 1
            self.is_stable = False
            problem = f"more than {self.max_directories} directories; the rest are not searched"
            fix = "split the directory, or remove files that are not skills"
            self._report("error", "too-many-directories", self.root.path, problem, fix)

    def _read_misspelled_skill(self, folder: _Folder, entries: list["os.DirEntry[str]"]) -> bool:
        """Reads `skill.md` where SKILL.md is missing: the folder is still a skill."""
        name = min((entry.name for entry in entries if entry.name.lower() == "skill.md"), default="")
        if not name or name == "SKILL.md":  # a broken link
            return False
        if not _OTHER_ITEM_FOLDERS.isdisjoint(folder.relative.lower().split("/")):
            return False  # `commands/skill.md` is the command `/skill`
        path = f"{folder.path}/{name}"
        folder_name = os.path.basename(folder.relative)
        try:
            skill, diagnostics = self.reader(
                self.root, f"{folder.relative}/{name}", path, folder_name, folder.team, folder.group, 0
            )
        except OSError:
            return False
        fix = "rename it to SKILL.md, which other tools require"
        spelling = Diagnostic(
            severity="info", code="file-spelling", file=path, line=0, problem=f"the file is named {name}", fix=fix
        )
        self._add_skill(skill, [*(diagnostic for diagnostic in diagnostics if diagnostic != spelling), spelling])
        return True

    def _read_team_files(self, folder: _Folder, entries: list["os.DirEntry[str]"]) -> _Folder:
        """Reads personas, subagents and flat skills; returns the folder, with its team if it is one."""
        personas = [e.name for e in entries if e.name.startswith("_persona_") and e.name.endswith((".yaml", ".yml"))]
        names = {entry.name for entry in entries}
        is_team = personas or "_team.md" in names or "_subagents" in names or folder.relative in self.teams
        if folder.depth == 1 and is_team:
            folder = folder._replace(team=sanitize_name(None, os.path.basename(folder.relative))[0])
            if "_team.md" in names:
                self.team_files.append(
                    TeamFile(kind="team", location=f"{folder.relative}/_team.md", team=folder.team, persona="")
                )
        prefix = f"{folder.relative}/" if folder.relative else ""
        for name in sorted(personas):
            self.team_files.append(TeamFile(kind="persona", location=prefix + name, team=folder.team, persona=""))
        if "personas" in names and folder.team and folder.depth == 1:
            self._list_team_files(folder, "personas", "persona", "")
        if "_subagents" in names:
            self._list_team_files(folder, "_subagents", "subagent", folder.group if folder.group != "core" else "")
        shared_core = folder.depth == 1 and folder.relative == "core"
        if shared_core or (folder.team and folder.depth <= 2):
            self._read_flat_skills(folder, entries, FLAT)
        return folder

    def _list_team_files(self, folder: _Folder, name: str, kind: str, persona: str) -> None:
        path = f"{folder.path}/{name}"
        if os.path.islink(path) and self._is_out_of_bounds(path, os.path.realpath(path)):
            return
        try:
            status = os.stat(path)
            files = sorted(os.listdir(path))
        except OSError:
            self.is_stable = False
            return
        self.folders[path] = _folder_stamp(status)
        prefix = f"{folder.relative}/{name}" if folder.relative else name
        suffixes = (".yaml", ".yml", ".md") if kind == "subagent" else (".yaml", ".yml")
        for file in files:
            if file.endswith(suffixes) and file[0] != ".":
                self.team_files.append(
                    TeamFile(kind=kind, location=f"{prefix}/{file}", team=folder.team, persona=persona)
                )

    def _read_commands(self, folder: _Folder, entries: list["os.DirEntry[str]"]) -> None:
        unreadable = sum(entry.name.endswith(".toml") and entry.name[0] not in "._" for entry in entries)
        if unreadable and not self.root.only_file:
            from kitbag.text.human_format import format_count

            problem = (
                f"{format_count(unreadable, 'command')} not read: the format of Gemini CLI (TOML) is not supported"
            )
            fix = "to use one in Kitbag, save its prompt as .kitbag/commands/NAME.md, with $ARGUMENTS for {{args}}"
            self._report("info", "not-read", folder.path, problem, fix)
        if self.root.dialect != "gemini":
            self._read_flat_skills(folder, entries, COMMAND, ".prompt.md" if self.root.dialect == "copilot" else ".md")

    def _read_flat_skills(
        self, folder: _Folder, entries: list["os.DirEntry[str]"], flags: int, suffix: str = ".md"
    ) -> None:
        for entry in sorted(entries, key=lambda entry: entry.name):
            name = entry.name
            if not name.endswith(suffix) or name[0] in "._" or name == "SKILL.md":
                continue
            if self.root.only_file and name != self.root.only_file:
                continue
            if name in MEMORY_FILES or name.lower() == "readme.md":
                continue
            if name.lower() in _DOCUMENTATION_FILES and not flags & COMMAND:
                continue
            relative = f"{folder.relative}/{name}" if folder.relative else name
            stem = name.removesuffix(suffix)
            if not self.budget.take("file"):
                return
            if flags & COMMAND and folder.relative:
                stem = f"{folder.relative.replace('/', ':')}:{stem}"
            try:
                skill, diagnostics = self.reader(
                    self.root, relative, entry.path, stem, folder.team, folder.group, flags
                )
            except OSError:
                self.is_stable = False
                continue
            if skill is None and not diagnostics:
                self._watch(entry.path)  # no frontmatter; adding it would make this a skill
            self._add_skill(skill, diagnostics)
