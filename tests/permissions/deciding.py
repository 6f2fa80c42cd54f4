"""What the tests of decisions share: permissions over real folders."""

import os
import subprocess
from pathlib import Path
from typing import Any

from kitbag.library.dialects.permission_modes import MODES_STRICTEST_FIRST, PermissionMode
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import Effect, SandboxSupport, Workspace
from kitbag.permissions.rules.rule import PermissionRules, parse_rules

BUBBLEWRAP = SandboxSupport(kind="bubblewrap", version="0.11", carve_outs=True)
SANDLOCK = SandboxSupport(kind="sandlock", version="0.9", carve_outs=False)
NOTHING = SandboxSupport(kind="none", problem="no sandbox")
MODES: tuple[PermissionMode, ...] = MODES_STRICTEST_FIRST
ASKING: tuple[PermissionMode, ...] = ("default", "acceptEdits")


def workspace_in(base: Path, **more: Any) -> Workspace:
    for name in ("w/app/src", "w/app/.git/hooks", "w/app-evil", "home/.kitbag", "outside"):
        (base / name).mkdir(parents=True, exist_ok=True)
    (base / "w/app/src/a.py").write_text("a\n")
    (base / "w/app/ok.txt").write_text("ok\n")
    root = os.path.realpath(base / "w" / "app")
    home = os.path.realpath(base / "home")
    return Workspace(root=root, home=home, kitbag_home=f"{home}/.kitbag", **more)


def permissions(
    base: Path,
    mode: PermissionMode = "default",
    *,
    allow: tuple[str, ...] = (),
    ask: tuple[str, ...] = (),
    deny: tuple[str, ...] = (),
    protection: SandboxSupport = BUBBLEWRAP,
    **more: Any,
) -> Permissions:
    workspace = workspace_in(base)
    given: tuple[tuple[Effect, tuple[str, ...]], ...] = (("allow", allow), ("ask", ask), ("deny", deny))
    rules = [
        rule
        for effect, texts in given
        for text in texts
        for rule in parse_rules(text, effect, f"{effect}.toml:1", "user", workspace.kitbag_home)
    ]
    return Permissions(workspace, mode, PermissionRules(rules), protection, **more)


def git(directory: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "protocol.file.allow=always")
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *identity, *arguments], cwd=directory, env=environment, check=True, capture_output=True)
