"""A workspace with things that must not change around and inside it, and commands run confined in it."""

import os
from collections.abc import Mapping
from pathlib import Path

from conftest import World
from kitbag.permissions.model import SandboxProfile, Workspace
from kitbag.processes.command_runner import CommandResult, ShellCommand
from kitbag.sandbox.confine import run_confined
from kitbag.sandbox.confinement import Confinement
from support.waiting import TEST_TIMEOUT

GIT_CONFIG = "[core]\n\trepositoryformatversion = 0\n"


class Box:
    def __init__(self, world: World) -> None:
        self.world = world
        self.root = world.workspace
        self.tripwire = world.write("tripwire", "untouched\n", world.outside)
        world.write("~/.bashrc", "# mine\n")
        world.write("~/.ssh/id_rsa", "CANARY_SECRET_KEY\n")
        world.write("~/.netrc", "CANARY_SECRET_PASSWORD\n")
        for path, text in (
            (".git/config", GIT_CONFIG),
            (".git/HEAD", "ref: refs/heads/main\n"),
            ("src/a.py", "a = 1\n"),
        ):
            world.write(path, text)
        (self.root / ".git/objects").mkdir()
        (self.root / ".git/refs").mkdir()
        self.also_writable: tuple[str, ...] = ()

    @property
    def workspace(self) -> Workspace:
        """What lies around is shown too: it is in /tmp, which would be hidden otherwise."""
        home = str(self.world.home)
        return Workspace(
            root=str(self.root),
            home=home,
            kitbag_home=f"{home}/.kitbag",
            extra_write_roots=self.also_writable,
            extra_read_roots=(str(self.world.outside), home),
        )

    def command(
        self, text: str, seconds: float = TEST_TIMEOUT, environment: Mapping[str, str] | None = None
    ) -> ShellCommand:
        given = {"PATH": os.environ["PATH"], "OUT": str(self.world.outside), "LANG": "C.UTF-8"}
        return ShellCommand(
            text=text,
            directory=str(self.root),
            environment={**given, **(environment or {})},
            timeout=seconds,
            max_characters=20_000,
        )

    def run(
        self, text: str, profile: SandboxProfile = "workspace", *, network: bool = False, seconds: float = TEST_TIMEOUT
    ) -> CommandResult:
        confinement = Confinement(profile=profile, network=network)
        return run_confined(self.command(text, seconds), confinement=confinement, workspace=self.workspace)

    def state(self, *folders: Path) -> dict[str, bytes]:
        """Everything below: kind, permissions, content or target."""
        found: dict[str, bytes] = {}
        for folder in folders or (self.root, self.world.home, self.world.outside):
            for path in sorted(folder.rglob("*")):
                content = b""
                if path.is_symlink():
                    content = os.readlink(path).encode()
                elif path.is_file():
                    content = path.read_bytes()
                found[str(path)] = oct(path.lstat().st_mode).encode() + b" " + content
        return found


def processes_with(word: str) -> list[int]:
    """Ours and everybody's: what has this word among its arguments."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if word.encode() in words:
                found.append(int(name))
    return found
