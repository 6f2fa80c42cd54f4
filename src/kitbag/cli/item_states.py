"""Sets the state of a skill or an agent: on, off, or in between."""

from kitbag.cli import output
from kitbag.cli.library_options import open_registry
from kitbag.library.item_states import ItemGroup, set_item_state


def set_state(group: ItemGroup, name: str, state: str, project: bool, as_json: bool) -> None:
    change = set_item_state(open_registry(), group, name, state, project=project)
    if as_json:
        return output.as_json({"full_name": change.full_name, "state": change.effective, "file": change.file})
    output.echo(f"{output.clean(change.full_name)} is now {change.effective} ({output.shorten_path(change.file)})")
    if change.overridden_by:
        overridden_by = output.shorten_path(change.overridden_by)
        output.remark(f"  still {change.effective}: {overridden_by} overrides it (the stricter state wins)")
    return None
