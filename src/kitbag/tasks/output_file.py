"""The output file of a background command: written while it runs, and kept.

Plain text without terminal sequences or secrets, in whole lines where possible, bounded in size. Written by
command_task, read in chunks by byte offset by reports.
"""

import contextlib
import os
import stat
import time
from collections.abc import Generator
from typing import Final, NamedTuple

from kitbag.store import private_files
from kitbag.store.private_files import StoreError, storage_error
from kitbag.store.redaction import Redactor
from kitbag.tools.files.read import format_size
from kitbag.tools.shell.command_output import clean_terminal_output

MAX_BYTES: Final = 100_000_000
OUTPUT_DIRECTORY: Final = "output"
"""Inside the journal's directory."""
TAIL_CHARACTERS: Final = 4_000
"""The end of the output that notifications include."""
CHUNK_BYTES: Final = 40_000
_BLOCK_BYTES = 1 << 14
"""Redacted in one piece: repeated content is recognized as no secret."""
_MAX_LINE_BYTES = 1 << 16
_MAX_KEY_BYTES = 20_000
_TAIL_BYTES = 1 << 16
_IDLE_SECONDS = 0.3
_FLOOD_PAUSE = 0.002
"""Per discarded chunk, so that a flood does not use a whole CPU."""
_KEY_MARKERS = (b"-----BEGIN ", b"PRIVATE KEY", b"-----END ")
_PLAIN_BYTES = bytes((9, 10, *range(32, 127)))


class OutputFile:
    """Written by one thread. What can't be stored is counted; `problem` says why."""

    def __init__(self, state_directory: str, task_id: str, redactor: Redactor, max_bytes: int = MAX_BYTES) -> None:
        self.problem = ""
        self.tail = ""
        """The end of the output."""
        self.size = 0
        """Bytes in the file."""
        self._redactor = redactor
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self._received_at = 0.0
        self._dropped = 0
        self._dropped_tail = bytearray()
        self._is_full = False
        self._descriptor = -1
        try:
            with private_files.open_directory(state_directory, OUTPUT_DIRECTORY) as inside:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                self._descriptor = os.open(task_id, flags, 0o600, dir_fd=inside)
        except OSError as error:
            self._stop_storing(storage_error("write", task_id, error))
        except StoreError as error:
            self._stop_storing(error)

    def feed(self, chunk: bytes) -> None:
        self._buffer += chunk
        self._received_at = time.monotonic()
        if self._is_full:
            self._drop(bytes(self._buffer))
            self._buffer.clear()
            time.sleep(_FLOOD_PAUSE)
            return
        if b"\n" in chunk:
            self._write_lines()
        if len(self._buffer) > _MAX_LINE_BYTES:
            self._write_long_line()

    def flush_idle(self) -> None:
        """Called every second: after a moment without output, a partial line may be a prompt. A line that overwrites
        itself keeps waiting."""
        if self._buffer and b"\r" not in self._buffer and time.monotonic() - self._received_at >= _IDLE_SECONDS:
            self._write(_complete_length(self._buffer))

    def close(self) -> None:
        """The file is on disk on return."""
        self._write(len(self._buffer.rstrip(b"\r")))
        if self._dropped:
            self._write_dropped_tail()
        if self._descriptor >= 0:
            try:
                os.fsync(self._descriptor)
            except OSError as error:
                self.problem = self.problem or f"its output may be lost: {error.strerror}"
            finally:
                os.close(self._descriptor)
                self._descriptor = -1

    def _write_dropped_tail(self) -> None:
        end = bytes(self._dropped_tail[-_TAIL_BYTES:])
        if self._dropped > len(end):
            end = end[end.find(b"\n") + 1 :]
            self._append(f"[... {format_size(self._dropped - len(end))} omitted ...]\n", always=True)
        self._append(self._clean(end), always=True)

    # Writing what is complete

    def _write_lines(self) -> None:
        end = self._buffer.rfind(b"\n") + 1
        begin = self._buffer.rfind(_KEY_MARKERS[0], 0, end)
        # A private key of several lines is recognized only as a whole.
        if begin >= 0 and end - begin < _MAX_KEY_BYTES:
            rest = bytes(self._buffer[begin:end])
            if _KEY_MARKERS[1] in rest and _KEY_MARKERS[2] not in rest:
                end = self._buffer.rfind(b"\n", 0, begin) + 1
        self._write(end)

    def _write_long_line(self) -> None:
        start = self._buffer.rfind(b"\r", 0, len(self._buffer) - 1)
        if start >= 0:  # keep only the last state of a line that overwrites itself
            del self._buffer[: start + 1]
        if len(self._buffer) > _MAX_LINE_BYTES:
            space = self._buffer.rfind(b" ", len(self._buffer) // 2)
            self._write(space + 1 if space > 0 else _complete_length(self._buffer))

    def _write(self, end: int) -> None:
        """Writes the buffer up to this position, in blocks that end with a line where possible."""
        start = 0
        while start < end:
            stop = min(start + _BLOCK_BYTES, end)
            if stop < end:
                line = self._buffer.rfind(b"\n", start, stop) + 1
                stop = line or self._buffer.find(b"\n", stop, end) + 1 or end
            self._write_block(bytes(self._buffer[start:stop]))
            start = stop
        del self._buffer[:end]

    def _write_block(self, data: bytes) -> None:
        if self._is_full:
            self._drop(data)
        elif self.size + len(data) > self._max_bytes:
            self._is_full = True
            self._append(
                f"[... more than {format_size(self._max_bytes)}: only the end of the remaining output is kept ...]\n"
            )
            self._drop(data)
        else:
            self._append(self._clean(data))

    def _clean(self, data: bytes) -> str:
        if not data.translate(None, _PLAIN_BYTES):
            return self._redactor.redact_text(data.decode("ascii"))
        # Trailing line ends matter here, so a character follows them for the moment.
        return self._redactor.redact_text(clean_terminal_output(data + b".")[0][:-1])

    def _append(self, text: str, always: bool = False) -> None:
        self.tail = (self.tail + text)[-TAIL_CHARACTERS:]
        if self._descriptor < 0 or (self.problem and not always):
            return
        data = text.encode("utf-8", "replace")
        try:
            while data:
                count = os.write(self._descriptor, data)
                self.size += count
                data = data[count:]
        except OSError as error:
            self._stop_storing(storage_error("write", "the output file", error))
            self._drop(data)

    def _drop(self, data: bytes) -> None:
        self._dropped += len(data)
        self._dropped_tail += data
        if len(self._dropped_tail) > 2 * _TAIL_BYTES:
            del self._dropped_tail[:-_TAIL_BYTES]

    def _stop_storing(self, error: StoreError) -> None:
        self._is_full = True
        self.problem = self.problem or f"its output is not stored: {error.problem}. {error.fix}"


def _complete_length(data: bytearray) -> int:
    """The length without a partial character at the end."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            whole = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if whole > back else len(data)
        if byte < 0x80:
            break
    return len(data)


class OutputChunk(NamedTuple):
    text: str
    next_offset: int
    """Where the next chunk begins."""
    size: int
    """The total size so far."""


def read_chunk(state_directory: str, task_id: str, offset: int, max_bytes: int = CHUNK_BYTES) -> OutputChunk:
    """`state_directory`: the journal's directory. Empty if there is no output. Raises StoreError."""
    with _open_output(state_directory, task_id) as (descriptor, size):
        at = min(offset, size)
        data = os.pread(descriptor, min(max_bytes, size - at), at) if size else b""
    skipped = 0
    while at and skipped < min(3, len(data)) and 0x80 <= data[skipped] < 0xC0:
        skipped += 1  # the rest of a character from the previous chunk
    end = _complete_length(bytearray(data)) if at + len(data) < size else len(data)
    return OutputChunk(text=data[skipped:end].decode("utf-8", "replace"), next_offset=at + end, size=size)


def read_tail(state_directory: str, task_id: str) -> str:
    """The end of the output, from the start of a line."""
    with _open_output(state_directory, task_id) as (descriptor, size):
        at = max(0, size - TAIL_CHARACTERS)
        data = os.pread(descriptor, size - at, at) if size else b""
    line = data.find(b"\n") + 1 if at else 0
    return data[line:].decode("utf-8", "replace")


@contextlib.contextmanager
def _open_output(state_directory: str, task_id: str) -> Generator[tuple[int, int], None, None]:
    """A descriptor and the file's size; 0 if there is no regular file."""
    path = os.path.join(state_directory, OUTPUT_DIRECTORY, task_id)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        yield -1, 0
        return
    except OSError as error:
        raise storage_error("read", path, error) from error
    try:
        status = os.fstat(descriptor)
        yield descriptor, status.st_size if stat.S_ISREG(status.st_mode) else 0
    finally:
        os.close(descriptor)
