"""What many commands on the library share: options, the registry they open, and how they switch an item."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kitbag.cli.number_types import IntRange
from kitbag.errors import UsageError
from kitbag.library.registry import Registry
from kitbag.library.scopes import find_places

if TYPE_CHECKING:
    from kitbag.library.item_states import ItemGroup

F = TypeVar("F", bound=Callable[..., Any])


def _report_errors_as_json(context: click.Context, _: click.Parameter, value: bool) -> bool:
    context.find_root().obj["json"] = value
    return value


json_option = click.option("--json", "as_json", is_flag=True, callback=_report_errors_as_json, help="Print JSON.")
limit_option = click.option(
    "--limit", type=IntRange(0), default=500, show_default=True, help="List at most this many; 0: all."
)
all_directories_option = click.option("--all", "everything", is_flag=True, help="Include all directories.")
project_option = click.option("--project", is_flag=True, help="Save to the project's settings instead of yours.")


def library_options(function: F) -> F:
    function = click.option(
        "--persona",
        default="",
        metavar="NAME",
        help="Show the library as this persona sees it.",
        show_default="the `persona` setting",
    )(function)
    function = click.option(
        "--team",
        default="",
        metavar="NAME",
        help="Show the library as this team sees it.",
        show_default="the `team` setting",
    )(function)
    return click.option(
        "--dir",
        "dirs",
        multiple=True,
        metavar="DIR",
        help="Also load skills and agents from DIR; they take precedence. Repeatable.",
    )(function)


def open_registry(dirs: tuple[str, ...] = (), team: str = "", persona: str = "") -> Registry:
    for directory in dirs:
        if not os.path.isdir(directory):
            raise UsageError(f"--dir {directory}: not a directory", "use an existing directory")
    return Registry(find_places(), extra=dirs, team=team, persona=persona)


def set_state(group: "ItemGroup", name: str, state: str, project: bool, as_json: bool) -> None:
    """Sets the state of a skill or an agent: on, off, or in between."""
    from kitbag.cli import output
    from kitbag.library.item_states import set_item_state
    from kitbag.views.item_states import describe_override, describe_state

    change = set_item_state(open_registry(), group, name, state, project=project)
    if as_json:
        return output.as_json({"full_name": change.full_name, "state": change.effective, "file": change.file})
    output.echo(output.clean(describe_state(change)))
    if override := describe_override(change):
        output.remark(f"  {output.clean(override)}")
    return None
