"""Loads the installed plugins and their roots, without running or hashing anything.

Used by the registry (`load_installed`, `plugin_roots`) and by store, which changes what is installed.
Uses manifest for each plugin, and lock, which is imported only if there are plugins.
"""

import os

from kitbag.errors import Diagnostic
from kitbag.library.plugins.manifest import Plugin, plugin_name_problem, read_plugin
from kitbag.library.scopes import ItemKind, Root
from kitbag.text.source_files import directory_boundary

PLUGINS_FOLDER = "plugins"


def load_installed(home: str) -> tuple[list[Plugin], list[Diagnostic]]:
    """Sorted by name. Without plugins this costs one scandir and no import."""
    base = os.path.join(home, PLUGINS_FOLDER)
    try:
        with os.scandir(base) as listing:
            entries = sorted(listing, key=lambda entry: (entry.name.casefold(), entry.name))
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    except OSError as error:
        problem = f"cannot list directory: {(error.strerror or '').lower()}"
        return [], [
            Diagnostic(
                severity="error",
                code="unreadable",
                file=base,
                line=0,
                problem=problem,
                fix="make it readable: chmod u+rx",
            )
        ]
    candidates = [entry for entry in entries if not entry.name.startswith(".") and not _is_plain_file(entry)]
    if not candidates:
        return [], []
    from kitbag.library.plugins.lock import read_lock

    lock = read_lock(base)
    plugins: list[Plugin] = []
    diagnostics = list(lock.diagnostics)
    for entry in candidates:
        problem = "symbolic link; not followed" if entry.is_symlink() else plugin_name_problem(entry.name)
        if problem:
            fix = "remove it, and install the plugin from its source directory"
            diagnostics.append(
                Diagnostic(severity="warning", code="not-a-plugin", file=entry.path, line=0, problem=problem, fix=fix)
            )
            continue
        plugin, problems = read_plugin(entry.path, entry.name)
        diagnostics += problems
        if plugin is None:
            continue
        record = lock.record(entry.name)
        if record is None:
            if not lock.is_damaged:
                diagnostics.append(_unlisted_diagnostic(plugin))
        else:
            plugin = plugin._replace(
                enabled=record.enabled,
                source=record.source,
                digest=record.digest,
                installed_at=record.installed_at,
            )
        plugins.append(plugin)
    return plugins, diagnostics + lock.find_missing({entry.name for entry in candidates})


def _is_plain_file(entry: "os.DirEntry[str]") -> bool:
    return not entry.is_symlink() and not entry.is_dir()


def _unlisted_diagnostic(plugin: Plugin) -> Diagnostic:
    return Diagnostic(
        severity="warning",
        code="plugin-unlisted",
        file=plugin.path,
        line=0,
        problem=f"plugin {plugin.name} is not in the lock file; disabled",
        fix="install it with Kitbag, or review its content and enable it",
    )


def plugin_roots(plugin: Plugin, rank: tuple[int, int]) -> list[Root]:
    """The roots of its items, enabled or not. A single agent or command file may be a root."""
    skills = (*plugin.skill_dirs, plugin.path) if plugin.root_skill else plugin.skill_dirs
    kinds: tuple[tuple[ItemKind, tuple[str, ...]], ...] = (
        ("skills", skills),
        ("agents", plugin.agent_paths),
        ("commands", plugin.command_paths),
    )
    roots: list[Root] = []
    for kind, paths in kinds:
        for path in paths:
            only_file = os.path.basename(path) if kind == "commands" and os.path.isfile(path) else ""
            directory = os.path.dirname(path) if only_file else path
            roots.append(
                Root(
                    path=directory,
                    kind=kind,
                    scope="plugin",
                    dialect="claude",
                    rank=rank,
                    plugin=plugin.name,
                    plugin_path=plugin.path,
                    only_file=only_file,
                    boundary=directory_boundary(plugin.path),
                )
            )
    return roots
