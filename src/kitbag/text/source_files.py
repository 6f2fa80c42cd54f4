"""Opens and decodes files that people wrote: bounded, non-blocking, within a boundary, in any common encoding.

Used by frontmatter and by every reader in `library`. An unusable file raises SourceError, which loaders turn into a
Diagnostic. Boundaries are checked on the opened descriptor, so that no file can be swapped between check and read.
"""

import os
from typing import Final, NamedTuple, TypeAlias

BODY_LIMIT = 4 * 1024 * 1024
FRONTMATTER_LIMIT = 256 * 1024
_OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_TYPE_MASK, _REGULAR = 0o170000, 0o100000

FileStamp: TypeAlias = tuple[int, int, int, int]
"""mtime, ctime, size, inode: the same stamp means the same bytes (see library.index for the details)."""


LINK_OUTSIDE: Final = "link-outside"
"""The diagnostic code for a link that leads out of its boundary."""


class PathBoundary(NamedTuple):
    """Where a file or directory may be after resolving all links. Paths are resolved and end with a slash."""

    allowed: tuple[str, ...]
    allowed_parents: tuple[str, ...] = ()
    """Any subdirectory of these is allowed too, unless it holds secrets."""
    fix: str = "replace the link with a copy of the file"

    def violation(self, real: str, is_link: bool = True) -> str:
        """Why a resolved path is out of bounds; empty if it is allowed. The path of a directory ends with a slash."""
        inside = next((folder for folder in self.allowed if real.startswith(folder)), "")
        beside = next((folder for folder in self.allowed_parents if real.startswith(folder)), "")
        if not inside and (not beside or "/" not in real[len(beside) :]):
            return f"{'symbolic link' if is_link else 'path'} outside {self.allowed[0]}: {real}"
        from kitbag.text.secret_paths import secret_path_reason

        reason = secret_path_reason(real[len(inside or beside) :])
        return f"{'symbolic link to ' if is_link else ''}{real}: {reason}" if reason else ""


def directory_boundary(directory: str) -> PathBoundary:
    """Only this directory, after resolving links."""
    return PathBoundary((with_trailing_slash(os.path.realpath(directory)),))


def parent_boundary(path: str) -> PathBoundary:
    """The parent directory of a resolved path; a link that was swapped in since then leads out of it."""
    return PathBoundary((with_trailing_slash(os.path.dirname(path)),))


def with_trailing_slash(directory: str) -> str:
    return directory if directory.endswith("/") else f"{directory}/"


class SourceError(Exception):
    def __init__(self, code: str, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.code = code
        self.problem = problem
        self.fix = fix


class FileProblem(NamedTuple):
    """A Diagnostic without its file."""

    severity: str
    code: str
    line: int
    problem: str
    fix: str
    field: str = ""
    """The field it is about, if its line is still to be looked up."""


def file_stamp(status: os.stat_result) -> FileStamp:
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


def open_regular_file(path: str, boundary: PathBoundary | None) -> tuple[int, os.stat_result]:
    """A descriptor that the caller closes. Never blocks: a FIFO, device or directory is an error. Without a boundary,
    links may lead anywhere: only for a path that the user named, or that was resolved and checked before."""
    try:
        descriptor = os.open(path, _OPEN_FLAGS)
    except OSError as error:
        raise source_error_from_os(error) from error
    except ValueError as error:  # an embedded NUL
        raise SourceError("unreadable", "not a valid file name", "rename it") from error
    status = os.fstat(descriptor)
    if boundary is not None:
        real = _real_path(descriptor, path)
        if (real != path or not path.startswith(boundary.allowed)) and (
            reason := boundary.violation(real, real != path)
        ):
            os.close(descriptor)
            raise SourceError(LINK_OUTSIDE, f"not read: {reason}", boundary.fix)
    if status.st_mode & _TYPE_MASK != _REGULAR:
        os.close(descriptor)
        raise SourceError("not-a-file", "not a regular file", "replace it with a text file")
    return descriptor, status


def _real_path(descriptor: int, path: str) -> str:
    """The real path of the opened file. Without /proc, the path is resolved again and must lead to the same file."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        pass
    real = os.path.realpath(path)
    try:
        same = os.path.samestat(os.stat(real), os.fstat(descriptor))
    except OSError:
        same = False
    return real if same else "/"


def source_error_from_os(error: OSError) -> SourceError:
    reason = (error.strerror or str(error)).lower()
    fix = {
        "permission denied": "make it readable: chmod u+r",
        "too many levels of symbolic links": "remove the circular symbolic link",
        "no such file or directory": "check the path, or remove the broken link",
    }.get(reason, "check the file")
    return SourceError("unreadable", f"cannot read file: {reason}", fix)


def read_bytes(path: str, boundary: PathBoundary | None, limit: int = BODY_LIMIT) -> tuple[bytes, FileStamp, bool]:
    """The first `limit` bytes, the file's stamp, and whether there was more."""
    descriptor, status = open_regular_file(path, boundary)
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
        raise source_error_from_os(error) from error
    finally:
        os.close(descriptor)
    data = b"".join(chunks)
    return data[:limit], file_stamp(status), len(data) > limit


def read_text(
    path: str, boundary: PathBoundary | None, limit: int = BODY_LIMIT
) -> tuple[str, FileStamp, list[FileProblem]]:
    """The file as text with LF newlines, and problems with decoding it."""
    data, stamp, more = read_bytes(path, boundary, limit)
    text, problems = decode_text(data, truncated=more)
    if more:
        problems.append(
            FileProblem(
                "warning",
                "file-too-large",
                text.count("\n") + 1,
                f"file too large; only the first {limit // 1024} KiB are used",
                "split the file: keep the main part short and move the rest to references/",
            )
        )
    return text, stamp, problems


def decode_text(data: bytes, truncated: bool = False) -> tuple[str, list[FileProblem]]:
    """Text with LF newlines and no leading BOM. Raises SourceError if the data is not text.

    `truncated`: the file is longer, so `data` may end inside a character.
    """
    problems: list[FileProblem] = []
    if data.startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")):
        encoding = "UTF-32" if data.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")) else "UTF-16"
        text = data.decode(encoding, errors="replace")
        problems.append(FileProblem("warning", "encoding", 1, f"encoded as {encoding}", "save the file as UTF-8"))
    elif b"\0" in data:
        raise SourceError("binary", "not a text file: contains NUL bytes", "replace it with a UTF-8 text file")
    else:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            if truncated and error.reason == "unexpected end of data" and len(data) - error.start < 4:
                text = data[: error.start].decode("utf-8")
            else:
                text = data.decode("cp1252", errors="replace")
                problem = f"not UTF-8 (byte 0x{data[error.start]:02x}); read as Windows-1252"
                problems.append(FileProblem("warning", "encoding", line, problem, "save the file as UTF-8"))
    text = text.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text, problems
