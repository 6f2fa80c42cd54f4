"""Opening and decoding files that people wrote: bounded, never blocking, any usual encoding.

Used by frontmatter and by every reader in `library`. A file that can't be used is a SourceError,
which the loaders turn into a Diagnostic.
"""

import os
from typing import NamedTuple, TypeAlias

BODY_LIMIT = 4 * 1024 * 1024
_OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_KIND, _REGULAR = 0o170000, 0o100000

Stamp: TypeAlias = tuple[int, int, int, int]
"""mtime, ctime, size, inode: the same stamp means the same bytes (see library.index for the fine print)."""


class SourceError(Exception):
    def __init__(self, code: str, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.code = code
        self.problem = problem
        self.fix = fix


class Problem(NamedTuple):
    """A Diagnostic that does not know its file yet."""

    severity: str
    code: str
    line: int
    problem: str
    fix: str
    field: str = ""
    """The field it is about, when its line has still to be looked up."""


def stamp_of(status: os.stat_result) -> Stamp:
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


def open_regular(path: str) -> tuple[int, os.stat_result]:
    """A descriptor the caller closes. Never waits: a FIFO, device or directory is an error."""
    try:
        descriptor = os.open(path, _OPEN_FLAGS)
    except OSError as error:
        raise os_problem(error) from error
    except ValueError as error:  # an embedded NUL
        raise SourceError("unreadable", "the name can't be a file's", "rename it") from error
    status = os.fstat(descriptor)
    if status.st_mode & _KIND != _REGULAR:
        os.close(descriptor)
        raise SourceError("not-a-file", "not a regular file", "put a plain text file here")
    return descriptor, status


def os_problem(error: OSError) -> SourceError:
    reason = (error.strerror or str(error)).lower()
    fix = {
        "permission denied": "make it readable: chmod u+r",
        "too many levels of symbolic links": "remove the symbolic link that points to itself",
        "no such file or directory": "check the path, or remove the broken link",
    }.get(reason, "check the file")
    return SourceError("unreadable", f"can't be read: {reason}", fix)


def read_bytes(path: str, limit: int = BODY_LIMIT) -> tuple[bytes, Stamp, bool]:
    """The first `limit` bytes, the stamp they belong to, and whether there was more."""
    descriptor, status = open_regular(path)
    try:
        chunks: list[bytes] = []
        left = limit + 1
        while left > 0:
            chunk = os.read(descriptor, min(left, 1 << 20))
            if not chunk:
                break
            chunks.append(chunk)
            left -= len(chunk)
    except OSError as error:
        raise os_problem(error) from error
    finally:
        os.close(descriptor)
    data = b"".join(chunks)
    return data[:limit], stamp_of(status), len(data) > limit


def read_text(path: str, limit: int = BODY_LIMIT) -> tuple[str, Stamp, list[Problem]]:
    """The file as text with LF newlines, and what had to be done to get it."""
    data, stamp, more = read_bytes(path, limit)
    text, problems = decode(data, cut=more)
    if more:
        problems.append(
            Problem(
                "warning",
                "file-too-large",
                text.count("\n") + 1,
                f"only the first {limit // 1024} KiB are used",
                "split the file: keep the main part short and move the rest to references/",
            )
        )
    return text, stamp, problems


def decode(data: bytes, cut: bool = False) -> tuple[str, list[Problem]]:
    """Text with LF newlines and no leading BOM. Raises SourceError for what is not text at all.

    `cut`: the file has more, so `data` may end inside a character.
    """
    problems: list[Problem] = []
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = data.decode("utf-16", errors="replace")
        problems.append(Problem("warning", "encoding", 1, "saved as UTF-16", "save the file as UTF-8"))
    elif b"\0" in data:
        raise SourceError("binary", "not a text file: it has NUL bytes", "put a UTF-8 text file here")
    else:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            if cut and error.reason == "unexpected end of data" and len(data) - error.start < 4:
                text = data[: error.start].decode("utf-8")
            else:
                text = data.decode("cp1252", errors="replace")
                what = f"not UTF-8: byte 0x{data[error.start]:02x}, read as Windows-1252"
                problems.append(Problem("warning", "encoding", line, what, "save the file as UTF-8"))
    text = text.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, problems
