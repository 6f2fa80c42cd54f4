"""Sets the state of a skill or an agent: on, off, or in between."""

from kitbag.cli import output
from kitbag.cli.library_options import open_registry
from kitbag.library.item_states import ItemGroup, set_item_state


def set_state(group: ItemGroup, name: str, state: str, project: bool, as_json: bool) -> None:
    from kitbag.views.item_states import describe_override, describe_state

    change = set_item_state(open_registry(), group, name, state, project=project)
    if as_json:
        return output.as_json({"full_name": change.full_name, "state": change.effective, "file": change.file})
    output.echo(output.clean(describe_state(change)))
    if override := describe_override(change):
        output.remark(f"  {output.clean(override)}")
    return None
