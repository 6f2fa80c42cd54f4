"""What a power cut would leave: which files were on the disk, and whole, before they got their names.

No other test needs a sync: what a killed process has written is there for the next one.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from kitbag.store import journal_file

PRAGMAS: Final = journal_file.PRAGMAS
SKIPPED: Final = "TESTS_SKIP_SYNCS"


def skip_syncs() -> None:
    """In this process, and in those that are forked for its tests. They take a third of a suite's time."""
    os.environ[SKIPPED] = "1"
    os.fsync = lambda fd: None
    journal_file.PRAGMAS = ("synchronous = OFF", *PRAGMAS[1:])  # pyright: ignore[reportConstantRedefinition]


class Disk:
    """Watches this process: syncs and renames happen as ever, and are noted in their order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._steps: list[tuple[str, int, int]] = []
        sync = os.fsync

        def synced(descriptor: int) -> None:
            sync(descriptor)
            self._note("synced", os.fstat(descriptor))

        monkeypatch.setattr(os, "fsync", synced)
        for name in ("rename", "replace"):
            monkeypatch.setattr(os, name, self._renaming(getattr(os, name)))

    def _renaming(self, rename: Callable[..., None]) -> Callable[..., None]:
        def renamed(old: Any, new: Any, **folders: int) -> None:
            rename(old, new, **folders)
            self._note("renamed", os.stat(new, dir_fd=folders.get("dst_dir_fd"), follow_symlinks=False))

        return renamed

    def _note(self, step: str, found: os.stat_result) -> None:
        self._steps.append((step, found.st_ino, found.st_size if stat.S_ISREG(found.st_mode) else 0))

    def steps(self, *paths: Path) -> list[str]:
        """What happened to these, in order. What had not all of its bytes yet when it was synced says so."""
        found = {path.stat().st_ino: path for path in paths}
        told: list[str] = []
        for step, inode, size in self._steps:
            if inode in found:
                whole = found[inode].is_dir() or found[inode].stat().st_size == size
                told.append(f"{found[inode].name} {step}" + ("" if whole else " in part"))
        return told
