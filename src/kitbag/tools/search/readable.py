"""Decides which of the files that a search found may be shown, and formats their names.

Used by Glob, Grep and mentions. Never names a file that Read would deny. permissions/decisions/found_files decides most
files quickly; the others are checked against the rules one by one.
"""

import os
from typing import Final

from kitbag.permissions.model import is_inside
from kitbag.tools.base import ToolContext
from kitbag.tools.files.paths import AuthorizedPath, can_read, visible_line

MAX_NAMED: Final = 5


class ReadFilter:
    """For one result, created after the search: what it caches about folders may become outdated."""

    def __init__(self, authorized: AuthorizedPath, context: ToolContext, *, at_once: bool = True) -> None:
        """`at_once` False: the search is still running, so nothing is cached."""
        self._authorized = authorized
        self._context = context
        start = authorized.facts.requested
        self._start = start.rstrip("/") + "/"
        self._found_files = (
            context.permissions.search_result_filter(start) if at_once and authorized.read_tool == "Read" else None
        )

    def display_name(self, path: str) -> str:
        """The display name of a path below the authorized one; empty if it may not be read."""
        # The requested name, because a rule may be about the link that leads here.
        full_path = self._start + path
        if (self._found_files and self._found_files.is_surely_readable(full_path)) or can_read(
            self._context, full_path, self._authorized
        ):
            return self._display_path(full_path)
        return ""

    def display_name_if_exists(self, path: str) -> str | None:
        """None if it does not exist any more."""
        full_path = self._start + path
        if self._found_files and self._found_files.is_surely_readable(full_path):
            return self._display_path(full_path)
        return self.display_name(path) if os.path.lexists(full_path) else None

    def _display_path(self, full_path: str) -> str:
        """As paths.display_path, for a path that is already normalized."""
        directory = self._context.directory
        return visible_line(
            full_path[len(directory.rstrip("/")) + 1 :] if is_inside(full_path, directory) else full_path
        )

    def describe_unopened(self, paths: tuple[str, ...], count: int) -> str:
        """The note about files and folders that could not be opened; `paths` are the first of them."""
        named = [name for path in paths[:MAX_NAMED] if (name := self.display_name(path))]
        rest = count - len(named)
        names = ", ".join([*named, *([f"{rest:,} more"] if rest and named else [])])
        what = "file or directory" if count == 1 else "files or directories"
        return f"{count:,} {what} could not be opened{f': {names}' if names else ''}"
