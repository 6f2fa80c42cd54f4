"""`kitbag.lock`: what items could do when somebody looked at them, and what has changed since.

Deterministic: sorted, no times, no absolute paths. Used by the command line; uses run's report.
"""

import json
import os
import secrets
from collections.abc import Mapping
from typing import Final, NamedTuple, cast

from kitbag.audit.capability_manifest import Manifest
from kitbag.audit.examine_item import Examined, with_fingerprints
from kitbag.audit.findings import Finding, Severity, order
from kitbag.audit.rules import rules
from kitbag.audit.run import Report, name_of
from kitbag.errors import UsageError
from kitbag.library.plugins.fingerprint import Change, changes
from kitbag.library.plugins.manifest import as_list, as_map
from kitbag.library.scopes import named_boundary
from kitbag.text.hidden_characters import for_terminal, one_line
from kitbag.text.source_files import SourceError, read_bytes

VERSION: Final = 1
_LARGEST: Final = 64 << 20
_SHOWN: Final = 8
Capabilities = dict[str, tuple[str, ...]]


def capabilities(manifest: Manifest) -> Capabilities:
    """What a new entry of widens what the item can do; empty kinds are left out."""
    found: dict[str, tuple[str, ...]] = {
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
    return {kind: tuple(sorted(set(values))) for kind, values in found.items() if values}


def document(report: Report) -> dict[str, object]:
    """Nothing of what lies around the items: caches and packages are another on each machine."""
    return {"version": VERSION, "items": [_item(one) for one in report.examined]}


def _item(one: Examined) -> dict[str, object]:
    return {
        "kind": one.item.kind,
        "name": name_of(one),
        "path": one.item.path,
        "capabilities": {kind: list(values) for kind, values in capabilities(one.manifest).items()},
        "files": {
            file.path: {"sha256": file.sha256, "size": file.size, "executable": file.executable, "acts": file.acts}
            for file in sorted(one.files)
        },
        "findings": sorted(
            ({"rule": f.rule, "file": f.file, "fingerprint": f.fingerprint} for f in one.findings),
            key=lambda entry: (entry["file"], entry["rule"], entry["fingerprint"]),
        ),
    }


def as_text(value: dict[str, object]) -> str:
    """Only ASCII, so that any tool shows it as it is."""
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def write_lock(path: str, report: Report) -> None:
    """Whole or not at all; never through a link."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.islink(path) or (os.path.lexists(path) and not os.path.isfile(path)):
        raise UsageError(f"{path} is not a plain file; nothing was written", "give another name with -o")
    temporary = os.path.join(folder, f".{os.path.basename(path)}.{secrets.token_hex(8)}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o644), "w", encoding="ascii") as file:
            file.write(as_text(document(report)))
        os.replace(temporary, path)
    except OSError as error:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"{path} can't be written: {reason}", "give another place with -o") from error


class Locked(NamedTuple):
    """One item as the lock file has it."""

    kind: str
    name: str
    path: str
    capabilities: Capabilities
    files: dict[str, str]
    """Path -> hash, with a mark for the executable bit."""
    acting: frozenset[str]
    fingerprints: frozenset[str]


def read_lock(path: str) -> tuple[Locked, ...]:
    """Raises UsageError when there is none or it can't be used."""
    fix = "write it with: kitbag lock"
    try:
        data, _, more = read_bytes(path, named_boundary(path), _LARGEST)
        fields = as_map(json.loads(data)) if not more else {}
    except SourceError as error:
        raise UsageError(f"{path}: {error.problem}", fix) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not a lock file: it is not JSON", fix) from error
    version = fields.get("version")
    if not isinstance(fields.get("items"), list) or not isinstance(version, int):
        raise UsageError(f"{path} is not a lock file of Kitbag", fix)
    if version > VERSION:
        raise UsageError(f"{path} was written by a newer Kitbag", "use that one, or write it again: kitbag lock")
    return tuple(_locked(as_map(entry)) for entry in as_list(fields["items"]))


def _locked(entry: Mapping[str, object]) -> Locked:
    files = {name: as_map(value) for name, value in as_map(entry.get("files")).items()}
    return Locked(
        str(entry.get("kind", "")),
        str(entry.get("name", "")),
        str(entry.get("path", "")),
        {
            kind: tuple(str(value) for value in as_list(values))
            for kind, values in as_map(entry.get("capabilities")).items()
        },
        {name: _mark(str(file.get("sha256", "")), file.get("executable") is True) for name, file in files.items()},
        frozenset(name for name, file in files.items() if file.get("acts") is not False),
        frozenset(str(as_map(finding).get("fingerprint", "")) for finding in as_list(entry.get("findings"))),
    )


def _mark(sha256: str, executable: bool) -> str:
    return f"{sha256}+x" if executable else sha256


def _now(one: Examined) -> Locked:
    return _locked(cast("dict[str, object]", json.loads(as_text(_item(one)))))


class ItemChange(NamedTuple):
    kind: str
    name: str
    path: str
    status: str
    """`new`, `gone`, `moved` or `changed`."""
    was: str
    """Where it was before it moved."""
    added: Capabilities
    removed: Capabilities
    files: tuple[Change, ...]
    """Files that can act."""

    def to_json(self) -> dict[str, object]:
        return {
            "kind": self.kind,
            "name": self.name,
            "path": self.path,
            "status": self.status,
            "was": self.was or None,
            "added": {kind: list(values) for kind, values in self.added.items()},
            "removed": {kind: list(values) for kind, values in self.removed.items()},
            "files": [{"mark": change.mark, "path": change.path} for change in self.files],
        }


class Since(NamedTuple):
    changes: tuple[ItemChange, ...]
    """Only items that can do something else now; changed prose is no change here."""
    findings: tuple[Finding, ...]
    """Those that are new, and one for each kind of change."""


def since(report: Report, lock: tuple[Locked, ...]) -> Since:
    old = _matched(report, lock)
    found: list[ItemChange] = []
    findings: list[Finding] = []
    for one in report.examined:
        before = old.get((one.item.kind, one.item.path))
        change = _change(one, before)
        if change is not None:
            found.append(change)
            findings += _as_findings(one, change)
        known = before.fingerprints if before is not None else frozenset[str]()
        moved = before is not None and before.path != one.item.path
        findings += [f for f in one.findings if not f.suppressed and (moved or f.fingerprint not in known)]
    used = {(locked.kind, locked.path) for locked in old.values()}
    for locked in lock:
        if (locked.kind, locked.path) not in used and report.covers(locked.path):
            found.append(ItemChange(locked.kind, locked.name, locked.path, "gone", "", {}, locked.capabilities, ()))
    return Since(
        tuple(sorted(found, key=lambda change: (change.path, change.kind))), tuple(sorted(findings, key=order))
    )


def _matched(report: Report, lock: tuple[Locked, ...]) -> dict[tuple[str, str], Locked]:
    """By path; what is at no known path by its name, if only one thing is called so."""
    by_path = {(locked.kind, locked.path): locked for locked in lock}
    keys = {(one.item.kind, one.item.path) for one in report.examined}
    free: dict[tuple[str, str], list[Locked]] = {}
    for locked in lock:
        if (locked.kind, locked.path) not in keys and locked.name:
            free.setdefault((locked.kind, locked.name), []).append(locked)
    made: dict[tuple[str, str], Locked] = {}
    for one in report.examined:
        key = (one.item.kind, one.item.path)
        same_name = free.get((one.item.kind, name_of(one)), [])
        if key in by_path:
            made[key] = by_path[key]
        elif len(same_name) == 1:
            made[key] = same_name.pop()
    return made


def _change(one: Examined, before: Locked | None) -> ItemChange | None:
    now = _now(one)
    acting = {path: mark for path, mark in now.files.items() if path in now.acting}
    if before is None:
        files = changes({}, acting)
        return ItemChange(now.kind, now.name, now.path, "new", "", now.capabilities, {}, tuple(files))
    acted = {path: mark for path, mark in before.files.items() if path in before.acting}
    added, removed = (
        _difference(now.capabilities, before.capabilities),
        _difference(before.capabilities, now.capabilities),
    )
    files = changes(acted, acting)
    moved = before.path != now.path
    if not (added or removed or files or moved):
        return None
    was = before.path if moved else ""
    return ItemChange(now.kind, now.name, now.path, "moved" if moved else "changed", was, added, removed, tuple(files))


def _difference(these: Capabilities, those: Capabilities) -> Capabilities:
    found = {kind: tuple(v for v in values if v not in those.get(kind, ())) for kind, values in these.items()}
    return {kind: values for kind, values in found.items() if values}


def _as_findings(one: Examined, change: ItemChange) -> list[Finding]:
    file = os.path.normpath(os.path.join(change.path, one.item.main)) if one.item.kind == "skill" else change.path
    made: list[Finding] = []

    def add(rule: str, place: str, excerpt: str, severity: Severity | None = None) -> None:
        known = rules()[rule]
        shown = for_terminal(one_line(excerpt))[:400]
        made.append(Finding(rule, severity or known.severity, known.confidence, place, 0, shown))

    if change.status in ("new", "moved"):
        word = f"a new {change.kind}" if change.status == "new" else f"moved here from {change.was}"
        add("capability-added", file, f"{change.name}: {word}", "low")
    for kind, values in change.added.items():
        if change.status == "new" and kind == "tools" and values[0].startswith("("):
            continue
        more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
        add("capability-added", file, f"{kind.replace('_', ' ')}: {'; '.join(values[:_SHOWN])}{more}")
    folder = change.path if one.item.kind in ("skill", "plugin") else os.path.dirname(change.path)
    for entry in change.files:
        place = os.path.normpath(os.path.join(folder, entry.path))
        if entry.mark == "-":
            add("capability-removed", place, f"{entry.path}: removed")
        else:
            add("content-changed", place, f"{entry.path}: {'new' if entry.mark == '+' else 'changed'}")
    if change.removed:
        kinds = "; ".join(
            f"{kind.replace('_', ' ')}: {', '.join(values[:_SHOWN])}" for kind, values in change.removed.items()
        )
        add("capability-removed", file, kinds)
    return with_fingerprints(made, one.item.path)


def differences(report: Report, lock: tuple[Locked, ...]) -> list[tuple[str, str]]:
    """(path, what) of everything that is not as the lock file says; prose too."""
    found: list[tuple[str, str]] = []
    old = {(locked.kind, locked.path): locked for locked in lock}
    for one in report.examined:
        before = old.pop((one.item.kind, one.item.path), None)
        now = _now(one)
        if before is None:
            found.append((now.path, f"a {now.kind} that the lock file does not have"))
            continue
        for change in changes(before.files, now.files):
            word = {"+": "new file", "~": "changed file", "-": "missing file"}[change.mark]
            found.append((now.path, f"{word}: {change.path}"))
        if before.capabilities != now.capabilities:
            kinds = sorted(
                {
                    *_difference(now.capabilities, before.capabilities),
                    *_difference(before.capabilities, now.capabilities),
                }
            )
            found.append((now.path, f"other capabilities: {', '.join(kinds)}"))
    found += [
        (locked.path, f"a {locked.kind} that is no longer there")
        for locked in old.values()
        if report.covers(locked.path)
    ]
    return sorted(found)
