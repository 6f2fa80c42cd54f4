"""Caches the scan of a skills root, in memory and on disk, so that the next scan only reads what changed.

An entry is valid only while its file has the same stamp, and only if the file was old enough when it was read;
the same holds for folder listings. A stale or damaged index costs time but never changes a result.
Used by the registry; uses discover. One index file per root below the Kitbag home, rebuilt silently.
"""

import contextlib
import marshal
import os
import sys
import time
import zlib
from array import array
from itertools import chain, islice, repeat
from operator import attrgetter, eq
from typing import Any, cast

from kitbag.errors import Diagnostic
from kitbag.library.discover import RootScan, TeamFile, scan_root
from kitbag.library.scan_budget import ScanBudget
from kitbag.library.scopes import Root
from kitbag.library.skills import Skill, read_skill
from kitbag.text.source_files import file_stamp

INDEX_FORMAT = 7
MIN_INDEXED_SKILLS = 24
"""Smaller roots are read directly, which is as fast as opening an index."""
MIN_FILE_AGE_NS = 2_000_000_000
"""A file modified this recently before it was read may change again without changing its stamp."""

_CHECKED_AT_ONCE = 1_000
"""Skills between two looks at the clock."""
_STAMP = attrgetter("st_mtime_ns", "st_ctime_ns", "st_size", "st_ino")
_MAGIC = b"kitbag-index-%d %s\n" % (INDEX_FORMAT, sys.version.encode())


class CachedScan:
    """A scan and its time."""

    __slots__ = ("by_location", "diagnostics", "scan", "scanned_at", "teams")

    def __init__(self, scan: RootScan, scanned_at: int, teams: frozenset[str]) -> None:
        self.scan = scan
        self.scanned_at = scanned_at
        self.teams = teams
        self.by_location: dict[str, Skill] | None = None
        self.diagnostics: dict[str, list[Diagnostic]] | None = None


def scan_with_cache(
    root: Root, cached: CachedScan | None, teams: frozenset[str] = frozenset(), budget: ScanBudget | None = None
) -> CachedScan:
    """Returns the same result as a fresh scan, but reads only what may have changed."""
    started = time.time_ns()
    budget = budget or ScanBudget()
    budget.start()
    try:
        if cached is None or os.path.realpath(root.path) not in cached.scan.folders:
            return CachedScan(scan_root(root, teams=teams, budget=budget), started, teams)
        if cached.teams == teams and _is_unchanged(cached, budget):
            return cached
        return CachedScan(scan_root(root, _caching_reader(cached), teams, budget=budget), started, teams)
    finally:
        budget.stop()


def _is_unchanged(cached: CachedScan, budget: ScanBudget) -> bool:
    """Whether every folder and file is provably unchanged; otherwise the root must be walked."""
    scan = cached.scan
    if not scan.is_stable:
        return False
    newest_trusted = cached.scanned_at - MIN_FILE_AGE_NS
    for path, stamp in scan.folders.items():
        if budget.is_half_spent():
            return False
        try:
            status = os.stat(path)
        except OSError:
            if stamp is None:
                continue
            return False
        is_same = (
            stamp == (status.st_mtime_ns, status.st_ctime_ns, status.st_ino) and status.st_ctime_ns <= newest_trusted
        )
        if not is_same and stamp != (status.st_ino,):
            return False
    # All in C: this is most of the work of a warm start, one stat per skill.
    if max((skill.changed for skill in scan.skills), default=0) > newest_trusted:
        return False
    stamps = iter([skill.stamp for skill in scan.skills])
    paths = map((scan.root.path + "/").__add__, [skill.location for skill in scan.skills])
    try:
        for _ in range(0, len(scan.skills), _CHECKED_AT_ONCE):
            some = islice(paths, _CHECKED_AT_ONCE)
            if budget.is_half_spent() or not all(map(eq, map(hash, map(_STAMP, map(os.stat, some))), stamps)):
                return False
    except OSError:
        return False
    return True


def _caching_reader(cached: CachedScan) -> Any:
    """`read_skill` with the earlier scan as a cache."""
    if cached.by_location is None or cached.diagnostics is None:
        cached.by_location = {skill.location: skill for skill in cached.scan.skills}
        cached.diagnostics = {}
        for diagnostic in cached.scan.diagnostics:
            cached.diagnostics.setdefault(diagnostic.file, []).append(diagnostic)
    skills, diagnostics = cached.by_location, cached.diagnostics
    newest_trusted = cached.scanned_at - MIN_FILE_AGE_NS

    def reader(
        root: Root, location: str, path: str, name: str, team: str, group: str, flags: int
    ) -> tuple[Skill | None, list[Diagnostic]]:
        skill = skills.get(location)
        if skill is not None and skill.team == team and skill.group == group and skill.changed <= newest_trusted:
            try:
                is_same = skill.stamp == hash(file_stamp(os.stat(path)))
            except OSError:
                is_same = False
            if is_same:
                return skill, diagnostics.get(path, [])
        return read_skill(root, location, path, name, team, group, flags)

    return reader


def index_path(home: str, root: Root) -> str:
    location = os.path.join(root.path, root.only_file).encode(errors="surrogateescape")
    name = f"{zlib.crc32(location):08x}-{root.kind}.index"
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
    """The scan saved by an earlier process; None if it is missing, damaged or outdated."""
    try:
        with open(index_path(home, root), "rb") as file:
            data = file.read()
    except OSError:
        return None
    content = parse_cache(data, _MAGIC)
    if content is None:
        return None
    try:
        identity, scanned_at, is_stable, teams, columns, team_files, folders, diagnostics = content
    except (ValueError, TypeError):
        return None
    if identity != _identity(root):
        return None
    scan = RootScan(
        root=root,
        skills=_unpack_columns(root, columns),
        team_files=[TeamFile(*team_file) for team_file in team_files],
        folders=folders,
        diagnostics=[Diagnostic(*diagnostic) for diagnostic in diagnostics],
        is_stable=is_stable,
    )
    return CachedScan(scan, scanned_at, frozenset(teams))


def save_index(home: str, cached: CachedScan) -> None:
    """Best effort: without an index everything works, just slower."""
    scan = cached.scan
    columns = _pack_columns(scan.skills)
    if columns is None:
        return
    content = (
        _identity(scan.root),
        cached.scanned_at,
        scan.is_stable,
        sorted(cached.teams),
        columns,
        [tuple(side) for side in scan.team_files],
        dict(scan.folders),
        [tuple(diagnostic) for diagnostic in scan.diagnostics],
    )
    write_cache(index_path(home, scan.root), _MAGIC, content)


def parse_cache(data: bytes, magic: bytes) -> Any | None:
    """What `write_cache` wrote; None if the data is damaged, or of another format or version of Python."""
    start = len(magic)
    if not data.startswith(magic) or len(data) < start + 8:
        return None
    checksum, size = int.from_bytes(data[start : start + 4], "big"), int.from_bytes(data[start + 4 : start + 8], "big")
    payload = memoryview(data)[start + 8 :]
    if len(payload) != size or zlib.crc32(payload) != checksum:
        return None
    try:
        return marshal.loads(payload)  # noqa: S302
    except (ValueError, EOFError, TypeError):
        return None


def write_cache(path: str, magic: bytes, content: object) -> None:
    """Replaces the file atomically; best effort."""
    payload = marshal.dumps(cast("Any", content))
    temporary = f"{path}.{os.getpid()}.new"
    header = magic + zlib.crc32(payload).to_bytes(4, "big") + len(payload).to_bytes(4, "big")
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


# Skills are stored by column, texts joined into one string and stamps as machine integers: the index is read
# at every start, and this takes a third of the time of reading record by record.

_TEXT_COLUMNS = (
    "location", "name", "full_name", "description", "when_to_use", "argument_hint", "team", "group", "keywords",
)  # fmt: skip


def _pack_columns(skills: list[Skill]) -> tuple[Any, ...] | None:
    texts: list[str] = []
    for field in _TEXT_COLUMNS:
        position = Skill._fields.index(field)
        column = [cast("str", skill[position]) for skill in skills]
        joined = "\0".join(column)
        if joined.count("\0") != max(len(column) - 1, 0):
            return None
        texts.append("" if not any(column) else joined)
    if texts[1] == texts[2]:
        texts[2] = ""
    try:
        stamps = array("q", [skill.stamp for skill in skills]).tobytes()
        changed = array("q", [skill.changed for skill in skills]).tobytes()
    except OverflowError:  # an absurd time stamp
        return None
    subagents = {position: skill.subagents for position, skill in enumerate(skills) if skill.subagents}
    return len(skills), texts, stamps, changed, bytes(skill.flags for skill in skills), subagents


def _unpack_columns(root: Root, columns: tuple[Any, ...]) -> list[Skill]:
    count, joined, stamps, changed, flags, named = columns
    location, name, full_name, description, when, hint, team, group, keywords = (
        text.split("\0") if text else repeat("") for text in joined
    )
    if not joined[2]:  # every full name equals the name
        full_name = name
    subagents: Any = [named.get(position, ()) for position in range(count)] if named else repeat(())
    new: Any = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return [
        new(Skill, row)
        for row in zip(
            repeat(root), location, array("q", stamps), array("q", changed), name, full_name, description, when, hint,
            flags, team, group, subagents, keywords, strict=False,
        )
    ]  # fmt: skip


def scan_indexed(
    home: str, root: Root, teams: frozenset[str] = frozenset(), budget: ScanBudget | None = None
) -> CachedScan:
    """The scan at start: reads the index if there is one, and updates it."""
    cached = load_index(home, root)
    scanned = scan_with_cache(root, cached, teams, budget)
    if scanned is not cached and len(scanned.scan.skills) >= MIN_INDEXED_SKILLS and not _is_too_fresh(scanned):
        save_index(home, scanned)
    return scanned


def _is_too_fresh(scanned: CachedScan) -> bool:
    """Whether all skills are too recent to be valid next time: not worth saving yet."""
    newest_trusted = scanned.scanned_at - MIN_FILE_AGE_NS
    return all(skill.changed > newest_trusted for skill in scanned.scan.skills)
