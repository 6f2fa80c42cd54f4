"""What a background command prints, in a file of its own: written while it runs, read by whoever looks, for ever.

Plain text without terminal sequences and without secrets, in whole lines as far as there are any, bounded. Used by
command_task, which writes, and by reports, which reads pieces by their place in bytes.
"""

import contextlib
import os
import stat
import time
from collections.abc import Generator
from typing import Final, NamedTuple

from kitbag.store import private_files
from kitbag.store.private_files import StoreError, cannot
from kitbag.store.redaction import Redactor
from kitbag.tools.files.read import amount
from kitbag.tools.shell.command_output import tidy

MOST_BYTES: Final = 100_000_000
FOLDER: Final = "output"
"""In the folder of the journal."""
LAST_CHARACTERS: Final = 4_000
"""Of the end of the output, for whoever is told of the end."""
PIECE_BYTES: Final = 40_000
_BLOCK = 1 << 14
"""Taken at once: what repeats itself is known to hold no secret then."""
_LONGEST_LINE = 1 << 16
_LONGEST_KEY = 20_000
_TAIL_BYTES = 1 << 16
_QUIET_SECONDS = 0.3
_PAUSE = 0.002
"""For each chunk that nobody keeps, so that a flood does not take a processor."""
_KEY = (b"-----BEGIN ", b"PRIVATE KEY", b"-----END ")
_PLAIN = bytes((9, 10, *range(32, 127)))


class OutputFile:
    """Written by one thread. What can't be kept is counted; `problem` says why."""

    def __init__(self, state: str, task_id: str, redactor: Redactor, most: int = MOST_BYTES) -> None:
        self.problem = ""
        self.last = ""
        """The end of what was printed."""
        self.size = 0
        """Bytes in the file."""
        self._redactor = redactor
        self._most = most
        self._held = bytearray()
        self._heard = 0.0
        self._dropped = 0
        self._tail = bytearray()
        self._is_full = False
        self._descriptor = -1
        try:
            with private_files.directory(state, FOLDER) as inside:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                self._descriptor = os.open(task_id, flags, 0o600, dir_fd=inside)
        except OSError as error:
            self._give_up(cannot("written", task_id, error))
        except StoreError as error:
            self._give_up(error)

    def take(self, chunk: bytes) -> None:
        self._held += chunk
        self._heard = time.monotonic()
        if self._is_full:
            self._drop(bytes(self._held))
            self._held.clear()
            time.sleep(_PAUSE)
            return
        if b"\n" in chunk:
            self._write_lines()
        if len(self._held) > _LONGEST_LINE:
            self._write_of_a_long_line()

    def quiet(self) -> None:
        """Called each second: when nothing came for a moment, half a line may be a question. What overwrites itself
        waits on."""
        if self._held and b"\r" not in self._held and time.monotonic() - self._heard >= _QUIET_SECONDS:
            self._write(_without_half_a_character(self._held))

    def close(self) -> None:
        """On the disk when it returns."""
        self._write(len(self._held.rstrip(b"\r")))
        if self._dropped:
            self._put_tail()
        if self._descriptor >= 0:
            try:
                os.fsync(self._descriptor)
            except OSError as error:
                self.problem = self.problem or f"its output may be lost: {error.strerror}"
            finally:
                os.close(self._descriptor)
                self._descriptor = -1

    def _put_tail(self) -> None:
        end = bytes(self._tail[-_TAIL_BYTES:])
        if self._dropped > len(end):
            end = end[end.find(b"\n") + 1 :]
            self._put(f"[... {amount(self._dropped - len(end))} left out here ...]\n", always=True)
        self._put(self._clean(end), always=True)

    # What is ready to be written

    def _write_lines(self) -> None:
        end = self._held.rfind(b"\n") + 1
        begin = self._held.rfind(_KEY[0], 0, end)
        # A key of several lines is known to be one only as a whole.
        if begin >= 0 and end - begin < _LONGEST_KEY:
            rest = bytes(self._held[begin:end])
            if _KEY[1] in rest and _KEY[2] not in rest:
                end = self._held.rfind(b"\n", 0, begin) + 1
        self._write(end)

    def _write_of_a_long_line(self) -> None:
        again = self._held.rfind(b"\r", 0, len(self._held) - 1)
        if again >= 0:  # of what overwrites itself, the last
            del self._held[: again + 1]
        if len(self._held) > _LONGEST_LINE:
            space = self._held.rfind(b" ", len(self._held) // 2)
            self._write(space + 1 if space > 0 else _without_half_a_character(self._held))

    def _write(self, end: int) -> None:
        """All that is held before this place, in blocks that end with a line where they can."""
        start = 0
        while start < end:
            stop = min(start + _BLOCK, end)
            if stop < end:
                line = self._held.rfind(b"\n", start, stop) + 1
                stop = line or self._held.find(b"\n", stop, end) + 1 or end
            self._write_block(bytes(self._held[start:stop]))
            start = stop
        del self._held[:end]

    def _write_block(self, data: bytes) -> None:
        if self._is_full:
            self._drop(data)
        elif self.size + len(data) > self._most:
            self._is_full = True
            self._put(f"[... more than {amount(self._most)}: only the end of what follows is kept ...]\n")
            self._drop(data)
        else:
            self._put(self._clean(data))

    def _clean(self, data: bytes) -> str:
        if not data.translate(None, _PLAIN):
            return self._redactor.text(data.decode("ascii"))
        # Line ends at the end count here, so something stands behind them for a moment.
        return self._redactor.text(tidy(data + b".")[0][:-1])

    def _put(self, text: str, always: bool = False) -> None:
        self.last = (self.last + text)[-LAST_CHARACTERS:]
        if self._descriptor < 0 or (self.problem and not always):
            return
        data = text.encode("utf-8", "replace")
        try:
            while data:
                count = os.write(self._descriptor, data)
                self.size += count
                data = data[count:]
        except OSError as error:
            self._give_up(cannot("written", "it", error))
            self._drop(data)

    def _drop(self, data: bytes) -> None:
        self._dropped += len(data)
        self._tail += data
        if len(self._tail) > 2 * _TAIL_BYTES:
            del self._tail[:-_TAIL_BYTES]

    def _give_up(self, error: StoreError) -> None:
        self._is_full = True
        self.problem = self.problem or f"its output is not kept: {error.problem}. {error.fix}"


def _without_half_a_character(data: bytearray) -> int:
    """How much of it is whole."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            whole = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if whole > back else len(data)
        if byte < 0x80:
            break
    return len(data)


class Piece(NamedTuple):
    text: str
    next: int
    """Where what follows begins."""
    size: int
    """Of all that there is by now."""


def read_piece(state: str, task_id: str, offset: int, most: int = PIECE_BYTES) -> Piece:
    """`state`: the folder of the journal. Empty where there is nothing. Raises StoreError for what can't be read."""
    with _opened(state, task_id) as (descriptor, size):
        at = min(offset, size)
        data = os.pread(descriptor, min(most, size - at), at) if size else b""
    skipped = 0
    while at and skipped < min(3, len(data)) and 0x80 <= data[skipped] < 0xC0:
        skipped += 1  # the rest of a character that begins before
    end = _without_half_a_character(bytearray(data)) if at + len(data) < size else len(data)
    return Piece(data[skipped:end].decode("utf-8", "replace"), at + end, size)


def read_end(state: str, task_id: str) -> str:
    """The last of it, from the start of a line."""
    with _opened(state, task_id) as (descriptor, size):
        at = max(0, size - LAST_CHARACTERS)
        data = os.pread(descriptor, size - at, at) if size else b""
    line = data.find(b"\n") + 1 if at else 0
    return data[line:].decode("utf-8", "replace")


@contextlib.contextmanager
def _opened(state: str, task_id: str) -> Generator[tuple[int, int], None, None]:
    """A descriptor and the size of what it is of; 0 for what is not there, or is no file."""
    path = os.path.join(state, FOLDER, task_id)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        yield -1, 0
        return
    except OSError as error:
        raise cannot("read", path, error) from error
    try:
        found = os.fstat(descriptor)
        yield descriptor, found.st_size if stat.S_ISREG(found.st_mode) else 0
    finally:
        os.close(descriptor)
