"""Caches what trust found in the files of a workspace, so that the next start reads only what changed.

An entry is valid only while its file or directory has the same stamp, and only if that was old enough when it was read,
as in `library.index`. One file per workspace in the Kitbag home; used only where the trust store itself would be.
A stale, damaged or foreign cache costs time but never changes a result. Used by `bounded_reader`.
"""

import os
import stat
import sys
import time
import zlib
from collections.abc import Callable
from typing import Any, Final, Literal, cast

from kitbag.library.index import MIN_FILE_AGE_NS, parse_cache, write_cache
from kitbag.library.scopes import Places
from kitbag.permissions.model import is_inside
from kitbag.permissions.trust.store import shared_home_problem
from kitbag.store.private_files import StoreError, read
from kitbag.text.source_files import FileStamp

ContentKind = Literal["listing", "document", "script"]
FORMAT: Final = 1
_MAGIC: Final = b"kitbag-content-%d %s\n" % (FORMAT, sys.version.encode())
_MIN_ENTRIES: Final = 24
"""Fewer files are read as fast as a cache."""
_FOLDER: Final = "cache"


class ContentCache:
    """Values are what `marshal` can store."""

    def __init__(self, places: Places, clock: Callable[[], int] = time.time_ns) -> None:
        self._home = os.path.realpath(places.kitbag_home)
        self._identity = (os.path.realpath(places.project), places.cwd)
        self._newest = clock() - MIN_FILE_AGE_NS
        self.is_usable = not is_inside(self._home, self._identity[0]) and not _ownership_problem(self._home)
        """Whether a file in the Kitbag home is the user's own; a workspace must not contain its own cache."""
        self._entries = self._load() if self.is_usable else {}
        self._valid: dict[str, tuple[FileStamp, Any]] = {}
        """What this scan used or added: what is saved."""
        self._has_new = False

    def find(self, kind: ContentKind, path: str, stamp: FileStamp) -> Any | None:
        """What was found in the file with this stamp, which the caller has just read without following a link."""
        key = f"{kind}:{path}"
        entry = self._entries.get(key)
        if entry is None or entry[0] != stamp:
            return None
        self._valid[key] = entry
        return entry[1]

    def add(self, kind: ContentKind, path: str, stamp: FileStamp, value: object) -> None:
        """`stamp`: from before the file was read. A file that is too recent may change again without changing it."""
        if max(stamp[:2]) <= self._newest:
            self._valid[f"{kind}:{path}"] = stamp, value
            self._has_new = True

    def save(self, is_complete: bool) -> None:
        """Best effort; does nothing if nothing is new. `is_complete`: what this scan did not use is gone."""
        content = self._valid if is_complete else {**self._entries, **self._valid}
        if self.is_usable and len(content) >= _MIN_ENTRIES and (self._has_new or len(content) < len(self._entries)):
            write_cache(os.path.join(self._home, _FOLDER, self._name), _MAGIC, (self._identity, content))

    @property
    def _name(self) -> str:
        location = "\0".join(self._identity).encode(errors="surrogateescape")
        return f"{zlib.crc32(location):08x}-trust.content"

    def _load(self) -> dict[str, tuple[FileStamp, Any]]:
        try:
            data = read(self._home, f"{_FOLDER}/{self._name}")
        except (OSError, StoreError):
            return {}
        content = parse_cache(data, _MAGIC) if data is not None else None
        try:
            identity, entries = cast("tuple[object, object]", content)
        except (TypeError, ValueError):
            return {}
        return cast("dict[str, Any]", entries) if identity == self._identity and isinstance(entries, dict) else {}


def _ownership_problem(home: str) -> bool:
    """Whether anyone else could have written to the cache."""
    try:
        if shared_home_problem(home):
            return True
        status = os.lstat(os.path.join(home, _FOLDER))
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or bool(status.st_mode & 0o022)
