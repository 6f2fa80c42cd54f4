"""Tracks the shell's working directory, so that `cd` applies to the next command.

Used by Bash and background commands. An EXIT trap reports the directory through a pipe. If the shell is killed,
replaced by exec, or sets its own trap, nothing is known and the directory stays the same.
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
    """Run `text` with `descriptors` instead of the command. Close when done."""

    def __init__(self, command: str) -> None:
        self.text = command
        self.prefix = ""
        """What `text` has before the command, on the same line to keep line numbers."""
        self.descriptors: tuple[int, ...] = ()
        self._read = -1
        if _CHANGES_DIRECTORY.search(command) and os.path.exists("/bin/bash"):
            self._read, low = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            # A number that commands do not use themselves.
            tell = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _LOWEST_DESCRIPTOR)
            os.close(low)
            self.descriptors = (tell,)
            # Prints nothing, whatever the command has set, and keeps the exit status.
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
        """The reported path; empty if none was reported, None if the command is not tracked."""
        if self._read < 0:
            return None
        reported = b""
        with contextlib.suppress(BlockingIOError):
            reported = os.read(self._read, _MAX_PATH_BYTES)
        path = os.fsdecode(reported.removesuffix(b"\n"))
        return path if path.startswith("/") and "\0" not in path else ""


def workspace_directory(path: str, workspace: Workspace) -> str:
    """The real path of a folder where an agent may work; empty if it is not one."""
    real = os.path.realpath(path)
    return real if os.path.isdir(real) and any(is_inside(real, root) for root in workspace.write_roots) else ""
