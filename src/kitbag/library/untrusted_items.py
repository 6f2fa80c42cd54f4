"""What a workspace that is not trusted does not get to show: its items, by name, so that a run can say what it lacks.

    LeftOutError    13    the request needs one of them
Used by the registry when it leaves the project out, and by whoever starts a run in such a workspace.
"""

import os
from typing import Literal, NamedTuple

from kitbag.errors import KitbagError
from kitbag.library.scopes import Places, Root

UntrustedItemKind = Literal["skill", "command", "agent", "persona"]


class UntrustedItem(NamedTuple):
    kind: UntrustedItemKind
    full_name: str
    path: str


class UntrustedItemError(KitbagError):
    exit_code = 13


def is_project_root(root: Root, places: Places) -> bool:
    """By scope, or because a directory that was given by hand lies inside the workspace."""
    if root.scope != "extra" or not places.project_dirs:
        return root.scope == "project"
    return f"{os.path.realpath(root.path)}/".startswith(f"{os.path.realpath(places.project)}/")
