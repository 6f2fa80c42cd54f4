"""`kitbag.lock`: the capabilities of items when they were reviewed, and what has changed since.

Deterministic: sorted, no times, no absolute paths. Used by the command line; uses run's report.
"""

import json
import os
import secrets
from collections.abc import Mapping
from typing import Final, NamedTuple, cast

import msgspec

from kitbag.audit.capability_manifest import CapabilityManifest
from kitbag.audit.examine_item import ExaminedItem
from kitbag.audit.findings import AuditFinding, Severity, finding_sort_key
from kitbag.audit.fingerprints import add_fingerprints
from kitbag.audit.rules import load_rules
from kitbag.audit.run import AuditReport, item_name
from kitbag.errors import UsageError
from kitbag.library.plugins.fingerprint import PluginFileChange, diff_files
from kitbag.library.plugins.manifest import as_list, as_map
from kitbag.library.scopes import boundary_for_file
from kitbag.text.hidden_characters import collapse_whitespace, escape_for_terminal
from kitbag.text.source_files import SourceError, read_bytes

VERSION: Final = 1
_MAX_BYTES: Final = 64 << 20
_MAX_LISTED: Final = 8
Capabilities = dict[str, tuple[str, ...]]


def list_capabilities(manifest: CapabilityManifest) -> Capabilities:
    """Capabilities by kind; a new entry widens what the item can do. Omits empty kinds."""
    by_kind: dict[str, tuple[str, ...]] = {
        "commands": tuple(command.text for command in manifest.commands),
        "references": tuple(f"@{entry.target}" for entry in manifest.references),
        "environment": manifest.environment,
        "hosts": manifest.hosts,
        "programs": manifest.programs,
        "tools": manifest.tools_declared if manifest.tools_declared is not None else ("(no list: as the caller)",),
        "permission_mode": (manifest.permission_mode,) if manifest.permission_mode else (),
        "hooks": manifest.hooks,
        "servers": manifest.servers,
        "links": tuple(f"{link.path} -> {link.target}" for link in manifest.links),
    }
    return {kind: tuple(sorted(set(values))) for kind, values in by_kind.items() if values}


def build_lock(report: AuditReport) -> dict[str, object]:
    """Only the items: caches and packages around them differ between machines."""
    return {"version": VERSION, "items": [_lock_entry(one) for one in report.examined]}


def _lock_entry(one: ExaminedItem) -> dict[str, object]:
    return {
        "kind": one.item.kind,
        "name": item_name(one),
        "path": one.item.path,
        "capabilities": {kind: list(values) for kind, values in list_capabilities(one.manifest).items()},
        "files": {
            file.path: {"sha256": file.sha256, "size": file.size, "executable": file.executable, "acts": file.acts}
            for file in sorted(one.files)
        },
        "findings": sorted(
            ({"rule": f.rule, "file": f.file, "fingerprint": f.fingerprint} for f in one.findings),
            key=lambda entry: (entry["file"], entry["rule"], entry["fingerprint"]),
        ),
    }


def format_lock(value: dict[str, object]) -> str:
    """ASCII only, so that any tool shows it correctly."""
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def write_lock(path: str, report: AuditReport) -> None:
    """Writes atomically, never through a link."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.islink(path) or (os.path.lexists(path) and not os.path.isfile(path)):
        raise UsageError(f"{path} is not a regular file; nothing was written", "choose another file with -o")
    temporary = os.path.join(folder, f".{os.path.basename(path)}.{secrets.token_hex(8)}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o644), "w", encoding="ascii") as file:
            file.write(format_lock(build_lock(report)))
        os.replace(temporary, path)
    except OSError as error:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot write {path}: {reason}", "choose another file with -o") from error


class LockedItem(msgspec.Struct, frozen=True, kw_only=True):
    """One item as recorded in the lock file."""

    kind: str
    name: str
    path: str
    capabilities: Capabilities
    files: dict[str, str]
    """Path -> hash, with a suffix for the executable bit."""
    active_files: frozenset[str]
    fingerprints: frozenset[str]


def read_lock(path: str) -> tuple[LockedItem, ...]:
    """Raises UsageError if it is missing or unusable."""
    fix = "create it with `kitbag lock`"
    try:
        data, _, more = read_bytes(path, boundary_for_file(path), _MAX_BYTES)
        fields = as_map(json.loads(data)) if not more else {}
    except SourceError as error:
        raise UsageError(f"{path}: {error.problem}", fix) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not a lock file: not valid JSON", fix) from error
    version = fields.get("version")
    if not isinstance(fields.get("items"), list) or not isinstance(version, int):
        raise UsageError(f"{path} is not a Kitbag lock file", fix)
    if version > VERSION:
        raise UsageError(
            f"{path} was written by a newer version of Kitbag", "upgrade Kitbag, or rewrite it with `kitbag lock`"
        )
    return tuple(_parse_item(as_map(entry)) for entry in as_list(fields["items"]))


def _parse_item(entry: Mapping[str, object]) -> LockedItem:
    files = {name: as_map(value) for name, value in as_map(entry.get("files")).items()}
    return LockedItem(
        kind=str(entry.get("kind", "")),
        name=str(entry.get("name", "")),
        path=str(entry.get("path", "")),
        capabilities={
            kind: tuple(str(value) for value in as_list(values))
            for kind, values in as_map(entry.get("capabilities")).items()
        },
        files={
            name: _file_fingerprint(str(file.get("sha256", "")), file.get("executable") is True)
            for name, file in files.items()
        },
        active_files=frozenset(name for name, file in files.items() if file.get("acts") is not False),
        fingerprints=frozenset(
            str(as_map(finding).get("fingerprint", "")) for finding in as_list(entry.get("findings"))
        ),
    )


def _file_fingerprint(sha256: str, executable: bool) -> str:
    return f"{sha256}+x" if executable else sha256


def _current_item(one: ExaminedItem) -> LockedItem:
    return _parse_item(cast("dict[str, object]", json.loads(format_lock(_lock_entry(one)))))


class ItemChange(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    name: str
    path: str
    status: str
    """`new`, `gone`, `moved` or `changed`."""
    previous_path: str
    """Its path before it moved."""
    added: Capabilities
    removed: Capabilities
    files: tuple[PluginFileChange, ...]
    """Changed files that affect capabilities."""

    def to_json(self) -> dict[str, object]:
        return {
            "kind": self.kind,
            "name": self.name,
            "path": self.path,
            "status": self.status,
            "was": self.previous_path or None,
            "added": {kind: list(values) for kind, values in self.added.items()},
            "removed": {kind: list(values) for kind, values in self.removed.items()},
            "files": [{"mark": change.sign, "path": change.path} for change in self.files],
        }


class LockComparison(NamedTuple):
    changes: tuple[ItemChange, ...]
    """Only items whose capabilities changed; changes of prose do not count."""
    findings: tuple[AuditFinding, ...]
    """New findings, and one for each kind of change."""


def compare_with_lock(report: AuditReport, lock: tuple[LockedItem, ...]) -> LockComparison:
    old = _match_items(report, lock)
    item_changes: list[ItemChange] = []
    findings: list[AuditFinding] = []
    for one in report.examined:
        before = old.get((one.item.kind, one.item.path))
        change = _item_change(one, before)
        if change is not None:
            item_changes.append(change)
            findings += _change_findings(one, change)
        known = before.fingerprints if before is not None else frozenset[str]()
        moved = before is not None and before.path != one.item.path
        findings += [f for f in one.findings if not f.suppressed and (moved or f.fingerprint not in known)]
    used = {(locked.kind, locked.path) for locked in old.values()}
    for locked in lock:
        if (locked.kind, locked.path) not in used and report.covers(locked.path):
            item_changes.append(
                ItemChange(
                    kind=locked.kind,
                    name=locked.name,
                    path=locked.path,
                    status="gone",
                    previous_path="",
                    added={},
                    removed=locked.capabilities,
                    files=(),
                )
            )
    return LockComparison(
        tuple(sorted(item_changes, key=lambda change: (change.path, change.kind))),
        tuple(sorted(findings, key=finding_sort_key)),
    )


def _match_items(report: AuditReport, lock: tuple[LockedItem, ...]) -> dict[tuple[str, str], LockedItem]:
    """Matches by path; moved items by name, if it is unambiguous."""
    by_path = {(locked.kind, locked.path): locked for locked in lock}
    keys = {(one.item.kind, one.item.path) for one in report.examined}
    unmatched: dict[tuple[str, str], list[LockedItem]] = {}
    for locked in lock:
        if (locked.kind, locked.path) not in keys and locked.name:
            unmatched.setdefault((locked.kind, locked.name), []).append(locked)
    matched: dict[tuple[str, str], LockedItem] = {}
    for one in report.examined:
        key = (one.item.kind, one.item.path)
        same_name = unmatched.get((one.item.kind, item_name(one)), [])
        if key in by_path:
            matched[key] = by_path[key]
        elif len(same_name) == 1:
            matched[key] = same_name.pop()
    return matched


def _item_change(one: ExaminedItem, before: LockedItem | None) -> ItemChange | None:
    now = _current_item(one)
    active = {path: fingerprint for path, fingerprint in now.files.items() if path in now.active_files}
    if before is None:
        files = diff_files({}, active)
        return ItemChange(
            kind=now.kind,
            name=now.name,
            path=now.path,
            status="new",
            previous_path="",
            added=now.capabilities,
            removed={},
            files=tuple(files),
        )
    active_before = {path: fingerprint for path, fingerprint in before.files.items() if path in before.active_files}
    added, removed = (
        _difference(now.capabilities, before.capabilities),
        _difference(before.capabilities, now.capabilities),
    )
    files = diff_files(active_before, active)
    moved = before.path != now.path
    if not (added or removed or files or moved):
        return None
    was = before.path if moved else ""
    return ItemChange(
        kind=now.kind,
        name=now.name,
        path=now.path,
        status="moved" if moved else "changed",
        previous_path=was,
        added=added,
        removed=removed,
        files=tuple(files),
    )


def _difference(these: Capabilities, those: Capabilities) -> Capabilities:
    added = {kind: tuple(v for v in values if v not in those.get(kind, ())) for kind, values in these.items()}
    return {kind: values for kind, values in added.items() if values}


def _change_findings(one: ExaminedItem, change: ItemChange) -> list[AuditFinding]:
    file = os.path.normpath(os.path.join(change.path, one.item.main_file)) if one.item.kind == "skill" else change.path
    findings: list[AuditFinding] = []

    def add(rule: str, file_path: str, excerpt: str, severity: Severity | None = None) -> None:
        audit_rule = load_rules()[rule]
        shown = escape_for_terminal(collapse_whitespace(excerpt))[:400]
        findings.append(
            AuditFinding(
                rule=rule,
                severity=severity or audit_rule.severity,
                confidence=audit_rule.confidence,
                file=file_path,
                line=0,
                excerpt=shown,
            )
        )

    if change.status in ("new", "moved"):
        word = f"new {change.kind}" if change.status == "new" else f"moved from {change.previous_path}"
        add("capability-added", file, f"{change.name}: {word}", "low")
    for kind, values in change.added.items():
        if change.status == "new" and kind == "tools" and values[0].startswith("("):
            continue
        more = f" and {len(values) - _MAX_LISTED} more" if len(values) > _MAX_LISTED else ""
        add("capability-added", file, f"{kind.replace('_', ' ')}: {'; '.join(values[:_MAX_LISTED])}{more}")
    folder = change.path if one.item.kind in ("skill", "plugin") else os.path.dirname(change.path)
    for entry in change.files:
        file_path = os.path.normpath(os.path.join(folder, entry.path))
        if entry.sign == "-":
            add("capability-removed", file_path, f"{entry.path}: removed")
        else:
            add("content-changed", file_path, f"{entry.path}: {'new' if entry.sign == '+' else 'changed'}")
    if change.removed:
        kinds = "; ".join(
            f"{kind.replace('_', ' ')}: {', '.join(values[:_MAX_LISTED])}" for kind, values in change.removed.items()
        )
        add("capability-removed", file, kinds)
    return add_fingerprints(findings, one.item.path)


def list_differences(report: AuditReport, lock: tuple[LockedItem, ...]) -> list[tuple[str, str]]:
    """(path, description) of every difference from the lock file, prose included."""
    found_differences: list[tuple[str, str]] = []
    old = {(locked.kind, locked.path): locked for locked in lock}
    for one in report.examined:
        before = old.pop((one.item.kind, one.item.path), None)
        now = _current_item(one)
        if before is None:
            found_differences.append((now.path, f"{now.kind} not in the lock file"))
            continue
        for change in diff_files(before.files, now.files):
            word = {"+": "new file", "~": "changed file", "-": "missing file"}[change.sign]
            found_differences.append((now.path, f"{word}: {change.path}"))
        if before.capabilities != now.capabilities:
            kinds = sorted(
                {
                    *_difference(now.capabilities, before.capabilities),
                    *_difference(before.capabilities, now.capabilities),
                }
            )
            found_differences.append((now.path, f"changed capabilities: {', '.join(kinds)}"))
    found_differences += [
        (locked.path, f"{locked.kind} no longer exists") for locked in old.values() if report.covers(locked.path)
    ]
    return sorted(found_differences)
