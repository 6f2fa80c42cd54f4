"""Finds the files below a root that may be agents or personas, by name only. Used by the registry."""

import os
from collections import deque
from typing import Final

from kitbag.errors import Diagnostic
from kitbag.library.discover import HIDDEN_FOLDER_FIX, MAX_DEPTH, MAX_DIRECTORIES, hidden_folder_problem
from kitbag.library.scan_budget import ScanBudget
from kitbag.library.scopes import AGENT_FOLDERS, COMMAND_FOLDERS, PROJECT_FOLDERS, Root
from kitbag.text.source_files import LINK_OUTSIDE

TOOL_FOLDERS: Final = frozenset((*(folder.split("/")[0] for folder in PROJECT_FOLDERS), ".copilot", ".windsurf"))
_AGENT_SUFFIXES = (".md", ".yaml", ".yml", ".toml", ".json")
_PERSONA_SUFFIXES = (".yaml", ".yml")
_SKIPPED_FOLDERS = frozenset((".git", "node_modules", "__pycache__", "site-packages"))


def find_item_folder(folders: list[str]) -> int:
    """Which of these nested folders says that the Markdown files in it are agents or commands; -1: none.

    In a tool's folder the first one, so that `.claude/commands/agents/x.md` is a command; elsewhere one of commands, so
    that `agents/x/commands/y.md` is a command too.
    """
    lower = [folder.lower() for folder in folders]
    tool = max((at for at, folder in enumerate(lower) if folder in TOOL_FOLDERS), default=-1)
    known = [at for at in range(tool + 1, len(lower)) if lower[at] in AGENT_FOLDERS or lower[at] in COMMAND_FOLDERS]
    commands = [at for at in known if lower[at] in COMMAND_FOLDERS]
    return next(iter(known if tool >= 0 else commands or known), -1)


def find_agent_files(
    root: Root,
    diagnostics: list[Diagnostic],
    max_directories: int = MAX_DIRECTORIES,
    budget: ScanBudget | None = None,
) -> list[str]:
    """Sorted, shallowest first. Follows each link once; skips the folders of skills. `budget`: already started; the
    caller reports what was cut."""
    if os.path.isfile(root.path):
        return [root.path]
    if root.refusal(os.path.realpath(root.path)):
        diagnostics.append(_link_diagnostic(root, root.path))
        return []
    suffixes = (".toml",) if root.dialect == "codex" else _AGENT_SUFFIXES
    files: list[str] = []
    seen: set[str] = set()
    pending = deque([(root.path, 0)])
    while pending:
        directory, depth = pending.popleft()
        if len(seen) >= max_directories:
            problem = f"more than {max_directories} directories; the rest are not searched"
            fix = "split the directory, or remove files that are not agents"
            diagnostics.append(
                Diagnostic(
                    severity="error", code="too-many-directories", file=root.path, line=0, problem=problem, fix=fix
                )
            )
            break
        real = os.path.realpath(directory)
        if real in seen:
            continue
        if budget is not None and not budget.take():
            break
        seen.add(real)
        if depth and root.refusal(real):
            diagnostics.append(_link_diagnostic(root, directory))
            continue
        entries = _list_entries(directory, diagnostics)
        if depth and _is_skill_folder(directory, entries):
            continue
        for entry in entries:
            if entry.name in _SKIPPED_FOLDERS or entry.name[0] == "_":
                continue
            if entry.name[0] == "." and not _is_searched(entry, os.path.relpath(directory, root.path), diagnostics):
                continue
            if _is_directory(entry):
                if depth < MAX_DEPTH:
                    pending.append((entry.path, depth + 1))
            elif entry.name.endswith(suffixes):
                files.append(entry.path)
    return files


def _is_skill_folder(directory: str, entries: list["os.DirEntry[str]"]) -> bool:
    """Has a SKILL.md. `agents/skill.md` is an agent."""
    spelled = next((entry.name for entry in entries if entry.name.lower() == "skill.md"), "")
    return spelled == "SKILL.md" or bool(spelled and os.path.basename(directory).lower() not in AGENT_FOLDERS)


def _list_entries(directory: str, diagnostics: list[Diagnostic]) -> list[os.DirEntry[str]]:
    """Sorted by name; none if it can't be listed."""
    try:
        with os.scandir(directory) as listing:
            return sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        problem, fix = f"cannot list directory: {(error.strerror or '').lower()}", "make it readable: chmod u+rx"
        diagnostics.append(
            Diagnostic(severity="error", code="unreadable", file=directory, line=0, problem=problem, fix=fix)
        )
        return []


def _is_searched(entry: "os.DirEntry[str]", parent: str, diagnostics: list[Diagnostic]) -> bool:
    """Whether a hidden entry is a folder to search."""
    if not entry.is_dir(follow_symlinks=False):
        return False
    problem = hidden_folder_problem(entry.name, "" if parent == "." else parent)
    if problem:
        diagnostics.append(
            Diagnostic(
                severity="info",
                code="hidden-folder",
                file=entry.path,
                line=0,
                problem=problem,
                fix=HIDDEN_FOLDER_FIX,
            )
        )
    return problem is None


def infer_item_name(path: str) -> str:
    """The likely name of an unreadable item, from its folder or file name."""
    folder, name = os.path.split(path)
    if name.lower() == "skill.md":
        return os.path.basename(folder)
    return os.path.splitext(name)[0].removeprefix("_persona_").removesuffix(".agent")


def has_item_file(name: str, folder: str) -> bool:
    """Whether an unsearched folder contains an entry with this name."""
    files = (*(name + suffix for suffix in (*_AGENT_SUFFIXES, ".agent.md")), f"_persona_{name}.yaml")
    return (
        bool(name)
        and "\0" not in name
        and any(os.path.lexists(os.path.join(folder, entry)) for entry in (name, *files))
    )


def _is_directory(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _link_diagnostic(root: Root, path: str) -> Diagnostic:
    fix = root.boundary.fix if root.boundary is not None else ""
    return Diagnostic(
        severity="error",
        code=LINK_OUTSIDE,
        file=path,
        line=0,
        problem=f"not read: {root.refusal(os.path.realpath(path))}",
        fix=fix,
    )


def find_persona_files(
    root: Root, diagnostics: list[Diagnostic], budget: ScanBudget | None = None
) -> list[tuple[str, str]]:
    """(path, team) of the persona files below a personas root; each subfolder is a team. `budget` as above."""
    files: list[tuple[str, str]] = []
    if root.refusal(os.path.realpath(root.path)):
        diagnostics.append(_link_diagnostic(root, root.path))
        return files
    try:
        with os.scandir(root.path) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return files
    for entry in entries:
        if budget is not None and not budget.take():
            break
        if entry.name.endswith(_PERSONA_SUFFIXES) and entry.name[0] != ".":
            files.append((entry.path, ""))
        elif _is_directory(entry) and entry.name[0] != ".":
            if entry.is_symlink() and root.refusal(os.path.realpath(entry.path)):
                diagnostics.append(_link_diagnostic(root, entry.path))
                continue
            names = [name for name in _list_names(entry.path) if name.endswith(_PERSONA_SUFFIXES) and name[0] != "."]
            files += [(os.path.join(entry.path, name), entry.name) for name in names]
    return files


def _list_names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
