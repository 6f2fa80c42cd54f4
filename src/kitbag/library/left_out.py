"""What a workspace that is not trusted does not get to show: its items, by name, so that a run can say what it lacks.

    LeftOutError    13    the request needs one of them
Used by the registry when it leaves the project out, and by whoever starts a run in such a workspace.
"""

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from kitbag.errors import KitbagError
from kitbag.library.scopes import Places, Root

if TYPE_CHECKING:
    from kitbag.library.registry import Registry

LeftOutKind = Literal["skill", "command", "agent", "persona"]


class LeftOut(NamedTuple):
    kind: LeftOutKind
    full_name: str
    path: str


class LeftOutError(KitbagError):
    exit_code = 13


def is_of_project(root: Root, places: Places) -> bool:
    """By scope, or because a directory that was given by hand lies inside the workspace."""
    if root.scope != "extra" or not places.project_dirs:
        return root.scope == "project"
    return f"{os.path.realpath(root.path)}/".startswith(f"{os.path.realpath(places.project)}/")


def with_project(registry: "Registry") -> "Registry":
    """As it would be if the workspace were trusted; nothing of it is loaded into `registry`."""
    from kitbag.library.registry import Registry

    return Registry(registry.places, extra=registry.extra)


def left_out(registry: "Registry") -> list[LeftOut]:
    """What would be used if the workspace were trusted, sorted."""
    places, whole = registry.places, with_project(registry)
    found = [
        LeftOut("command" if skill.kind == "command" else "skill", skill.full_name, skill.path)
        for skill in whole.skills
        if is_of_project(skill.root, places)
    ]
    found += [LeftOut("agent", one.full_name, one.path) for one in whole.agents if is_of_project(one.root, places)]
    found += [LeftOut("persona", one.full_name, one.path) for one in whole.personas if is_of_project(one.root, places)]
    return sorted(found)


def check_left_out(registry: "Registry", name: str) -> None:
    """Raises LeftOutError when a name that nothing has is one of a left-out item, or of its team."""
    wanted = name.strip().casefold()
    for item in left_out(registry) if registry.leave_out_project else ():
        full = item.full_name.casefold()
        if wanted == full or wanted in full.split("/"):
            what = f"the {item.kind} {item.full_name!r} is the workspace's, which is not trusted: {item.path}"
            fix = "`kitbag trust` shows what it would run, and asks; --trust-workspace trusts it for one run"
            raise LeftOutError(what, fix)
    if registry.leave_out_project:
        with_project(registry).check_links(name)
