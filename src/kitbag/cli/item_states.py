"""Switching an item on, off, or somewhere between; the same for skills and agents."""

from kitbag.cli import output
from kitbag.cli.library_options import open_registry
from kitbag.library.item_states import Group, switch


def set_state(group: Group, name: str, state: str, project: bool, as_json: bool) -> None:
    done = switch(open_registry(), group, name, state, project=project)
    if as_json:
        return output.as_json({"full_name": done.full_name, "state": done.now, "file": done.file})
    output.echo(f"{output.clean(done.full_name)} is now {done.now} ({output.short_path(done.file)})")
    if done.held_by:
        held_by = output.short_path(done.held_by)
        output.remark(f"  still {done.now}: {held_by} says so, and the stricter one counts")
    return None
