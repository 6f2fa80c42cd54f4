"""The context of an agent that no other agent starts: in the worker, over MCP, and for `kitbag agents run`.

Built from a directory and the user's options, with the current rules, trust and files.
"""

import os
from collections.abc import Callable

from kitbag.assembly.environment import AgentEnvironment, load_run_environment
from kitbag.assembly.model_choice import ModelPreferences, choose_model
from kitbag.assembly.model_sources import list_key_values, load_model_sources
from kitbag.assembly.parent_context import ParentContext
from kitbag.assembly.run_options import Options
from kitbag.assembly.tool_list import all_tools
from kitbag.assembly.user_permissions import load_user_permissions
from kitbag.errors import InvalidError
from kitbag.events import Notice
from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.library.scopes import find_places
from kitbag.permissions.approvals.approval import Approvals, Approver
from kitbag.permissions.decisions.decide import Permissions
from kitbag.settings import load_settings
from kitbag.store.journal import Journal
from kitbag.tasks.library_snapshot import snapshot_folder


def load_standalone_setup(
    directory: str,
    options: Options,
    model: str,
    mode: PermissionMode | None,
    journal: Journal,
    on_notice: Callable[[Notice], None],
    approver: Approver | None = None,
) -> ParentContext:
    """`mode`: the caller's permission mode; None: the user's own."""
    environment, permissions, notices = load_user_environment(directory, options)
    sources, problems = load_model_sources(load_settings(environment.places.kitbag_home, ()))
    journal.add_secrets(list_key_values(sources))  # some may be newer than the journal
    notices += [
        Notice(severity=problem.severity, text=f"{problem.place}: {problem.problem}", fix=problem.fix)
        for problem in problems
    ]
    for notice in notices:
        on_notice(notice)
    chosen, provider = choose_model(sources, ModelPreferences(flag=model), on_notice)
    approvals = Approvals(approver, environment.library.settings.user_file)
    return ParentContext(
        environment=environment,
        journal=journal,
        sources=sources,
        approvals=approvals,
        permissions=permissions,
        mode=mode or permissions.mode,
        options=options,
        chosen=chosen,
        provider=provider,
    )


def load_user_environment(directory: str, options: Options) -> tuple[AgentEnvironment, Permissions, list[Notice]]:
    """The user's environment in this directory, and their permissions. Raises KitbagError."""
    if not os.path.isdir(directory):
        raise InvalidError(f"{directory} no longer exists", "start it again in another directory")
    places = find_places(directory)
    if options.snapshot:
        places = places._replace(snapshot=snapshot_folder(places.kitbag_home, options.snapshot))
    environment = load_run_environment(places, options)
    permissions, notices = load_user_permissions(environment, options, [tool.name for tool in all_tools()])
    return environment, permissions, notices
