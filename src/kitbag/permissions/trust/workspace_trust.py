"""Workspace trust: bound to the resolved root and to hashes of everything in it that can run or allow something.

A workspace influences the decision only through those hashes. Changed prose keeps trust; a new item or link, and a new
or changed command, server, hook, script, mode, rule or setting revoke it. Used by all code that loads or runs a
project's items.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Collection, Iterable
from typing import Final, Literal, cast

import msgspec

from kitbag.errors import InvalidError
from kitbag.library.scopes import Places
from kitbag.permissions.model import is_inside
from kitbag.permissions.trust.bounded_reader import ReadLimits
from kitbag.permissions.trust.capabilities import RESTRICTING_KINDS, Capability, CapabilityKind, text_capabilities
from kitbag.permissions.trust.store import (
    ApprovedCapability,
    TrustRecord,
    TrustStore,
    read_trust_store,
    redact_texts,
    update_trust_store,
)
from kitbag.permissions.trust.workspace_items import WorkspaceItem, WorkspaceScan, hash_scripts, scan_workspace
from kitbag.settings import PERMISSION_KEYS, PermissionEntry

TrustState = Literal["nothing", "trusted", "untrusted", "changed"]
UntrustedScan = Literal["contents", "names", "nothing"]
"""`contents`: everything, for a person who reviews it. `names`: what it contains, without what that would run, for a
list of what is omitted. `nothing`: the state alone, where the caller knows that the workspace contains something."""
_NAMES_LIMITS: Final = ReadLimits(seconds=2.0)


class TrustChange(msgspec.Struct, frozen=True, kw_only=True):
    """A difference from the state that was trusted."""

    mark: Literal["+", "~", "-"]
    kind: CapabilityKind | Literal["item"]
    path: str
    """The file that has it, relative to the workspace."""
    old: str
    new: str
    line: int = 0


class WorkspaceTrust(msgspec.Struct, frozen=True, kw_only=True):
    state: TrustState
    root: str
    """Resolved."""
    folder: str = ""
    """The root as it was reached, possibly through links."""
    items: tuple[WorkspaceItem, ...] = ()
    changes: tuple[TrustChange, ...] = ()
    """Why the state is `changed`."""
    is_complete: bool = True
    """False if not everything could be read; it can then be trusted for one run only."""
    problems: tuple[str, ...] = ()
    for_this_run: bool = False
    """Trusted for this run only, whatever it contains."""
    only_fingerprint: str = ""
    """Trusted for this run only, while `fingerprint` has this value."""

    @property
    def fingerprint(self) -> str:
        """Hash of everything the workspace contains, as it was read. Trust for one session is bound to it."""
        capabilities = sorted(digest for item in self.items for digest in _digests(item))
        return hashlib.sha256("\n".join(capabilities).encode()).hexdigest()

    @property
    def can_load_items(self) -> bool:
        """Whether its items may be loaded and its settings apply."""
        return self.state in ("nothing", "trusted")

    @property
    def applies_restrictions(self) -> bool:
        """Whether its deny and ask rules apply. They can't allow anything, so a change does not lift them."""
        return self.can_load_items or self.state == "changed"

    def capability_digests(self, paths: Collection[str]) -> set[str]:
        """Digests of the capabilities of these files; paths as in `WorkspaceItem.path`."""
        return {
            capability_digest(item.path, capability)
            for item in self.items
            if item.path in paths
            for capability in item.capabilities
        }

    def covers(self, path: str, text: str, places: Places) -> bool:
        """Whether everything that a text would run, or read from the environment, was in the file when it was scanned,
        and the scripts that it starts are still the same bytes: called when it is about to run.

        Anything that changed between scan and run, or was never scanned, is not run.
        """
        if self.for_this_run:
            return True
        if self.state != "trusted":
            return False
        known = {
            (capability.kind, capability.text, capability.digest)
            for item in self.items
            if path in (os.path.join(self.folder, item.path), os.path.join(self.root, item.path))
            for capability in item.capabilities
        }
        needed = text_capabilities(text)
        needed += hash_scripts(needed, os.path.dirname(path), places)
        return all((capability.kind, capability.text, capability.digest) in known for capability in needed)


def check_trust(
    places: Places,
    trusted_for_run: bool | str = False,
    if_untrusted: UntrustedScan = "contents",
) -> WorkspaceTrust:
    """Reads only, runs nothing. `trusted_for_run`: a person trusts this run; not stored. If it is a
    `WorkspaceTrust.fingerprint`, trust applies only while the fingerprint is the same. `if_untrusted`: what is read of
    a workspace that was never trusted, whose items can't be used."""
    root = os.path.realpath(places.project)
    store = _store(places, root)
    record = store.records.get(root)
    is_known = bool(trusted_for_run) or (record is not None and record.owner == _owner(root))
    if not is_known and if_untrusted == "nothing":
        return WorkspaceTrust(state="untrusted", root=root, folder=places.project, is_complete=False)
    with_contents = is_known or if_untrusted == "contents"
    scan = scan_workspace(places, ReadLimits() if with_contents else _NAMES_LIMITS, with_contents=with_contents)
    for_this_run = trusted_for_run is True
    trust = WorkspaceTrust(
        state="untrusted",
        root=root,
        folder=places.project,
        items=scan.items,
        changes=(),
        is_complete=scan.is_complete,
        problems=scan.problems,
        for_this_run=for_this_run,
    )
    if not scan.items and scan.is_complete:
        return msgspec.structs.replace(trust, state="nothing")
    if trusted_for_run:
        only_fingerprint = trusted_for_run if isinstance(trusted_for_run, str) else ""
        return msgspec.structs.replace(
            trust,
            state="trusted" if for_this_run or trust.fingerprint == only_fingerprint else "changed",
            only_fingerprint=only_fingerprint,
        )
    if store.problem:
        trust = msgspec.structs.replace(trust, problems=(*trust.problems, store.problem))
    if record is None or not is_known:
        return trust
    changes = changes_since(record, scan, places)
    if changes:
        return msgspec.structs.replace(trust, state="changed", changes=changes)
    return msgspec.structs.replace(trust, state="trusted") if scan.is_complete else trust


def trust_workspace(places: Places, reviewed: WorkspaceTrust) -> str:
    """Store that a person trusts what `reviewed` holds, not what the workspace holds by now.

    Returns a remark about the store. Raises InvalidError if the workspace can't be trusted.
    """
    if not reviewed.is_complete:
        problem_text = f"cannot trust {reviewed.root}: the scan is incomplete ({'; '.join(reviewed.problems)})"
        raise InvalidError(problem_text, "fix the listed problems, or use --trust-workspace for one run")
    if problem := _store_in_workspace(places, reviewed.root):
        raise InvalidError(problem, "set KITBAG_HOME to a directory outside the workspace")
    owner = _owner(reviewed.root)
    if owner is None:
        raise InvalidError(f"{reviewed.root} no longer exists", "")
    capabilities = _approved_capabilities(reviewed.items)
    seen = {item.path for item in reviewed.items}

    def change(records: dict[str, TrustRecord]) -> None:
        before = records.get(reviewed.root)
        # Items of the workspace's other directories were not scanned from here and stay approved.
        kept = [
            capability
            for capability in (before.capabilities if before and before.owner == owner else ())
            if capability.path not in seen and os.path.lexists(os.path.join(reviewed.root, capability.path))
        ]
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        records[reviewed.root] = TrustRecord(
            root=reviewed.root, owner=owner, trusted_at=at, capabilities=tuple(dict.fromkeys((*capabilities, *kept)))
        )

    return update_trust_store(_home(places), change)


def revoke_trust(places: Places, roots: Iterable[str] | None) -> tuple[list[str], str]:
    """Revoke trust for these workspaces, or for all. Returns which were trusted, and a remark about the store."""
    gone: list[str] = []

    def change(records: dict[str, TrustRecord]) -> None:
        gone.extend(root for root in (list(records) if roots is None else roots) if records.pop(root, None))

    return gone, update_trust_store(_home(places), change)


def removed_restrictions(places: Places, trust: Callable[[], WorkspaceTrust]) -> list[PermissionEntry]:
    """Deny and ask rules of the project's settings that were there when a person trusted them and are gone. They apply
    until trust is renewed, since they may have been removed to allow something. `trust`: called only if such rules were
    ever approved."""
    root = os.path.realpath(places.project)
    record = _store(places, root).records.get(root)
    files = {os.path.join(folder, ".kitbag", "settings.toml") for folder in places.project_dirs}
    approved = [
        (os.path.join(places.project, capability.path), capability)
        for capability in (record.capabilities if record is not None and record.owner == _owner(root) else ())
        if capability.kind == "setting" and capability.text.startswith(_RESTRICTING_SETTINGS)
    ]
    approved = [(file, capability) for file, capability in approved if file in files]
    if not approved or (current := trust()).for_this_run or current.only_fingerprint:
        return []
    present = {digest for item in current.items for digest in _digests(item)}
    return [
        entry
        for file, capability in approved
        if capability.digest not in present
        for entry in _setting_entries(file, capability)
    ]


_RESTRICTING_SETTINGS: Final = tuple(f"{key} = " for key in PERMISSION_KEYS if key != "permissions.allow")


def _setting_entries(file: str, capability: ApprovedCapability) -> list[PermissionEntry]:
    key, _, value = capability.text.partition(" = ")
    # A truncated or redacted text can't be restored; only its existence is known.
    is_exact = capability_digest(capability.path, Capability(kind="setting", text=capability.text)) == capability.digest
    parsed: object = json.loads(value) if is_exact else None
    values = cast("list[object]", parsed) if isinstance(parsed, list) else [parsed]
    return [PermissionEntry(key, one, file, 0, False) for one in values]


def trusted_workspaces(places: Places) -> TrustStore:
    return read_trust_store(_home(places))


def _home(places: Places) -> str:
    return os.path.realpath(places.kitbag_home)


def _store(places: Places, root: str) -> TrustStore:
    problem = _store_in_workspace(places, root)
    return TrustStore({}, problem) if problem else read_trust_store(_home(places))


def _store_in_workspace(places: Places, root: str) -> str:
    """A workspace must not be able to contain its own trust."""
    if is_inside(_home(places), root):
        return f"the Kitbag home {_home(places)} is inside the workspace, so trust stored there is ignored"
    return ""


def _owner(root: str) -> int | None:
    try:
        return os.stat(root).st_uid
    except OSError:
        return None


# --- Changes ----------------------------------------------------------------------------------------------------


def capability_digest(path: str, capability: Capability) -> str:
    """Capabilities that differ in kind, file, text or bytes have different digests."""
    identity = json.dumps([capability.kind, path, capability.text, capability.digest])
    return hashlib.sha256(identity.encode()).hexdigest()


def _item_digest(item: WorkspaceItem) -> str:
    return hashlib.sha256(json.dumps(["item", item.path, item.kind]).encode()).hexdigest()


def _digests(item: WorkspaceItem) -> list[str]:
    return [_item_digest(item), *(capability_digest(item.path, capability) for capability in item.capabilities)]


def _approved_capabilities(items: Collection[WorkspaceItem]) -> list[ApprovedCapability]:
    found = [(item.path, capability) for item in items for capability in item.capabilities]
    texts = redact_texts(_describe_capability(capability) for _, capability in found)
    return [
        *(
            ApprovedCapability(kind="item", path=item.path, digest=_item_digest(item), text=f"{item.kind} {item.name}")
            for item in items
        ),
        *(
            ApprovedCapability(kind=capability.kind, path=path, digest=capability_digest(path, capability), text=text)
            for (path, capability), text in zip(found, texts, strict=True)
        ),
    ]


def _describe_capability(capability: Capability) -> str:
    return f"{capability.text} sha256:{capability.digest}" if capability.digest else capability.text


def changes_since(record: TrustRecord, scan: WorkspaceScan, places: Places) -> tuple[TrustChange, ...]:
    """Empty if every capability was approved and no restriction is gone."""
    approved = {capability.digest for capability in record.capabilities}
    now = [
        (item.path, capability, capability_digest(item.path, capability))
        for item in scan.items
        for capability in item.capabilities
    ]
    present = {digest for _, _, digest in now}
    gone: dict[tuple[str, str], list[ApprovedCapability]] = {}
    for old in record.capabilities:
        if old.kind != "item" and old.digest not in present:
            gone.setdefault((old.path, old.kind), []).append(old)
    changes = [
        TrustChange(mark="+", kind="item", path=item.path, old="", new=f"{item.kind} {item.name}")
        for item in scan.items
        if _item_digest(item) not in approved
    ]
    for path, capability, digest in now:
        if digest not in approved:
            before = _counterpart(capability, gone.get((path, capability.kind), []))
            changes.append(
                TrustChange(
                    mark="~" if before else "+",
                    kind=capability.kind,
                    path=path,
                    old=before,
                    new=_describe_capability(capability),
                    line=capability.line,
                )
            )
    seen = {item.path for item in scan.items}
    changes += [
        TrustChange(mark="-", kind=old.kind, path=path, old=old.text, new="")
        for (path, kind), removed in gone.items()
        if kind in RESTRICTING_KINDS and (path in seen or _is_scanned(path, scan, places))
        for old in removed
    ]
    return tuple(changes)


def _counterpart(capability: Capability, gone: list[ApprovedCapability]) -> str:
    """The previous version, removed from `gone`: the same script, or else the first of the same kind in that file."""
    if capability.kind == "script":
        same = [old for old in gone if old.text.startswith(f"{capability.text} sha256:")]
    else:
        start = capability.text.partition(":")[0].partition("=")[0]
        same = [old for old in gone if old.text.partition(":")[0].partition("=")[0] == start] or gone
    if not same:
        return ""
    before = same[0]
    gone.remove(before)
    return before.text


def _is_scanned(path: str, scan: WorkspaceScan, places: Places) -> bool:
    """If a project's settings are gone, what they denied is allowed again. Other files take their permissions along."""
    root = places.project
    settings = (os.path.join(folder, ".kitbag", "settings.toml") for folder in places.project_dirs)
    return scan.is_complete and os.path.join(root, path) in settings
