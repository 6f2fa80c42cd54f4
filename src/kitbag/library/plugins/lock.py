"""`plugins.lock.json`: what was installed from where, what of it can act, and whether it is enabled.

Read by plugins for each listing and changed by plugin_store. A change is announced in the file before the
directory is swapped and settled after it, so that a kill in between never pairs a record with other files.
"""

import contextlib
import os
from collections.abc import Generator
from typing import Final, NamedTuple, cast

from kitbag.errors import Diagnostic, InvalidError, KitbagError
from kitbag.library.plugins.manifest import as_map, read_json
from kitbag.library.plugins.safe_copy import cannot_write
from kitbag.record_fields import RecordFields
from kitbag.text.source_files import boundary_of

FILE = "plugins.lock.json"
STAGING = ".staging-"
OLD = "old"
VERSION = 1
_GUARD = ".lock"
_WAIT_SECONDS = 30.0


class Record(NamedTuple):
    source: str
    version: str
    digest: str
    files: dict[str, str]
    """Relative path -> hash of each file that can act, as it was when the user agreed to it."""
    enabled: bool
    installed_at: str


class Pending(NamedTuple):
    """A swap that was announced. Directories are told apart by inode: names change hands, inodes don't."""

    inode: int
    was: int
    """The inode before; 0 when there was nothing."""
    staging: str
    record: dict[str, object]


RECORD: Final = RecordFields(Record, "source", "version", "digest", "files", "enabled", "installed_at")
PENDING: Final = RecordFields(Pending, "inode", "was", "staging", "record")


class Lock:
    """The file's content. Entries that can't be used stay as they are until their plugin is changed."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.path = os.path.join(base, FILE)
        self.entries: dict[str, object] = {}
        self.diagnostics: list[Diagnostic] = []
        self.damaged = False
        self.newer = False

    def record(self, name: str) -> Record | None:
        """What is known about the directory that is there now."""
        entry = as_map(self.entries.get(name))
        pending = _pending(entry.get("pending"))
        if pending is None:
            return _record(entry)
        inode = _inode(os.path.join(self.base, name))
        if inode == pending.was:
            return _record(entry)
        announced = _record(pending.record)
        # Neither the old nor the new directory: nobody agreed to this one.
        return announced if announced is None or inode == pending.inode else announced._replace(enabled=False)

    def missing(self, present: set[str]) -> list[Diagnostic]:
        fix = "install it again, or remove it with Kitbag"
        return [
            Diagnostic("warning", "plugin-missing", self.path, 0, f"the directory of {name!r} is gone", fix)
            for name in sorted(self.entries)
            if name not in present and self.record(name)
        ]

    def put(self, name: str, record: Record | None) -> None:
        if record is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = RECORD.write(record)
        self.save()

    def announce(self, name: str, record: Record, staged: str, staging: str) -> None:
        """Before `staged` takes the place of the plugin's directory."""
        inode, was = _inode(staged), _inode(os.path.join(self.base, name))
        pending = Pending(inode, was, os.path.basename(staging), RECORD.write(record))
        self.entries[name] = {**as_map(self.entries.get(name)), "pending": PENDING.write(pending)}
        self.save()

    def settle(self) -> None:
        """Ends what was announced: by what is on the disk, the old or the new record stays."""
        changed = False
        for name, entry in list(self.entries.items()):
            pending = _pending(as_map(entry).get("pending"))
            if pending is None:
                continue
            changed = True
            path = os.path.join(self.base, name)
            old = os.path.join(self.base, pending.staging, OLD)
            if pending.was and not os.path.lexists(path) and _inode(old) == pending.was:
                rename(old, path)
            record = self.record(name) if os.path.lexists(path) else None
            if record is None:
                del self.entries[name]
            else:
                self.entries[name] = RECORD.write(record)
        if changed:
            self.save()

    def save(self) -> None:
        import json
        import tempfile

        try:
            if self.damaged:
                self._set_aside()
            text = json.dumps({"version": VERSION, "plugins": self.entries}, indent=1, sort_keys=True) + "\n"
            descriptor, temporary = tempfile.mkstemp(prefix=f".{FILE}.", dir=self.base)
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(temporary, self.path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
            sync_directory(self.base)
        except OSError as error:
            raise cannot_write(self.path, error) from error

    def _set_aside(self) -> None:
        """A second name for the damaged file; the first one is then replaced."""
        for number in range(1, 1000):
            with contextlib.suppress(FileExistsError):
                os.link(self.path, f"{self.path}.damaged-{number}", follow_symlinks=False)
                self.damaged = False
                return


def read_lock(base: str) -> Lock:
    """Never raises; without a usable file every plugin counts as disabled."""
    lock = Lock(base)
    if not os.path.lexists(lock.path):
        return lock
    value, _, problems = read_json(lock.path, boundary_of(os.path.dirname(lock.path)))
    content = as_map(value)
    plugins = content.get("plugins")
    version = content.get("version")
    if isinstance(version, int) and version > VERSION:
        lock.newer = lock.damaged = True
        fix = "use that Kitbag; until then all plugins are disabled"
        lock.diagnostics.append(_wrong(lock, "written by a newer Kitbag", fix))
        return lock
    if problems or version != VERSION or not isinstance(plugins, dict):
        lock.damaged = True
        fix = "all plugins are disabled; enable them again after reading what they bring, or restore the file"
        reason = problems[0].problem if problems else "not a lock file"
        line = problems[0].line if problems else 0
        lock.diagnostics.append(_wrong(lock, f"damaged: {reason}", fix)._replace(line=line))
        return lock
    lock.entries = cast("dict[str, object]", plugins)
    for name, entry in lock.entries.items():
        if _record(as_map(entry)) is None and _pending(as_map(entry).get("pending")) is None:
            lock.diagnostics.append(_wrong(lock, f"the entry of {name!r} is damaged", "install the plugin again"))
    return lock


@contextlib.contextmanager
def changing(home: str, folder: str) -> Generator[Lock, None, None]:
    """The lock file, for one process at a time; first what a killed one left behind is settled."""
    base = os.path.join(home, folder)
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
        if os.path.islink(base):
            raise InvalidError(f"{base} is a link", "make it a directory: Kitbag changes nothing behind a link")
        with contextlib.suppress(FileExistsError):
            os.mkdir(base, 0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        guard = os.open(os.path.join(base, _GUARD), flags, 0o600)
    except OSError as error:
        raise cannot_write(base, error) from error
    try:
        _wait_for(guard, base)
        lock = read_lock(base)
        if lock.newer:
            raise InvalidError(f"{lock.path} was written by a newer Kitbag", "use that one")
        lock.settle()
        _clean(base)
        try:
            yield lock
        finally:
            _clean(base)
    finally:
        os.close(guard)


def rename(old: str, new: str) -> None:
    try:
        os.rename(old, new)
    except OSError as error:
        raise cannot_write(new, error) from error


def sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _wait_for(guard: int, base: str) -> None:
    import fcntl
    import time

    end = time.monotonic() + _WAIT_SECONDS
    while True:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > end:
                raise KitbagError(f"another Kitbag is changing {base}", "try again when it is done") from error
            time.sleep(0.02)
        except OSError as error:
            raise cannot_write(base, error) from error


def _clean(base: str) -> None:
    """Only the holder of the guard has staging directories, so all that are found are left-overs."""
    import shutil

    with contextlib.suppress(OSError):
        for name in os.listdir(base):
            path = os.path.join(base, name)
            if name.startswith(STAGING):
                shutil.rmtree(path, ignore_errors=True)
            elif name.startswith(f".{FILE}."):
                os.unlink(path)


def _inode(path: str) -> int:
    try:
        return os.lstat(path).st_ino
    except OSError:
        return 0


def _wrong(lock: Lock, problem: str, fix: str) -> Diagnostic:
    return Diagnostic("error", "plugin-lock", lock.path, 0, problem, fix)


def _record(entry: dict[str, object]) -> Record | None:
    words = [entry.get(key) for key in ("source", "version", "digest", "installed_at")]
    files = as_map(entry.get("files"))
    enabled = entry.get("enabled")
    if not all(isinstance(word, str) for word in words) or not isinstance(enabled, bool):
        return None
    if not isinstance(entry.get("files"), dict) or not all(isinstance(value, str) for value in files.values()):
        return None
    source, version, digest, installed_at = cast("list[str]", words)
    return Record(source, version, digest, cast("dict[str, str]", files), enabled, installed_at)


def _pending(value: object) -> Pending | None:
    fields = as_map(value)
    inode, was, staging = (fields.get(key) for key in ("inode", "was", "staging"))
    if not isinstance(inode, int) or not isinstance(was, int) or not isinstance(staging, str):
        return None
    if not staging.startswith(STAGING) or "/" in staging:
        return None
    return Pending(inode, was, staging, as_map(fields.get("record")))
