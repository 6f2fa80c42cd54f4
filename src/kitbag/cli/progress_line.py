"""One line on stderr that says how far a long command is; nothing unless stderr is a terminal.

Used by commands that rank or ask a model for many messages; also waits for the search index with such a line.
"""

import os
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from kitbag.cli import output
from kitbag.text.terminal_width import truncate_to_width

if TYPE_CHECKING:
    from kitbag.library.registry import Registry

MAX_INDEX_SECONDS: Final = 15.0
"""How long a command that a user waits for lets the instructions of new skills be indexed."""
MAX_COMPLETE_INDEX_SECONDS: Final = 600.0
"""The same for a command whose result must not depend on the speed of the machine."""
_FIRST_SECONDS, _REDRAW_SECONDS = 0.5, 0.1
_POLL_SECONDS: Final = 0.2


class ProgressLine:
    """`with ProgressLine() as line: line.show("3 of 10")`. Quick work shows nothing."""

    def __init__(self) -> None:
        self._is_live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._next = time.monotonic() + _FIRST_SECONDS
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()

    def show(self, text: str) -> None:
        now = time.monotonic()
        if self._is_live and now >= self._next:
            self._next, self._is_shown = now + _REDRAW_SECONDS, True
            width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            line = output.style(truncate_to_width(output.clean(text), width - 1), "dim", sys.stderr)
            sys.stderr.write(f"\r\x1b[2K{line}")
            sys.stderr.flush()

    def count(self, what: str, done: int, total: int) -> None:
        self.show(f"{what}: {done:,} of {total:,}")


def wait_for_index(registry: "Registry", seconds: float) -> None:
    """Until the instructions of all skills are indexed. Says so if that takes longer, and why an index is not saved."""
    from kitbag.library.routing.skill_search import get_search_index

    index = get_search_index(registry)
    deadline = time.monotonic() + seconds
    with ProgressLine() as line:
        while not index.is_filled and time.monotonic() < deadline:
            line.show("indexing the instructions of new skills")
            index.wait_until_filled(_POLL_SECONDS)
        index.wait_until_filled(max(deadline - time.monotonic(), 0.0))
    for one in index.problems:
        output.remark(f"{one.problem}; to fix it, {one.fix} ({one.file})")
    if not index.is_filled:
        advice = "; run the command again" if index.is_saved else ""
        output.remark(f"not all skills are indexed yet, so the ranking may change{advice}")
