"""Items of an untrusted workspace: omitted from the library, and listed so that a run can report them.

    UntrustedItemError    13    the request needs one of them

Used by the registry, packing and assembly; uses scopes.
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
    """Whether the root belongs to the project: by scope, or as an extra directory inside the workspace."""
    if root.scope != "extra" or not places.project_dirs:
        return root.scope == "project"
    return f"{os.path.realpath(root.path)}/".startswith(f"{os.path.realpath(places.project)}/")
