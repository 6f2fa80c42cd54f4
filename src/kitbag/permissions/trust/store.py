"""`trust.json` in the Kitbag home: the trusted workspaces, each with the capabilities it had when it was trusted.

Replaced atomically under a lock; never written through a link. A file that is damaged, owned by another user, writable
by others or inside the workspace itself trusts nothing. Used by `workspace_trust`.
"""

import json
import os
import stat
from collections.abc import Callable, Iterable
from typing import Final, Literal, NamedTuple, cast

import msgspec

from kitbag.errors import InvalidError
from kitbag.permissions.trust.capabilities import CAPABILITY_KINDS, CapabilityKind
from kitbag.store import private_files

FILE: Final = "trust.json"
VERSION: Final = 1
_LOCK_FILE = ".trust.lock"
_MAX_TEXT = 4000
_RECORD_LENGTH = 4


class ApprovedCapability(msgspec.Struct, frozen=True, kw_only=True):
    """One capability that a person reviewed and approved."""

    kind: CapabilityKind | Literal["item"]
    """`item`: the existence of the file itself."""
    path: str
    """The file that has it, relative to the workspace."""
    digest: str
    """Binds kind, path and the full text or the script's bytes."""
    text: str
    """For display: redacted, and truncated if very long."""

    def to_record(self) -> list[str]:
        """As it is stored: a list in this order, which `_parse_record` reads."""
        return [self.kind, self.path, self.digest, self.text]


class TrustRecord(msgspec.Struct, frozen=True, kw_only=True):
    root: str
    """Resolved."""
    owner: int
    """The owner of that directory."""
    trusted_at: str
    capabilities: tuple[ApprovedCapability, ...]

    @property
    def capability_count(self) -> int:
        """How many things it may run or allow."""
        return sum(capability.kind != "item" for capability in self.capabilities)


class TrustStore(NamedTuple):
    records: dict[str, TrustRecord]
    problem: str = ""
    """Why the store is not used."""
    is_newer: bool = False


def read_trust_store(home: str) -> TrustStore:
    """Never raises; without a usable file nothing is trusted."""
    path = os.path.join(home, FILE)
    try:
        if problem := _ownership_problem(path, home):
            return TrustStore({}, f"{path} is ignored: {problem}")
        data = private_files.read(home, FILE)
    except FileNotFoundError:
        return TrustStore({})
    except OSError as error:
        return TrustStore({}, f"{path} is ignored: {(error.strerror or str(error)).lower()}")
    except private_files.StoreError as error:
        return TrustStore({}, error.problem)
    return TrustStore({}) if data is None else _parse(path, data)


def _ownership_problem(path: str, home: str) -> str:
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        return "it is a symbolic link" if stat.S_ISLNK(status.st_mode) else "it is not a regular file"
    if status.st_uid != os.geteuid():
        return "it is owned by another user"
    return "other users can write to it" if status.st_mode & 0o022 else shared_home_problem(home)


def shared_home_problem(home: str) -> str:
    """Allows group write access only for the user's own group, a common default."""
    status = os.stat(home)
    shared = status.st_mode & 0o002 or (status.st_mode & 0o020 and status.st_gid != os.getegid())
    return "other users can write to its directory" if shared else ""


def _parse(path: str, data: bytes) -> TrustStore:
    damaged = TrustStore({}, f"{path} is corrupted; no workspace is trusted")
    try:
        content: object = json.loads(data)
    except (ValueError, RecursionError):
        return damaged
    fields = cast("dict[str, object]", content) if isinstance(content, dict) else {}
    version, workspaces = fields.get("version"), fields.get("workspaces")
    if isinstance(version, int) and version > VERSION:
        return TrustStore(
            {}, f"{path} was written by a newer version of Kitbag; no workspace is trusted", is_newer=True
        )
    if version != VERSION or not isinstance(workspaces, dict):
        return damaged
    records: dict[str, TrustRecord] = {}
    for root, entry in cast("dict[str, object]", workspaces).items():
        record = _parse_record(root, entry)
        if record is None:
            return damaged
        records[root] = record
    return TrustStore(records)


def _parse_record(root: str, entry: object) -> TrustRecord | None:
    fields = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
    owner, at, listed = fields.get("owner"), fields.get("trusted_at"), fields.get("acts")
    if not isinstance(owner, int) or not isinstance(at, str) or not isinstance(listed, list):
        return None
    capabilities: list[ApprovedCapability] = []
    for one in cast("list[object]", listed):
        words = cast("list[object]", one) if isinstance(one, list) else []
        if len(words) != _RECORD_LENGTH or not all(isinstance(word, str) for word in words):
            return None
        kind, path, digest, text = cast("list[str]", words)
        if kind != "item" and kind not in CAPABILITY_KINDS:
            return None
        capabilities.append(ApprovedCapability(kind=kind, path=path, digest=digest, text=text))
    return TrustRecord(root=root, owner=owner, trusted_at=at, capabilities=tuple(capabilities))


def update_trust_store(home: str, change: Callable[[dict[str, TrustRecord]], None]) -> str:
    """Read, change and write under a lock. Returns what was wrong with the old file, which is then set aside."""
    with private_files.hold_lock(home, _LOCK_FILE):
        if shared_home_problem(home):
            raise InvalidError(f"other users can write to {home}", f"run `chmod go-w {home}`")
        store = read_trust_store(home)
        if store.is_newer:
            raise InvalidError(store.problem, "upgrade Kitbag")
        aside = private_files.set_aside(home, FILE) if store.problem else ""
        change(store.records)
        private_files.write(home, FILE, _serialize(store.records))
    return f"{store.problem}; renamed to {aside}" if aside else ""


def _serialize(records: dict[str, TrustRecord]) -> bytes:
    workspaces = {
        root: {
            "owner": record.owner,
            "trusted_at": record.trusted_at,
            "acts": [capability.to_record() for capability in record.capabilities],
        }
        for root, record in sorted(records.items())
    }
    return f"{json.dumps({'version': VERSION, 'workspaces': workspaces}, indent=1)}\n".encode("ascii")


def redact_texts(texts: Iterable[str]) -> list[str]:
    """The texts to store: redacted, and no longer than a person would read."""
    from kitbag.store.redaction import Redactor

    redactor = Redactor.from_environment(os.environ)
    return [_truncate(redactor.redact_text(text)) for text in texts]


def _truncate(text: str) -> str:
    omitted = len(text) - _MAX_TEXT
    return text if omitted <= 0 else f"{text[:_MAX_TEXT]}... ({omitted:,} more characters)"
