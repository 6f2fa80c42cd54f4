"""Control paths: files that change what programs do, recognized by name. The lists, and the predicates on them.

Used by `permissions/paths` for every path in a decision and by `sandbox/protected_paths`. Paths that hold secrets are
in `text/secret_paths`.
"""

import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kitbag.text.secret_paths import normalize_path_part, normalize_path_parts

_GIT: Final = "git may run commands from it"
_AGENT: Final = "agents read it as configuration or instructions"
_EDITOR: Final = "editors may run commands from it"
_TOOL: Final = "tools may run commands from it without asking"
_START: Final = "programs load it at startup"
_SYSTEM: Final = "system configuration"
BARE_REPOSITORY_REASON: Final = f"inside a bare git repository: {_GIT}"
# In a repository only these make git run something. `commondir` would make git read another directory's config.
# `modules` and `worktrees` hold repositories, and git uses one prepared there when a submodule of that name is first
# checked out.
GIT_CONTROL_NAMES: Final = ("hooks", "config", "config.worktree", "commondir", "modules", "worktrees")
PACKAGE_DIRECTORIES: Final = frozenset(
    (
        "node_modules", "bower_components", "__pycache__", "site-packages", ".venv", "venv", ".tox", ".nox", "target",
        "dist", "build", ".cache", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".next", ".nuxt",
        ".gradle", ".terraform", "pods",
    )
)  # fmt: skip
"""Installed packages and build output: no one starts programs there, and packages have control files of their own."""

GIT_NAMES: Final = frozenset((".git", ".gitmodules"))
AGENT_NAMES: Final = frozenset(
    (
        ".kitbag", ".claude", ".codex", ".gemini", ".opencode", ".cursor", ".agents", ".windsurf", ".roo", ".kiro",
        ".continue", ".qwen", ".crush", ".aider.conf.yml", ".mcp.json", "opencode.json", "opencode.jsonc",
        ".cursorrules", ".windsurfrules", ".clinerules", ".kilocode", ".factory", ".amazonq", ".amp", ".goose",
        ".junie", ".trae", ".augment", ".openhands",
    )
)  # fmt: skip
EDITOR_NAMES: Final = frozenset((".vscode", ".idea", ".zed", ".fleet", ".devcontainer", ".devcontainer.json"))
TOOL_NAMES: Final = frozenset(
    (
        ".husky", ".envrc", ".direnvrc", ".pre-commit-config.yaml", ".pre-commit-config.yml", "lefthook.yml",
        ".lefthook.yml", ".npmrc", ".pnpmfile.cjs", ".yarnrc", ".yarnrc.yml", ".tool-versions", ".mise.toml",
        ".mise.local.toml", "mise.toml", "mise.local.toml", ".mise", ".gitlab-ci.yml", ".circleci", "lefthook.yaml",
        "lefthook.toml", ".lefthook.yaml", ".lefthook.toml", "lefthook-local.yml", ".pnpmfile.mjs", ".pnp.cjs",
        ".huskyrc", ".simple-git-hooks.json", ".overcommit.yml", ".hg", ".jj", ".sl", ".buildkite", ".travis.yml",
        ".drone.yml", ".woodpecker.yml", "azure-pipelines.yml", "bitbucket-pipelines.yml", "jenkinsfile",
        ".gitpod.yml", ".bazelrc", ".dir-locals.el", ".autoenv", ".autoenv.zsh",
    )
)  # fmt: skip
START_NAMES: Final = frozenset(
    (
        ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".bash_completion", ".bashrc.d",
        ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".oh-my-zsh", ".kshrc", ".cshrc",
        ".tcshrc", ".login", ".logout", ".inputrc", ".xprofile", ".xinitrc", ".xsession", ".xsessionrc",
        ".pam_environment", ".tmux.conf", ".screenrc", ".vimrc", ".gvimrc", ".vim", ".exrc", ".nvimrc", ".nvim.lua",
        ".emacs", ".emacs.d", ".gdbinit", ".lldbinit", ".pythonrc", ".irbrc", ".pryrc", ".perldb", ".psqlrc",
        ".sqliterc", ".curlrc", ".wgetrc", ".gitconfig", ".ssh", ".gnupg",
    )
)  # fmt: skip
PROJECT_SEQUENCES: Final = (
    *((".github", name) for name in ("agents", "skills", "copilot-instructions.md", "hooks", "workflows", "actions")),
    *((".github", name) for name in ("instructions", "prompts", "chatmodes")),
    (".gitea", "workflows"),
    (".forgejo", "workflows"),
    (".yarn", "releases"),
    (".yarn", "plugins"),
    (".cargo", "config"),
    (".cargo", "config.toml"),
    (".config", "mise"),
)
HOME_SEQUENCES: Final = (
    *(
        (".config", name)
        for name in ("git", "fish", "nushell", "autostart", "systemd", "environment.d", "nvim", "tmux")
    ),
    *((".config", name) for name in ("direnv", "zed", "opencode", "code", "kitbag", "plasma-workspace")),
    *((".local", name) for name in ("bin", "share/systemd", "share/applications", "share/dbus-1")),
    (".docker", "config.json"),
    (".docker", "cli-plugins"),
    (".gradle", "init.d"),
    (".gradle", "init.gradle"),
    (".m2", "settings.xml"),
    ("library", "launchagents"),
    ("library", "launchdaemons"),
)
_SYSTEM_PATHS = (
    r"/etc/(?:cron[^/]*|anacrontab|profile|profile\.d|bash\.bashrc|bashrc|zsh[^/]*|environment|ld\.so[^/]*|sudoers[^/]*"
    r"|pam\.d|security|systemd|init\.d|rc[^/]*|ssh|gitconfig|xdg/autostart|passwd|shadow|group|hosts)(?:/|$)"
    r"|/var/spool/(?:cron|at|anacron)(?:/|$)|/(?:usr/)?(?:lib|local/lib)/systemd(?:/|$)|/library/launch"
)


def _reason_by_name(*groups: tuple[Iterable[str], str]) -> Mapping[str, str]:
    return {name: reason for names, reason in groups for name in names}


_CONTROL_NAMES: Final = _reason_by_name(
    (GIT_NAMES, _GIT), (AGENT_NAMES, _AGENT), (EDITOR_NAMES, _EDITOR), (TOOL_NAMES, _TOOL), (START_NAMES, _START)
)
_SEQUENCES: Final = tuple(
    ("/".join(parts), reason)
    for sequences, reason in ((PROJECT_SEQUENCES, _TOOL), (HOME_SEQUENCES, _START))
    for parts in sequences
)
_SEQUENCE_STARTS: Final = frozenset(sequence.partition("/")[0] for sequence, _ in _SEQUENCES)
CONTROL_NAMES: Final = frozenset(_CONTROL_NAMES)
CONTROL_SEQUENCES: Final = tuple(sequence for sequence, _ in _SEQUENCES)
SEQUENCE_PARTS: Final = frozenset(part for sequence, _ in _SEQUENCES for part in sequence.split("/"))


def is_control_name(part: str) -> bool:
    """Whether a single path component, as a directory lists it, is a control name."""
    return normalize_path_part(part) in _CONTROL_NAMES


class ControlPart(NamedTuple):
    """What makes a path a control path."""

    length: int
    """The number of leading components that form the control path."""
    name: str
    reason: str


def find_control_part(parts: Sequence[str], *, replaces: bool = True) -> ControlPart | None:
    """`parts`: normalized components. `replaces`: a parent directory of a control path counts too, because it is
    replaced itself."""
    for at, part in enumerate(parts):
        reason = _CONTROL_NAMES.get(part)
        if reason and not _is_checkout(parts, at):
            return ControlPart(at + 1, part, reason)
        if part in _SEQUENCE_STARTS:
            below = "/".join(parts[at:]) + "/"
            for sequence, reason in _SEQUENCES:
                if below.startswith(sequence + "/") or (replaces and sequence.startswith(below)):
                    length = min(at + 1 + sequence.count("/"), len(parts))
                    return ControlPart(length, sequence, reason)
    return None


def control_reason(path: str) -> str:
    """Why writing to `path` changes what programs do without asking, whether it exists or not; empty if it does not.

    `path` is absolute and normalized. Only the check for bare repositories reads the disk.
    """
    found = find_control_part(normalize_path_parts(path))
    if found is not None:
        return f"`{found.name}`: {found.reason}"
    if re.match(_SYSTEM_PATHS, path.casefold()):
        return _SYSTEM
    if enclosing_bare_repository(path):
        return BARE_REPOSITORY_REASON
    return ""


def _is_checkout(parts: Sequence[str], at: int) -> bool:
    """`.claude/worktrees/name/…`: other agents put checkouts there, which hold ordinary files."""
    return parts[at] in AGENT_NAMES and len(parts) > at + 3 and parts[at + 1] == "worktrees"


def enclosing_bare_repository(path: str) -> str:
    """The bare repository that contains `path`, or would contain it once `path` exists; empty if there is none.

    A directory is one as soon as it has `HEAD` and `objects` (or `commondir`); git then obeys its `config`.
    """
    place, added = _deepest_existing(path)
    while place:
        if _has_entry(place, "HEAD", added) and (
            _has_entry(place, "objects", added) or _has_entry(place, "commondir", added)
        ):
            return place
        place, _, name = place.rpartition("/")
        added = normalize_path_part(name)
    return ""


def _deepest_existing(path: str) -> tuple[str, str]:
    """The deepest existing ancestor, and the next component below it. Bisects, so deep paths take few lookups."""
    parts = path.split("/")
    shortest, longest = 1, len(parts)
    while shortest < longest:
        middle = (shortest + longest + 1) // 2
        if os.path.lexists("/".join(parts[:middle])):
            shortest = middle
        else:
            longest = middle - 1
    return "/".join(parts[:shortest]), normalize_path_part(parts[shortest]) if shortest < len(parts) else ""


def _has_entry(place: str, name: str, added: str) -> bool:
    return added == name.casefold() or os.path.lexists(f"{place}/{name}")


def file_type_reason(mode: int) -> str:
    """Why a file with this `st_mode` can't be read or written as a regular file; directories can be listed."""
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return ""
    if stat.S_ISFIFO(mode):
        return "not a regular file (named pipe)"
    if stat.S_ISSOCK(mode):
        return "not a regular file (socket)"
    return "not a regular file (device)"
