"""Options of commands that decide or run something, and the permissions they open."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from kitbag.errors import Diagnostic

if TYPE_CHECKING:  # commands that only declare the options need no permissions until a file asks for them
    from kitbag.permissions.decisions.decide import Permissions
    from kitbag.permissions.rules.load import LoadedPermissions

F = TypeVar("F", bound=Callable[..., Any])


allow_env_option = click.option(
    "--allow-env",
    "environment",
    multiple=True,
    metavar="NAME",
    help="Allow skills and tasks to read ${NAME} from the environment. Repeatable.",
)


def permission_options(function: F) -> F:
    from kitbag.library.dialects.permission_modes import MODE_DESCRIPTIONS

    for effect, what in (("deny", "Deny"), ("ask", "Always ask for"), ("allow", "Allow without asking")):
        option = click.option(
            f"--{effect}", multiple=True, metavar="RULE", help=f"{what} tool calls that match RULE. Repeatable."
        )
        function = option(function)
    function = click.option("--trust-workspace", is_flag=True, help="Trust this workspace for this run.")(function)
    modes = ", ".join(MODE_DESCRIPTIONS)
    return click.option(
        "--permission-mode",
        default="",
        metavar="MODE",
        help=f"Set the permission mode: one of {modes}.",
        show_default="the `permissions.mode` setting",
    )(function)


class OpenedPermissions(msgspec.Struct, frozen=True, kw_only=True):
    permissions: "Permissions"
    loaded: "LoadedPermissions"
    diagnostics: tuple[Diagnostic, ...]
    """Of the settings and their rules."""
    trust: str
    """The trust state of the workspace."""


def open_permissions(
    permission_mode: str = "",
    allow: tuple[str, ...] = (),
    ask: tuple[str, ...] = (),
    deny: tuple[str, ...] = (),
    trust_workspace: bool = False,
) -> OpenedPermissions:
    """For the working directory. Raises UsageError for an invalid rule or mode on the command line."""
    from kitbag.assembly.environment import load_environment
    from kitbag.library.scopes import find_places
    from kitbag.permissions.rules.load import PermissionFlags

    given = PermissionFlags(mode=permission_mode, allow=allow, ask=ask, deny=deny)
    ground = load_environment(find_places(), permission_options=given, trust_workspace=trust_workspace)
    return OpenedPermissions(
        permissions=ground.permissions,
        loaded=ground.loaded_rules,
        diagnostics=ground.diagnostics,
        trust=ground.trust.state,
    )
