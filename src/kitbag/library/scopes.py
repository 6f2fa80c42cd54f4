"""Where things are found, and in which order: the roots of CONTRACT §1 as data.

Used by the registry. A root is one directory that may hold one kind of item; ranks decide
collisions, lower first.
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
    """Compared as it is: the smaller one wins a collision."""
    plugin: str = ""
    """The plugin that brings it; its items are called `plugin:name`."""
    plugin_path: str = ""
    only_file: str = ""
    """A root that is just this one file of its directory."""
    boundary: PathBoundary | None = None
    """What links in it may not lead out of; None for what ships with the package."""

    def refusal(self, directory: str) -> str:
        """Why a folder of this root, with its links followed, is not looked into; empty when it is."""
        return self.boundary.violation(with_trailing_slash(directory)) if self.boundary is not None else ""


# (folder, kind, dialect), in the order in which they win within one directory.
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
    (".codex/skills", "skills", "codex"),
    (".codex/agents", "agents", "codex"),
    (".cursor/skills", "skills", "cursor"),
    (".cursor/agents", "agents", "cursor"),
)


def _copilot_and_opencode(copilot: str, opencode: str) -> _Folders:
    """These two keep their things in other folders at home than in a project."""
    return (
        (f"{copilot}/skills", "skills", "copilot"),
        (f"{copilot}/agents", "agents", "copilot"),
        (f"{opencode}/skill", "skills", "opencode"),
        (f"{opencode}/skills", "skills", "opencode"),
        (f"{opencode}/agent", "agents", "opencode"),
        (f"{opencode}/agents", "agents", "opencode"),
    )


_PROJECT_ROOT_FOLDERS = _SHARED_FOLDERS + _copilot_and_opencode(".github", ".opencode") + _OTHER_TOOL_FOLDERS
_HOME_ROOT_FOLDERS = _SHARED_FOLDERS + _copilot_and_opencode(".copilot", ".config/opencode") + _OTHER_TOOL_FOLDERS

PROJECT_FOLDERS: Final = (
    *(f".kitbag/{kind}" for kind in ITEM_KINDS),
    *(folder for folder, _, _ in _PROJECT_ROOT_FOLDERS),
)
"""Where a project's items lie, from each of its directories."""

EXTRA_RANK, PLUGIN_RANK, BUILTIN_RANK = 0, 5, 6

# What the ranks 1 to 4 of CONTRACT §1 become under each setting of `precedence`.
_RANKS_BY_PRECEDENCE: dict[str, dict[int, int]] = {
    "kitbag": {1: 1, 2: 2, 3: 3, 4: 4},
    "project-first": {1: 1, 3: 2, 2: 3, 4: 4},
    "claude": {2: 1, 4: 2, 1: 3, 3: 4},
}

_RANK_LABELS = {
    0: "given with --dir",
    1: "project, .kitbag",
    2: "user, ~/.kitbag",
    3: "project, another tool's folder",
    4: "user, another tool's folder",
    PLUGIN_RANK: "plugin",
    BUILTIN_RANK: "built-in",
}


class Places(NamedTuple):
    """The directories everything else is found from; made once from the user's environment."""

    cwd: str
    user_home: str
    kitbag_home: str
    project_dirs: tuple[str, ...]
    """The working directory and its parents up to the git root, closest first."""

    @property
    def project(self) -> str:
        """Where project settings are written: the git root, else the working directory."""
        return self.project_dirs[-1] if self.project_dirs else self.cwd


def find_places(cwd: str | None = None) -> Places:
    here = os.path.abspath(cwd or os.getcwd())
    user_home = os.path.expanduser("~")
    kitbag_home = os.environ.get("KITBAG_HOME") or os.path.join(user_home, ".kitbag")
    dirs = [here]
    probe = here
    while True:
        if os.path.lexists(os.path.join(probe, ".git")):
            break
        parent = os.path.dirname(probe)
        if parent == probe:
            dirs = [here]  # no git root: the working directory alone
            break
        probe = parent
        dirs.append(probe)
    # The home directory's own folders are the user's, even when it is a working directory.
    own = {user_home, os.path.realpath(user_home)}
    return Places(here, user_home, os.path.abspath(kitbag_home), tuple(d for d in dirs if d not in own))


def describe_precedence(root: Root, precedence: str = "kitbag") -> str:
    """In words, why a root stands where it stands."""
    back = {new: old for old, new in _RANKS_BY_PRECEDENCE.get(precedence, _RANKS_BY_PRECEDENCE["kitbag"]).items()}
    return _RANK_LABELS.get(back.get(root.rank[0], root.rank[0]), "")


_PROJECT_FIX: Final = "replace the link with a copy of the file, or link to a file inside the workspace"
_NAMED_FIX: Final = "name the path that the link leads to, or replace the link with a copy"
_USER_FIX: Final = "copy it here, or name the folder it leads to in your settings: library.link_targets"


def project_boundary(places: Places) -> PathBoundary:
    """What a workspace brings lies in it, whatever its links say."""
    return directory_boundary(places.project)._replace(fix=_PROJECT_FIX)


def user_boundary(places: Places, directory: str, link_targets: tuple[str, ...] = ()) -> PathBoundary:
    """A folder of the user's own may link to folders beside the tools' folders, and to those that settings name."""
    home, kitbag_home = os.path.realpath(places.user_home), os.path.realpath(places.kitbag_home)
    if with_trailing_slash(directory).startswith(with_trailing_slash(places.kitbag_home)):
        own = kitbag_home + directory[len(places.kitbag_home) :]
    else:
        own = home + directory[len(places.user_home) :]
    named = (os.path.realpath(os.path.expanduser(target)) for target in link_targets)
    beside = dict.fromkeys(map(with_trailing_slash, (home, os.path.dirname(kitbag_home))))
    beside.pop("/", None)
    return PathBoundary(tuple(map(with_trailing_slash, (own, *named))), tuple(beside), _USER_FIX)


def boundary_for_directory(directory: str, workspace: str = "") -> PathBoundary:
    """Of a folder that was named on the command line: the repository it lies in, else the folder itself."""
    if left := _escaped_repository(directory, workspace):
        return directory_boundary(left)
    directory = os.path.realpath(directory)
    probe, home = directory, os.path.realpath(os.path.expanduser("~"))
    while probe not in (home, os.path.dirname(probe)):
        if os.path.lexists(os.path.join(probe, ".git")):
            return directory_boundary(probe)
        probe = os.path.dirname(probe)
    return directory_boundary(directory)


def boundary_for_file(path: str, workspace: str = "") -> PathBoundary | None:
    """Of a file that was named on the command line: the repository or workspace it lies in; None outside of any."""
    around = _escaped_repository(path, workspace) or next(iter(_enclosing_repositories(path, workspace)), "")
    return directory_boundary(around)._replace(fix=_NAMED_FIX) if around else None


def check_path_links(path: str, workspace: str = "") -> None:
    """For a path that was named on the command line. Raises InvalidError where a link on the way leads out of the
    workspace or repository: what lies there was not named."""
    if left := _escaped_repository(path, workspace):
        raise InvalidError(
            f"{path}: not read: {directory_boundary(left).violation(os.path.realpath(path))}", _NAMED_FIX
        )


def _escaped_repository(path: str, workspace: str) -> str:
    """The repository or workspace that a path lies in by its name but not when links are followed; else empty."""
    real = with_trailing_slash(os.path.realpath(path))
    around = _enclosing_repositories(path, workspace)
    return next((one for one in around if not real.startswith(with_trailing_slash(os.path.realpath(one)))), "")


def _enclosing_repositories(path: str, workspace: str) -> list[str]:
    """The repositories that a path lies in by its name, and the workspace, which may be none; the closest first."""
    home, workspace = (os.path.realpath(one) for one in (os.path.expanduser("~"), workspace or find_places().project))
    found: list[str] = []
    probe = os.path.dirname(os.path.abspath(path))
    while (above := os.path.realpath(probe)) not in (home, "/"):
        if above == workspace or os.path.lexists(os.path.join(probe, ".git")):
            found.append(probe)
        probe = os.path.dirname(probe)
    return found


def find_roots(
    places: Places,
    kind: ItemKind,
    precedence: str = "kitbag",
    extra: tuple[str, ...] = (),
    builtin: bool = True,
    link_targets: tuple[str, ...] = (),
) -> list[Root]:
    """The directories that exist and may hold `kind`, best first. Plugins are added by the registry."""
    order = _RANKS_BY_PRECEDENCE.get(precedence, _RANKS_BY_PRECEDENCE["kitbag"])
    candidates: list[Root] = []
    inside = project_boundary(places)
    for at, directory in enumerate(extra):
        candidates += extra_roots(directory, kind, at, places.project)
    for distance, directory in enumerate(places.project_dirs):
        own = os.path.join(directory, ".kitbag", kind)
        candidates.append(Root(own, kind, "project", "kitbag", (order[1], distance), boundary=inside))
        for at, (folder, held, dialect) in enumerate(_PROJECT_ROOT_FOLDERS):
            if held == kind:
                rank = (order[3], distance * 100 + at)
                path = os.path.join(directory, folder)
                candidates.append(Root(path, kind, "project", dialect, rank, boundary=inside))
    own = os.path.join(places.kitbag_home, kind)
    candidates.append(Root(own, kind, "user", "kitbag", (order[2], 0)))
    for at, (folder, held, dialect) in enumerate(_HOME_ROOT_FOLDERS):
        if held == kind:
            rank = (order[4], at)
            candidates.append(Root(os.path.join(places.user_home, folder), kind, "user", dialect, rank))
    if builtin:
        shipped = os.path.join(os.path.dirname(os.path.dirname(__file__)), "builtin", kind)
        candidates.append(Root(shipped, kind, "built-in", "kitbag", (BUILTIN_RANK, 0)))
    candidates.sort(key=lambda root: root.rank)
    return [
        root._replace(boundary=user_boundary(places, root.path, link_targets)) if root.scope == "user" else root
        for root in _existing_unique(candidates)
    ]


def _existing_unique(candidates: list[Root]) -> list[Root]:
    """Without what is missing, and without a second way to the same directory. One that a workspace links to from
    outside is kept, to be reported, and takes nothing away from the way that leads there by right."""
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
    """`--dir DIR`: a folder of items, a folder with `skills/` or `agents/` in it, or a whole workspace."""
    directory = os.path.abspath(directory)
    base = at * 1000
    found: list[Root] = []
    own: _Folders = ((kind, kind, "kitbag"), (f".kitbag/{kind}", kind, "kitbag"))
    inside = boundary_for_directory(directory, workspace)
    for offset, (folder, held, dialect) in enumerate((*own, *_PROJECT_ROOT_FOLDERS)):
        path = os.path.join(directory, folder)
        if held == kind and os.path.isdir(path):
            found.append(Root(path, kind, "extra", dialect, (EXTRA_RANK, base + offset + 1), boundary=inside))
    if found or any(os.path.isdir(os.path.join(directory, other)) for other in ITEM_KINDS):
        return found
    if kind == "skills" or os.path.basename(directory) == kind or (kind == "agents" and not _has_skills(directory)):
        return [Root(directory, kind, "extra", _infer_dialect(directory), (EXTRA_RANK, base), boundary=inside)]
    return []


def _has_skills(directory: str) -> bool:
    """A folder of skills; Markdown files in it are not agents."""
    names = os.listdir(directory)
    if "SKILL.md" in names or any(name.startswith(("_persona_", "_team.md", "_subagents")) for name in names):
        return True
    return any(os.path.isfile(os.path.join(directory, name, "SKILL.md")) for name in names)


def _infer_dialect(directory: str) -> Dialect:
    parts = directory.split(os.sep)
    for part, dialect in _DIALECT_FOLDERS.items():
        if part in parts:
            return dialect
    return "kitbag"


_DIALECT_FOLDERS: dict[str, Dialect] = {
    ".kitbag": "kitbag",
    ".claude": "claude",
    ".github": "copilot",
    ".copilot": "copilot",
    ".opencode": "opencode",
    "opencode": "opencode",
    ".gemini": "gemini",
    ".codex": "codex",
    ".cursor": "cursor",
    ".agents": "agents",
}
