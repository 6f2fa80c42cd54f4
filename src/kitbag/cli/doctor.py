"""`kitbag doctor`: diagnoses configuration problems with their fixes, and reports the sandbox.

Reads only. It runs nothing of the workspace; the sandbox is tested with a command of its own in an empty directory.
"""

import sys

import click
import msgspec

from kitbag.assembly.open_store import database_url
from kitbag.cli import output
from kitbag.cli.library_options import json_option, library_options, open_registry
from kitbag.library.scopes import find_places
from kitbag.permissions.model import SandboxSupport
from kitbag.runtime.doctor import diagnose
from kitbag.store.journal_status import read_status
from kitbag.text.human_format import shorten_path
from kitbag.views.doctor import DiagnosticGroup, describe_store, group_diagnostics, root_table, sandbox_fields
from kitbag.views.permissions import PROTECTION_LABELS


@click.command()
@library_options
@click.option("--details", is_flag=True, help="Show every problem, not only examples of each kind.")
@json_option
def command(dirs: tuple[str, ...], team: str, persona: str, details: bool, as_json: bool) -> None:
    """Diagnose configuration problems and say how to fix them.

    Problems are grouped by kind, the worst first. `--details` and `--json` show all of them.

    Exits with 1 if there are errors, and with 0 if there are only warnings and notes.
    """
    home = find_places().kitbag_home
    diagnosis = diagnose(open_registry(dirs, team, persona))
    if as_json:
        output.as_json(
            {
                "counts": diagnosis.counts,
                "roots": [root.to_json() for root in diagnosis.roots],
                "protection": _protection_json(diagnosis.protection),
                "store": read_status(home, database_url(home)).to_json(),
                "diagnostics": [output.diagnostic_json(d) for d in diagnosis.diagnostics],
            }
        )
    else:
        roots = root_table(diagnosis, path_first=True)
        output.table(roots.headers, roots.rows)
        output.echo()
        output.fields(
            [*sandbox_fields(diagnosis).pairs, ("stored", describe_store(read_status(home, database_url(home))))]
        )
        output.echo()
        groups = group_diagnostics(diagnosis.diagnostics, details)
        for group in groups:
            _print_group(group)
        if groups:
            output.echo()
        if any(group.omitted for group in groups):
            output.echo("Show every problem with its fix: kitbag doctor --details")
        verdict = f" · {output.style('no problems', 'green')}" if diagnosis.is_healthy else ""
        output.echo(f"{diagnosis.summarize()}{verdict}")
    sys.exit(1 if diagnosis.counts["errors"] else 0)


def _print_group(group: DiagnosticGroup) -> None:
    if not group.omitted:
        for diagnostic in group.shown:
            for line in output.diagnostic_lines(diagnostic):
                output.echo(line)
        return
    output.echo(f"{output.severity_mark(group.severity)}: {group.title}, for example")
    for diagnostic in group.shown:
        output.echo(f"  {output.clean(shorten_path(diagnostic.place))}: {output.clean(diagnostic.problem)}")
        if not group.fix:
            output.echo(f"    fix: {output.clean(diagnostic.fix)}")
    if group.fix:
        output.echo(f"  fix: {output.clean(group.fix)}")


def _protection_json(support: SandboxSupport) -> dict[str, object]:
    holds = {profile: support.supports(profile) for profile in ("read-only", "workspace")}
    return {**msgspec.structs.asdict(support), "holds": holds, "meaning": PROTECTION_LABELS[support.kind]}
