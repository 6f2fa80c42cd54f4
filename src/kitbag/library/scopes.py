"""The directories Kitbag searches (roots) and their precedence: CONTRACT §1 as data.

A root is one directory that may hold one kind of item; in a name collision the lower rank wins. Also defines
the boundaries that links must not leave. Used by the registry and most packages above; uses text/source_files.
"""

import os
from typing import Final, Literal, NamedTuple

from kitbag.errors import InvalidError
from kitbag.text.source_files import PathBoundary, directory_boundary, with_trailing_slash

ItemKind = Literal["skills", "agents", "commands", "personas"]
Scope = Literal["extra", "project", "user", "plugin", "built-in"]
Dialect = Literal["kitbag", "claude", "copilot", "opencode", "gemini", "codex", "cursor", "agents"]

ITEM_KINDS: tuple[ItemKind, ...] = ("skills", "agents", "commands", "personas")


class Root(NamedTuple):
    path: str
    kind: ItemKind
    scope: Scope
    dialect: Dialect
    rank: tuple[int, int]
    """The smaller rank wins a collision."""
    plugin: str = ""
    """The plugin it belongs to; its items are named `plugin:name`."""
    plugin_path: str = ""
    only_file: str = ""
    """Restricts the root to this one file of its directory."""
    boundary: PathBoundary | None = None
    """Links in it must not lead out of this; None for built-in items."""

    def refusal(self, directory: str) -> str:
        """Why a resolved directory of this root must not be read; empty if it may."""
        return self.boundary.violation(with_trailing_slash(directory)) if self.boundary is not None else ""


# (folder, kind, dialect), in order of precedence within one directory.
_Folders = tuple[tuple[str, ItemKind, Dialect], ...]

_SHARED_FOLDERS: _Folders = (
    (".agents/skills", "skills", "agents"),
    (".claude/skills", "skills", "claude"),
    (".claude/agents", "agents", "claude"),
    (".claude/commands", "commands", "claude"),
)
_OTHER_TOOL_FOLDERS: _Folders = (
    (".gemini/skills", "skills", "gemini"),
    (".gemini/agents", "agents", "gemini"),
    (".gemini/commands", "commands", "gemini"),
    (".codex/skills", "skills", "codex"),
    (".codex/agents", "agents", "codex"),
    (".cursor/skills", "skills", "cursor"),
    (".cursor/agents", "agents", "cursor"),
    (".cursor/commands", "commands", "cursor"),
)


def _copilot_and_opencode(copilot: str, opencode: str) -> _Folders:
    """Copilot and OpenCode use different folders at home than in a project."""
    return (
        (f"{copilot}/skills", "skills", "copilot"),
        (f"{copilot}/agents", "agents", "copilot"),
        (f"{opencode}/skill", "skills", "opencode"),
        (f"{opencode}/skills", "skills", "opencode"),
        (f"{opencode}/agent", "agents", "opencode"),
        (f"{opencode}/agents", "agents", "opencode"),
        (f"{opencode}/command", "commands", "opencode"),
        (f"{opencode}/commands", "commands", "opencode"),
    )


_PROJECT_ROOT_FOLDERS: _Folders = (
    *_SHARED_FOLDERS,
    *_copilot_and_opencode(".github", ".opencode"),
    (".github/prompts", "commands", "copilot"),
    *_OTHER_TOOL_FOLDERS,
)
_HOME_ROOT_FOLDERS: _Folders = (
    *_SHARED_FOLDERS,
    *_copilot_and_opencode(".copilot", ".config/opencode"),
    *_OTHER_TOOL_FOLDERS,
    (".codex/prompts", "commands", "codex"),
)

PROJECT_FOLDERS: Final = (
    *(f".kitbag/{kind}" for kind in ITEM_KINDS),
    *(folder for folder, _, _ in _PROJECT_ROOT_FOLDERS),
)
"""Folders of a project's items, relative to each project directory."""


def is_tool_folder(path: str) -> bool:
    """Whether this is a folder that a tool reads, such as `.claude/agents`, wherever it is."""
    parent, name = os.path.split(path)
    return f"{os.path.basename(parent)}/{name}" in PROJECT_FOLDERS


AGENT_FOLDERS: Final = frozenset(("agents", "agent", "_subagents", "chatmodes"))
COMMAND_FOLDERS: Final = frozenset(("commands", "command", "prompts"))
"""Folders whose Markdown files are agents or commands."""

EXTRA_RANK, PLUGIN_RANK, BUILTIN_RANK = 0, 5, 6

# How each value of the `precedence` setting reorders the ranks 1 to 4 of CONTRACT §1.
_RANKS_BY_PRECEDENCE: dict[str, dict[int, int]] = {
    "kitbag": {1: 1, 2: 2, 3: 3, 4: 4},
    "project-first": {1: 1, 3: 2, 2: 3, 4: 4},
    "claude": {2: 1, 4: 2, 1: 3, 3: 4},
}

_RANK_LABELS = {
    0: "given with --dir",
    1: "project, .kitbag",
    2: "user, ~/.kitbag",
    3: "project, another tool's directory",
    4: "user, another tool's directory",
    PLUGIN_RANK: "plugin",
    BUILTIN_RANK: "built-in",
}


class Places(NamedTuple):
    """The base directories from which all others are derived."""

    cwd: str
    user_home: str
    kitbag_home: str
    project_dirs: tuple[str, ...]
    """The working directory and its parents up to the git root, closest first."""
    snapshot: str = ""
    """A copy of another machine's user library (tasks/library_snapshot), used instead of this user's; empty: none."""

    @property
    def library_home(self) -> str:
        """The home directory whose skills and agents are used."""
        return os.path.join(self.snapshot, "home") if self.snapshot else self.user_home

    @property
    def library_kitbag_home(self) -> str:
        """The Kitbag home whose skills, agents, personas and plugins are used."""
        return os.path.join(self.snapshot, "kitbag") if self.snapshot else self.kitbag_home

    @property
    def project(self) -> str:
        """The project's root, where its settings are written: the git root, else the working directory."""
        return self.project_dirs[-1] if self.project_dirs else self.cwd


def current_directory() -> str:
    """Raises InvalidError if it was deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError as error:
        raise InvalidError("the current directory no longer exists", "change to an existing directory") from error


def find_places(cwd: str | None = None) -> Places:
    """Raises InvalidError if the current directory was deleted."""
    here = os.path.abspath(cwd or current_directory())
    user_home = os.path.expanduser("~")
    kitbag_home = os.environ.get("KITBAG_HOME") or os.path.join(user_home, ".kitbag")
    dirs = [here]
    directory = here
    while True:
        if os.path.lexists(os.path.join(directory, ".git")):
            break
        parent = os.path.dirname(directory)
        if parent == directory:
            dirs = [here]  # no git root: only the working directory
            break
        directory = parent
        dirs.append(directory)
    # The home directory's folders belong to the user, even if it is the working directory.
    home_dirs = {user_home, os.path.realpath(user_home)}
    return Places(
        cwd=here,
        user_home=user_home,
        kitbag_home=os.path.abspath(kitbag_home),
        project_dirs=tuple(d for d in dirs if d not in home_dirs),
    )


def describe_precedence(root: Root, precedence: str = "kitbag") -> str:
    """Describes the rank of a root."""
    original_ranks = {
        new: old for old, new in _RANKS_BY_PRECEDENCE.get(precedence, _RANKS_BY_PRECEDENCE["kitbag"]).items()
    }
    return _RANK_LABELS.get(original_ranks.get(root.rank[0], root.rank[0]), "")


_PROJECT_FIX: Final = "replace the link with a copy of the file, or link to a file inside the workspace"
_NAMED_FIX: Final = "use the link's target path, or replace the link with a copy"
_USER_FIX: Final = (
    "replace the link with a copy, or add its target directory to `library.link_targets` in your settings"
)


def project_boundary(places: Places) -> PathBoundary:
    """A workspace's files must be inside it, with links resolved."""
    return directory_boundary(places.project)._replace(fix=_PROJECT_FIX)


def user_boundary(places: Places, directory: str, link_targets: tuple[str, ...] = ()) -> PathBoundary:
    """The user's folders may link to folders next to the tools' folders and to `library.link_targets`."""
    home, kitbag_home = os.path.realpath(places.library_home), os.path.realpath(places.library_kitbag_home)
    if with_trailing_slash(directory).startswith(with_trailing_slash(places.library_kitbag_home)):
        own = kitbag_home + directory[len(places.library_kitbag_home) :]
    else:
        own = home + directory[len(places.library_home) :]
    named = (os.path.realpath(os.path.expanduser(target)) for target in link_targets)
    beside = dict.fromkeys(map(with_trailing_slash, (home, os.path.dirname(kitbag_home))))
    beside.pop("/", None)
    return PathBoundary(tuple(map(with_trailing_slash, (own, *named))), tuple(beside), _USER_FIX)


def boundary_for_directory(directory: str, workspace: str = "") -> PathBoundary:
    """The boundary of a directory given on the command line: its repository, else the directory itself."""
    if escaped := _escaped_repository(directory, workspace):
        return directory_boundary(escaped)
    directory = os.path.realpath(directory)
    probe, home = directory, os.path.realpath(os.path.expanduser("~"))
    while probe not in (home, os.path.dirname(probe)):
        if os.path.lexists(os.path.join(probe, ".git")):
            return directory_boundary(probe)
        probe = os.path.dirname(probe)
    return directory_boundary(directory)


def boundary_for_file(path: str, workspace: str = "") -> PathBoundary | None:
    """The boundary of a file given on the command line: its repository or workspace; None outside of both."""
    enclosing = _escaped_repository(path, workspace) or next(iter(_enclosing_repositories(path, workspace)), "")
    return directory_boundary(enclosing)._replace(fix=_NAMED_FIX) if enclosing else None


def check_path_links(path: str, workspace: str = "") -> None:
    """Checks a path given on the command line. Raises InvalidError if a link on it leads out of the workspace or
    repository: the user did not name that target."""
    if escaped := _escaped_repository(path, workspace):
        raise InvalidError(
            f"{path}: not read: {directory_boundary(escaped).violation(os.path.realpath(path))}", _NAMED_FIX
        )


def _escaped_repository(path: str, workspace: str) -> str:
    """The repository or workspace that contains the path as written but not with links resolved; empty if none."""
    real = with_trailing_slash(os.path.realpath(path))
    enclosing = _enclosing_repositories(path, workspace)
    return next(
        (directory for directory in enclosing if not real.startswith(with_trailing_slash(os.path.realpath(directory)))),
        "",
    )


def _enclosing_repositories(path: str, workspace: str) -> list[str]:
    """The repositories around a path as written, and the workspace if it contains the path; closest first."""
    home, workspace = (
        os.path.realpath(directory) for directory in (os.path.expanduser("~"), workspace or find_places().project)
    )
    repositories: list[str] = []
    parent = os.path.dirname(os.path.abspath(path))
    while (resolved := os.path.realpath(parent)) not in (home, "/"):
        if resolved == workspace or os.path.lexists(os.path.join(parent, ".git")):
            repositories.append(parent)
        parent = os.path.dirname(parent)
    return repositories


def find_roots(
    places: Places,
    kind: ItemKind,
    precedence: str = "kitbag",
    extra: tuple[str, ...] = (),
    builtin: bool = True,
    link_targets: tuple[str, ...] = (),
) -> list[Root]:
    """The existing roots for `kind`, highest precedence first. The registry adds those of plugins."""
    order = _RANKS_BY_PRECEDENCE.get(precedence, _RANKS_BY_PRECEDENCE["kitbag"])
    candidates: list[Root] = []
    boundary = project_boundary(places)
    for position, directory in enumerate(extra):
        candidates += extra_roots(directory, kind, position, places.project)
    for distance, directory in enumerate(places.project_dirs):
        own_path = os.path.join(directory, ".kitbag", kind)
        candidates.append(
            Root(
                path=own_path,
                kind=kind,
                scope="project",
                dialect="kitbag",
                rank=(order[1], distance),
                boundary=boundary,
            )
        )
        for position, (folder, folder_kind, dialect) in enumerate(_PROJECT_ROOT_FOLDERS):
            if folder_kind == kind:
                rank = (order[3], distance * 100 + position)
                path = os.path.join(directory, folder)
                candidates.append(
                    Root(path=path, kind=kind, scope="project", dialect=dialect, rank=rank, boundary=boundary)
                )
    own_path = os.path.join(places.library_kitbag_home, kind)
    candidates.append(Root(path=own_path, kind=kind, scope="user", dialect="kitbag", rank=(order[2], 0)))
    for position, (folder, folder_kind, dialect) in enumerate(_HOME_ROOT_FOLDERS):
        if folder_kind == kind:
            rank = (order[4], position)
            candidates.append(
                Root(
                    path=os.path.join(places.library_home, folder), kind=kind, scope="user", dialect=dialect, rank=rank
                )
            )
    if builtin:
        builtin_path = os.path.join(os.path.dirname(os.path.dirname(__file__)), "builtin", kind)
        candidates.append(
            Root(path=builtin_path, kind=kind, scope="built-in", dialect="kitbag", rank=(BUILTIN_RANK, 0))
        )
    candidates.sort(key=lambda root: root.rank)
    return [
        root._replace(boundary=user_boundary(places, root.path, link_targets)) if root.scope == "user" else root
        for root in _existing_unique(candidates)
    ]


def _existing_unique(candidates: list[Root]) -> list[Root]:
    """Drops missing directories and duplicates. A project root that links out of the workspace is kept, to be
    reported, and does not shadow a legitimate root at the same place."""
    roots: list[Root] = []
    seen: set[str] = set()
    for root in candidates:
        if os.path.isdir(root.path):
            real = os.path.realpath(root.path)
            if root.scope == "project" and root.refusal(real):
                roots.append(root)
            elif real not in seen:
                seen.add(real)
                roots.append(root)
    return roots


def extra_roots(directory: str, kind: ItemKind, at: int = 0, workspace: str = "") -> list[Root]:
    """Roots of `--dir DIR`: a folder of items, a folder that contains `skills/` or `agents/`, or a whole workspace."""
    directory = os.path.abspath(directory)
    base = at * 1000
    roots: list[Root] = []
    own_folders: _Folders = (
        *_folders_in(os.path.basename(directory)),
        (kind, kind, _infer_dialect(directory)),
        (f".kitbag/{kind}", kind, "kitbag"),
    )
    boundary = boundary_for_directory(directory, workspace)
    for offset, (folder, folder_kind, dialect) in enumerate((*own_folders, *_PROJECT_ROOT_FOLDERS)):
        path = os.path.join(directory, folder)
        if folder_kind == kind and os.path.isdir(path) and all(root.path != path for root in roots):
            roots.append(
                Root(
                    path=path,
                    kind=kind,
                    scope="extra",
                    dialect=dialect,
                    rank=(EXTRA_RANK, base + offset + 1),
                    boundary=boundary,
                )
            )
    has_items = any(os.path.isdir(os.path.join(directory, other)) for other in ITEM_KINDS)
    if roots or (has_items and kind != "skills"):
        return roots
    name = os.path.basename(directory)
    names = COMMAND_FOLDERS if kind == "commands" else (kind,)
    if (
        kind == "skills"
        or name in names
        or (kind == "agents" and name not in COMMAND_FOLDERS and not _has_skills(directory))
    ):
        return [
            Root(
                path=directory,
                kind=kind,
                scope="extra",
                dialect=_infer_dialect(directory),
                rank=(EXTRA_RANK, base),
                boundary=boundary,
            )
        ]
    return []


def _folders_in(name: str) -> _Folders:
    """The folders of items in a tool's folder of this name, such as `.opencode`."""
    folders = dict.fromkeys((*_PROJECT_ROOT_FOLDERS, *_HOME_ROOT_FOLDERS))
    return tuple(
        (folder[len(name) + 1 :], kind, dialect) for folder, kind, dialect in folders if folder.startswith(f"{name}/")
    )


def _has_skills(directory: str) -> bool:
    """Whether this is a folder of skills: then its Markdown files are not agents."""
    names = os.listdir(directory)
    folders = [path for name in names if os.path.isdir(path := os.path.join(directory, name))]
    for found in (names, *map(_list_names, folders)):
        if "SKILL.md" in found or any(name.startswith(("_persona_", "_team.md", "_subagents")) for name in found):
            return True
    return False


def _list_names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _infer_dialect(directory: str) -> Dialect:
    parts = directory.replace(".config/opencode", ".opencode").split(os.sep)
    for part in reversed(parts):
        if part in _DIALECT_FOLDERS:
            return _DIALECT_FOLDERS[part]
    return "kitbag"


_DIALECT_FOLDERS: dict[str, Dialect] = {
    ".kitbag": "kitbag",
    ".claude": "claude",
    ".github": "copilot",
    ".copilot": "copilot",
    ".opencode": "opencode",
    ".gemini": "gemini",
    ".codex": "codex",
    ".cursor": "cursor",
    ".agents": "agents",
}
