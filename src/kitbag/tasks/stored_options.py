"""The options of a run in the form in which a task's request stores them, written by the process that submits it and
read by the one that runs it.

Used by delegation, the worker and command tasks.
"""

from collections.abc import Mapping
from typing import Any

from kitbag.agent.turn_limits import Limits
from kitbag.assembly.parent_context import ParentContext
from kitbag.assembly.run_options import Options
from kitbag.permissions.workspace_identity import WorkspaceIdentity
from kitbag.tasks.task import SNAPSHOT_KEY, SUBMITTED_RULES_KEY, TRUSTED_CONTENT_KEY, WORKSPACE_KEY


def worker_options(inherited: ParentContext) -> dict[str, Any]:
    """An agent in a worktree has another workspace than its options say."""
    environment = inherited.environment
    identity, trust = environment.workspace.identity, environment.trust
    trusted = {TRUSTED_CONTENT_KEY: trust.fingerprint} if trust.state == "trusted" else {}
    return {
        **serialize_options(inherited.options),
        **trusted,
        SUBMITTED_RULES_KEY: {
            effect: [
                entry.value
                for entry in environment.library.settings.permission_entries
                if entry.key == f"permissions.{effect}" and isinstance(entry.value, str)
            ]
            for effect in ("deny", "ask")
        },
        "settings_mode": environment.live_rules.settings_mode,
        WORKSPACE_KEY: identity.to_record() if identity is not None else [],
    }


def serialize_options(options: Options) -> dict[str, Any]:
    """The user's options that apply to child agents, as JSON values."""
    return {
        "team": options.team,
        "persona": options.persona,
        "only_tools": list(options.only_tools),
        "limited_tools": list(options.limited_tools),
        "no_tools": list(options.no_tools),
        "ask": list(options.ask),
        "trust_workspace": options.trust_workspace,
        "extra": list(options.extra),
        "allow_env": list(options.allow_env),
        "effort": options.effort,
        "max_tokens": options.limits.tokens,
        "max_cost": options.limits.cost,
        "max_seconds": options.limits.seconds,
        "budget_account": options.budget_account,
        SNAPSHOT_KEY: options.snapshot,
    }


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
        snapshot=str(stored.get(SNAPSHOT_KEY, "")),
    )


def _parse_trust(stored: object) -> bool | str:
    return stored if isinstance(stored, str) else bool(stored)
