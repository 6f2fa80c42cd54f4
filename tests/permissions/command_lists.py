"""Two lists of commands as data, and the workspace that they are decided in.

`everyday_commands.txt` has a developer's day, `dangerous_commands.txt` what must not run unasked. Used by
`test_command_lists.py` and `bench/permissions.py`.
"""

import os
from pathlib import Path
from typing import NamedTuple

from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.permissions.model import Workspace

_DATA = Path(__file__).parent / "data"
MODE_LETTERS: dict[PermissionMode, str] = {
    "plan": "p",
    "locked": "l",
    "default": "d",
    "acceptEdits": "e",
    "autonomous": "a",
}


class EverydayCommand(NamedTuple):
    kind: str
    """read, edit, check or other."""
    text: str


class DangerousCommand(NamedTuple):
    allowed_before: str
    """Letters of the modes that allowed it when the list was first recorded."""
    text: str


def everyday_commands() -> list[EverydayCommand]:
    return [EverydayCommand(*pair) for pair in _pairs("everyday_commands.txt")]


def dangerous_commands() -> list[DangerousCommand]:
    pairs = _pairs("dangerous_commands.txt")
    return [DangerousCommand(letters.strip("-"), text.replace("\\n", "\n")) for letters, text in pairs]


def _pairs(name: str) -> list[tuple[str, str]]:
    lines = (_DATA / name).read_text(encoding="utf-8").splitlines()
    split = (line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    return [(first, rest) for first, rest in split]


def make_workspace(base: Path, *, hostile: bool = False) -> Workspace:
    """A project with what the commands name. `hostile`: links leave it, and file names are options."""
    root = base / "w" / "app"
    for name in (
        "src",
        "tests",
        "scripts",
        "certs",
        "opts",
        "links",
        ".git/hooks",
        "evilrepo/objects",
        "evilrepo/refs",
    ):
        (root / name).mkdir(parents=True)
    for name in ("home/.kitbag", "home/.ssh", "outside", "w/app-evil"):
        (base / name).mkdir(parents=True)
    files = (
        *("src/a.py", "src/b.py", "src/old.py", "src/run.sh", "tests/test_a.py", "scripts/run.sh", "README.md"),
        *(
            "a.txt",
            "b.txt",
            "x",
            "x.sh",
            "list.txt",
            "notes.txt",
            "app.log",
            "package.json",
            "Makefile",
            "requirements.txt",
        ),
        *(".env", "certs/server.pem", "certs/server.key", "certs/id_rsa"),
        *(".git/HEAD", ".git/config", "evilrepo/HEAD", "evilrepo/config", "go.mod", "Cargo.toml"),
    )
    for name in files:
        (root / name).write_text("x\n")
    (base / "outside" / "secret").write_text("secret\n")
    (base / "home" / ".ssh" / "id_rsa").write_text("key\n")
    if hostile:
        for name in ("-o", "-rf", "--pre=evil", "x"):
            (root / "opts" / name).write_text("x\n")
        os.symlink(base / "outside", root / "link_out")
        os.symlink(base / "outside" / "secret", root / "links" / "out")
    home = os.path.realpath(base / "home")
    return Workspace(root=os.path.realpath(root), home=home, kitbag_home=f"{home}/.kitbag")
