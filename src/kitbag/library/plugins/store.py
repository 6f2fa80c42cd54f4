"""Changes what is installed below `<home>/plugins`: install, update, enable, disable, remove, verify.

Used by the command line and by doctor. Everything is staged beside its destination and swapped in one step
under the lock of plugin_lock; files are taken in by intake and archives, where and what by marketplace.
"""

import os
from typing import NamedTuple

from kitbag.errors import AmbiguousError, Diagnostic, InvalidError, NotFoundError, UsageError
from kitbag.library.plugins.fingerprint import PluginFileChange, PluginFingerprint, diff_files, fingerprint_tree
from kitbag.library.plugins.installed import PLUGINS_FOLDER, Plugin, plugin_name_problem, read_plugin
from kitbag.library.plugins.lock import (
    OLD_FOLDER,
    STAGING_PREFIX,
    PluginLock,
    PluginRecord,
    locked_for_change,
    read_lock,
    rename_path,
    sync_directory,
)
from kitbag.library.plugins.marketplace import PluginSource, choose_plugin, lists_components, write_manifest
from kitbag.library.plugins.safe_copy import DIRECTORY_MODE, PackageWriter, copy_tree, write_error
from kitbag.library.scopes import check_path_links

_NEW_FOLDER = "new"
_REMOTE_MARKERS = ("://", "git@", "github:", "npm:")
_ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")


class InstallResult(NamedTuple):
    plugin: Plugin
    updated: bool
    changed: tuple[PluginFileChange, ...]
    """What can act and is not as it was: then the plugin is disabled until the user agrees."""
    diagnostics: tuple[Diagnostic, ...]


def install_plugin(source: str, home: str, *, plugin: str | None = None, update: bool = False) -> InstallResult:
    """From a directory or an archive; `plugin` chooses one of a marketplace. Nothing is executed.

    Raises UsageError, NotFoundError or InvalidError, and then everything is as it was.
    """
    _check_source(source, home)
    with locked_for_change(home, PLUGINS_FOLDER) as lock:
        staging = _create_staging(lock)
        tree, origin = _unpack_source(source, staging)
        choice = choose_plugin(tree, plugin)
        found = _check_plugin(choice)
        target = _target_path(lock, found.name, update)
        staged = _stage_copy(choice, staging, origin)
        new, _ = read_plugin(staged, found.name)
        if new is None:
            raise InvalidError(f"{origin}: it changed while it was read", "try again")
        at = os.path.abspath(source) + (f"#{plugin}" if choice.listed_name else "")
        record, changed = _make_record(lock, new, _fingerprint_plugin(staged), at, update and os.path.lexists(target))
        existed = _swap(lock, found.name, record, staged, staging)
        # Read again where it lies now: the paths in it are absolute.
        final, diagnostics = read_plugin(target, found.name)
        return InstallResult(_with_record(final or new, record), existed, tuple(changed), tuple(diagnostics))


def set_plugin_enabled(home: str, name: str, enabled: bool, *, accept: bool = False) -> Plugin:
    """Enabling compares the files with what was installed; `accept` agrees to what is there now."""
    _check_installed(home, name)
    with locked_for_change(home, PLUGINS_FOLDER) as lock:
        name = _find_name(lock, name)
        path = _plugin_directory(lock, name)
        record = lock.record(name)
        found, _ = read_plugin(path, name)
        if found is None:
            raise InvalidError(f"{path} holds no plugin", "install it again")
        if enabled:
            record = _approve_changes(name, path, record, found, accept)
        elif record is None:
            return found
        record = record._replace(enabled=enabled)
        lock.set_record(name, record)
        return _with_record(found, record)


def remove_plugin(home: str, name: str) -> None:
    """Its directory and its entry in the lock file. A killed removal leaves nothing that is listed."""
    _check_installed(home, name)
    with locked_for_change(home, PLUGINS_FOLDER) as lock:
        name = _find_name(lock, name)
        path = os.path.join(lock.base, name)
        if os.path.lexists(path):
            rename_path(_plugin_directory(lock, name), os.path.join(_create_staging(lock), OLD_FOLDER))
        lock.set_record(name, None)


def verify_plugin(home: str, name: str) -> list[PluginFileChange]:
    """What is not as it was installed. Reads every file of the plugin."""
    _check_installed(home, name)
    lock = read_lock(os.path.join(home, PLUGINS_FOLDER))
    name = _find_name(lock, name)
    path = _plugin_directory(lock, name)
    record = lock.record(name)
    now = _fingerprint_plugin(path)
    return _diff_record(record, now)


# --- installing -----------------------------------------------------------------------------------


def _check_source(source: str, home: str) -> None:
    if not os.path.exists(source):
        if any(word in source for word in _REMOTE_MARKERS):
            raise UsageError(f"{source} is not on this machine; only local sources are installed", "download it first")
        raise NotFoundError(f"{os.path.abspath(source)} does not exist", "give a directory or an archive")
    check_path_links(source)
    inside = os.path.realpath(os.path.join(home, PLUGINS_FOLDER)) + os.sep
    if os.path.isdir(source) and inside.startswith(os.path.realpath(source).rstrip(os.sep) + os.sep):
        raise UsageError(f"{source} holds Kitbag's own plugins", "give the directory of one plugin")


def _create_staging(lock: PluginLock) -> str:
    import tempfile

    try:
        return tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=lock.base)
    except OSError as error:
        raise write_error(lock.base, error) from error


def _unpack_source(source: str, staging: str) -> tuple[str, str]:
    """The directory to read, and what to call it in an error."""
    real = os.path.realpath(source)
    origin = os.path.basename(real)
    if os.path.isdir(real):
        return real, origin
    from kitbag.library.plugins.archives import unpack_archive

    stem = origin
    for suffix in sorted(_ARCHIVE_SUFFIXES, key=len, reverse=True):
        if stem.lower().endswith(suffix):
            stem = stem[: -len(suffix)]
            break
    # A name that no plugin can have: then the manifest must say one.
    stem = ".package" if plugin_name_problem(stem) else stem
    top = os.path.join(staging, "unpacked", stem)
    unpack_archive(source, top)
    found = [name for name in os.listdir(top) if name not in ("__MACOSX", ".DS_Store")]
    below = os.path.join(top, found[0]) if len(found) == 1 else ""
    only_folder = below and os.path.isdir(below) and found[0] not in ("skills", "agents", "commands", ".claude-plugin")
    return (below if only_folder else top), origin


def _check_plugin(choice: PluginSource) -> Plugin:
    """Before anything is copied."""
    found, problems = read_plugin(choice.tree, choice.listed_name or None, lists_components(choice.manifest))
    for problem in problems:
        # A listed plugin has a good name already; its own manifest may still not have a bad one.
        if problem.code == "bad-name" or found is None:
            raise InvalidError(f"{problem.place}: {problem.problem}", problem.fix)
    if found is None:
        raise InvalidError(f"{choice.tree}: not a plugin", "give the directory of a plugin")
    return found


def _stage_copy(choice: PluginSource, staging: str, origin: str) -> str:
    staged = os.path.join(staging, _NEW_FOLDER)
    try:
        os.mkdir(staged)
        os.chmod(staged, DIRECTORY_MODE)
    except OSError as error:
        raise write_error(staged, error) from error
    copy_tree(choice.tree, PackageWriter(staged, origin))
    if choice.manifest is not None:
        write_manifest(staged, choice)
    return staged


def _target_path(lock: PluginLock, name: str, update: bool) -> str:
    path = os.path.join(lock.base, name)
    for other in {*os.listdir(lock.base), *lock.entries}:
        if other != name and other.casefold() == name.casefold():
            raise UsageError(f"{other} is installed, and {name} differs from it only in case", f"remove {other} first")
    if os.path.islink(path) or (os.path.lexists(path) and not os.path.isdir(path)):
        raise InvalidError(f"{path} is in the way: it is no directory", "remove it")
    if os.path.lexists(path) and not update:
        raise UsageError(f"the plugin {name} is already installed", "add --update to replace it, or remove it first")
    return path


def _make_record(
    lock: PluginLock, new: Plugin, now: PluginFingerprint, source: str, existed: bool
) -> tuple[PluginRecord, list[PluginFileChange]]:
    """The record to keep, and what the user has not agreed to yet."""
    import time

    before = lock.record(new.name) if existed else None
    changed = diff_files(before.files if before else {}, now.active_files) if existed else []
    enabled = bool(before and before.enabled and not changed) if existed else new.default_enabled
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return PluginRecord(source, new.version, now.digest, now.active_files, enabled, when), changed


def _swap(lock: PluginLock, name: str, record: PluginRecord, staged: str, staging: str) -> bool:
    """Puts the staged directory in place; whether there was one before."""
    target = os.path.join(lock.base, name)
    existed = os.path.lexists(target)
    lock.begin_swap(name, record, staged, staging)
    try:
        if not existed:
            os.rename(staged, target)
        elif not _exchange_directories(staged, target):
            # The old one is put back by `settle` should this be the last thing that happens.
            os.rename(target, os.path.join(staging, OLD_FOLDER))
            os.rename(staged, target)
        sync_directory(lock.base)
    except OSError as error:
        raise write_error(target, error) from error
    finally:
        lock.finish_swaps()
    return existed


def _exchange_directories(one: str, other: str) -> bool:
    """Both directories change names in one step; False where the system can't."""
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    here, exchange = -100, 2
    return call(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0


def _with_record(plugin: Plugin, record: PluginRecord) -> Plugin:
    return plugin._replace(
        enabled=record.enabled, source=record.source, digest=record.digest, installed_at=record.installed_at
    )


# --- what is installed ----------------------------------------------------------------------------


def _check_installed(home: str, name: str) -> None:
    problem = plugin_name_problem(name)
    if problem:
        raise UsageError(f"{name!r} is no plugin's name: {problem}", "kitbag plugins list shows all names")
    if not os.path.isdir(os.path.join(home, PLUGINS_FOLDER)):
        raise NotFoundError(f"no plugin is called {name!r}: none is installed", "install one first")


def _find_name(lock: PluginLock, name: str) -> str:
    """The name as it is spelled on the disk."""
    known = sorted(entry for entry in {*os.listdir(lock.base), *lock.entries} if not plugin_name_problem(entry))
    same = [name] if name in known else [entry for entry in known if entry.casefold() == name.casefold()]
    if len(same) == 1:
        return same[0]
    if same:
        raise AmbiguousError(f"{name!r} could be any of: {', '.join(same)}", "use the exact name")
    import difflib

    close = difflib.get_close_matches(name, known, n=5, cutoff=0.6)
    hint = f"did you mean {', '.join(close)}?" if close else "kitbag plugins list shows all names"
    raise NotFoundError(f"no plugin is called {name!r}", hint)


def _plugin_directory(lock: PluginLock, name: str) -> str:
    path = os.path.join(lock.base, name)
    if os.path.islink(path) or not os.path.isdir(path):
        raise InvalidError(f"{path} is not a directory", "look at what it is, and remove it yourself")
    return path


def _fingerprint_plugin(path: str) -> PluginFingerprint:
    try:
        return fingerprint_tree(path)
    except OSError as error:
        raise InvalidError(f"{path}: can't be read: {error.strerror}", "install the plugin again") from error


def _diff_record(record: PluginRecord | None, now: PluginFingerprint) -> list[PluginFileChange]:
    found = diff_files(record.files if record else {}, now.active_files)
    if not found and (record is None or record.digest != now.digest):
        found.append(PluginFileChange("~", "*"))
    return found


def _approve_changes(name: str, path: str, record: PluginRecord | None, found: Plugin, accept: bool) -> PluginRecord:
    now = _fingerprint_plugin(path)
    differences = _diff_record(record, now)
    if differences and not accept:
        listed = ", ".join(str(change) for change in differences[:10])
        more = f" and {len(differences) - 10} more" if len(differences) > 10 else ""
        raise InvalidError(
            f"{name} is not as it was installed: {listed}{more}",
            "read these files, then accept the changes, or install the plugin again",
        )
    if record is None:
        return PluginRecord("", found.version, now.digest, now.active_files, False, "")
    return record._replace(digest=now.digest, files=now.active_files)
