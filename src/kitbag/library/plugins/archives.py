"""Unpacks untrusted zip and tar archives into one directory, all or nothing.

Used by store. Does not trust archive headers: no `extractall`, forward reads only, with limits on entries,
bytes, memory and time. safe_copy checks each path and writes the files.
"""

import contextlib
import os
import stat
import struct
from collections.abc import Generator
from typing import IO, TYPE_CHECKING, Protocol, cast

from kitbag.errors import InvalidError, KitbagError, NotFoundError
from kitbag.library.plugins.safe_copy import (
    DIRECTORY_MODE,
    MAX_ENTRIES,
    MAX_FILE,
    MAX_NAME,
    PackageWriter,
    mode_problem,
    write_error,
)
from kitbag.text.hidden_characters import escape_for_terminal
from kitbag.text.source_files import SourceError, open_regular_file

if TYPE_CHECKING:
    from tarfile import TarInfo
    from zipfile import ZipInfo

_BLOCK = 512
_MAX_HEADER = 64 * 1024
"""Limit of one tar entry's extended header; real ones have a few hundred bytes."""
_HEADERS_PER_ENTRY = 6 * _BLOCK
_MAX_TRAILER = 1 << 20
_MAX_DIRECTORY = MAX_ENTRIES * 4096
_XZ_MEMORY = 256 * 1024 * 1024
_CENTRAL = struct.Struct("<28xHHH12x")
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_UTF8_NAME = 0x800
_STORED, _DEFLATED = 0, 8
_ZIP, _GZIP, _BZIP2, _XZ = (b"PK\3\4", b"PK\5\6"), b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0"


def unpack_archive(archive: str, destination: str) -> list[tuple[str, str]]:
    """`destination` must not exist, or be an empty directory; on failure it stays unchanged. Links become copies of
    their targets; returns files and links without a copy, and why.

    Detects the format by content. Raises InvalidError with the entry and the reason.
    """
    import shutil
    import tempfile

    destination = os.path.abspath(destination)
    if os.path.islink(destination) or (os.path.lexists(destination) and not _is_empty_directory(destination)):
        raise KitbagError(f"{destination} already exists", "choose a new directory")
    with _open_archive(archive) as file:
        name = os.path.basename(archive)
        # A dry run first, so that nothing is written if an entry is refused.
        _extract(file, PackageWriter("", name))
        try:
            parent = os.path.dirname(destination)
            os.makedirs(parent, exist_ok=True)
            staging = tempfile.mkdtemp(prefix=".unpacking-", dir=parent)
        except OSError as error:
            raise write_error(destination, error) from error
        try:
            writer = PackageWriter(staging, name)
            _extract(file, writer)
            writer.resolve_links()
            os.chmod(staging, DIRECTORY_MODE)
            os.rename(staging, destination)
            return writer.skipped
        except OSError as error:
            raise write_error(destination, error) from error
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def is_archive(path: str) -> bool:
    """By its first bytes; an uncompressed tar has its magic at offset 257."""
    try:
        with _open_archive(path) as file:
            start = file.read(265)
    except (KitbagError, OSError):
        return False
    return (
        start[:6].startswith((b"PK\3\4", b"PK\5\6", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0")) or start[257:262] == b"ustar"
    )


def _is_empty_directory(path: str) -> bool:
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is None
    except OSError:
        return False


@contextlib.contextmanager
def _open_archive(path: str) -> Generator[IO[bytes], None, None]:
    try:
        descriptor, _ = open_regular_file(path, None)
    except SourceError as error:
        kind = InvalidError if os.path.lexists(path) else NotFoundError
        raise kind(f"{path}: {error.problem}", error.fix) from error
    with os.fdopen(descriptor, "rb") as file:
        yield file


def _extract(file: IO[bytes], writer: PackageWriter) -> None:
    import lzma
    import tarfile
    import zipfile
    import zlib

    file.seek(0)
    start = file.read(6)
    file.seek(0)
    try:
        if start.startswith(_ZIP):
            _unpack_zip(file, writer)
        else:
            _unpack_tar(_decompress(file, start), writer)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError) as error:
        raise _damaged_error(writer, str(error)) from error
    except (ValueError, LookupError, ArithmeticError, RuntimeError, struct.error) as error:
        # The standard library raises these for malformed archives, including RecursionError.
        raise _damaged_error(writer, type(error).__name__) from error


def _damaged_error(writer: PackageWriter, reason: str) -> InvalidError:
    problem = f"{writer.origin}: not a valid zip or tar archive: {escape_for_terminal(reason)}"
    return InvalidError(problem, "download it again, or recreate it")


class _BoundedZip:
    """A zip file that checks the size of its central directory before zipfile parses it."""

    def __init__(self, file: IO[bytes], intake: PackageWriter) -> None:
        self._file = file
        self._intake = intake
        self.seek = file.seek
        self.tell = file.tell
        self.seekable = file.seekable

    def read(self, size: int = -1, /) -> bytes:
        if size > _MAX_DIRECTORY:
            raise self._intake.refusal("(central directory)", "too long")
        data = self._file.read(size)
        if data.startswith(b"PK\1\2"):
            at = entries = 0
            while at + _CENTRAL.size <= len(data):
                entries += 1
                if entries > MAX_ENTRIES:
                    raise self._intake.refusal("(central directory)", f"more than {MAX_ENTRIES:,} entries")
                name, extra, comment = _CENTRAL.unpack_from(data, at)
                at += _CENTRAL.size + name + extra + comment
        return data


def _unpack_zip(file: IO[bytes], intake: PackageWriter) -> None:
    import zipfile
    import zlib

    with zipfile.ZipFile(_BoundedZip(file, intake)) as archive:
        members = [(info, *_check_zip_entry(info, intake)) for info in archive.infolist()]
        for info, relative, is_directory in members:
            if relative is None:
                continue
            if is_directory:
                intake.make_directory(relative)
                continue
            try:
                with archive.open(info) as entry:
                    if stat.S_ISLNK(info.external_attr >> 16):
                        intake.add_link(relative, os.fsdecode(entry.read(MAX_NAME)))
                        continue
                    intake.write_file(relative, bool(info.external_attr >> 16 & 0o100), entry.read)
            except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError) as error:
                raise intake.refusal(relative, f"damaged: {error}") from error


def _check_zip_entry(info: "ZipInfo", intake: PackageWriter) -> tuple[str | None, bool]:
    """The checked path, None if it must be skipped, and whether it is a directory."""
    # zipfile truncates `filename` at a NUL; check the name as stored.
    name = info.orig_filename
    if not info.flag_bits & _UTF8_NAME:
        # Without the flag, names are code page 437 by the specification, but most tools write UTF-8 anyway.
        with contextlib.suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    intake.count_entry(name)
    mode = info.external_attr >> 16
    is_directory = not stat.S_ISLNK(mode) and (name.endswith("/") or stat.S_ISDIR(mode))
    is_link = stat.S_ISLNK(mode)
    reason = "" if is_link else mode_problem(mode)
    if info.flag_bits & _ENCRYPTED:
        reason = "encrypted"
    elif info.compress_type not in (_STORED, _DEFLATED):
        reason = "unsupported compression method"
    elif info.file_size > MAX_FILE:
        reason = f"larger than {MAX_FILE // 1_000_000} MB"
    if reason:
        raise intake.refusal(name, reason)
    return (name if is_link else intake.check_path(name, is_directory)), is_directory


class _ByteSource(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class _XzReader:
    """Decompresses with a memory limit, which lzma.open lacks: a small header can request gigabytes."""

    def __init__(self, file: IO[bytes]) -> None:
        import lzma

        self._file = file
        self._decoder = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)

    def read(self, size: int = -1, /) -> bytes:
        while not self._decoder.eof:
            chunk = self._file.read(1 << 16) if self._decoder.needs_input else b""
            if self._decoder.needs_input and not chunk:
                raise EOFError("unexpected end of file")
            data = self._decoder.decompress(chunk, size)
            if data:
                return data
        return b""


def _decompress(file: IO[bytes], start: bytes) -> _ByteSource:
    if start.startswith(_GZIP):
        import gzip

        return gzip.GzipFile(fileobj=file)
    if start.startswith(_BZIP2):
        import bz2

        return bz2.BZ2File(file)
    return _XzReader(file) if start.startswith(_XZ) else file


class _ForwardReader:
    """The file object for tarfile: forward only, bounded headers, keeps the last block read."""

    def __init__(self, source: _ByteSource, intake: PackageWriter) -> None:
        self._source = source
        self._intake = intake
        self._position = 0
        self.last_block = b""

    def tell(self) -> int:
        return self._position

    def seek(self, position: int, whence: int = 0, /) -> int:
        # Negative sizes would loop forever.
        if whence or position < self._position:
            raise ValueError("entry with a negative size")
        while self._position < position and self.read_exact(min(position - self._position, 1 << 16)):
            pass
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        """For headers only; contents are read with `read_exact`."""
        if not 0 <= size <= _MAX_HEADER:
            raise self._intake.refusal("(header)", f"longer than {_MAX_HEADER // 1024} KB")
        self.last_block = self.read_exact(size)
        return self.last_block

    def read_exact(self, size: int) -> bytes:
        """Exactly `size` bytes; fewer only at the end."""
        chunks: list[bytes] = []
        while size > 0 and (chunk := self._source.read(size)):
            chunks.append(chunk)
            size -= len(chunk)
            self._position += len(chunk)
        limit = 2 * _MAX_TRAILER + self._intake.entries * _HEADERS_PER_ENTRY
        if self._position - self._intake.total > limit:
            raise self._intake.refusal("(headers)", "too large")
        return b"".join(chunks)

    def close(self) -> None:
        """Does nothing: the caller owns the file."""


def _unpack_tar(source: _ByteSource, intake: PackageWriter) -> None:
    import tarfile

    reader = _ForwardReader(source, intake)
    with tarfile.TarFile(fileobj=cast("IO[bytes]", reader), encoding="utf-8") as archive:
        while (member := archive.next()) is not None:
            intake.count_entry(member.name)
            reason = _member_problem(member)
            if reason:
                raise intake.refusal(member.name, reason)
            if member.issym() or member.islnk():
                intake.add_link(member.name, member.linkname, "hard link" if member.islnk() else "symbolic link")
                continue
            relative = intake.check_path(member.name, member.isdir())
            if relative is None:
                continue
            if member.isdir():
                intake.make_directory(relative)
                continue
            reader.seek(member.offset_data)
            _write_member(reader, member.size, relative, bool(member.mode & 0o100), intake)
    # tarfile treats a broken header as the end; the real end is a block of zeros.
    if reader.last_block != bytes(_BLOCK):
        raise EOFError("unexpected end of file or invalid header")
    # Reading to the end makes the decompressors verify their checksums.
    if len(reader.read_exact(_MAX_TRAILER + 1)) > _MAX_TRAILER:
        raise intake.refusal("(end)", "data after the end of the archive")


def _write_member(reader: _ForwardReader, size: int, relative: str, executable: bool, intake: PackageWriter) -> None:
    remaining = size

    def read(limit: int) -> bytes:
        nonlocal remaining
        chunk = reader.read_exact(min(limit, remaining))
        if remaining and not chunk:
            raise EOFError(f"unexpected end of file in {relative}")
        remaining -= len(chunk)
        return chunk

    intake.write_file(relative, executable, read)


def _member_problem(member: "TarInfo") -> str:
    if member.islnk() or member.issym():
        return ""
    if member.isdev():
        return "device or pipe"
    if member.issparse() or not (member.isreg() or member.isdir()):
        return "neither a file nor a directory"
    if member.size > MAX_FILE or member.size < 0:
        return f"larger than {MAX_FILE // 1_000_000} MB"
    return mode_problem(member.mode & 0o7777)
