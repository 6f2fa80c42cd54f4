"""Options of a run: filled in by every interface, completed by a resumed session."""

import msgspec

from kitbag.agent.loop import Limits
from kitbag.agent.session_records import SessionHeader
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
    no_tools: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    trust_workspace: bool | str = False
    """Trust the workspace for this run: everything, or exactly the content that this `WorkspaceTrust.fingerprint` value
    names."""
    append: str = ""
    effort: str = ""
    extra: tuple[str, ...] = ()
    limits: Limits = Limits()
    resume: str = ""
    """The session to resume; `last` is the newest one of this directory."""
    workspace: WorkspaceIdentity | None = None
    """The workspace when the work was requested, if that was earlier: it runs only there."""
    fork: bool = False
    """Continue in a copy of the session."""

    def with_session_defaults(self, header: SessionHeader) -> "Options":
        """Fills unset options from the session. The mode is handled where modes are compared."""
        team_and_persona = (self.team, self.persona) if self.team or self.persona else (header.team, header.persona)
        return msgspec.structs.replace(
            self, agent=self.agent or header.agent, team=team_and_persona[0], persona=team_and_persona[1]
        )
