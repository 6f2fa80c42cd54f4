"""Everything that is wrong with a person's and a workspace's files, where, and how to fix it; and what protects them.

Used by `kitbag doctor` and by `/doctor`. Reads only. It runs nothing of anybody's; the sandbox is tried with a command
of its own in an empty folder. Blocks: a caller with a loop uses a thread.
"""

import os
from collections.abc import Iterable
from typing import NamedTuple

from kitbag.errors import Diagnostic, KitbagError, worst_first
from kitbag.library.foreign_config import check_foreign_config
from kitbag.library.library_checks import check_skill_contents, find_nested_skills
from kitbag.library.registry import Registry
from kitbag.library.scopes import Places, project_boundary
from kitbag.permissions.model import SandboxSupport
from kitbag.permissions.trust.workspace_items import scan_workspace
from kitbag.sandbox.confine import detect_sandbox
from kitbag.text.human_format import format_count
from kitbag.text.source_files import LINK_OUTSIDE


class LibraryRootSummary(NamedTuple):
    path: str
    kind: str
    scope: str
    items: int


class DoctorReport(NamedTuple):
    diagnostics: list[Diagnostic]
    """The worst first."""
    roots: list[LibraryRootSummary]
    """Each directory that gave something, the best first."""
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
    """`more`: what the caller knows besides."""
    diagnostics = worst_first(
        [
            *registry.diagnostics(),
            *find_nested_skills(registry.skills),
            *check_skill_contents(registry.skills),
            *check_foreign_config(registry.places),
            *_unfollowed_links(registry.places),
            *_changed_plugins(registry.places.kitbag_home),
            *more,
        ]
    )
    errors = sum(one.severity == "error" for one in diagnostics)
    warnings = sum(one.severity == "warning" for one in diagnostics)
    counts = {
        "skills": len(registry.skills),
        "agents": len(registry.agents),
        "personas": len(registry.personas),
        "errors": errors,
        "warnings": warnings,
        "infos": len(diagnostics) - errors - warnings,
    }
    return DoctorReport(diagnostics, _summarize_roots(registry), detect_sandbox(), counts)


def _unfollowed_links(places: Places) -> list[Diagnostic]:
    """Links of the workspace that are not followed, wherever they are: in a skill's folder, among the tasks, ..."""
    found: list[Diagnostic] = []
    for item in scan_workspace(places).items:
        for act in item.capabilities:
            if act.kind == "link" and act.note:
                path = os.path.join(places.project, item.path)
                found.append(Diagnostic("error", LINK_OUTSIDE, path, 0, act.note, project_boundary(places).fix))
    return found


def _changed_plugins(home: str) -> list[Diagnostic]:
    """Plugins whose files are not what was installed. Reads all of their files."""
    from kitbag.library.plugins.installed import load_installed
    from kitbag.library.plugins.store import verify_plugin

    found: list[Diagnostic] = []
    for plugin in load_installed(home)[0]:
        try:
            changes = verify_plugin(home, plugin.name)
        except KitbagError as error:
            found.append(Diagnostic("error", "plugin-changed", plugin.path, 0, error.problem, error.fix))
            continue
        if changes and plugin.enabled:
            names = ", ".join(str(change) for change in changes[:5]) + (", ..." if len(changes) > 5 else "")
            fix = f"look at it, then: kitbag plugins enable {plugin.name} --accept-changes"
            what = f"not as it was installed: {names}"
            found.append(Diagnostic("warning", "plugin-changed", plugin.path, 0, what, fix))
    return found


def _summarize_roots(registry: Registry) -> list[LibraryRootSummary]:
    counts: dict[tuple[str, str, str], int] = {}
    ranks: dict[str, tuple[int, int]] = {}
    for item in [*registry.skills, *registry.agents, *registry.personas]:
        key = (item.root.path, item.root.kind, item.root.scope)
        counts[key] = counts.get(key, 0) + 1
        ranks[item.root.path] = item.root.rank
    ordered = sorted(counts, key=lambda key: (ranks[key[0]], key))
    return [LibraryRootSummary(os.path.normpath(key[0]), key[1], key[2], counts[key]) for key in ordered]
