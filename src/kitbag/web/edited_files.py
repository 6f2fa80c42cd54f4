"""Reads and replaces a skill's file for the editor: below the user's or the project's own directories, never through a
symbolic link, and only if it is still what the editor was given.

Used by skill_drafts. What a browser's text area does not keep, CRLF and a byte order mark, is kept here.
"""

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Generator
from typing import Final

import msgspec

from kitbag.errors import InvalidError, KitbagError, UsageError
from kitbag.library.scopes import Places, Root

MAX_BYTES: Final = 1_000_000
_BOM: Final = b"\xef\xbb\xbf"
_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ChangedOnDiskError(KitbagError):
    """Another program wrote the file since the editor read it."""


class EditableFile(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    """With `\\n`."""
    version: str
    """Hash of the bytes."""
    has_bom: bool = False
    has_crlf: bool = False


def find_base(root: Root, places: Places) -> str:
    """The directory of the user or the project that has this root. Raises InvalidError if it is neither's."""
    bases = {"user": (places.kitbag_home, places.user_home), "project": places.project_dirs}.get(root.scope, ())
    for base in bases:
        if f"{root.path}/".startswith(f"{base.rstrip('/')}/"):
            return base
    whose = {"built-in": "ships with Kitbag", "plugin": "belongs to a plugin"}.get(root.scope, "is outside")
    raise InvalidError(
        f"it {whose}; only your own and the project's files can be edited here", "copy it under a new name"
    )


def read_file(base: str, path: str) -> EditableFile:
    """Raises InvalidError if a part of the path below `base` is a link, or the file is not text."""
    with _open_folder(base, path) as folder:
        return _parse(path, _read(folder, path)[0])


def replace_file(base: str, path: str, text: str, version: str) -> EditableFile:
    """Atomic; keeps the permissions. Raises ChangedOnDiskError if the file is not that `version` any more."""
    try:
        data = text.replace("\r\n", "\n").encode()
    except UnicodeEncodeError as error:
        raise UsageError("the text contains invalid characters", "remove them") from error
    with _open_folder(base, path) as folder:
        before, mode = _read(folder, path)
        known = _parse(path, before)
        if known.version != version:
            problem = f"{path} was changed by another program meanwhile"
            raise ChangedOnDiskError(problem, "copy your text, reload the file, and apply your change again")
        data = (_BOM if known.has_bom else b"") + (data.replace(b"\n", b"\r\n") if known.has_crlf else data)
        if len(data) > MAX_BYTES:
            raise UsageError(f"larger than {MAX_BYTES:,} bytes", "move details to other files of the skill")
        try:
            _write(folder, os.path.basename(path), data, mode)
        except OSError as error:
            raise InvalidError(f"can't write {path}: {error.strerror}", "check the directory") from error
        return _parse(path, data)


@contextlib.contextmanager
def _open_folder(base: str, path: str) -> Generator[int, None, None]:
    """The directory of the file, reached without following a link below `base`."""
    relative = os.path.relpath(os.path.dirname(path), base)
    parts = [part for part in relative.split("/") if part != "."]
    if ".." in parts:
        raise InvalidError(f"{path} is outside {base}", "edit it where it is")
    try:
        descriptor = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidError(f"can't open {base}: {error.strerror}", "check the directory") from error
    try:
        for part in parts:
            try:
                inner = os.open(part, _DIRECTORY_FLAGS, dir_fd=descriptor)
            except OSError as error:
                raise _refusal(path, error) from error
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def _refusal(path: str, error: OSError) -> InvalidError:
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return InvalidError(f"{path} is a symbolic link, or below one; it can't be edited here", "edit its target")
    return InvalidError(f"can't read {path}: {error.strerror}", "check the file")


def _read(folder: int, path: str) -> tuple[bytes, int]:
    """Content and permissions."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(os.path.basename(path), flags, dir_fd=folder)
    except OSError as error:
        raise _refusal(path, error) from error
    with open(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise InvalidError(f"{path} is not a regular file", "replace it with one")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise InvalidError(f"{path} is larger than {MAX_BYTES:,} bytes", "edit it in your editor")
    return data, stat.S_IMODE(status.st_mode)


def _parse(path: str, data: bytes) -> EditableFile:
    has_bom = data.startswith(_BOM)
    try:
        text = data[len(_BOM) if has_bom else 0 :].decode()
    except UnicodeDecodeError as error:
        raise InvalidError(f"{path} is not UTF-8 text", "convert it in your editor") from error
    return EditableFile(
        text=text.replace("\r\n", "\n"),
        version=hashlib.sha256(data).hexdigest(),
        has_bom=has_bom,
        has_crlf="\r\n" in text,
    )


def _write(folder: int, name: str, data: bytes, mode: int) -> None:
    temporary = f".{name}.{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)
