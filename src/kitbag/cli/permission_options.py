"""Options of every command that decides or runs something, and the permissions that they lead to."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from kitbag.errors import Diagnostic
from kitbag.library.dialects.permission_modes import MODE_DESCRIPTIONS

if TYPE_CHECKING:  # commands that only take the options decide nothing until a file asks for it
    from kitbag.permissions.decisions.decide import Permissions
    from kitbag.permissions.rules.load import LoadedPermissions

F = TypeVar("F", bound=Callable[..., Any])


def permission_options(function: F) -> F:
    for effect, what in (("deny", "Never do"), ("ask", "Always ask for"), ("allow", "Do without asking")):
        option = click.option(
            f"--{effect}", multiple=True, metavar="RULE", help=f"{what} what RULE matches. May be repeated."
        )
        function = option(function)
    function = click.option("--trust-workspace", is_flag=True, help="Trust this workspace for this run.")(function)
    modes = ", ".join(MODE_DESCRIPTIONS)
    return click.option("--permission-mode", default="", metavar="MODE", help=f"One of {modes}.")(function)


class OpenedPermissions(NamedTuple):
    permissions: "Permissions"
    loaded: "LoadedPermissions"
    diagnostics: tuple[Diagnostic, ...]
    """Of the settings and of the rules in them."""
    trust: str
    """The state of the workspace."""


def open_permissions(
    permission_mode: str = "",
    allow: tuple[str, ...] = (),
    ask: tuple[str, ...] = (),
    deny: tuple[str, ...] = (),
    trust_workspace: bool = False,
) -> OpenedPermissions:
    """For the working directory. Raises UsageError for a rule or a mode that is wrong on the command line."""
    from kitbag.assembly.environment import load_environment
    from kitbag.library.scopes import find_places
    from kitbag.permissions.rules.load import PermissionFlags

    given = PermissionFlags(permission_mode, allow, ask, deny)
    ground = load_environment(find_places(), permission_options=given, trust_workspace=trust_workspace)
    return OpenedPermissions(ground.permissions, ground.loaded_rules, ground.diagnostics, ground.trust.state)
