"""The skills of a run: how their text is made ready, and which of those that are loaded may stay.

Used by Agent and by what changes it. What making ready takes is imported with the first skill that is loaded.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kitbag.agent.session import Session
from kitbag.assembly.environment import AgentEnvironment
from kitbag.assembly.run_options import Options
from kitbag.errors import Diagnostic, InvalidError, KitbagError
from kitbag.events import Notice
from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.library.untrusted_items import UntrustedItemError
from kitbag.packing.session_skills import PrepareSkill, SessionSkills
from kitbag.packing.skill_permissions import deny_grant_by_trust

if TYPE_CHECKING:
    from kitbag.library.skills import Skill
    from kitbag.packing.substitutions import InvocationArguments as Values


def build_session_skills(
    environment: AgentEnvironment, options: Options, mode: Callable[[], PermissionMode], stop: threading.Event
) -> SessionSkills:
    """`mode`: at the moment. `stop` ends the commands of a skill that is being loaded."""
    prepare = _make_prepare(environment, options, mode, stop)
    return SessionSkills(
        environment.library, prepare, deny_grant=deny_grant_by_trust(environment.trust, environment.places)
    )


def _make_prepare(
    environment: AgentEnvironment, options: Options, mode: Callable[[], PermissionMode], stop: threading.Event
) -> PrepareSkill:
    made: dict[PermissionMode, PrepareSkill] = {}

    def check_stop(command: str, seconds: float) -> None:
        if stop.is_set():
            raise InvalidError(f"`{command}` was stopped after {seconds:.0f} s")

    def prepare(skill: "Skill", body: str, line: int, values: "Values") -> tuple[str, tuple[Diagnostic, ...]]:
        now = mode()
        if now not in made:
            from kitbag.packing.prepare_skill import SkillPreparer
            from kitbag.packing.references.permissions import ReferencePermissions

            rights = ReferencePermissions(
                environment.places,
                environment.library.settings,
                trust_workspace=options.trust_workspace,
                live=environment.live_rules,
                mode=now,
            )
            made[now] = SkillPreparer(rights, environment.places.cwd, progress=check_stop)
        return made[now](skill, body, line, values)

    return prepare


def find_unusable_skills(
    session: Session, skills: SessionSkills, *, include_deleted: bool = False
) -> list[tuple[str, str]]:
    """Loaded skills that may not be seen here, and why: of a workspace that is no longer trusted, say, or of another
    persona. `also_gone`: and those whose file is gone, of which else what was loaded stays."""
    found: list[tuple[str, str]] = []
    for name in list(session.skills):
        try:
            skills.find(name)
        except (UntrustedItemError, InvalidError) as error:
            found.append((name, error.problem))
        except KitbagError:
            if include_deleted:
                found.append((name, "its file is gone"))
    return found


def unusable_skill_notices(dropped: list[tuple[str, str]]) -> list[Notice]:
    return [Notice("warning", f"the skill {name} is no longer loaded: {why}") for name, why in dropped]
