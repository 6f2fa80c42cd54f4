"""Remembers what a scan of a skills root found, so that the next one only asks for what changed.

An entry counts only while its file has the stamp it was read with, and was old enough then to make
that proof; a folder's list counts the same way. So a stale or damaged index costs time, never truth.
Used by the registry; on disk it is one file a root below the Kitbag home, rebuilt silently.
"""

import contextlib
import marshal
import os
import sys
import time
import zlib
from array import array
from itertools import chain, repeat
from operator import attrgetter, eq
from typing import Any, cast

from kitbag.errors import Diagnostic
from kitbag.library.discover import RootScan, TeamFile, scan_root
from kitbag.library.scopes import Root
from kitbag.library.skills import Skill, read_skill
from kitbag.text.source_files import file_stamp

INDEX_FORMAT = 3
MIN_INDEXED_SKILLS = 24
"""A root with fewer skills is read directly: that takes no longer than opening an index."""
_MIN_FILE_AGE_NS = 2_000_000_000
"""A file changed within this time before it was read may change again under the same stamp."""

_STAMP = attrgetter("st_mtime_ns", "st_ctime_ns", "st_size", "st_ino")
_MAGIC = b"kitbag-index-%d %s\n" % (INDEX_FORMAT, sys.version.encode())


class CachedScan:
    """A scan and when it was made."""

    __slots__ = ("by_location", "diagnostics", "scan", "scanned_at", "teams")

    def __init__(self, scan: RootScan, scanned_at: int, teams: frozenset[str]) -> None:
        self.scan = scan
        self.scanned_at = scanned_at
        self.teams = teams
        self.by_location: dict[str, Skill] | None = None
        self.diagnostics: dict[str, list[Diagnostic]] | None = None


def scan_with_cache(root: Root, before: CachedScan | None, teams: frozenset[str] = frozenset()) -> CachedScan:
    """A scan that gives the same answer as a fresh one, and reads only what is not proven unchanged."""
    started = time.time_ns()
    if before is None or os.path.realpath(root.path) not in before.scan.folders:
        return CachedScan(scan_root(root, teams=teams), started, teams)
    if before.teams == teams and _is_unchanged(before):
        return before
    return CachedScan(scan_root(root, _caching_reader(before), teams), started, teams)


def _is_unchanged(before: CachedScan) -> bool:
    """Every folder and file is proven to be what it was; else the root has to be walked."""
    scan = before.scan
    if not scan.is_stable:
        return False
    trusted = before.scanned_at - _MIN_FILE_AGE_NS
    for path, stamp in scan.folders.items():
        try:
            status = os.stat(path)
        except OSError:
            if stamp is None:
                continue
            return False
        same = stamp == (status.st_mtime_ns, status.st_ctime_ns, status.st_ino) and status.st_ctime_ns <= trusted
        if not same and stamp != (status.st_ino,):
            return False
    # All in C, since this is most of what a warm start does: 10,000 files, 10,000 calls of stat.
    if max((skill.changed for skill in scan.skills), default=0) > trusted:
        return False
    stamps = [skill.stamp for skill in scan.skills]
    paths = map((scan.root.path + "/").__add__, [skill.location for skill in scan.skills])
    try:
        return all(map(eq, map(hash, map(_STAMP, map(os.stat, paths))), stamps))
    except OSError:
        return False


def _caching_reader(before: CachedScan) -> Any:
    """read_skill for a root that was read before."""
    if before.by_location is None or before.diagnostics is None:
        before.by_location = {skill.location: skill for skill in before.scan.skills}
        before.diagnostics = {}
        for diagnostic in before.scan.diagnostics:
            before.diagnostics.setdefault(diagnostic.file, []).append(diagnostic)
    known, noted = before.by_location, before.diagnostics
    trusted = before.scanned_at - _MIN_FILE_AGE_NS

    def reader(
        root: Root, location: str, path: str, name: str, team: str, group: str, flags: int
    ) -> tuple[Skill | None, list[Diagnostic]]:
        skill = known.get(location)
        if skill is not None and skill.team == team and skill.group == group and skill.changed <= trusted:
            try:
                same = skill.stamp == hash(file_stamp(os.stat(path)))
            except OSError:
                same = False
            if same:
                return skill, noted.get(path, [])
        return read_skill(root, location, path, name, team, group, flags)

    return reader


def index_path(home: str, root: Root) -> str:
    place = os.path.join(root.path, root.only_file).encode(errors="surrogateescape")
    name = f"{zlib.crc32(place):08x}-{root.kind}.index"
    return os.path.join(home, "cache", name)


def _identity(root: Root) -> tuple[str, ...]:
    return (
        root.path,
        root.kind,
        root.scope,
        root.plugin,
        root.only_file,
        *chain.from_iterable((root.boundary or ())[:2]),
    )


def load_index(home: str, root: Root) -> CachedScan | None:
    """What an earlier process found, or None for any reason at all."""
    try:
        with open(index_path(home, root), "rb") as file:
            data = file.read()
    except OSError:
        return None
    at = len(_MAGIC)
    if not data.startswith(_MAGIC) or len(data) < at + 8:
        return None
    check, size = int.from_bytes(data[at : at + 4], "big"), int.from_bytes(data[at + 4 : at + 8], "big")
    payload = memoryview(data)[at + 8 :]
    if len(payload) != size or zlib.crc32(payload) != check:
        return None
    try:
        identity, scanned_at, settled, teams, columns, sides, folders, diagnostics = marshal.loads(payload)  # noqa: S302
    except (ValueError, EOFError, TypeError):
        return None
    if identity != _identity(root):
        return None
    scan = RootScan(
        root, _unpack_columns(root, columns), [TeamFile(*side) for side in sides], folders,
        [Diagnostic(*diagnostic) for diagnostic in diagnostics], settled,
    )  # fmt: skip
    return CachedScan(scan, scanned_at, frozenset(teams))


def save_index(home: str, cached: CachedScan) -> None:
    """Best effort: without an index everything works, only slower."""
    scan = cached.scan
    columns = _pack_columns(scan.skills)
    if columns is None:
        return
    payload = marshal.dumps(
        (
            _identity(scan.root),
            cached.scanned_at,
            scan.is_stable,
            sorted(cached.teams),
            columns,
            [tuple(side) for side in scan.team_files],
            dict(scan.folders),
            [tuple(diagnostic) for diagnostic in scan.diagnostics],
        )
    )
    path = index_path(home, scan.root)
    temporary = f"{path}.{os.getpid()}.new"
    header = _MAGIC + zlib.crc32(payload).to_bytes(4, "big") + len(payload).to_bytes(4, "big")
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(header)
            file.write(payload)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


# Skills are kept by column, texts joined into one string and stamps as machine integers: an index is read
# at every start, and this takes a third of the time of reading one record after the other.

_TEXT_COLUMNS = ("location", "name", "full_name", "description", "when_to_use", "argument_hint", "team", "group")


def _pack_columns(skills: list[Skill]) -> tuple[Any, ...] | None:
    texts: list[str] = []
    for field in _TEXT_COLUMNS:
        at = Skill._fields.index(field)
        column = [cast("str", skill[at]) for skill in skills]
        joined = "\0".join(column)
        if joined.count("\0") != max(len(column) - 1, 0):
            return None
        texts.append("" if not any(column) else joined)
    if texts[1] == texts[2]:
        texts[2] = ""
    try:
        stamps = array("q", [skill.stamp for skill in skills]).tobytes()
        changed = array("q", [skill.changed for skill in skills]).tobytes()
    except OverflowError:  # a clock beyond reason
        return None
    subagents = {at: skill.subagents for at, skill in enumerate(skills) if skill.subagents}
    return len(skills), texts, stamps, changed, bytes(skill.flags for skill in skills), subagents


def _unpack_columns(root: Root, columns: tuple[Any, ...]) -> list[Skill]:
    count, joined, stamps, changed, flags, named = columns
    location, name, full_name, description, when, hint, team, group = (
        text.split("\0") if text else repeat("") for text in joined
    )
    if not joined[2]:  # every full name is the name
        full_name = name
    subagents: Any = [named.get(at, ()) for at in range(count)] if named else repeat(())
    new: Any = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return [
        new(Skill, row)
        for row in zip(
            repeat(root), location, array("q", stamps), array("q", changed), name, full_name, description, when, hint,
            flags, team, group, subagents, strict=False,
        )
    ]  # fmt: skip


def scan_indexed(home: str, root: Root, teams: frozenset[str] = frozenset()) -> CachedScan:
    """The scan at start: with the index where there is one, which is brought up to date."""
    before = load_index(home, root)
    now = scan_with_cache(root, before, teams)
    if now is not before and len(now.scan.skills) >= MIN_INDEXED_SKILLS and not _is_too_fresh(now):
        save_index(home, now)
    return now


def _is_too_fresh(now: CachedScan) -> bool:
    """All of it too fresh to be trusted next time: not worth writing yet."""
    trusted = now.scanned_at - _MIN_FILE_AGE_NS
    return all(skill.changed > trusted for skill in now.scan.skills)
