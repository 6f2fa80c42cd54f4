"""Input history of this chat and earlier ones; entries of the current directory come first.

Used by terminal/make_terminal through prompt_toolkit. One JSON line per entry in a private file, appended under a lock
so that parallel chats don't lose entries. A read or write failure is shown once and is not fatal.
"""

import os
import re
import stat
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import msgspec
from prompt_toolkit.history import History as BaseHistory

from kitbag.errors import KitbagError
from kitbag.store import private_files
from kitbag.store.private_files import StoreError

FILE: Final = "state/history"
MAX_ENTRIES: Final = 2_000
MAX_ENTRY_LENGTH: Final = 20_000
MAX_BYTES: Final = 4 << 20
"""Approximate file size: older entries are ignored and later removed."""
_LOCK: Final = f"{FILE}.lock"
_LOCK_SECONDS = 1.0
_EXTRA_ENTRIES = MAX_ENTRIES // 10
"""Entries above the maximum, so that the file is not rewritten every time."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    directory: str
    text: str


class InputHistory(BaseHistory):
    def __init__(
        self,
        kitbag_home: str,
        directory: str,
        redact: Callable[[str], str],
        notify: Callable[[str], None] = lambda remark: None,
    ) -> None:
        """`redact` removes secrets from what is stored; `notify` gets one message if the file can't be used."""
        super().__init__()
        self._home = kitbag_home
        self._directory = directory
        self._redact = redact
        self._notify = notify
        self._has_notified = False

    def load_history_strings(self) -> Iterable[str]:
        """Newest first: of this directory, then of others. Without duplicates."""
        try:
            entries = [entry for line in _lines(self._read()) if (entry := _parse_entry(line)) is not None]
        except (KitbagError, OSError) as error:
            self._notify_once("read", error)
            return []
        entries.reverse()
        here = [entry.text for entry in entries if entry.directory == self._directory]
        return list(dict.fromkeys((*here, *(entry.text for entry in entries))))

    def append_string(self, string: str) -> None:
        """Skips blank text and a repetition of the last entry."""
        if string.strip() and self._loaded_strings[:1] != [string]:
            super().append_string(string)

    def store_string(self, string: str) -> None:
        if len(string) > MAX_ENTRY_LENGTH:
            return  # kept in memory only
        body = {"at": int(time.time()), "directory": self._directory, "text": self._redact(string)}
        import json

        line = json.dumps(body).encode() + b"\n"
        try:
            with private_files.hold_lock(self._home, _LOCK, _LOCK_SECONDS):
                self._append(line)
                self._trim()
        except (KitbagError, OSError) as error:
            self._notify_once("write", error)

    def _notify_once(self, what: str, error: Exception) -> None:
        if not self._has_notified:
            self._has_notified = True
            problem = error.problem if isinstance(error, KitbagError) else str(error)
            self._notify(f"can't {what} the input history: {problem}")

    def _append(self, line: bytes) -> None:
        """Starts a new line if the last one is incomplete."""
        descriptor = self._open(os.O_RDWR | os.O_CREAT | os.O_APPEND)
        assert descriptor is not None
        with open(descriptor, "r+b", buffering=0) as file:
            size = os.fstat(descriptor).st_size
            ends = size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"
            data = line if ends else b"\n" + line
            if file.write(data) != len(data):
                raise StoreError("the disk is full", "free up some space")

    def _trim(self) -> None:
        data = self._read()
        if data.count(b"\n") > MAX_ENTRIES + _EXTRA_ENTRIES or len(data) > MAX_BYTES:
            kept = [line for line in _lines(data) if _parse_entry(line) is not None][-MAX_ENTRIES:]
            while sum(map(len, kept)) > MAX_BYTES // 2:
                del kept[: len(kept) // 4 + 1]
            private_files.write(self._home, FILE, b"".join(line + b"\n" for line in kept))

    def _read(self) -> bytes:
        """The end of the file, somewhat more than is kept."""
        descriptor = self._open(os.O_RDONLY)
        if descriptor is None:
            return b""
        with open(descriptor, "rb", buffering=0):
            start = max(0, os.fstat(descriptor).st_size - 2 * MAX_BYTES)
            data = os.pread(descriptor, 2 * MAX_BYTES, start)
        return data.partition(b"\n")[2] if start else data

    def _open(self, flags: int) -> int | None:
        """None if there is no file. Does not follow links or block on special files."""
        folder, name = os.path.split(FILE)
        path = os.path.join(self._home, FILE)
        with private_files.open_directory(self._home, folder) as inside:
            try:
                descriptor = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=inside)
            except FileNotFoundError:
                return None
            except OSError as error:
                raise private_files.storage_error("use", path, error) from error
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise StoreError(f"{path} is not a regular file", "move or delete it")
            if stat.S_IMODE(status.st_mode) & 0o077 and status.st_uid == os.geteuid():
                os.fchmod(descriptor, 0o600)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _lines(data: bytes) -> list[bytes]:
    return [line for line in data.split(b"\n") if line.strip()]


def _parse_entry(line: bytes) -> HistoryEntry | None:
    """None if the line is damaged."""
    import json

    try:
        parsed: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    fields = cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
    directory, text = fields.get("directory"), fields.get("text")
    if not isinstance(directory, str) or not isinstance(text, str) or not text.strip():
        return None
    # The file may come from elsewhere: keep control sequences out of the input line.
    return HistoryEntry(directory=directory, text=_CONTROL.sub("", text).encode("utf-8", "replace").decode())
