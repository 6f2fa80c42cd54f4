"""Learns where a command's shell was when it ended, so that `cd` counts for the next command.

Used by Bash. The shell tells it by itself when it exits, through a pipe: however it ends, unless it is killed, becomes
another program or sets a trap of its own; then nothing is known, and the directory stays what it was.
"""

import contextlib
import fcntl
import os
import re
from typing import Self

from kitbag.permissions.model import Workspace, is_inside

_CHANGES_DIRECTORY = re.compile(r"(?<![\w.-])(?:cd|pushd|popd)(?![\w.-])")
_LOWEST_DESCRIPTOR = 80
_MAX_PATH_BYTES = 1 << 14


class DirectoryTracker:
    """`text` is what to run instead of the command, with `descriptors`. To be closed."""

    def __init__(self, command: str) -> None:
        self.text = command
        self.prefix = ""
        """What stands before the command in `text`. In the same line, so that lines have their numbers."""
        self.descriptors: tuple[int, ...] = ()
        self._read = -1
        if _CHANGES_DIRECTORY.search(command) and os.path.exists("/bin/bash"):
            self._read, low = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            # A number that commands do not use for themselves.
            tell = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _LOWEST_DESCRIPTOR)
            os.close(low)
            self.descriptors = (tell,)
            # Nothing of it is printed, whatever the command has set, and the exit status stays what it is.
            self.prefix = f"trap '{{ set +x; command pwd -P >&{tell}; }} >/dev/null 2>&1 || :' EXIT; "
            self.text = self.prefix + command

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in (self._read, *self.descriptors):
            if descriptor >= 0:
                os.close(descriptor)
        self._read, self.descriptors = -1, ()

    def final_directory(self) -> str | None:
        """The path that was told; empty when none was, None when none was to be told."""
        if self._read < 0:
            return None
        told = b""
        with contextlib.suppress(BlockingIOError):
            told = os.read(self._read, _MAX_PATH_BYTES)
        path = os.fsdecode(told.removesuffix(b"\n"))
        return path if path.startswith("/") and "\0" not in path else ""


def workspace_directory(path: str, workspace: Workspace) -> str:
    """The real path of a folder in which an agent may work; empty when it is none."""
    real = os.path.realpath(path)
    return real if os.path.isdir(real) and any(is_inside(real, root) for root in workspace.write_roots) else ""
