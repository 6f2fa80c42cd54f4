"""Caches the last snapshot of a workspace on disk: the next session need not read every file again, and the changes of
a killed command can still be determined.

Used by session_changes. A session has a snapshot file and a locked marker file that names the call whose command is
running. Unreadable files count as missing.
"""

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import msgspec

from kitbag.agent.undo.change_records import NOT_STORED_PREFIX, FileState
from kitbag.agent.undo.snapshot import FileSnapshot, WorkspaceSnapshot
from kitbag.store import private_files
from kitbag.store.private_files import StoreError

_CACHE_FOLDER = "state/looks"
_MAX_FILES = 20
_MAX_AGE_DAYS = 30
_DAY_SECONDS = 86_400.0
_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_Row = tuple[bytes, str, str, int, tuple[int, int, int, int], bool]


class _CachedSnapshot(msgspec.Struct, array_like=True):
    roots: list[bytes]
    began: int
    closed: list[bytes]
    rows: list[_Row]


class SnapshotCache:
    def __init__(self, kitbag_home: str, roots: Sequence[str], session_id: str) -> None:
        self._home = kitbag_home
        self._roots = [os.fsencode(root) for root in roots]
        name = hashlib.sha256(b"\0".join(self._roots)).hexdigest()[:24]
        self._folder = f"{_CACHE_FOLDER}/{name}"
        plain = session_id if _PLAIN_ID.fullmatch(session_id) else hashlib.sha256(session_id.encode()).hexdigest()
        self._snapshot_path = f"{self._folder}/{plain}.look"
        self._marker_path = f"{self._folder}/{plain}.open"

    def save(self, snapshot: WorkspaceSnapshot) -> None:
        rows: list[_Row] = [
            (os.fsencode(path), *file.state, file.stamp, file.settled)  # type: ignore[misc]
            for path, file in snapshot.files.items()
        ]
        cached = _CachedSnapshot(
            self._roots, snapshot.started_ns, [os.fsencode(path) for path in snapshot.unreadable_folders], rows
        )
        private_files.write(self._home, self._snapshot_path, msgspec.msgpack.encode(cached))

    def load(self) -> WorkspaceSnapshot | None:
        """This session's own snapshot."""
        return self._read(self._snapshot_path)

    def load_newest(self, stored_digests: Set[str]) -> dict[str, FileSnapshot]:
        """Files of the newest snapshot of any session whose content is still stored."""
        for _, name in sorted(self._list_snapshots(), reverse=True):
            snapshot = self._read(f"{self._folder}/{name}")
            if snapshot is not None:
                return _filter_stored(snapshot.files, stored_digests)
        return {}

    def mark_running(self, call_id: str, workspace: Sequence[int] = ()) -> int | None:
        """A descriptor that holds the lock until `clear_running`; None if another process runs this session.
        `workspace`: a record of the workspace's identity."""
        try:
            descriptor = private_files.acquire_lock(self._home, self._marker_path, 0.0)
        except StoreError:
            return None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps({"call": call_id, "workspace": [*workspace]}).encode("ascii"))
        return descriptor

    def clear_running(self, descriptor: int) -> None:
        """Removes the name first: a marker without a lock means a killed command."""
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._home, self._marker_path))
        os.close(descriptor)

    def find_interrupted(self) -> tuple[str, int] | None:
        """The call of a killed command and a descriptor as from `mark_running`. None: no command was killed, or it
        still runs."""
        if not os.path.lexists(os.path.join(self._home, self._marker_path)):
            return None
        try:
            descriptor = private_files.acquire_lock(self._home, self._marker_path, 0.0)
        except StoreError:
            return None
        try:
            call = json.loads(os.pread(descriptor, 4_096, 0))["call"]
        except (ValueError, KeyError, TypeError, OSError):
            call = ""
        if isinstance(call, str) and call:
            return call, descriptor
        self.clear_running(descriptor)
        return None

    def interrupted_workspace(self, descriptor: int) -> object:
        """What `mark_running` got, from the descriptor of `find_interrupted`."""
        with contextlib.suppress(ValueError, OSError, AttributeError):
            return json.loads(os.pread(descriptor, 4_096, 0)).get("workspace")
        return None

    def prune(self) -> None:
        """Keeps the newest snapshots of a workspace; removes all of a workspace that was unused for a month."""
        now = time.time()
        for used, name in sorted(self._list_snapshots(), reverse=True)[_MAX_FILES:]:
            if now - used > _DAY_SECONDS:
                self._remove(f"{self._folder}/{name}")
        with contextlib.suppress(OSError), os.scandir(os.path.join(self._home, _CACHE_FOLDER)) as folders:
            for folder in folders:
                if now - folder.stat(follow_symlinks=False).st_mtime > _MAX_AGE_DAYS * _DAY_SECONDS:
                    for name in os.listdir(folder.path):
                        self._remove(f"{_CACHE_FOLDER}/{folder.name}/{name}")
                    os.rmdir(folder.path)

    def _remove(self, path: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._home, path))

    def _list_snapshots(self) -> Iterator[tuple[float, str]]:
        with contextlib.suppress(OSError), os.scandir(os.path.join(self._home, self._folder)) as entries:
            for entry in entries:
                if entry.name.endswith(".look"):
                    yield entry.stat(follow_symlinks=False).st_mtime, entry.name

    def _read(self, path: str) -> WorkspaceSnapshot | None:
        try:
            data = private_files.read(self._home, path)
            cached = msgspec.msgpack.decode(data, type=_CachedSnapshot) if data is not None else None
        except (StoreError, msgspec.MsgspecError, ValueError):
            return None
        if cached is None or cached.roots != self._roots:
            return None
        files = {os.fsdecode(row[0]): _decode_row(row) for row in cached.rows}
        return WorkspaceSnapshot(
            files=files,
            ignore_rules={},
            unreadable_folders=frozenset(os.fsdecode(path) for path in cached.closed),
            files_read=0,
            started_ns=cached.began,
        )


def _filter_stored(files: Mapping[str, FileSnapshot], stored_digests: Set[str]) -> dict[str, FileSnapshot]:
    return {
        path: file
        for path, file in files.items()
        if not file.state.digest
        or file.state.digest.startswith(NOT_STORED_PREFIX)
        or file.state.digest in stored_digests
    }


def _decode_row(row: Any) -> FileSnapshot:
    _, kind, digest, mode, stamp, settled = row
    return FileSnapshot(FileState(kind, digest, mode), stamp, settled)
