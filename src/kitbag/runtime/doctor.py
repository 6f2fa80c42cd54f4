"""Diagnoses the user's and the workspace's files, with fixes, and reports the sandbox in use.

Used by `kitbag doctor` and `/doctor`. Reads only and runs nothing of theirs; the sandbox is probed with its own
command in an empty folder. Blocks: callers with an event loop use a thread.
"""

import os
from collections.abc import Iterable
from typing import Any

import msgspec

from kitbag.errors import Diagnostic, KitbagError, worst_first
from kitbag.library.foreign_config import check_foreign_config
from kitbag.library.library_checks import check_skill_contents, find_nested_skills, find_unsearched_items
from kitbag.library.registry import Registry
from kitbag.library.routing.index_problems import check_search_indexes
from kitbag.library.scopes import Places, project_boundary
from kitbag.packing.skill_checks import check_triggers
from kitbag.permissions.model import SandboxSupport
from kitbag.permissions.trust.workspace_items import scan_workspace
from kitbag.sandbox.confine import detect_sandbox
from kitbag.text.human_format import format_count
from kitbag.text.source_files import LINK_OUTSIDE


class LibraryRootSummary(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    kind: str
    scope: str
    items: int

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "kind": self.kind, "scope": self.scope, "items": self.items}


class DoctorReport(msgspec.Struct, frozen=True, kw_only=True):
    diagnostics: list[Diagnostic]
    """Worst first."""
    roots: list[LibraryRootSummary]
    """Directories in which items were found, highest priority first."""
    protection: SandboxSupport
    counts: dict[str, int]
    """skills, agents, personas, errors, warnings, infos."""

    def summarize(self) -> str:
        nouns = ("skill", "agent", "persona", "error", "warning")
        return " · ".join(format_count(self.counts[f"{noun}s"], noun) for noun in nouns)

    @property
    def is_healthy(self) -> bool:
        return not self.counts["errors"] + self.counts["warnings"]


def diagnose(registry: Registry, more: Iterable[Diagnostic] = ()) -> DoctorReport:
    """`more`: further diagnostics that the caller has."""
    diagnostics = worst_first(
        [
            *registry.diagnostics(),
            *find_nested_skills(registry.skills),
            *check_skill_contents(registry.skills),
            *(one for skill in registry.skills for one in check_triggers(registry, skill)),
            *check_search_indexes(registry),
            *check_foreign_config(registry.places),
            *_unfollowed_links(registry.places),
            *_empty_directories(registry),
            *find_unsearched_items(
                registry.extra, [root for kind in ("skills", "agents", "commands") for root in registry.roots(kind)]
            ),
            *_changed_plugins(registry.places.kitbag_home),
            *more,
        ]
    )
    errors = sum(diagnostic.severity == "error" for diagnostic in diagnostics)
    warnings = sum(diagnostic.severity == "warning" for diagnostic in diagnostics)
    counts = {
        "skills": len(registry.skills),
        "agents": len(registry.agents),
        "personas": len(registry.personas),
        "errors": errors,
        "warnings": warnings,
        "infos": len(diagnostics) - errors - warnings,
    }
    return DoctorReport(
        diagnostics=diagnostics, roots=_summarize_roots(registry), protection=detect_sandbox(), counts=counts
    )


def _empty_directories(registry: Registry) -> list[Diagnostic]:
    """Directories given with `--dir` in which nothing was found."""
    items = [*registry.skills, *registry.agents, *registry.personas]
    found = {item.root.path for item in items if item.root.scope == "extra"}
    return [
        Diagnostic(
            severity="warning",
            code="nothing-found",
            file=directory,
            line=0,
            problem="no skills, agents, commands or personas found in this directory",
            fix="specify a directory that contains SKILL.md files or agent files",
        )
        for directory in registry.extra
        if not any(path == directory or path.startswith(directory.rstrip("/") + "/") for path in found)
    ]


def _unfollowed_links(places: Places) -> list[Diagnostic]:
    """Links in the workspace that are not followed: in a skill's folder, among the tasks, ..."""
    diagnostics: list[Diagnostic] = []
    for item in scan_workspace(places).items:
        for act in item.capabilities:
            if act.kind == "link" and act.note:
                path = os.path.join(places.project, item.path)
                diagnostics.append(
                    Diagnostic(
                        severity="error",
                        code=LINK_OUTSIDE,
                        file=path,
                        line=0,
                        problem=act.note,
                        fix=project_boundary(places).fix,
                    )
                )
    return diagnostics


def _changed_plugins(home: str) -> list[Diagnostic]:
    """Plugins whose files differ from what was installed. Reads all their files."""
    from kitbag.library.plugins.installed import load_installed
    from kitbag.library.plugins.store import verify_plugin

    diagnostics: list[Diagnostic] = []
    for plugin in load_installed(home)[0]:
        try:
            changes = verify_plugin(home, plugin.name)
        except KitbagError as error:
            diagnostics.append(
                Diagnostic(
                    severity="error",
                    code="plugin-changed",
                    file=plugin.path,
                    line=0,
                    problem=error.problem,
                    fix=error.fix,
                )
            )
            continue
        if changes and plugin.enabled:
            names = ", ".join(str(change) for change in changes[:5]) + (", ..." if len(changes) > 5 else "")
            fix = f"review the changes, then run: kitbag plugins enable {plugin.name} --accept-changes"
            problem = f"changed since installation: {names}"
            diagnostics.append(
                Diagnostic(
                    severity="warning", code="plugin-changed", file=plugin.path, line=0, problem=problem, fix=fix
                )
            )
    return diagnostics


def _summarize_roots(registry: Registry) -> list[LibraryRootSummary]:
    counts: dict[tuple[str, str, str], int] = {}
    ranks: dict[str, tuple[int, int]] = {}
    for item in [*registry.skills, *registry.agents, *registry.personas]:
        key = (item.root.path, item.root.kind, item.root.scope)
        counts[key] = counts.get(key, 0) + 1
        ranks[item.root.path] = item.root.rank
    ordered = sorted(counts, key=lambda key: (ranks[key[0]], key))
    return [
        LibraryRootSummary(path=os.path.normpath(key[0]), kind=key[1], scope=key[2], items=counts[key])
        for key in ordered
    ]
