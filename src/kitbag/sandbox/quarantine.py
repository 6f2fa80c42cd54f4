"""Control paths that a command created past the sandbox's guard, moved to the Kitbag home until the user decides.

Used by `bubblewrap` when a command has ended, and by `kitbag quarantine`. Opens directories one by one from the root,
so that no link redirects the move.
"""

import json
import os
import secrets
import shutil
import time
from typing import Any, Final, cast

import msgspec

from kitbag.errors import InvalidError, NotFoundError
from kitbag.store import private_files
from kitbag.store.redaction import Redactor
from kitbag.store.secret_names import has_secret_value

DIRECTORY: Final = "quarantine"
_CONTENT, _RECORD = "content", "record.json"


class QuarantinedPath(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    path: str
    """Where it was."""
    command: str
    at: int
    """Seconds since the epoch."""


def quarantine(path: str, command: str, kitbag_home: str) -> QuarantinedPath:
    """Raises OSError, or StoreError if the Kitbag home can't be written."""
    secret_values = [value for name, value in os.environ.items() if has_secret_value(name)]
    shown = Redactor(secret_values).redact_text(command)[:2_000]
    found = QuarantinedPath(id=secrets.token_hex(4), path=path, command=shown, at=int(time.time()))
    folder = os.path.join(kitbag_home, DIRECTORY, found.id)
    record = {"path": found.path, "command": found.command, "at": found.at}
    private_files.write(kitbag_home, f"{DIRECTORY}/{found.id}/{_RECORD}", json.dumps(record).encode())
    parent = _open_parent(path)
    try:
        _move(os.path.basename(path), parent, os.path.join(folder, _CONTENT))
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        os.close(parent)
    return found


def list_quarantine(kitbag_home: str) -> list[QuarantinedPath]:
    """The newest first. Skips what is not complete."""
    found: list[QuarantinedPath] = []
    place = os.path.join(kitbag_home, DIRECTORY)
    for name in os.listdir(place) if os.path.isdir(place) else ():
        try:
            with open(os.path.join(place, name, _RECORD), encoding="utf-8") as file:
                record = cast("dict[str, Any]", json.load(file))
            if os.path.lexists(os.path.join(place, name, _CONTENT)):
                found.append(
                    QuarantinedPath(
                        id=name, path=str(record["path"]), command=str(record["command"]), at=int(record["at"])
                    )
                )
        except (OSError, ValueError, KeyError):
            continue
    return sorted(found, key=lambda one: one.at, reverse=True)


def find_quarantined(identifier: str, kitbag_home: str) -> QuarantinedPath:
    for found in list_quarantine(kitbag_home):
        if found.id == identifier:
            return found
    raise NotFoundError(f"nothing with the ID {identifier} is in quarantine", "run `kitbag quarantine` to list it")


def restore(found: QuarantinedPath, kitbag_home: str) -> None:
    """Move it back. Raises InvalidError if its place is taken."""
    folder = os.path.join(kitbag_home, DIRECTORY, found.id)
    try:
        parent = _open_parent(found.path)
    except OSError as error:
        raise InvalidError(
            f"cannot open {os.path.dirname(found.path)}: {error.strerror}", f"copy it from {folder} yourself"
        ) from error
    os.close(parent)
    if os.path.lexists(found.path):
        raise InvalidError(f"{found.path} exists", "move it away first")
    shutil.move(os.path.join(folder, _CONTENT), found.path)
    shutil.rmtree(folder, ignore_errors=True)


def delete(found: QuarantinedPath, kitbag_home: str) -> None:
    shutil.rmtree(os.path.join(kitbag_home, DIRECTORY, found.id))


def _open_parent(path: str) -> int:
    """Opens no link on the way."""
    folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in os.path.dirname(path).split(os.sep):
        if not part:
            continue
        try:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        finally:
            os.close(folder)
        folder = below
    return folder


def _move(name: str, parent: int, target: str) -> None:
    try:
        return os.rename(name, target, src_dir_fd=parent)
    except OSError as error:
        import errno

        if error.errno != errno.EXDEV:
            raise
    # On another file system: out of force first, by another name, then copied.
    aside = f".{secrets.token_hex(8)}"
    os.rename(name, aside, src_dir_fd=parent, dst_dir_fd=parent)
    shutil.move(f"/proc/self/fd/{parent}/{aside}", target)
    return None
