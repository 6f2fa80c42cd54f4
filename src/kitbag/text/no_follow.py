"""Opens directories and files without following symbolic links. Used to walk, search and snapshot a workspace."""

import os
import stat

DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_directory(real_path: str) -> int:
    """A descriptor for listing exactly this directory; follows no link on the way. Raises OSError."""
    descriptor = os.open("/", _PATH_FLAGS)
    try:
        for part in real_path.split("/"):
            if part:
                deeper = os.open(part, _PATH_FLAGS, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = deeper
        return os.open(".", DIRECTORY_FLAGS, dir_fd=descriptor)
    finally:
        os.close(descriptor)


def open_file(name: str, folder: int) -> int:
    """A descriptor of a regular file; never blocks. Raises OSError."""
    descriptor = os.open(name, _FILE_FLAGS, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{name} is not a regular file")
    return descriptor
