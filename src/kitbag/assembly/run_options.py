"""What a person may say about a run: a value that every interface fills, and that a resumed session completes."""

from typing import NamedTuple

from kitbag.agent.loop import Limits
from kitbag.agent.session_records import SessionHeader


class Options(NamedTuple):
    """Everything has a default."""

    directory: str = ""
    model: str = ""
    mode: str = ""
    settings_mode: str = ""
    """The mode in the settings when the work was requested, where that was earlier."""
    agent: str = ""
    """Be this agent at top level."""
    team: str = ""
    persona: str = ""
    only_tools: tuple[str, ...] = ()
    """Only these are there, and they need no answer where the mode would ask."""
    no_tools: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    trust_workspace: bool | str = False
    """For this run, whatever it brings; or, as `Trust.seen` says it, what the person has looked at, and no more."""
    append: str = ""
    effort: str = ""
    extra: tuple[str, ...] = ()
    limits: Limits = Limits()
    resume: str = ""
    """The session to go on with; `last` is the newest one of this directory."""
    fork: bool = False
    """Go on in a copy."""

    def with_session_defaults(self, header: SessionHeader) -> "Options":
        """What was not said is as it was when the session began. Its mode is dealt with where modes are compared."""
        seen_as = (self.team, self.persona) if self.team or self.persona else (header.team, header.persona)
        return self._replace(agent=self.agent or header.agent, team=seen_as[0], persona=seen_as[1])
