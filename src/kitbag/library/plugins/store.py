"""Changes what is installed below `<home>/plugins`: install, update, enable, disable, remove, verify.

Used by the command line and by doctor. Everything is staged beside its destination and swapped in one step
under the lock of plugin_lock; files are taken in by intake and archives, where and what by marketplace.
"""

import os
from typing import NamedTuple

from kitbag.errors import AmbiguousError, Diagnostic, InvalidError, NotFoundError, UsageError
from kitbag.library.plugins.fingerprint import Change, Fingerprint, changes, fingerprint
from kitbag.library.plugins.installed import FOLDER, Plugin, read_plugin, wrong_with_plugin_name
from kitbag.library.plugins.lock import OLD, STAGING, Lock, Record, changing, read_lock, rename, sync_directory
from kitbag.library.plugins.marketplace import Choice, choose, describes_plugin, write_manifest
from kitbag.library.plugins.safe_copy import DIRECTORY_MODE, Intake, cannot_write, copy_tree
from kitbag.library.scopes import check_named_path

_NEW = "new"
_REMOTE = ("://", "git@", "github:", "npm:")
_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")


class InstallResult(NamedTuple):
    plugin: Plugin
    updated: bool
    changed: tuple[Change, ...]
    """What can act and is not as it was: then the plugin is disabled until the user agrees."""
    diagnostics: tuple[Diagnostic, ...]


def install(source: str, home: str, *, plugin: str | None = None, update: bool = False) -> InstallResult:
    """From a directory or an archive; `plugin` chooses one of a marketplace. Nothing is executed.

    Raises UsageError, NotFoundError or InvalidError, and then everything is as it was.
    """
    _check_source(source, home)
    with changing(home, FOLDER) as lock:
        staging = _stage(lock)
        tree, origin = _unpacked(source, staging)
        choice = choose(tree, plugin)
        found = _usable(choice)
        target = _target(lock, found.name, update)
        staged = _copied(choice, staging, origin)
        new, _ = read_plugin(staged, found.name)
        if new is None:
            raise InvalidError(f"{origin}: it changed while it was read", "try again")
        at = os.path.abspath(source) + (f"#{plugin}" if choice.listed else "")
        record, changed = _agreed(lock, new, _fingerprint(staged), at, update and os.path.lexists(target))
        existed = _swap(lock, found.name, record, staged, staging)
        # Read again where it lies now: the paths in it are absolute.
        final, diagnostics = read_plugin(target, found.name)
        return InstallResult(_with(final or new, record), existed, tuple(changed), tuple(diagnostics))


def set_enabled(home: str, name: str, enabled: bool, *, accept: bool = False) -> Plugin:
    """Enabling compares the files with what was installed; `accept` agrees to what is there now."""
    _check_installed(home, name)
    with changing(home, FOLDER) as lock:
        name = _find(lock, name)
        path = _directory(lock, name)
        record = lock.record(name)
        found, _ = read_plugin(path, name)
        if found is None:
            raise InvalidError(f"{path} holds no plugin", "install it again")
        if enabled:
            record = _approved(name, path, record, found, accept)
        elif record is None:
            return found
        record = record._replace(enabled=enabled)
        lock.put(name, record)
        return _with(found, record)


def remove(home: str, name: str) -> None:
    """Its directory and its entry in the lock file. A killed removal leaves nothing that is listed."""
    _check_installed(home, name)
    with changing(home, FOLDER) as lock:
        name = _find(lock, name)
        path = os.path.join(lock.base, name)
        if os.path.lexists(path):
            rename(_directory(lock, name), os.path.join(_stage(lock), OLD))
        lock.put(name, None)


def verify(home: str, name: str) -> list[Change]:
    """What is not as it was installed. Reads every file of the plugin."""
    _check_installed(home, name)
    lock = read_lock(os.path.join(home, FOLDER))
    name = _find(lock, name)
    path = _directory(lock, name)
    record = lock.record(name)
    now = _fingerprint(path)
    return _differences(record, now)


# --- installing -----------------------------------------------------------------------------------


def _check_source(source: str, home: str) -> None:
    if not os.path.exists(source):
        if any(word in source for word in _REMOTE):
            raise UsageError(f"{source} is not on this machine; only local sources are installed", "download it first")
        raise NotFoundError(f"{os.path.abspath(source)} does not exist", "give a directory or an archive")
    check_named_path(source)
    inside = os.path.realpath(os.path.join(home, FOLDER)) + os.sep
    if os.path.isdir(source) and inside.startswith(os.path.realpath(source).rstrip(os.sep) + os.sep):
        raise UsageError(f"{source} holds Kitbag's own plugins", "give the directory of one plugin")


def _stage(lock: Lock) -> str:
    import tempfile

    try:
        return tempfile.mkdtemp(prefix=STAGING, dir=lock.base)
    except OSError as error:
        raise cannot_write(lock.base, error) from error


def _unpacked(source: str, staging: str) -> tuple[str, str]:
    """The directory to read, and what to call it in an error."""
    real = os.path.realpath(source)
    origin = os.path.basename(real)
    if os.path.isdir(real):
        return real, origin
    from kitbag.library.plugins.archives import unpack

    stem = origin
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if stem.lower().endswith(suffix):
            stem = stem[: -len(suffix)]
            break
    # A name that no plugin can have: then the manifest must say one.
    stem = ".package" if wrong_with_plugin_name(stem) else stem
    top = os.path.join(staging, "unpacked", stem)
    unpack(source, top)
    found = [name for name in os.listdir(top) if name not in ("__MACOSX", ".DS_Store")]
    below = os.path.join(top, found[0]) if len(found) == 1 else ""
    only_folder = below and os.path.isdir(below) and found[0] not in ("skills", "agents", "commands", ".claude-plugin")
    return (below if only_folder else top), origin


def _usable(choice: Choice) -> Plugin:
    """Before anything is copied."""
    found, problems = read_plugin(choice.tree, choice.listed or None, describes_plugin(choice.manifest))
    for problem in problems:
        # A listed plugin has a good name already; its own manifest may still not have a bad one.
        if problem.code == "bad-name" or found is None:
            raise InvalidError(f"{problem.place}: {problem.problem}", problem.fix)
    if found is None:
        raise InvalidError(f"{choice.tree}: not a plugin", "give the directory of a plugin")
    return found


def _copied(choice: Choice, staging: str, origin: str) -> str:
    staged = os.path.join(staging, _NEW)
    try:
        os.mkdir(staged)
        os.chmod(staged, DIRECTORY_MODE)
    except OSError as error:
        raise cannot_write(staged, error) from error
    copy_tree(choice.tree, Intake(staged, origin))
    if choice.manifest is not None:
        write_manifest(staged, choice)
    return staged


def _target(lock: Lock, name: str, update: bool) -> str:
    path = os.path.join(lock.base, name)
    for other in {*os.listdir(lock.base), *lock.entries}:
        if other != name and other.casefold() == name.casefold():
            raise UsageError(f"{other} is installed, and {name} differs from it only in case", f"remove {other} first")
    if os.path.islink(path) or (os.path.lexists(path) and not os.path.isdir(path)):
        raise InvalidError(f"{path} is in the way: it is no directory", "remove it")
    if os.path.lexists(path) and not update:
        raise UsageError(f"the plugin {name} is already installed", "add --update to replace it, or remove it first")
    return path


def _agreed(lock: Lock, new: Plugin, now: Fingerprint, source: str, existed: bool) -> tuple[Record, list[Change]]:
    """The record to keep, and what the user has not agreed to yet."""
    import time

    before = lock.record(new.name) if existed else None
    changed = changes(before.files if before else {}, now.acting) if existed else []
    enabled = bool(before and before.enabled and not changed) if existed else new.default_enabled
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Record(source, new.version, now.digest, now.acting, enabled, when), changed


def _swap(lock: Lock, name: str, record: Record, staged: str, staging: str) -> bool:
    """Puts the staged directory in place; whether there was one before."""
    target = os.path.join(lock.base, name)
    existed = os.path.lexists(target)
    lock.announce(name, record, staged, staging)
    try:
        if not existed:
            os.rename(staged, target)
        elif not _exchange(staged, target):
            # The old one is put back by `settle` should this be the last thing that happens.
            os.rename(target, os.path.join(staging, OLD))
            os.rename(staged, target)
        sync_directory(lock.base)
    except OSError as error:
        raise cannot_write(target, error) from error
    finally:
        lock.settle()
    return existed


def _exchange(one: str, other: str) -> bool:
    """Both directories change names in one step; False where the system can't."""
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    here, exchange = -100, 2
    return call(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0


def _with(plugin: Plugin, record: Record) -> Plugin:
    return plugin._replace(
        enabled=record.enabled, source=record.source, digest=record.digest, installed_at=record.installed_at
    )


# --- what is installed ----------------------------------------------------------------------------


def _check_installed(home: str, name: str) -> None:
    problem = wrong_with_plugin_name(name)
    if problem:
        raise UsageError(f"{name!r} is no plugin's name: {problem}", "kitbag plugins list shows all names")
    if not os.path.isdir(os.path.join(home, FOLDER)):
        raise NotFoundError(f"no plugin is called {name!r}: none is installed", "install one first")


def _find(lock: Lock, name: str) -> str:
    """The name as it is spelled on the disk."""
    known = sorted(entry for entry in {*os.listdir(lock.base), *lock.entries} if not wrong_with_plugin_name(entry))
    same = [name] if name in known else [entry for entry in known if entry.casefold() == name.casefold()]
    if len(same) == 1:
        return same[0]
    if same:
        raise AmbiguousError(f"{name!r} could be any of: {', '.join(same)}", "use the exact name")
    import difflib

    close = difflib.get_close_matches(name, known, n=5, cutoff=0.6)
    hint = f"did you mean {', '.join(close)}?" if close else "kitbag plugins list shows all names"
    raise NotFoundError(f"no plugin is called {name!r}", hint)


def _directory(lock: Lock, name: str) -> str:
    path = os.path.join(lock.base, name)
    if os.path.islink(path) or not os.path.isdir(path):
        raise InvalidError(f"{path} is not a directory", "look at what it is, and remove it yourself")
    return path


def _fingerprint(path: str) -> Fingerprint:
    try:
        return fingerprint(path)
    except OSError as error:
        raise InvalidError(f"{path}: can't be read: {error.strerror}", "install the plugin again") from error


def _differences(record: Record | None, now: Fingerprint) -> list[Change]:
    found = changes(record.files if record else {}, now.acting)
    if not found and (record is None or record.digest != now.digest):
        found.append(Change("~", "*"))
    return found


def _approved(name: str, path: str, record: Record | None, found: Plugin, accept: bool) -> Record:
    now = _fingerprint(path)
    differences = _differences(record, now)
    if differences and not accept:
        listed = ", ".join(str(change) for change in differences[:10])
        more = f" and {len(differences) - 10} more" if len(differences) > 10 else ""
        raise InvalidError(
            f"{name} is not as it was installed: {listed}{more}",
            "read these files, then accept the changes, or install the plugin again",
        )
    if record is None:
        return Record("", found.version, now.digest, now.acting, False, "")
    return record._replace(digest=now.digest, files=now.acting)
