"""Sets the state of a skill or an agent: on, off, or in between."""

from kitbag.cli import output
from kitbag.cli.library_options import open_registry
from kitbag.library.item_states import ItemGroup, set_item_state


def set_state(group: ItemGroup, name: str, state: str, project: bool, as_json: bool) -> None:
    done = set_item_state(open_registry(), group, name, state, project=project)
    if as_json:
        return output.as_json({"full_name": done.full_name, "state": done.effective, "file": done.file})
    output.echo(f"{output.clean(done.full_name)} is now {done.effective} ({output.shorten_path(done.file)})")
    if done.overridden_by:
        held_by = output.shorten_path(done.overridden_by)
        output.remark(f"  still {done.effective}: {held_by} says so, and the stricter one counts")
    return None
