"""What the tests of tools share: a tool used in a real workspace, as the loop uses it."""

import asyncio
import ctypes
import os
import struct
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.library.registry import Registry
from kitbag.library.scopes import Places
from kitbag.messages import Text
from kitbag.packing.session_skills import SessionSkills
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import Effect, SandboxSupport, Workspace
from kitbag.permissions.rules.rule import PermissionRules, parse_rules
from kitbag.tools.base import Tool, ToolContext, ToolOutput
from support.waiting import TEST_TIMEOUT

T = TypeVar("T")


class Bench:
    """`root` is the workspace, a git repository; `outside` lies beside it."""

    def __init__(self, base: Path) -> None:
        self.base = base.resolve()
        self.root = self.base / "w" / "app"
        self.outside = self.base / "w" / "app-evil"
        self.home = self.base / "home"
        for folder in (self.root / ".git", self.outside, self.home / ".kitbag"):
            folder.mkdir(parents=True)
        self.workspace = Workspace(root=str(self.root), home=str(self.home), kitbag_home=str(self.home / ".kitbag"))
        self.context = self.allowing()

    def allowing(
        self, *, mode: PermissionMode = "default", allow: str = "", ask: str = "", deny: str = "", **more: Any
    ) -> ToolContext:
        """A context under rules, each effect's separated by blanks."""
        given: tuple[tuple[Effect, str], ...] = (("allow", allow), ("ask", ask), ("deny", deny))
        rules = PermissionRules(
            rule
            for effect, texts in given
            for text in texts.split()
            for rule in parse_rules(text, effect, "rules.toml:1", "user", str(self.home / ".kitbag"))
        )
        permissions = Permissions(self.workspace, mode, rules, SandboxSupport(kind="none"))
        library = Registry(Places(str(self.root), str(self.home), str(self.home / ".kitbag"), (str(self.root),)))
        self.context = ToolContext(
            workspace=self.workspace,
            directory=str(self.root),
            permissions=permissions,
            library=library,
            skills=SessionSkills(library),
            **more,
        )
        return self.context

    def write(self, path: str, text: str | bytes = "", *, age: int = 0) -> Path:
        """`age` in seconds, before a fixed moment."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode() if isinstance(text, str) else text)
        moment = 1_700_000_000 - age
        os.utime(target, (moment, moment))
        return target

    def use(self, tool: Tool[Any], context: ToolContext | None = None, /, **arguments: Any) -> ToolOutput:
        """Its name for an argument with a dash is `_A` for `-A`."""
        given = {f"-{key[1:]}" if key.startswith("_") else key: value for key, value in arguments.items()}
        return asyncio.run(self.using(tool, given, context))

    async def using(self, tool: Tool[Any], arguments: dict[str, Any], context: ToolContext | None = None) -> ToolOutput:
        return await asyncio.wait_for(tool.run(tool.parse_arguments(arguments), context or self.context), TEST_TIMEOUT)


def text_of(outcome: ToolOutput) -> str:
    return "\n".join(part.text for part in outcome.content if isinstance(part, Text))


def listed(outcome: ToolOutput) -> list[str]:
    """The lines of a result, without its remarks."""
    assert not outcome.is_error, text_of(outcome)
    return [line for line in text_of(outcome).splitlines() if not line.startswith(("[", "No "))]


def children() -> set[int]:
    """Processes that this one has started during the current test and that still run, from all its threads. Without the
    server that forks supervisors, and the browser and the database that tests share: those stay."""
    found: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/children") as file:
                found.update(int(pid) for pid in file.read().split())
        except OSError:
            continue
    return {pid for pid in found if _runs(pid) and not any(name in _arguments(pid) for name in _STAYING)}


_STAYING = ("kitbag.processes.supervisor", "chromium", "playwright", "postgres", "pgserver", "nursery.py", "forked.py")
_TICKS = os.sysconf("SC_CLK_TCK")
_started_at = {"test": 0.0}


def note_test_start() -> None:
    """For conftest."""
    _started_at["test"] = time.clock_gettime(time.CLOCK_BOOTTIME)


def _arguments(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _runs(pid: int) -> bool:
    """Started since the test has, and not ended: one that nobody waited for yet has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] != "Z" and (int(fields[19]) + 1) / _TICKS >= _started_at["test"]


def resident() -> int:
    """Bytes of memory that this process uses."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def memory_growth() -> Generator[Callable[[], int], None, None]:
    """The most that this process grew by while it was open."""
    start = most = resident()
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.01):
            most = max(most, resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: max(most, resident()) - start
    finally:
        done.set()
        watcher.join()


def without_override(act: Callable[[], T]) -> T:
    """Runs it where the rights of files count, also for root: in a thread that has given up standing above them."""
    found: list[T] = []

    def run() -> None:
        if os.geteuid() == 0:
            _give_up_override()
        found.append(act())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def _give_up_override() -> None:
    """CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, of this thread and whatever it starts."""
    system = ctypes.CDLL(None, use_errno=True)
    header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0))
    data = ctypes.create_string_buffer(24)
    assert system.capget(header, data) == 0
    held = list(struct.unpack("6I", data.raw[:24]))
    held[:3] = [bits & ~0b110 for bits in held[:3]]
    for capability in (1, 2):
        assert system.prctl(24, capability, 0, 0, 0) == 0
    assert system.capset(header, ctypes.create_string_buffer(struct.pack("6I", *held))) == 0
