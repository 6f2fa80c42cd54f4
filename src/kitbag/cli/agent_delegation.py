"""Starts agents for the user, without a session around them. Used by `kitbag agents run`, with and without --each."""

import contextlib
import os
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from kitbag.assembly.environment import diagnostic_notice, untrusted_notices
from kitbag.assembly.run_options import Options
from kitbag.cli import output
from kitbag.cli.terminal_dialog import terminal_approver
from kitbag.events import Notice
from kitbag.library.scopes import find_places
from kitbag.store.journal import Journal
from kitbag.tasks.delegation import TaskDelegation
from kitbag.tasks.standalone_setup import load_standalone_setup
from kitbag.tools.delegation import DelegationRequest


@contextlib.asynccontextmanager
async def open_delegation(
    journal: Journal, request: DelegationRequest, options: dict[str, Any], notices: list[Notice]
) -> AsyncGenerator[tuple[TaskDelegation, DelegationRequest], None]:
    """What starts agents for the user, and the request with the model that the options choose."""
    run_options = Options(
        directory=os.getcwd(),
        mode=options["permission_mode"],
        trust_workspace=options["trust_workspace"],
        allow_env=options["environment"],
        team=options["team"],
        persona=options["persona"],
        extra=tuple(os.path.abspath(directory) for directory in options["dirs"]),
    )
    approver = terminal_approver() if not options["as_json"] else None
    # Only a user may choose a script or another provider: it becomes the parent's model.
    model = str(options["model"])
    inherited = load_standalone_setup(find_places().cwd, run_options, model, None, journal, notices.append, approver)
    notices += [*map(diagnostic_notice, inherited.environment.diagnostics), *untrusted_notices(inherited.environment)]
    for notice in notices:
        output.remark(output.clean(f"{notice.severity}: {notice.line()}"))
    try:
        chosen = inherited.chosen.reference if model else ""
        yield TaskDelegation(lambda: inherited, ""), msgspec.structs.replace(request, model=chosen)
    finally:
        await inherited.provider.close()
