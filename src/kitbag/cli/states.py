"""Switching an item on, off, or somewhere between; the same for skills and agents."""

import os

from kitbag.cli import output
from kitbag.cli.options import open_registry
from kitbag.settings import write_setting


def set_state(kind: str, name: str, state: str, project: bool, as_json: bool) -> None:
    registry = open_registry()
    if kind == "skills":
        item = registry.skills.get(name)
    else:
        item = registry.agents.get(name)
    places = registry.places
    path = os.path.join(places.project, ".kitbag", "settings.toml") if project else registry.settings.user_file
    write_setting(path, f"{kind}.{item.full_name}", None if state == "on" else state)
    verdict_now = open_registry().settings.states(kind).get(item.full_name.lower())
    now = verdict_now.value if verdict_now else "on"
    if as_json:
        return output.as_json({"full_name": item.full_name, "state": now, "file": path})
    output.echo(f"{output.clean(item.full_name)} is now {now} ({output.short_path(path)})")
    if now != state and verdict_now:
        output.remark(f"  still {now}: {output.short_path(verdict_now.source)} says so, and the stricter one counts")
    return None
