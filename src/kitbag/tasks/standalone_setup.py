"""What an agent inherits where no other agent is there to inherit from: in the worker, and for `kitbag agents run`.

From a directory and what the person said, by the rules, trust and files as they are now.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from kitbag.agent.loop import Limits
from kitbag.assembly.environment import Ground, ground_for
from kitbag.assembly.inherited import Inherited
from kitbag.assembly.model_choice import Wishes, choose_model
from kitbag.assembly.model_sources import key_values, model_sources
from kitbag.assembly.run_options import Options
from kitbag.assembly.tool_list import every_tool
from kitbag.assembly.user_permissions import person_permissions
from kitbag.errors import InvalidError
from kitbag.events import Notice
from kitbag.library.dialects.permission_modes import Mode
from kitbag.library.scopes import find_places
from kitbag.permissions.approvals.approval import Approvals, Approver
from kitbag.permissions.decisions.decide import Permissions
from kitbag.settings import load_settings
from kitbag.store.journal import Journal


def lay_inherited(
    directory: str,
    options: Options,
    model: str,
    mode: Mode | None,
    journal: Journal,
    note: Callable[[Notice], None],
    approver: Approver | None = None,
) -> Inherited:
    """`mode`: of whoever starts the agent; None: the person's own."""
    ground, permissions, notices = lay_person(directory, options)
    sources, problems = model_sources(load_settings(ground.places.kitbag_home, ()))
    journal.hide(key_values(sources))  # some may have come since it was opened
    notices += [Notice(found.severity, f"{found.place}: {found.problem}", found.fix) for found in problems]
    for notice in notices:
        note(notice)
    chosen, provider = choose_model(sources, Wishes(model), note)
    approvals = Approvals(approver, ground.library.settings.user_file)
    return Inherited(
        ground, journal, sources, approvals, permissions, mode or permissions.mode, options, chosen, provider
    )


def lay_person(directory: str, options: Options) -> tuple[Ground, Permissions, list[Notice]]:
    """What they stand on there, and what they allow. Raises KitbagError."""
    if not os.path.isdir(directory):
        raise InvalidError(f"{directory} is not there any more", "begin it again elsewhere")
    ground = ground_for(find_places(directory), options)
    permissions, notices = person_permissions(ground, options, [tool.name for tool in every_tool()])
    return ground, permissions, notices


def read_options(given: Mapping[str, Any]) -> Options:
    """Of what was written down for a worker."""
    return Options(
        team=str(given.get("team", "")),
        persona=str(given.get("persona", "")),
        only_tools=tuple(given.get("only_tools", ())),
        no_tools=tuple(given.get("no_tools", ())),
        ask=tuple(given.get("ask", ())),
        trust_workspace=_trusted(given.get("trust_workspace")),
        extra=tuple(given.get("extra", ())),
        settings_mode=str(given.get("settings_mode", "")),
        effort=str(given.get("effort", "")),
        limits=Limits(tokens=int(given.get("max_tokens", 0)), cost=float(given.get("max_cost", 0.0))),
    )


def _trusted(given: object) -> bool | str:
    return given if isinstance(given, str) else bool(given)
