"""Opens directories and files without following links. Used by what walks, searches and snapshots a workspace."""

import os
import stat

DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PLACE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_directory(resolved: str) -> int:
    """A descriptor to list by, of exactly this place: no link is followed on the way. Raises OSError."""
    descriptor = os.open("/", _PLACE)
    try:
        for part in resolved.split("/"):
            if part:
                deeper = os.open(part, _PLACE, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = deeper
        return os.open(".", DIRECTORY_FLAGS, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def open_file(name: str, folder: int) -> int:
    """A descriptor of a regular file, which never blocks. Raises OSError."""
    descriptor = os.open(name, _FILE, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{name} is not a regular file")
    return descriptor
