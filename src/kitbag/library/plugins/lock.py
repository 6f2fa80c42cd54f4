"""`plugins.lock.json`: the source, active files and enabled state of each installed plugin.

Read by installed, changed by store. A swap of a directory is recorded as pending before and completed after
it, so that a crash in between never pairs a record with the wrong files.
"""

import contextlib
import os
from collections.abc import Generator
from typing import Final, NamedTuple, cast

from kitbag.errors import Diagnostic, InvalidError, KitbagError
from kitbag.library.plugins.manifest import as_map, read_json_file
from kitbag.library.plugins.safe_copy import write_error
from kitbag.record_fields import RecordFields
from kitbag.text.source_files import directory_boundary

LOCK_FILE = "plugins.lock.json"
STAGING_PREFIX = ".staging-"
OLD_FOLDER = "old"
LOCK_VERSION = 1
_GUARD_FILE = ".lock"
_TIMEOUT_SECONDS = 30.0


class PluginRecord(NamedTuple):
    source: str
    version: str
    digest: str
    files: dict[str, str]
    """Relative path to hash of each active file, as approved by the user."""
    enabled: bool
    installed_at: str


class PendingSwap(NamedTuple):
    """A swap in progress. Directories are identified by inode, which survives renames."""

    inode: int
    was: int
    """The inode of the replaced directory; 0 if there was none."""
    staging: str
    record: dict[str, object]


PLUGIN_RECORD: Final = RecordFields(PluginRecord, "source", "version", "digest", "files", "enabled", "installed_at")
PENDING_SWAP: Final = RecordFields(PendingSwap, "inode", "was", "staging", "record")


class PluginLock:
    """The content of the lock file. Invalid entries are preserved until their plugin changes."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.path = os.path.join(base, LOCK_FILE)
        self.entries: dict[str, object] = {}
        self.diagnostics: list[Diagnostic] = []
        self.is_damaged = False
        self.is_newer = False

    def record(self, name: str) -> PluginRecord | None:
        """The record of the directory that exists now."""
        entry = as_map(self.entries.get(name))
        pending = _parse_pending(entry.get("pending"))
        if pending is None:
            return _parse_record(entry)
        inode = _inode(os.path.join(self.base, name))
        if inode == pending.was:
            return _parse_record(entry)
        announced = _parse_record(pending.record)
        # Neither the old nor the new directory: the user did not approve it.
        return announced if announced is None or inode == pending.inode else announced._replace(enabled=False)

    def find_missing(self, present: set[str]) -> list[Diagnostic]:
        fix = "reinstall it, or remove it with `kitbag plugins remove`"
        return [
            Diagnostic(
                severity="warning",
                code="plugin-missing",
                file=self.path,
                line=0,
                problem=f"the directory of plugin {name!r} is missing",
                fix=fix,
            )
            for name in sorted(self.entries)
            if name not in present and self.record(name)
        ]

    def set_record(self, name: str, record: PluginRecord | None) -> None:
        if record is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = PLUGIN_RECORD.write(record)
        self.save()

    def begin_swap(self, name: str, record: PluginRecord, staged: str, staging: str) -> None:
        """Records the swap before `staged` replaces the plugin's directory."""
        inode, was = _inode(staged), _inode(os.path.join(self.base, name))
        pending = PendingSwap(
            inode=inode, was=was, staging=os.path.basename(staging), record=PLUGIN_RECORD.write(record)
        )
        self.entries[name] = {**as_map(self.entries.get(name)), "pending": PENDING_SWAP.write(pending)}
        self.save()

    def finish_swaps(self) -> None:
        """Completes pending swaps: keeps the old or the new record, depending on the directory on disk."""
        has_changed = False
        for name, entry in list(self.entries.items()):
            pending = _parse_pending(as_map(entry).get("pending"))
            if pending is None:
                continue
            has_changed = True
            path = os.path.join(self.base, name)
            old_path = os.path.join(self.base, pending.staging, OLD_FOLDER)
            if pending.was and not os.path.lexists(path) and _inode(old_path) == pending.was:
                rename_path(old_path, path)
            record = self.record(name) if os.path.lexists(path) else None
            if record is None:
                del self.entries[name]
            else:
                self.entries[name] = PLUGIN_RECORD.write(record)
        if has_changed:
            self.save()

    def save(self) -> None:
        import json
        import tempfile

        try:
            if self.is_damaged:
                self._set_aside()
            text = json.dumps({"version": LOCK_VERSION, "plugins": self.entries}, indent=1, sort_keys=True) + "\n"
            descriptor, temporary = tempfile.mkstemp(prefix=f".{LOCK_FILE}.", dir=self.base)
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
            raise write_error(self.path, error) from error

    def _set_aside(self) -> None:
        """Keeps the damaged file under a second name before it is replaced."""
        for number in range(1, 1000):
            with contextlib.suppress(FileExistsError):
                os.link(self.path, f"{self.path}.damaged-{number}", follow_symlinks=False)
                self.is_damaged = False
                return


def read_lock(base: str) -> PluginLock:
    """Never raises; without a valid file every plugin is disabled."""
    lock = PluginLock(base)
    if not os.path.lexists(lock.path):
        return lock
    value, _, problems = read_json_file(lock.path, directory_boundary(os.path.dirname(lock.path)))
    content = as_map(value)
    plugins = content.get("plugins")
    version = content.get("version")
    if isinstance(version, int) and version > LOCK_VERSION:
        lock.is_newer = lock.is_damaged = True
        fix = "upgrade Kitbag; until then all plugins are disabled"
        lock.diagnostics.append(_lock_diagnostic(lock, "written by a newer version of Kitbag", fix))
        return lock
    if problems or version != LOCK_VERSION or not isinstance(plugins, dict):
        lock.is_damaged = True
        fix = "all plugins are disabled; restore the file, or review the plugins and enable them again"
        reason = problems[0].problem if problems else "not a lock file"
        line = problems[0].line if problems else 0
        lock.diagnostics.append(_lock_diagnostic(lock, f"not usable: {reason}", fix)._replace(line=line))
        return lock
    lock.entries = cast("dict[str, object]", plugins)
    for name, entry in lock.entries.items():
        if _parse_record(as_map(entry)) is None and _parse_pending(as_map(entry).get("pending")) is None:
            lock.diagnostics.append(
                _lock_diagnostic(lock, f"the entry for plugin {name!r} is not valid", "reinstall the plugin")
            )
    return lock


@contextlib.contextmanager
def locked_for_change(home: str, folder: str) -> Generator[PluginLock, None, None]:
    """The lock file, exclusively locked; completes and removes what a crashed process left behind."""
    base = os.path.join(home, folder)
    try:
        os.makedirs(home, mode=0o700, exist_ok=True)
        if os.path.islink(base):
            raise InvalidError(
                f"{base} is a symbolic link", "replace it with a directory; Kitbag does not write through links"
            )
        with contextlib.suppress(FileExistsError):
            os.mkdir(base, 0o700)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        guard = os.open(os.path.join(base, _GUARD_FILE), flags, 0o600)
    except OSError as error:
        raise write_error(base, error) from error
    try:
        _acquire(guard, base)
        lock = read_lock(base)
        if lock.is_newer:
            raise InvalidError(f"{lock.path} was written by a newer version of Kitbag", "upgrade Kitbag")
        lock.finish_swaps()
        _remove_leftovers(base)
        try:
            yield lock
        finally:
            _remove_leftovers(base)
    finally:
        os.close(guard)


def rename_path(old: str, new: str) -> None:
    try:
        os.rename(old, new)
    except OSError as error:
        raise write_error(new, error) from error


def sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _acquire(guard: int, base: str) -> None:
    import fcntl
    import time

    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while True:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise KitbagError(
                    f"{base} is locked by another Kitbag process", "retry when it has finished"
                ) from error
            time.sleep(0.02)
        except OSError as error:
            raise write_error(base, error) from error


def _remove_leftovers(base: str) -> None:
    """Only the holder of the guard has staging directories, so any that exist are leftovers."""
    import shutil

    with contextlib.suppress(OSError):
        for name in os.listdir(base):
            path = os.path.join(base, name)
            if name.startswith(STAGING_PREFIX):
                shutil.rmtree(path, ignore_errors=True)
            elif name.startswith(f".{LOCK_FILE}."):
                os.unlink(path)


def _inode(path: str) -> int:
    try:
        return os.lstat(path).st_ino
    except OSError:
        return 0


def _lock_diagnostic(lock: PluginLock, problem: str, fix: str) -> Diagnostic:
    return Diagnostic(severity="error", code="plugin-lock", file=lock.path, line=0, problem=problem, fix=fix)


def _parse_record(entry: dict[str, object]) -> PluginRecord | None:
    texts = [entry.get(key) for key in ("source", "version", "digest", "installed_at")]
    files = as_map(entry.get("files"))
    enabled = entry.get("enabled")
    if not all(isinstance(text, str) for text in texts) or not isinstance(enabled, bool):
        return None
    if not isinstance(entry.get("files"), dict) or not all(isinstance(value, str) for value in files.values()):
        return None
    source, version, digest, installed_at = cast("list[str]", texts)
    return PluginRecord(
        source=source,
        version=version,
        digest=digest,
        files=cast("dict[str, str]", files),
        enabled=enabled,
        installed_at=installed_at,
    )


def _parse_pending(value: object) -> PendingSwap | None:
    fields = as_map(value)
    inode, was, staging = (fields.get(key) for key in ("inode", "was", "staging"))
    if not isinstance(inode, int) or not isinstance(was, int) or not isinstance(staging, str):
        return None
    if not staging.startswith(STAGING_PREFIX) or "/" in staging:
        return None
    return PendingSwap(inode=inode, was=was, staging=staging, record=as_map(fields.get("record")))
