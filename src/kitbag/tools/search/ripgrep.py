"""Finds ripgrep, and the options that make it search and list as these tools do.

Used by list_files and grep. Its configuration, the user's global ignore rules and its own ignore files are disabled, so
that it finds the same files as walk. It never runs another program: no preprocessor, no decompression.
"""

import os
import sys
from typing import Final

from kitbag.permissions.model import Workspace, is_inside
from kitbag.tools.search.walk import VCS_DIRECTORIES, parent_ignore_rules

EXECUTABLE: Final = "rg"


def find_ripgrep(workspace: Workspace) -> str:
    """An absolute path; empty if there is none. The wheel installs it beside our Python. Never one in a folder where an
    agent may write, so that a project can't make Kitbag run its own `rg`."""
    folders = [os.path.dirname(sys.executable), *os.environ.get("PATH", "").split(os.pathsep)]
    for folder in folders:
        path = f"{folder}/{EXECUTABLE}"
        if os.path.isabs(folder) and os.path.isfile(path) and os.access(path, os.X_OK):
            names = (os.path.abspath(path), os.path.realpath(path))
            if not any(is_inside(name, root) for name in names for root in workspace.write_roots):
                return path
    return ""


def walk_options(resolved: str, *, include_hidden: bool, respect_gitignore: bool) -> list[str]:
    """Which files are searched below a folder, as in walk."""
    options = ["--no-config", "--no-ignore-dot", "--no-ignore-global", "--no-follow", "--color=never"]
    if include_hidden:
        options += ["--hidden", *(f"--glob=!{name}" for name in VCS_DIRECTORIES)]
    if not respect_gitignore:
        options.append("--no-ignore")
    elif parent_ignore_rules(resolved)[1]:
        # The folder itself is ignored, so the rules above it do not apply; those in it do, as in a repository.
        options += ["--no-ignore-parent", "--no-require-git"]
    return options
