"""The context of an agent that no other agent starts: in the worker, over MCP, and for `kitbag agents run`.

Built from a directory and the user's options, with the current rules, trust and files.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from kitbag.agent.turn_limits import Limits
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
from kitbag.permissions.workspace_identity import WorkspaceIdentity
from kitbag.settings import load_settings
from kitbag.store.journal import Journal
from kitbag.tasks.task import SUBMITTED_RULES_KEY, WORKSPACE_KEY


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
    environment = load_run_environment(find_places(directory), options)
    permissions, notices = load_user_permissions(environment, options, [tool.name for tool in all_tools()])
    return environment, permissions, notices


def parse_options(stored: Mapping[str, Any]) -> Options:
    """Reads options that `serialize_options` wrote for a worker."""
    rules = stored.get(SUBMITTED_RULES_KEY, {})
    return Options(
        team=str(stored.get("team", "")),
        persona=str(stored.get("persona", "")),
        only_tools=tuple(stored.get("only_tools", ())),
        limited_tools=tuple(stored.get("limited_tools", ())),
        no_tools=(*stored.get("no_tools", ()), *rules.get("deny", ())),
        ask=(*stored.get("ask", ()), *rules.get("ask", ())),
        trust_workspace=_parse_trust(stored.get("trust_workspace")),
        extra=tuple(stored.get("extra", ())),
        allow_env=tuple(stored.get("allow_env", ())),
        settings_mode=str(stored.get("settings_mode", "")),
        effort=str(stored.get("effort", "")),
        limits=Limits(
            tokens=int(stored.get("max_tokens", 0)),
            cost=float(stored.get("max_cost", 0.0)),
            seconds=float(stored.get("max_seconds", 0.0)),
        ),
        budget_account=str(stored.get("budget_account", "")),
        workspace=WorkspaceIdentity.from_record(stored.get(WORKSPACE_KEY)),
    )


def _parse_trust(stored: object) -> bool | str:
    return stored if isinstance(stored, str) else bool(stored)
