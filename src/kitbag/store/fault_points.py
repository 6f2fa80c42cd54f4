"""Named points at which a test can kill this process as a power failure would, without any cleanup.

`KITBAG_FAULT_AT=tool-done` kills it there, `tool-done:3` the third time. Called right after something was written,
sent or done; without the variable it costs one comparison. Used by code that must survive a crash.
"""

import os
import signal
from typing import Final

VARIABLE: Final = "KITBAG_FAULT_AT"
TASK_POINTS: Final = (
    "task-created",
    "task-claimed",
    "request-sent",
    "reply-received",
    "intent-written",
    "tool-done",
    "result-written",
    "end-unwritten",
    "end-written",
)
INBOX_POINTS: Final = ("message-sent", "message-delivered")
JOURNAL_POINTS: Final = ("journal-migrated", "journal-rebuilt", "journal-aside")
TABLE_POINTS: Final = ("table-step", "table-applied")
PRUNE_POINTS: Final = ("prune-records", "prune-committed", "prune-files", "prune-contents", "prune-compacted")
UNDO_POINTS: Final = ("files-restored",)
POINTS: Final = (*TASK_POINTS, *INBOX_POINTS, *JOURNAL_POINTS, *TABLE_POINTS, *PRUNE_POINTS, *UNDO_POINTS)
_name, _, _count = os.environ.get(VARIABLE, "").partition(":")
_left = int(_count) if _count.isdecimal() else 1


def point(name: str) -> None:
    global _left  # noqa: PLW0603 - how often it has been here belongs to the process
    if name == _name:
        _left -= 1
        if _left == 0:
            signal.raise_signal(signal.SIGKILL)
