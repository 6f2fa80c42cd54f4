"""Installs, updates, enables, disables, removes and verifies plugins below `<home>/plugins`.

Used by the command line and doctor. New files are staged next to the destination and swapped in atomically
under the lock file. Uses marketplace to select, archives and safe_copy to copy, fingerprint to compare.
"""

import contextlib
import os
import re
from collections.abc import Generator

import msgspec

from kitbag.errors import AmbiguousError, Diagnostic, InvalidError, KitbagError, NotFoundError, UsageError
from kitbag.library.plugins.fingerprint import PluginFileChange, PluginFingerprint, diff_files, fingerprint_tree
from kitbag.library.plugins.installed import PLUGINS_FOLDER
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
from kitbag.library.plugins.manifest import MANIFESTS, Plugin, plugin_name_problem, read_plugin
from kitbag.library.plugins.marketplace import (
    PluginSource,
    choose_plugin,
    copy_shared_components,
    download_fix,
    lists_components,
    source_url,
    write_manifest,
)
from kitbag.library.plugins.safe_copy import DIRECTORY_MODE, PackageWriter, copy_tree, write_error
from kitbag.library.scopes import check_path_links

_NEW_FOLDER = "new"
_GITHUB_NAME = re.compile(r"[A-Za-z0-9][\w-]*/[\w.-]+")
_REMOTE_MARKERS = ("://", "git@", "github:", "npm:")
_PLUGIN_FOLDERS = frozenset(("skills", "agents", "commands", *(path.split("/")[0] for path in MANIFESTS)))
_ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")


class InstallResult(msgspec.Struct, frozen=True, kw_only=True):
    plugin: Plugin
    updated: bool
    changed: tuple[PluginFileChange, ...]
    """Changes of active content; if there are any, the plugin is disabled until the user approves."""
    diagnostics: tuple[Diagnostic, ...]


def install_plugin(source: str, home: str, *, plugin: str | None = None, update: bool = False) -> InstallResult:
    """Installs from a directory or an archive; `plugin` selects one from a marketplace. Nothing is executed.

    Raises UsageError, NotFoundError or InvalidError; then nothing has changed.
    """
    _check_source(source, home)
    with locked_for_change(home, PLUGINS_FOLDER) as lock:
        staging = _create_staging(lock)
        tree, origin, skipped = _unpack_source(source, staging)
        with _name_archive(source, staging):
            selected = choose_plugin(tree, plugin)
            found = _check_plugin(selected)
        target = _target_path(lock, found.name, update)
        staged = _stage_copy(selected, staging, origin, tree, skipped)
        new, _ = read_plugin(staged, found.name)
        if new is None:
            raise InvalidError(f"{origin} changed while it was being read", "retry")
        recorded_source = os.path.abspath(source) + (f"#{selected.listed_name}" if selected.listed_name else "")
        record, changed = _make_record(
            lock, new, _fingerprint_plugin(staged), recorded_source, update and os.path.lexists(target)
        )
        existed = _swap(lock, found.name, record, staged, staging)
        # Read again at its final location, because its paths are absolute.
        final, diagnostics = read_plugin(target, found.name)
        return InstallResult(
            plugin=_with_record(final or new, record),
            updated=existed,
            changed=tuple(changed),
            diagnostics=(*(_skipped_file(origin, *file) for file in dict.fromkeys(skipped)), *diagnostics),
        )


def _skipped_file(origin: str, name: str, reason: str) -> Diagnostic:
    return Diagnostic(
        severity="warning",
        code="file-skipped" if reason.startswith("named like") else "link-skipped",
        file=f"{origin}/{name}",
        line=0,
        problem=f"not installed: {reason}",
        fix="no action needed if the plugin works without it",
    )


def set_plugin_enabled(home: str, name: str, enabled: bool, *, accept: bool = False) -> Plugin:
    """Enabling compares the files with the approved ones; `accept` approves the current ones."""
    _check_installed(home, name)
    with locked_for_change(home, PLUGINS_FOLDER) as lock:
        name = _find_name(lock, name)
        path = _plugin_directory(lock, name)
        record = lock.record(name)
        found, _ = read_plugin(path, name)
        if found is None:
            raise InvalidError(f"{path} is not a plugin", "reinstall it")
        if enabled:
            record = _approve_changes(name, path, record, found, accept)
        elif record is None:
            return found
        record = record._replace(enabled=enabled)
        lock.set_record(name, record)
        return _with_record(found, record)


def remove_plugin(home: str, name: str) -> None:
    """Removes its directory and lock entry. An interrupted removal leaves nothing that is listed."""
    _check_installed(home, name)
    with locked_for_change(home, PLUGINS_FOLDER) as lock:
        name = _find_name(lock, name)
        path = os.path.join(lock.base, name)
        if os.path.lexists(path):
            rename_path(_plugin_directory(lock, name), os.path.join(_create_staging(lock), OLD_FOLDER))
        lock.set_record(name, None)


def verify_plugin(home: str, name: str) -> list[PluginFileChange]:
    """The changes since installation. Reads every file of the plugin."""
    _check_installed(home, name)
    lock = read_lock(os.path.join(home, PLUGINS_FOLDER))
    name = _find_name(lock, name)
    path = _plugin_directory(lock, name)
    record = lock.record(name)
    current = _fingerprint_plugin(path)
    return _diff_record(record, current)


# --- installing -----------------------------------------------------------------------------------


def _check_source(source: str, home: str) -> None:
    if not os.path.exists(source):
        if any(word in source for word in _REMOTE_MARKERS):
            url = source_url(source)
            problem = (
                f"{source} is a remote source{'' if url == source else f' ({url})'}; only local sources are supported"
            )
            raise UsageError(problem, download_fix(source))
        fix = "specify a directory or an archive"
        if _GITHUB_NAME.fullmatch(source):
            fix = f"for the GitHub repository, {download_fix(f'github:{source}')}"
        raise NotFoundError(f"{os.path.abspath(source)} does not exist", fix)
    check_path_links(source)
    inside = os.path.realpath(os.path.join(home, PLUGINS_FOLDER)) + os.sep
    if os.path.isdir(source) and inside.startswith(os.path.realpath(source).rstrip(os.sep) + os.sep):
        raise UsageError(f"{source} is the directory of installed plugins", "specify the directory of a single plugin")


def _create_staging(lock: PluginLock) -> str:
    import tempfile

    try:
        return tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=lock.base)
    except OSError as error:
        raise write_error(lock.base, error) from error


def _unpack_source(source: str, staging: str) -> tuple[str, str, list[tuple[str, str]]]:
    """The directory to read, its name for error messages, and what was not unpacked, with the reason."""
    real = os.path.realpath(source)
    origin = os.path.basename(real)
    if os.path.isdir(real):
        return real, origin, []
    from kitbag.library.plugins.archives import unpack_archive

    stem = origin
    for suffix in sorted(_ARCHIVE_SUFFIXES, key=len, reverse=True):
        if stem.lower().endswith(suffix):
            stem = stem[: -len(suffix)]
            break
    # Not a valid plugin name, so the manifest must declare one.
    stem = ".package" if plugin_name_problem(stem) else stem
    top = os.path.join(staging, "unpacked", stem)
    skipped = unpack_archive(source, top)
    entries = [name for name in os.listdir(top) if name not in ("__MACOSX", ".DS_Store")]
    subfolder = os.path.join(top, entries[0]) if len(entries) == 1 else ""
    is_single_folder = subfolder and os.path.isdir(subfolder) and entries[0] not in _PLUGIN_FOLDERS
    return (subfolder if is_single_folder else top), origin, skipped


@contextlib.contextmanager
def _name_archive(source: str, staging: str) -> Generator[None, None, None]:
    """Errors name the archive, not the directory that it was unpacked to."""
    try:
        yield
    except KitbagError as error:
        unpacked = re.compile(rf"{re.escape(staging)}/unpacked/[^/:\s]+")
        problem = unpacked.sub(lambda _: os.path.abspath(source), error.problem)
        raise type(error)(problem, error.fix) from error


def _check_plugin(source: PluginSource) -> Plugin:
    """Checks the plugin before anything is copied."""
    found, problems = read_plugin(source.tree, source.listed_name or None, lists_components(source.manifest))
    for problem in problems:
        # A listed plugin already has a valid name, but its own manifest must not declare an invalid one.
        if problem.code == "bad-name" or found is None:
            raise InvalidError(f"{problem.place}: {problem.problem}", problem.fix)
    if found is None:
        raise InvalidError(f"{source.tree} is not a plugin", "specify the directory of a plugin")
    return found


def _stage_copy(source: PluginSource, staging: str, origin: str, tree: str, skipped: list[tuple[str, str]]) -> str:
    """Adds files and links without a copy to `skipped`."""
    staged = os.path.join(staging, _NEW_FOLDER)
    try:
        os.mkdir(staged)
        os.chmod(staged, DIRECTORY_MODE)
    except OSError as error:
        raise write_error(staged, error) from error
    writer = PackageWriter(staged, origin)
    copy_tree(source.tree, writer, tree)
    if source.manifest is not None:
        copy_shared_components(source, tree, staged, writer)
    skipped += writer.skipped
    if source.manifest is not None:
        write_manifest(staged, source)
    return staged


def _target_path(lock: PluginLock, name: str, update: bool) -> str:
    path = os.path.join(lock.base, name)
    for other in {*os.listdir(lock.base), *lock.entries}:
        if other != name and other.casefold() == name.casefold():
            raise UsageError(f"{name} differs only in case from the installed plugin {other}", f"remove {other} first")
    if os.path.islink(path) or (os.path.lexists(path) and not os.path.isdir(path)):
        raise InvalidError(f"{path} exists and is not a directory", "remove it")
    if os.path.lexists(path) and not update:
        raise UsageError(f"plugin {name} is already installed", "add --update to replace it, or remove it first")
    return path


def _make_record(
    lock: PluginLock, new: Plugin, current: PluginFingerprint, source: str, existed: bool
) -> tuple[PluginRecord, list[PluginFileChange]]:
    """The new record, and the changes that the user has not approved yet."""
    import time

    before = lock.record(new.name) if existed else None
    changed = diff_files(before.files if before else {}, current.active_files) if existed else []
    enabled = bool(before and before.enabled and not changed) if existed else new.default_enabled
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return PluginRecord(
        source=source,
        version=new.version,
        digest=current.digest,
        files=current.active_files,
        enabled=enabled,
        installed_at=when,
    ), changed


def _swap(lock: PluginLock, name: str, record: PluginRecord, staged: str, staging: str) -> bool:
    """Moves the staged directory into place; returns whether it replaced one."""
    target = os.path.join(lock.base, name)
    existed = os.path.lexists(target)
    lock.begin_swap(name, record, staged, staging)
    try:
        if not existed:
            os.rename(staged, target)
        elif not _exchange_directories(staged, target):
            # After a crash here, `finish_swaps` restores the old directory.
            os.rename(target, os.path.join(staging, OLD_FOLDER))
            os.rename(staged, target)
        sync_directory(lock.base)
    except OSError as error:
        raise write_error(target, error) from error
    finally:
        lock.finish_swaps()
    return existed


def _exchange_directories(one: str, other: str) -> bool:
    """Exchanges two directories atomically; False if the system does not support it."""
    import ctypes

    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    at_cwd, exchange = -100, 2
    return call(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), exchange) == 0


def _with_record(plugin: Plugin, record: PluginRecord) -> Plugin:
    return plugin._replace(
        enabled=record.enabled, source=record.source, digest=record.digest, installed_at=record.installed_at
    )


# --- installed plugins ----------------------------------------------------------------------------


def _check_installed(home: str, name: str) -> None:
    problem = plugin_name_problem(name)
    if problem:
        raise UsageError(f"invalid plugin name {name!r}: {problem}", "run `kitbag plugins list` to see all names")
    if not os.path.isdir(os.path.join(home, PLUGINS_FOLDER)):
        raise NotFoundError(f"no plugin named {name!r}: no plugins are installed", "install one first")


def _find_name(lock: PluginLock, name: str) -> str:
    """The name as spelled on disk."""
    known = sorted(entry for entry in {*os.listdir(lock.base), *lock.entries} if not plugin_name_problem(entry))
    matches = [name] if name in known else [entry for entry in known if entry.casefold() == name.casefold()]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise AmbiguousError(f"{name!r} is ambiguous; it matches {', '.join(matches)}", "use the exact name")
    import difflib

    similar = difflib.get_close_matches(name, known, n=5, cutoff=0.6)
    hint = f"did you mean {', '.join(similar)}?" if similar else "run `kitbag plugins list` to see all names"
    raise NotFoundError(f"no plugin named {name!r}", hint)


def _plugin_directory(lock: PluginLock, name: str) -> str:
    path = os.path.join(lock.base, name)
    if os.path.islink(path) or not os.path.isdir(path):
        raise InvalidError(f"{path} is not a directory", "inspect and remove it manually")
    return path


def _fingerprint_plugin(path: str) -> PluginFingerprint:
    try:
        return fingerprint_tree(path)
    except OSError as error:
        raise InvalidError(f"cannot read {path}: {error.strerror}", "reinstall the plugin") from error


def _diff_record(record: PluginRecord | None, current: PluginFingerprint) -> list[PluginFileChange]:
    changes = diff_files(record.files if record else {}, current.active_files)
    if not changes and (record is None or record.digest != current.digest):
        changes.append(PluginFileChange("~", "*"))
    return changes


def _approve_changes(name: str, path: str, record: PluginRecord | None, found: Plugin, accept: bool) -> PluginRecord:
    current = _fingerprint_plugin(path)
    differences = _diff_record(record, current)
    if differences and not accept:
        listed = ", ".join(str(change) for change in differences[:10])
        more = f" and {len(differences) - 10} more" if len(differences) > 10 else ""
        raise InvalidError(
            f"{name} has changed since it was installed: {listed}{more}",
            "review these files and accept the changes, or reinstall the plugin",
        )
    if record is None:
        return PluginRecord(
            source="",
            version=found.version,
            digest=current.digest,
            files=current.active_files,
            enabled=False,
            installed_at="",
        )
    return record._replace(digest=current.digest, files=current.active_files)
