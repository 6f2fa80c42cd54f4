"""The skills of a run: how their text is made ready, and which of those that are loaded may stay.

Used by Agent and by what changes it. What making ready takes is imported with the first skill that is loaded.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kitbag.agent.session import Session
from kitbag.assembly.environment import Ground
from kitbag.assembly.run_options import Options
from kitbag.errors import Diagnostic, InvalidError, KitbagError
from kitbag.events import Notice
from kitbag.library.dialects.permission_modes import Mode
from kitbag.library.untrusted_items import LeftOutError
from kitbag.packing.session_skills import Prepare, SessionSkills
from kitbag.packing.skill_permissions import by_trust

if TYPE_CHECKING:
    from kitbag.library.skills import Skill
    from kitbag.packing.substitutions import Given as Values


def skills_of_run(ground: Ground, options: Options, mode: Callable[[], Mode], stop: threading.Event) -> SessionSkills:
    """`mode`: at the moment. `stop` ends the commands of a skill that is being loaded."""
    prepare = _prepares(ground, options, mode, stop)
    return SessionSkills(ground.library, prepare, withhold=by_trust(ground.trust, ground.places))


def _prepares(ground: Ground, options: Options, mode: Callable[[], Mode], stop: threading.Event) -> Prepare:
    made: dict[Mode, Prepare] = {}

    def check_stop(command: str, seconds: float) -> None:
        if stop.is_set():
            raise InvalidError(f"`{command}` was stopped after {seconds:.0f} s")

    def prepare(skill: "Skill", body: str, line: int, values: "Values") -> tuple[str, tuple[Diagnostic, ...]]:
        now = mode()
        if now not in made:
            from kitbag.packing.prepare_skill import RunsCommands
            from kitbag.packing.references.permissions import Rights

            rights = Rights(
                ground.places,
                ground.library.settings,
                trust_workspace=options.trust_workspace,
                live=ground.live,
                mode=now,
            )
            made[now] = RunsCommands(rights, ground.places.cwd, progress=check_stop)
        return made[now](skill, body, line, values)

    return prepare


def unusable(session: Session, skills: SessionSkills, *, also_gone: bool = False) -> list[tuple[str, str]]:
    """Loaded skills that may not be seen here, and why: of a workspace that is no longer trusted, say, or of another
    persona. `also_gone`: and those whose file is gone, of which else what was loaded stays."""
    found: list[tuple[str, str]] = []
    for name in list(session.skills):
        try:
            skills.find(name)
        except (LeftOutError, InvalidError) as error:
            found.append((name, error.problem))
        except KitbagError:
            if also_gone:
                found.append((name, "its file is gone"))
    return found


def told_unusable(dropped: list[tuple[str, str]]) -> list[Notice]:
    return [Notice("warning", f"the skill {name} is no longer loaded: {why}") for name, why in dropped]
