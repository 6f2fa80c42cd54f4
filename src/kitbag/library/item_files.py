"""Which files below a root may be agents or personas: names only, nothing is opened. Used by the registry."""

import os
from collections import deque

from kitbag.errors import Diagnostic
from kitbag.library.discover import MAX_DEPTH, MAX_DIRECTORIES
from kitbag.library.scopes import Root

_AGENT_FILES = (".md", ".yaml", ".yml", ".toml", ".json")
_PERSONA_FILES = (".yaml", ".yml")
_NEVER = frozenset((".git", "node_modules", "__pycache__", "site-packages"))


def agent_files(root: Root, diagnostics: list[Diagnostic], most: int = MAX_DIRECTORIES) -> list[str]:
    """Sorted, shallow ones first. Links are followed once; a skill's own folder is not looked into."""
    if os.path.isfile(root.path):
        return [root.path]
    suffixes = (".toml",) if root.dialect == "codex" else _AGENT_FILES
    found: list[str] = []
    seen: set[str] = set()
    pending = deque([(root.path, 0)])
    while pending:
        directory, depth = pending.popleft()
        if len(seen) >= most:
            what = f"more than {most} directories; the rest is not searched"
            fix = "split the root, or remove what is not an agent"
            diagnostics.append(Diagnostic("error", "too-many-directories", root.path, 0, what, fix))
            break
        real = os.path.realpath(directory)
        if real in seen:
            continue
        seen.add(real)
        try:
            with os.scandir(directory) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError as error:
            reason = (error.strerror or "").lower()
            fix = "make it readable: chmod u+rx"
            diagnostics.append(Diagnostic("error", "unreadable", directory, 0, f"can't be listed: {reason}", fix))
            continue
        if depth and any(entry.name == "SKILL.md" for entry in entries):
            continue
        for entry in entries:
            if entry.name in _NEVER or entry.name[0] in "._":
                continue
            if _is_directory(entry):
                if depth < MAX_DEPTH:
                    pending.append((entry.path, depth + 1))
            elif entry.name.endswith(suffixes):
                found.append(entry.path)
    return found


def _is_directory(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def persona_files(root: Root) -> list[tuple[str, str]]:
    """(path, team) of the persona files below a personas root; a folder in it is a team."""
    found: list[tuple[str, str]] = []
    try:
        with os.scandir(root.path) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
    except OSError:
        return found
    for entry in entries:
        if entry.name.endswith(_PERSONA_FILES) and entry.name[0] != ".":
            found.append((entry.path, ""))
        elif _is_directory(entry) and entry.name[0] != ".":
            names = [name for name in _names(entry.path) if name.endswith(_PERSONA_FILES) and name[0] != "."]
            found += [(os.path.join(entry.path, name), entry.name) for name in names]
    return found


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
