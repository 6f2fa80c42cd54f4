"""What the tests of Write and Edit share: a bench on which files may be changed, and a record of what was kept."""

import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

import pytest

from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.tools.seen_files import SeenFiles
from support.using import Bench

Kept = tuple[str, str, bytes | None, bytes | None]


class Keeper:
    """Notes what a tool is about to change; `then` happens before the change."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        self.kept: list[Kept] = []
        self._then = then

    async def record(self, call_id: str, path: str, before: bytes | None, after: bytes | None) -> None:
        self.kept.append((call_id, path, before, after))
        self._then()

    def record_command(self, call_id: str, named: tuple[str, ...] = ()) -> AbstractAsyncContextManager[None]:
        raise NotImplementedError


def editing(base: Path, mode: PermissionMode = "acceptEdits") -> Bench:
    bench = Bench(base)
    bench.allowing(mode=mode, seen_files=SeenFiles())
    return bench


def every_file(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Exchanges two names at once, so that there is no moment without either, for as long as its parent wants.
SWAPPER = """
import ctypes, os, sys
exchange = ctypes.CDLL(None, use_errno=True).renameat2
one, two = os.fsencode(sys.argv[1]), os.fsencode(sys.argv[2])
print("failed" if exchange(-100, one, -100, two, 2) else "swapping", flush=True)
while os.getppid() == int(sys.argv[3]):
    for _ in range(1000):
        exchange(-100, one, -100, two, 2)
"""


@contextmanager
def swapping(folder: Path, outside: Path) -> Generator[None, None, None]:
    """Another process exchanges a folder for a link that leads out and back, all the time."""
    link = folder.with_name("to-outside")
    link.symlink_to(outside)
    command = [sys.executable, "-I", "-c", SWAPPER, str(folder), str(link), str(os.getpid())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as swapper:
        assert swapper.stdout is not None
        try:
            if swapper.stdout.readline() != "swapping\n":
                pytest.skip("this system can't exchange names")
            yield
        finally:
            swapper.kill()
