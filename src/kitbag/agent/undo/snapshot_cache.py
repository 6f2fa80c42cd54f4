"""The last look at a workspace, on the disk: so that the next session need not read every file again, and so that what
a command changed can still be told when its session was killed meanwhile.

Used by changes. A session has a file for its look and one, held by a lock, that names the call whose command runs.
What can't be read is as if it were not there.
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

from kitbag.agent.undo.change_records import UNKEPT, State
from kitbag.agent.undo.snapshot import Look, Seen
from kitbag.store import private_files
from kitbag.store.private_files import StoreError

_FOLDER = "state/looks"
_MOST_FILES = 20
_MOST_DAYS = 30
_DAY = 86_400.0
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,100}")
_Row = tuple[bytes, str, str, int, tuple[int, int, int, int], bool]


class _Written(msgspec.Struct, array_like=True):
    roots: list[bytes]
    began: int
    closed: list[bytes]
    rows: list[_Row]


class LookFiles:
    def __init__(self, kitbag_home: str, roots: Sequence[str], session_id: str) -> None:
        self._home = kitbag_home
        self._roots = [os.fsencode(root) for root in roots]
        name = hashlib.sha256(b"\0".join(self._roots)).hexdigest()[:24]
        self._folder = f"{_FOLDER}/{name}"
        plain = session_id if _PLAIN.fullmatch(session_id) else hashlib.sha256(session_id.encode()).hexdigest()
        self._look = f"{self._folder}/{plain}.look"
        self._open = f"{self._folder}/{plain}.open"

    def save(self, look: Look) -> None:
        rows: list[_Row] = [
            (os.fsencode(path), *seen.state, seen.stamp, seen.settled)  # type: ignore[misc]
            for path, seen in look.seen.items()
        ]
        written = _Written(self._roots, look.began, [os.fsencode(path) for path in look.closed], rows)
        private_files.write(self._home, self._look, msgspec.msgpack.encode(written))

    def load(self) -> Look | None:
        """This session's own."""
        return self._read(self._look)

    def newest(self, kept: Set[str]) -> dict[str, Seen]:
        """Of whichever session looked last; only what is still kept."""
        for _, name in sorted(self._looks(), reverse=True):
            look = self._read(f"{self._folder}/{name}")
            if look is not None:
                return _still_kept(look.seen, kept)
        return {}

    def begin(self, call_id: str) -> int | None:
        """A descriptor that holds the lock until `end`; None when another process runs this very session."""
        try:
            descriptor = private_files.lock(self._home, self._open, 0.0)
        except StoreError:
            return None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps({"call": call_id}).encode("ascii"))
        return descriptor

    def end(self, descriptor: int) -> None:
        """The name goes first: what lies there without a lock is of a command that was cut off."""
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._home, self._open))
        os.close(descriptor)

    def interrupted(self) -> tuple[str, int] | None:
        """The call whose command was cut off, and a descriptor as `begin` gives one. None: none was, or it runs."""
        if not os.path.lexists(os.path.join(self._home, self._open)):
            return None
        try:
            descriptor = private_files.lock(self._home, self._open, 0.0)
        except StoreError:
            return None
        try:
            call = json.loads(os.pread(descriptor, 4_096, 0))["call"]
        except (ValueError, KeyError, TypeError, OSError):
            call = ""
        if isinstance(call, str) and call:
            return call, descriptor
        self.end(descriptor)
        return None

    def prune(self) -> None:
        """Keeps the newest of a workspace; all of a workspace go that nobody has worked in for a month."""
        now = time.time()
        for used, name in sorted(self._looks(), reverse=True)[_MOST_FILES:]:
            if now - used > _DAY:
                self._remove(f"{self._folder}/{name}")
        with contextlib.suppress(OSError), os.scandir(os.path.join(self._home, _FOLDER)) as folders:
            for folder in folders:
                if now - folder.stat(follow_symlinks=False).st_mtime > _MOST_DAYS * _DAY:
                    for name in os.listdir(folder.path):
                        self._remove(f"{_FOLDER}/{folder.name}/{name}")
                    os.rmdir(folder.path)

    def _remove(self, path: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._home, path))

    def _looks(self) -> Iterator[tuple[float, str]]:
        with contextlib.suppress(OSError), os.scandir(os.path.join(self._home, self._folder)) as entries:
            for entry in entries:
                if entry.name.endswith(".look"):
                    yield entry.stat(follow_symlinks=False).st_mtime, entry.name

    def _read(self, path: str) -> Look | None:
        try:
            data = private_files.read(self._home, path)
            written = msgspec.msgpack.decode(data, type=_Written) if data is not None else None
        except (StoreError, msgspec.MsgspecError, ValueError):
            return None
        if written is None or written.roots != self._roots:
            return None
        seen = {os.fsdecode(row[0]): _seen(row) for row in written.rows}
        return Look(seen, {}, frozenset(os.fsdecode(path) for path in written.closed), 0, written.began)


def _still_kept(seen: Mapping[str, Seen], names: Set[str]) -> dict[str, Seen]:
    return {
        path: one
        for path, one in seen.items()
        if not one.state.digest or one.state.digest.startswith(UNKEPT) or one.state.digest in names
    }


def _seen(row: Any) -> Seen:
    _, kind, digest, mode, stamp, settled = row
    return Seen(State(kind, digest, mode), stamp, settled)
