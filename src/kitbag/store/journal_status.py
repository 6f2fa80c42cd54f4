"""Sizes and the state of what Kitbag stores, and a check of all of it.

Used by `kitbag store` and `kitbag doctor`. Reading the status creates nothing and recovers nothing.
"""

import contextlib
import os
from typing import Any

import msgspec

from kitbag.store import damage_notices, private_files
from kitbag.store.damage_notices import DamageNotice
from kitbag.store.database_url import describe_url
from kitbag.store.journal_file import DamageError, JournalPath
from kitbag.store.journal_opening import check_records, connect_read_only, journal_path_parts


class StoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    journal_bytes: int
    """With its write-ahead log."""
    undo_bytes: int
    output_bytes: int
    """Output of background commands."""
    damaged_bytes: int
    """Damaged journals that were set aside."""
    damage: tuple[DamageNotice, ...]
    database: str = ""
    """Where the records are, if not in the journal; `mirror_bytes` is the copy for reading."""
    mirror_bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "journal_bytes": self.journal_bytes,
            "undo_bytes": self.undo_bytes,
            "output_bytes": self.output_bytes,
            "damaged_bytes": self.damaged_bytes,
            "damage": [notice._asdict() for notice in self.damage],
            "database": self.database,
            "mirror_bytes": self.mirror_bytes,
        }


def read_status(kitbag_home: str, database: str = "") -> StoreStatus:
    """`database`: its URL, if the records are in one."""
    state = os.path.join(kitbag_home, "state")
    damaged = [name for name in _list(state) if name.startswith("journal.db.damaged-")]
    return StoreStatus(
        journal_bytes=sum(_tree_size(os.path.join(state, f"journal.db{suffix}")) for suffix in ("", "-wal")),
        undo_bytes=_tree_size(os.path.join(state, "kept")),
        output_bytes=_tree_size(os.path.join(state, "output")),
        damaged_bytes=sum(_tree_size(os.path.join(state, name)) for name in damaged),
        damage=tuple(damage_notices.read_notices(kitbag_home)),
        database=describe_url(database),
        mirror_bytes=sum(_tree_size(os.path.join(state, name)) for name in _list(state) if name.startswith("mirror-")),
    )


def check_journal(path: str) -> tuple[int, str]:
    """How many records there are, and the first problem; empty: none. Changes nothing."""
    file: JournalPath = journal_path_parts(path)
    with private_files.hold_lock(file.base, file.beside(".opening")):
        try:
            with contextlib.closing(connect_read_only(file)) as connection:
                return check_records(file, connection), ""
        except DamageError as error:
            return 0, str(error)


def _list(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _tree_size(path: str) -> int:
    """Bytes of a file or of all files below a folder; links are not followed."""
    if os.path.isdir(path) and not os.path.islink(path):
        return sum(_tree_size(os.path.join(path, name)) for name in _list(path))
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
