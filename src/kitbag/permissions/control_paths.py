"""Control paths: files that change what programs do, recognized by name. The lists, and the predicates on them.

Used by `permissions/paths` for every path in a decision and by `sandbox/protected_paths`. Paths that hold secrets are
in `text/secret_paths`.
"""

import os
import re
import stat
from collections.abc import Iterable, Mapping
from typing import Final

from kitbag.text.secret_paths import normalize_path_part, normalize_path_parts

_GIT: Final = "git may run commands from it"
_AGENT: Final = "agents read it as configuration or instructions"
_EDITOR: Final = "editors may run commands from it"
_TOOL: Final = "tools may run commands from it without asking"
_START: Final = "programs load it at startup"
_SYSTEM: Final = "system configuration"

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
_SYSTEM_PATHS = re.compile(
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


def is_control_name(part: str) -> bool:
    """Whether a single path component, as a directory lists it, is a control name."""
    return normalize_path_part(part) in _CONTROL_NAMES


def control_reason(path: str) -> str:
    """Why writing to `path` changes what programs do without asking, whether it exists or not; empty if it does not.

    `path` is absolute and normalized. Only the check for bare repositories reads the disk.
    """
    parts = normalize_path_parts(path)
    for at, part in enumerate(parts):
        reason = _CONTROL_NAMES.get(part)
        if reason and not _is_checkout(parts, at):
            return f"`{part}`: {reason}"
        if part in _SEQUENCE_STARTS:
            below = "/".join(parts[at:]) + "/"
            for sequence, reason in _SEQUENCES:
                # A parent directory counts when it is replaced itself, not for other files in it.
                if below.startswith(sequence + "/") or sequence.startswith(below):
                    return f"`{sequence}`: {reason}"
    if _SYSTEM_PATHS.match(path.casefold()):
        return _SYSTEM
    if enclosing_bare_repository(path):
        return f"inside a bare git repository: {_GIT}"
    return ""


def _is_checkout(parts: list[str], at: int) -> bool:
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
