"""Changes the state of a skill or agent: on, name-only, user-only, off.

Used by `kitbag skills|agents enable, disable, set` and by the chat. Writes the user's or the project's settings
file; if both set a state, the more restrictive one wins.
"""

import os
from typing import Literal, NamedTuple

from kitbag.errors import UsageError
from kitbag.library.names import normalize_name
from kitbag.library.registry import Registry
from kitbag.settings import ITEM_STATES, ItemState, load_settings, write_setting

ItemGroup = Literal["skills", "agents"]


class ItemStateChange(NamedTuple):
    full_name: str
    requested: ItemState
    effective: ItemState
    file: str
    """The settings file that was written."""
    overridden_by: str = ""
    """The file whose more restrictive state wins; empty if none."""


def set_item_state(
    registry: Registry, group: ItemGroup, name: str, state: str, *, project: bool = False
) -> ItemStateChange:
    """Does not update `registry`, which sees the change at its next refresh. Raises NotFoundError or AmbiguousError
    for the name, UsageError for the state, InvalidError for settings that can't be written."""
    if state not in ITEM_STATES:
        raise UsageError(f"invalid state {state!r}", f"use one of {', '.join(ITEM_STATES)}")
    namespace = registry.skills if group == "skills" else registry.agents
    if not namespace.candidates(name):
        registry.check_links(name)
    item = namespace.get(name)
    places = registry.places
    path = os.path.join(places.project, ".kitbag", "settings.toml") if project else registry.settings.user_file
    write_setting(path, f"{group}.{item.full_name}", None if state == "on" else state)
    settings = load_settings(places.kitbag_home, () if registry.omit_project else places.project_dirs)
    configured = settings.states(group).get(normalize_name(item.full_name))
    effective: ItemState = configured.value if configured is not None else "on"
    overridden_by = configured.source if configured is not None and effective != state else ""
    return ItemStateChange(
        full_name=item.full_name, requested=state, effective=effective, file=path, overridden_by=overridden_by
    )
