"""`kitbag doctor`: everything that is wrong, where, and how to fix it, and what protects you.

Reads only. It runs nothing of yours; the sandbox is tried with a command of its own in an empty folder.
"""

import os
import sys

import click

from kitbag.cli import output
from kitbag.cli.options import json_option, library_options, open_registry
from kitbag.errors import Diagnostic, KitbagError, worst_first
from kitbag.library.inert import inert_configuration
from kitbag.library.registry import Registry
from kitbag.library.review import nested_skills, skill_contents
from kitbag.permissions.model import Protection
from kitbag.permissions.sandbox import protection

_PROTECTION = {
    "bubblewrap": "commands write only in the workspace and not its control files, don't see your secrets, "
    "and reach the network only when allowed",
    "sandlock": "commands write only in the workspace, don't see your secrets, and reach the network only when "
    "allowed; it can't keep control files there from being written, so only commands that read run unasked",
    "none": "no command runs unasked, and in plan and autonomous mode none runs at all",
}


@click.command()
@library_options
@json_option
def command(dirs: tuple[str, ...], team: str, persona: str, as_json: bool) -> None:
    """Tell everything that is wrong with your files, and how to fix it.

    Exit 1 when there is an error, 0 when there are only warnings and remarks.
    """
    registry = open_registry(dirs, team, persona)
    diagnostics = worst_first(
        [
            *registry.diagnostics(),
            *nested_skills(registry.skills),
            *skill_contents(registry),
            *inert_configuration(registry.places),
            *_changed_plugins(registry.places.kitbag_home),
        ]
    )
    errors = sum(d.severity == "error" for d in diagnostics)
    warnings = sum(d.severity == "warning" for d in diagnostics)
    counts = {
        "skills": len(registry.skills),
        "agents": len(registry.agents),
        "personas": len(registry.personas),
        "errors": errors,
        "warnings": warnings,
        "infos": len(diagnostics) - errors - warnings,
    }
    found = protection()
    if as_json:
        roots = [{"path": path, "kind": kind, "scope": scope, "items": n} for path, kind, scope, n in _roots(registry)]
        output.as_json(
            {
                "counts": counts,
                "roots": roots,
                "protection": _protection_json(found),
                "diagnostics": [output.diagnostic_json(d) for d in diagnostics],
            }
        )
    else:
        rows = [(output.short_path(path), kind, scope, str(n)) for path, kind, scope, n in _roots(registry)]
        output.table(("FOUND IN", "KIND", "SCOPE", "ITEMS"), rows)
        output.echo()
        _show_protection(found)
        output.echo()
        for diagnostic in diagnostics:
            for line in output.diagnostic_lines(diagnostic):
                output.echo(line)
        if diagnostics:
            output.echo()
        words = [output.count(counts[noun + "s"], noun) for noun in ("skill", "agent", "persona")]
        words += [output.count(counts[noun + "s"], noun) for noun in ("error", "warning")]
        verdict = output.style("all good", "green") if not errors + warnings else ""
        output.echo(" · ".join([*words, verdict] if verdict else words))
    sys.exit(1 if errors else 0)


def _protection_json(found: Protection) -> dict[str, object]:
    holds = {profile: found.holds(profile) for profile in ("read-only", "workspace")}
    return {**found._asdict(), "holds": holds, "meaning": _PROTECTION[found.kind]}


def _show_protection(found: Protection) -> None:
    name = f"{found.kind} {found.version}".strip()
    output.fields((("sandbox", f"{name}: {_PROTECTION[found.kind]}"), ("note", found.problem), ("better", found.fix)))


def _changed_plugins(home: str) -> list[Diagnostic]:
    """Plugins whose files are not what was installed. Reads all of their files."""
    from kitbag.library.plugin_store import verify
    from kitbag.library.plugins import installed

    found: list[Diagnostic] = []
    for plugin in installed(home)[0]:
        try:
            changes = verify(home, plugin.name)
        except KitbagError as error:
            found.append(Diagnostic("error", "plugin-changed", plugin.path, 0, error.problem, error.fix))
            continue
        if changes and plugin.enabled:
            names = ", ".join(str(change) for change in changes[:5]) + (", ..." if len(changes) > 5 else "")
            fix = f"look at it, then: kitbag plugins enable {plugin.name} --accept-changes"
            what = f"not as it was installed: {names}"
            found.append(Diagnostic("warning", "plugin-changed", plugin.path, 0, what, fix))
    return found


def _roots(registry: Registry) -> list[tuple[str, str, str, int]]:
    """Each directory that gave something, best first."""
    counts: dict[tuple[str, str, str], int] = {}
    ranks: dict[str, tuple[int, int]] = {}
    for item in [*registry.skills, *registry.agents, *registry.personas]:
        key = (item.root.path, item.root.kind, item.root.scope)
        counts[key] = counts.get(key, 0) + 1
        ranks[item.root.path] = item.root.rank
    ordered = sorted(counts, key=lambda key: (ranks[key[0]], key))
    return [(os.path.normpath(path), kind, scope, counts[(path, kind, scope)]) for path, kind, scope in ordered]
