"""`kitbag audit`: reports capabilities of skills and suspicious content. Reads files only; runs and connects to
nothing."""

import sys
from typing import Final

import click

from kitbag.audit.capability_manifest import CapabilityManifest
from kitbag.audit.findings import FAILING_SEVERITIES, SEVERITIES, AuditFinding, Severity
from kitbag.audit.lockfile import ItemChange, compare_with_lock, read_lock
from kitbag.audit.rules import NEVER_SUPPRESSED, load_rules
from kitbag.audit.run import CAUTION, AuditReport, count_findings, has_failures, item_name, report_to_json, run_audit
from kitbag.cli import output
from kitbag.cli.library_options import json_option
from kitbag.errors import UsageError
from kitbag.text.hidden_characters import collapse_whitespace

_MAX_ENTRIES: Final = 12
_MARGIN: Final = 14


def manifest_lines(manifest: CapabilityManifest) -> list[str]:
    """Omits empty groups and truncates long ones."""
    tools = manifest.tools_declared
    groups: list[tuple[str, list[str]]] = [
        ("runs", [f"!`{collapse_whitespace(entry.text)}`  {entry.file}:{entry.line}" for entry in manifest.commands]),
        ("hooks", list(manifest.hooks)),
        ("servers", list(manifest.servers)),
        ("mode", [manifest.permission_mode] if manifest.permission_mode else []),
        ("tools", [", ".join(tools) or "none"] if tools is not None else []),
        ("mentions", [", ".join(manifest.tools_mentioned)] if manifest.tools_mentioned else []),
        ("programs", [", ".join(manifest.programs)] if manifest.programs else []),
        ("hosts", [", ".join(manifest.hosts)] if manifest.hosts else []),
        ("variables", [", ".join(manifest.environment)] if manifest.environment else []),
        (
            "references",
            [f"@{entry.target}{'  (outside)' if entry.leaves else ''}" for entry in manifest.references],
        ),
        (
            "scripts",
            [
                f"{entry.path}  {entry.size:,} bytes{', executable' if entry.executable else ''}  {entry.sha256[:12]}"
                for entry in manifest.scripts
            ],
        ),
        (
            "links",
            [f"{entry.path} -> {entry.target}{'  (outside)' if entry.leaves else ''}" for entry in manifest.links],
        ),
        ("binaries", [f"{entry.path}  {entry.kind}, {entry.size:,} bytes" for entry in manifest.binaries]),
    ]
    lines: list[str] = []
    for label, entries in groups:
        shown = entries[:_MAX_ENTRIES]
        if len(entries) > _MAX_ENTRIES:
            shown.append(f"and {len(entries) - _MAX_ENTRIES} more: --json shows all")
        for at, entry in enumerate(shown):
            lines.append("  " + (label if at == 0 else "").ljust(_MARGIN) + collapse_whitespace(entry))
    return lines


_STYLES = {"high": "red", "medium": "yellow", "low": "cyan", "info": "dim"}
_EXIT_CODES = """\b
Exit codes: 0 no finding of --fail-on or worse, 1 findings, 2 the audit failed.

\b
To suppress a finding, add a comment with the rule ID and a reason:
  <!-- kitbag-audit: ignore RULE-ID REASON -->     in Markdown
  # kitbag-audit: ignore RULE-ID REASON            in scripts and code blocks
It applies to its own line and the next one, or to the code block that starts there.
Hidden text can't be suppressed. Suppressed findings of high severity are still listed.
"""


@click.command(epilog=_EXIT_CODES)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@json_option
@click.option("--sarif", "as_sarif", is_flag=True, help="Print SARIF 2.1.0.")
@click.option(
    "--since",
    "lock",
    metavar="LOCKFILE",
    help="Show only changes since `kitbag lock` wrote LOCKFILE.",
    show_default="show everything",
)
@click.option("--explain", "rule_id", metavar="RULE-ID", help="Explain this rule and exit.", show_default="none")
@click.option(
    "--all",
    "show_all",
    is_flag=True,
    help="Include info findings, suppressed findings and the capabilities of every item.",
)
@click.option(
    "--fail-on",
    type=click.Choice(SEVERITIES),
    default="medium",
    show_default=True,
    help="Exit 1 for findings of this severity or worse.",
)
@click.option("--strict", is_flag=True, help="Exit 1 for every finding, like --fail-on info.")
def command(
    paths: tuple[str, ...],
    as_json: bool,
    as_sarif: bool,
    lock: str | None,
    rule_id: str | None,
    show_all: bool,
    fail_on: Severity,
    strict: bool,
) -> None:
    """Find dangerous content in skills, agents and plugins without running anything.

    PATH is a skill's directory or SKILL.md, a directory of skills, an agent or command file, a plugin, or a
    repository; unpack archives first. The default is the workspace. The audit executes nothing, opens no connections,
    follows no links, and lists what it did not read.
    """
    if rule_id is not None:
        _explain(rule_id, as_json)
        return
    if as_json and as_sarif:
        raise UsageError("--json and --sarif can't be combined", "remove one of them")
    locked = read_lock(lock) if lock is not None else None
    report = run_audit(paths, lock or "")
    changes: tuple[ItemChange, ...] | None = None
    findings = report.findings
    if locked is not None:
        compared = compare_with_lock(report, locked)
        changes, findings = compared.changes, list(compared.findings)
    if as_sarif:
        from kitbag.audit.sarif import report_to_sarif

        output.as_json(report_to_sarif(report, findings))
    elif as_json:
        more = {"changes": [change.to_json() for change in changes]} if changes is not None else {}
        output.as_json({**report_to_json(report, findings), **more})
    else:
        _print_report(report, findings, changes, show_all)
    sys.exit(1 if has_failures(findings, "info" if strict else fail_on) else 0)


def _explain(rule_id: str, as_json: bool) -> None:
    rule = load_rules().get(rule_id)
    if rule is None:
        import difflib

        close = difflib.get_close_matches(rule_id[:80], list(load_rules()), 3, 0.5)
        fix = f"did you mean {', '.join(close)}?" if close else f"the rules are: {', '.join(load_rules())}"
        raise UsageError(f"no rule named {rule_id!r}", fix)
    suppressible = rule.id not in NEVER_SUPPRESSED
    if as_json:
        output.as_json({**rule.to_json(), "suppressible": suppressible})
        return
    output.fields(
        [
            ("rule", rule.id),
            ("severity", f"{rule.severity}, where the action would take effect"),
            ("confidence", rule.confidence),
            ("means", rule.title),
            ("why", rule.why),
            ("fix", rule.fix),
            ("suppression", f"kitbag-audit: ignore {rule.id} REASON" if suppressible else "not possible"),
        ]
    )


def _print_report(
    report: AuditReport, findings: list[AuditFinding], changes: tuple[ItemChange, ...] | None, show_all: bool
) -> None:
    by_item: dict[str, list[AuditFinding]] = {}
    for finding in findings:
        if show_all or finding.severity != "info":
            by_item.setdefault(finding.item, []).append(finding)
    quiet = 0
    for examined in report.examined:
        listed = by_item.get(examined.item.path, [])
        lines = (
            manifest_lines(examined.manifest)
            if changes is None and (show_all or listed or examined.manifest.has_capabilities)
            else []
        )
        if not listed and not lines:
            quiet += 1
            continue
        name = item_name(examined) or "(settings, memory and other files that configure agents)"
        head = f"{output.style(examined.item.kind, 'bold')} {output.clean(name)}  {output.clean(examined.item.path)}"
        output.echo(head)
        if lines:
            output.block("\n".join(lines))
        explained: set[str] = set()
        for finding in listed:
            # Explain each rule once; rules of low severity only with --all.
            _print_finding(
                finding, finding.rule not in explained and (show_all or finding.severity in FAILING_SEVERITIES)
            )
            explained.add(finding.rule)
        output.echo()
    if changes is not None:
        _print_removed(changes)
    _print_suppressed(report, show_all)
    for unread in report.unread:
        output.echo(f"not read: {output.clean(unread.path)}: {output.clean(unread.reason)}")
    _print_summary(report, findings, quiet, changes)


def _print_finding(finding: AuditFinding, in_full: bool) -> None:
    rule = load_rules()[finding.rule]
    mark = output.style(finding.severity, _STYLES[finding.severity])
    output.echo(f"  {mark} {finding.rule}  {output.clean(finding.location)}  (confidence {finding.confidence})")
    output.echo(f"      {output.clean(finding.excerpt)}")
    if finding.note:
        output.echo(f"      note: {output.clean(finding.note)}")
    if in_full:
        output.echo(f"      why: {rule.why}")
        output.echo(f"      fix: {rule.fix}")


def _print_removed(changes: tuple[ItemChange, ...]) -> None:
    for change in changes:
        if change.status == "gone":
            output.echo(f"removed: {change.kind} {output.clean(change.name)}  {output.clean(change.path)}")
    if not changes:
        output.echo("No capability has changed since the lock file was written.")


def _print_suppressed(report: AuditReport, show_all: bool) -> None:
    """A file can't hide its own findings of high severity."""
    for finding in report.suppressed:
        if show_all or finding.severity == "high":
            what = f"suppressed {finding.severity} {finding.rule}  {output.clean(finding.location)}"
            output.echo(f"{what}: {output.clean(finding.suppressed)}")


def _print_summary(
    report: AuditReport, findings: list[AuditFinding], quiet: int, changes: tuple[ItemChange, ...] | None
) -> None:
    counted = count_findings(report, findings)
    if not report.examined:
        output.echo("Nothing to audit: no skills, agents, commands, plugins or settings found.")
    elif quiet and changes is None:
        output.echo(f"{output.format_count(quiet, 'more item')} without capabilities or findings.")
    severities = ", ".join(f"{counted[severity]} {severity}" for severity in SEVERITIES)
    parts = [severities, f"{counted['suppressed']} suppressed", output.format_count(counted["items"], "item")]
    parts += [output.format_count(counted["files"], "file"), f"{counted['not_read']} not read"]
    output.echo(" · ".join(parts))
    output.echo(CAUTION)
