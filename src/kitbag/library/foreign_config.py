"""Reports what other tools read and Kitbag does not: hooks, servers and commands in their settings, `.gen` folders.

Used by `kitbag doctor`. Reads a fixed list of files, up to a size limit; unreadable files are reported."""

import os
import shlex
from typing import Any, cast

from kitbag.errors import Diagnostic
from kitbag.library.scopes import Places, project_boundary, user_boundary
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.text.source_files import LINK_OUTSIDE, PathBoundary, SourceError, read_text

_FILES = (
    ".mcp.json",
    ".claude/settings.json",
    ".claude/settings.local.json",
    ".gemini/settings.json",
    ".opencode/opencode.json",
    "opencode.json",
    ".vscode/mcp.json",
    ".cursor/mcp.json",
    ".cursor/hooks.json",
    ".github/mcp.json",
)
_HOME_FILES = (".claude/settings.json", ".gemini/settings.json", ".cursor/mcp.json", ".cursor/hooks.json")
_IGNORED_KEYS = {
    "hooks": ("hooks are not run", "no action needed: Kitbag does not support hooks"),
    "mcpServers": ("MCP servers are not started", "no action needed: you can still list and inspect items"),
    "servers": ("MCP servers are not started", "no action needed: you can still list and inspect items"),
    "mcp": ("MCP servers are not started", "no action needed: you can still list and inspect items"),
    "statusLine": ("the status line command is not run", "no action needed"),
    "apiKeyHelper": ("the key helper command is not run", "set API keys in your environment"),
    "env": ("its environment variables are ignored", "set them in your environment"),
}
_SERVER_KEYS = frozenset(("mcpServers", "servers", "mcp"))
_TRUSTED_SERVERS = ("MCP servers are started only in a trusted workspace", "run `kitbag servers list` to see them")
_FORMER_FOLDERS = ("agents", "skills", "commands", "personas")
_MAX_BYTES = 1 << 20


def check_foreign_config(places: Places) -> list[Diagnostic]:
    project = project_boundary(places)
    paths = [(os.path.join(directory, name), project) for directory in places.project_dirs for name in _FILES]
    for name in _HOME_FILES:
        path = os.path.join(places.user_home, name)
        paths.append((path, user_boundary(places, os.path.dirname(path))))
    diagnostics: list[Diagnostic] = []
    for path, boundary in paths:
        if os.path.isfile(path):
            diagnostics += _check_file(path, boundary)
    for directory in places.project_dirs:
        path = os.path.join(directory, ".env")
        if os.path.isfile(path):
            problem = "ignored: a project cannot set environment variables for Kitbag"
            diagnostics.append(
                Diagnostic(
                    severity="info",
                    code="not-run",
                    file=path,
                    line=0,
                    problem=problem,
                    fix="set variables in your environment",
                )
            )
    return diagnostics + _check_former_folders(places)


def _check_former_folders(places: Places) -> list[Diagnostic]:
    """Folders of `.gen`, the layout from before Kitbag, which are not read."""
    targets = {directory: os.path.join(directory, ".kitbag") for directory in places.project_dirs}
    targets[places.user_home] = places.kitbag_home
    return [
        Diagnostic(
            severity="warning",
            code="not-read",
            file=folder,
            line=0,
            problem="not read: Kitbag reads .kitbag instead of .gen",
            fix=f"run: mkdir -p {shlex.quote(target)} && mv {shlex.quote(folder)} {shlex.quote(target)}/",
        )
        for directory, target in targets.items()
        for name in _FORMER_FOLDERS
        if os.path.isdir(folder := os.path.join(directory, ".gen", name))
    ]


def _check_file(path: str, boundary: PathBoundary) -> list[Diagnostic]:
    import json

    try:
        text, _, _ = read_text(path, boundary, _MAX_BYTES)
        content: Any = json.loads(text)
    except (SourceError, ValueError, RecursionError) as error:
        if isinstance(error, SourceError) and error.code == LINK_OUTSIDE:
            return [
                Diagnostic(severity="warning", code=error.code, file=path, line=0, problem=error.problem, fix=error.fix)
            ]
        return [
            Diagnostic(
                severity="info",
                code="not-run",
                file=path,
                line=0,
                problem="not valid JSON; ignored",
                fix="fix the file",
            )
        ]
    if not isinstance(content, dict):
        return []
    fields = cast("dict[str, Any]", content)
    diagnostics: list[Diagnostic] = []
    for key, (message, fix) in _IGNORED_KEYS.items():
        value = fields.get(key)
        if key in _SERVER_KEYS and os.path.basename(path) == ".mcp.json":
            message, fix = _TRUSTED_SERVERS
        if value:
            names = _join_names(list(cast("dict[str, Any]", value))) if isinstance(value, dict) else ""
            line = next((number for number, row in enumerate(text.split("\n"), 1) if f'"{key}"' in row), 0)
            problem = f"{message}: {names}" if names else message
            diagnostics.append(
                Diagnostic(severity="info", code="not-run", file=path, line=line, problem=problem, fix=fix)
            )
    return diagnostics


def _join_names(names: list[str], limit: int = 5) -> str:
    shown = ", ".join(collapse_whitespace(name)[:60] for name in names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown
