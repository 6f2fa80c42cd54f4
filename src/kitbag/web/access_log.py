"""The access log: one line per request, with method, path, status and duration. Never a token, header or body.

Used by guard. The file is private and bounded: at its limit it is started again, and the one before is kept.
"""

import contextlib
import os
import time
from typing import Final

from kitbag.store import private_files
from kitbag.store.private_files import StoreError

_FOLDER: Final = "web"
_NAME: Final = "access.log"
_MAX_BYTES: Final = 4 * 1024 * 1024
_MAX_PATH_LENGTH: Final = 500
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class AccessLog:
    def __init__(self, kitbag_home: str) -> None:
        self.path = os.path.join(kitbag_home, _FOLDER, _NAME)
        self._home = kitbag_home
        self._size = 0
        self._descriptor = self._open()

    def _open(self) -> int:
        """-1 if the file can't be written, such as on a full or read-only disk: requests are served all the same."""
        with (
            contextlib.suppress(OSError, StoreError),
            private_files.open_directory(self._home, _FOLDER) as directory,
        ):
            with contextlib.suppress(FileNotFoundError):
                if os.stat(_NAME, dir_fd=directory, follow_symlinks=False).st_size >= _MAX_BYTES:
                    os.replace(_NAME, f"{_NAME}.1", src_dir_fd=directory, dst_dir_fd=directory)
            descriptor = os.open(_NAME, _FLAGS, 0o600, dir_fd=directory)
            self._size = os.fstat(descriptor).st_size
            return descriptor
        return -1

    def add(self, method: str, path: str, status: int, seconds: float) -> None:
        if self._descriptor < 0:
            return
        shown = path[:_MAX_PATH_LENGTH].encode("unicode_escape").decode("ascii")
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        line = f"{at}Z {method} {shown} {status} {seconds * 1_000:.0f}ms\n".encode()
        with contextlib.suppress(OSError):
            self._size += os.write(self._descriptor, line)
        if self._size >= _MAX_BYTES:
            self.close()
            self._descriptor = self._open()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
