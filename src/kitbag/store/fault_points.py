"""Named moments at which a test may end this process as a power cut would: at once, with nothing tidied up.

`KITBAG_FAULT_AT=tool-done` kills it there, `tool-done:3` when it comes there for the third time. Called where something
has just been written, sent or done; without the variable it costs a comparison. Used by whoever promises to survive it.
"""

import os
import signal
from typing import Final

VARIABLE: Final = "KITBAG_FAULT_AT"
POINTS: Final = (
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
_name, _, _count = os.environ.get(VARIABLE, "").partition(":")
_left = int(_count) if _count.isdecimal() else 1


def point(name: str) -> None:
    global _left  # noqa: PLW0603 - how often it has been here belongs to the process
    if name == _name:
        _left -= 1
        if _left == 0:
            signal.raise_signal(signal.SIGKILL)
