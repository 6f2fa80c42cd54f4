"""The results file of a batch: one JSON line per finished row, appended as rows finish and read to resume.

Used by batch. One run writes to it at a time. A line is written whole or not at all; the last line of a row counts.
"""

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from typing import Any, Final, Self, cast

import msgspec

from kitbag.errors import InvalidError
from kitbag.record_fields import RecordFields
from kitbag.text.row_files import MAX_ROW_BYTES

_FIX: Final = "name another file with --results"
_LINE_START: Final = b'{"row": '
_MAX_LINE_BYTES: Final = 10 * MAX_ROW_BYTES


class RowResult(msgspec.Struct, frozen=True, kw_only=True):
    row: int
    key: str
    """The hash of the row, the task and the agent: while it stays, the row is not run again."""
    status: str
    """Of the task; `failed` also if it could not be started."""
    output: Any = None
    """The answer: text, or the JSON value if the batch has an output schema."""
    tokens: int = 0
    cost: float | None = 0.0
    task_id: str = ""
    error: str = ""

    @property
    def is_completed(self) -> bool:
        return self.status == "completed" and not self.error


_RESULT_FIELDS: Final = RecordFields(
    RowResult, "row", "key", "status", "output", "tokens", "cost", "error", task_id="task"
)


class KeyHistory(msgspec.Struct):
    """What the file has about the rows with one key; mutable, because there may be a hundred thousand."""

    attempts: int = 0
    is_completed: bool = False


class ResultsFile:
    """Open and locked from creation to `close`. Raises InvalidError for a file that is no results file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.history: dict[str, KeyHistory] = {}
        self.notices: list[str] = []
        self._descriptor, self.was_created = _open(path)
        try:
            self._lock()
            for result in self._read():
                known = self.history.setdefault(result.key, KeyHistory())
                known.attempts += 1
                known.is_completed = result.is_completed
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._descriptor)

    def discard(self) -> None:
        """Removes the file if it was created here."""
        if self.was_created:
            with contextlib.suppress(OSError):
                os.unlink(self.path)

    def is_same_file(self, path: str) -> bool:
        with contextlib.suppress(OSError):
            return os.path.samestat(os.fstat(self._descriptor), os.stat(path))
        return False

    def append(self, result: RowResult) -> None:
        """Raises InvalidError if the line can't be written; the file is as before then."""
        line = (json.dumps(_RESULT_FIELDS.write(result), ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")
        size = os.fstat(self._descriptor).st_size
        try:
            if os.write(self._descriptor, line) == len(line):
                return
            reason = "no space left"
        except OSError as error:
            reason = error.strerror or str(error)
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, size)
        raise InvalidError(f"can't write {self.path}: {reason}", "fix the problem and run the same command again")

    def _lock(self) -> None:
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            raise InvalidError(f"{self.path} is not a regular file", _FIX)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            problem = f"another run is writing to {self.path}"
            raise InvalidError(problem, f"wait for it, or {_FIX}") from None

    def _read(self) -> Iterator[RowResult]:
        with open(os.dup(self._descriptor), "rb") as file:
            file.seek(0)
            begins_at = 0
            for number, raw in enumerate(iter(lambda: file.readline(_MAX_LINE_BYTES), b""), 1):
                result = _parse_result(raw)
                if result is not None:
                    if not raw.endswith(b"\n"):
                        os.write(self._descriptor, b"\n")
                    yield result
                elif not raw.endswith(b"\n") and raw[: len(_LINE_START)] == _LINE_START[: len(raw)]:
                    # The end of a write that a crash cut off.
                    os.ftruncate(self._descriptor, begins_at)
                    self.notices.append(f"{self.path}: removed an incomplete line at the end")
                elif raw.strip():
                    raise InvalidError(f"{self.path}:{number}: not a result of a row", _FIX)
                begins_at += len(raw)


def _open(path: str) -> tuple[int, bool]:
    """The descriptor, and whether the file is new."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK  # opening a pipe would wait for its other end
    try:
        try:
            return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666), True
        except FileExistsError:
            return os.open(path, flags | os.O_CREAT, 0o666), False
    except OSError as error:
        raise InvalidError(f"can't write {path}: {error.strerror or error}", _FIX) from error


def _parse_result(raw: bytes) -> RowResult | None:
    try:
        body: object = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    fields = _RESULT_FIELDS.known_fields(cast("dict[str, Any]", body))
    try:
        return msgspec.convert(fields, RowResult)
    except msgspec.ValidationError:
        return None
