"""Which of the files that a search found may be shown, and by which names.

Used by Glob and Grep. Nothing is named that Read would refuse. Most files are plain and are told apart at once by
permissions.found_files; the others are held against the rules one by one.
"""

import os
from typing import Final

from kitbag.permissions.model import is_inside
from kitbag.tools.base import Context
from kitbag.tools.files.paths import Place, may_read, visible

MOST_NAMED: Final = 5


class Readable:
    """For one result, after everything was read: what it learns about a folder does not hold for long."""

    def __init__(self, place: Place, context: Context, *, at_once: bool = True) -> None:
        """`at_once` False: while the search still runs, when each file is looked at afresh."""
        self._place = place
        self._context = context
        start = place.facts.requested
        self._start = start.rstrip("/") + "/"
        self._found = context.permissions.found_files(start) if at_once and place.reader == "Read" else None

    def name(self, path: str) -> str:
        """Of a path below the place, as it is shown; empty when it may not be read."""
        # By the name that was asked for: a rule may speak of the link that leads here.
        whole = self._start + path
        if (self._found and self._found.surely_readable(whole)) or may_read(self._context, whole, self._place):
            return self._shown(whole)
        return ""

    def name_if_there(self, path: str) -> str | None:
        """None when it is gone."""
        whole = self._start + path
        if self._found and self._found.surely_readable(whole):
            return self._shown(whole)
        return self.name(path) if os.path.lexists(whole) else None

    def _shown(self, whole: str) -> str:
        """As places.shown does, of a path that is normal already."""
        directory = self._context.directory
        return visible(whole[len(directory.rstrip("/")) + 1 :] if is_inside(whole, directory) else whole)

    def unopened(self, paths: tuple[str, ...], count: int) -> str:
        """What to say about files and folders that could not be opened; `paths` are those that are known by name."""
        named = [name for path in paths[:MOST_NAMED] if (name := self.name(path))]
        rest = count - len(named)
        names = ", ".join([*named, *([f"{rest:,} more"] if rest and named else [])])
        what = "file or folder" if count == 1 else "files or folders"
        return f"{count:,} {what} could not be opened{f': {names}' if names else ''}"
