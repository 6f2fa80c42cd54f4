"""Options of a run: filled in by every interface, completed by a resumed session."""

import msgspec

from kitbag.agent.session_records import SessionHeader
from kitbag.agent.turn_limits import Limits
from kitbag.permissions.workspace_identity import WorkspaceIdentity


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Every field has a default."""

    directory: str = ""
    model: str = ""
    mode: str = ""
    settings_mode: str = ""
    """The mode in the settings when the work was requested, if that was earlier."""
    agent: str = ""
    """Run as this agent."""
    team: str = ""
    persona: str = ""
    only_tools: tuple[str, ...] = ()
    """Only these tools are available; they need no approval where the mode would ask."""
    limited_tools: tuple[str, ...] = ()
    """As `only_tools`, but they need the usual approval: those of a resumed session."""
    no_tools: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    trust_workspace: bool | str = False
    """Trust the workspace for this run: everything, or exactly the content that this `WorkspaceTrust.fingerprint` value
    names."""
    allow_env: tuple[str, ...] = ()
    """Environment variables that skills and tasks may read as `${NAME}`."""
    append: str = ""
    effort: str = ""
    extra: tuple[str, ...] = ()
    limits: Limits = Limits()
    budget_account: str = ""
    """Whose session limits apply: the session at the top of the task tree. Empty: the agent's own."""
    resume: str = ""
    """The session to resume; `last` is the newest one of this directory."""
    workspace: WorkspaceIdentity | None = None
    """The workspace when the work was requested, if that was earlier: it runs only there."""
    snapshot: str = ""
    """The hash of the user library that the work was requested with (tasks/library_snapshot); empty: this machine's."""
    fork: bool = False
    """Continue in a copy of the session."""

    @property
    def tool_limit(self) -> tuple[str, ...]:
        """The only tools that are available; empty: all."""
        return self.only_tools or self.limited_tools

    def with_session_defaults(self, header: SessionHeader) -> "Options":
        """Fills unset options from the session. The mode is handled where modes are compared. Tools stay limited to
        the session's, but its approvals are not restored."""
        team_and_persona = (self.team, self.persona) if self.team or self.persona else (header.team, header.persona)
        return msgspec.structs.replace(
            self,
            agent=self.agent or header.agent,
            team=team_and_persona[0],
            persona=team_and_persona[1],
            append=self.append or header.append,
            effort=self.effort or header.effort,
            limited_tools=tuple(header.only_tools.splitlines()),
            no_tools=self.no_tools or tuple(header.no_tools.splitlines()),
            extra=self.extra or tuple(header.extra.splitlines()),
        )
