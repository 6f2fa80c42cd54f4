"""Switching an item on, off, or somewhere between: the same for skills and agents.

Used by `kitbag skills|agents enable, disable, set` and by the chat. Written to the user's settings, or to the
project's; of two files that speak of an item the stricter one counts, and that is told.
"""

import os
from typing import Literal, NamedTuple

from kitbag.errors import UsageError
from kitbag.library.registry import Registry
from kitbag.settings import ITEM_STATES, ItemState, load_settings, write_setting

ItemGroup = Literal["skills", "agents"]


class ItemStateChange(NamedTuple):
    full_name: str
    requested: ItemState
    effective: ItemState
    file: str
    """Where it was written."""
    overridden_by: str = ""
    """The file because of which it is not what was wanted."""


def set_item_state(
    registry: Registry, group: ItemGroup, name: str, state: str, *, project: bool = False
) -> ItemStateChange:
    """`registry` is not changed: it sees it when it looks again. Raises NotFoundError and AmbiguousError for the name,
    UsageError for the state, InvalidError for settings that can't be written."""
    if state not in ITEM_STATES:
        raise UsageError(f"{state!r} is not a state", f"use one of {', '.join(ITEM_STATES)}")
    names = registry.skills if group == "skills" else registry.agents
    if not names.candidates(name):
        registry.check_links(name)
    item = names.get(name)
    places = registry.places
    path = os.path.join(places.project, ".kitbag", "settings.toml") if project else registry.settings.user_file
    write_setting(path, f"{group}.{item.full_name}", None if state == "on" else state)
    settings = load_settings(places.kitbag_home, () if registry.omit_project else places.project_dirs)
    found = settings.states(group).get(item.full_name.lower())
    now: ItemState = found.value if found is not None else "on"
    held_by = found.source if found is not None and now != state else ""
    return ItemStateChange(item.full_name, state, now, path, held_by)
