"""The skills of a run: how they are prepared for delivery, and which loaded ones must be dropped.

Used by agent_resources, apply_setup and system_prompt. What preparation needs is imported with the first skill that is
loaded.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kitbag.agent.session import Session
from kitbag.assembly.environment import AgentEnvironment
from kitbag.errors import Diagnostic, InvalidError, KitbagError
from kitbag.events import Notice
from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.library.untrusted_items import UntrustedItemError
from kitbag.packing.session_skills import PrepareSkill, SessionSkills
from kitbag.packing.skill_permissions import deny_grant_by_trust

if TYPE_CHECKING:
    from kitbag.library.skills import Skill
    from kitbag.packing.prepare_skill import SkillPreparer
    from kitbag.packing.references.resolve import CommandProgress
    from kitbag.packing.substitutions import InvocationArguments as Values


def build_session_skills(
    environment: AgentEnvironment, mode: Callable[[], PermissionMode], stop: threading.Event
) -> SessionSkills:
    """`mode`: returns the current mode. `stop`: ends the commands of a skill that is being loaded."""
    prepare = _make_prepare(environment, mode, stop)
    return SessionSkills(
        environment.library,
        prepare,
        deny_grant=deny_grant_by_trust(environment.trust, environment.places),
        max_tokens=environment.library.settings.get("limits.skill"),
    )


def _make_prepare(
    environment: AgentEnvironment, mode: Callable[[], PermissionMode], stop: threading.Event
) -> PrepareSkill:
    by_mode: dict[PermissionMode, SkillPreparer] = {}

    def check_stop(command: str, seconds: float) -> None:
        if stop.is_set():
            raise InvalidError(f"`{command}` was stopped after {seconds:.0f} s")

    def prepare(skill: "Skill", body: str, line: int, values: "Values") -> tuple[str, tuple[Diagnostic, ...]]:
        current_mode = mode()
        if current_mode not in by_mode:
            by_mode[current_mode] = make_preparer(environment, current_mode, check_stop)
        return by_mode[current_mode](skill, body, line, values)

    return prepare


def find_denial(environment: AgentEnvironment, skill: "Skill") -> str:
    """Why a rule denies loading the skill, whatever tools an agent has; empty if none does."""
    decision = environment.permissions.decide("Skill", {"skill": skill.full_name, "args": ""})
    return decision.reason if any(part.effect == "deny" and part.rule for part in decision.parts) else ""


def make_preparer(
    environment: AgentEnvironment, mode: PermissionMode, progress: "CommandProgress | None" = None
) -> "SkillPreparer":
    """Resolves the references of skills under the rules of this environment."""
    from kitbag.packing.prepare_skill import SkillPreparer

    return SkillPreparer(
        policy=environment.reference_permissions(mode),
        workspace=environment.places.cwd,
        values=environment.library.settings.variables(),
        progress=progress,
    )


def find_unusable_skills(
    session: Session, skills: SessionSkills, *, include_deleted: bool = False
) -> list[tuple[str, str]]:
    """(name, reason) of loaded skills that are no longer visible, such as those of an untrusted workspace or another
    persona. `include_deleted`: also those whose file is gone; otherwise their loaded text stays."""
    unusable: list[tuple[str, str]] = []
    for name in list(session.skills):
        try:
            skills.find(name)
        except (UntrustedItemError, InvalidError) as error:
            unusable.append((name, error.problem))
        except KitbagError:
            if include_deleted:
                unusable.append((name, "its file no longer exists"))
    return unusable


def unusable_skill_notices(dropped: list[tuple[str, str]]) -> list[Notice]:
    return [
        Notice(severity="warning", text=f"the skill {name} is no longer loaded: {reason}") for name, reason in dropped
    ]
