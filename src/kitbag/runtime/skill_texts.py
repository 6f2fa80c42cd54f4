"""The skills of a run: how their text is made ready, and which of an earlier run may stay.

Used by Agent. What making ready takes is imported with the first skill that is loaded.
"""

import threading
from typing import TYPE_CHECKING

from kitbag.agent.session import Session
from kitbag.errors import Diagnostic, InvalidError, KitbagError
from kitbag.events import Notice
from kitbag.library.left_out import LeftOutError
from kitbag.packing.session_skills import Prepare, SessionSkills
from kitbag.permissions.rule_files import Given
from kitbag.runtime.ground import Ground
from kitbag.runtime.options import Options

if TYPE_CHECKING:
    from kitbag.library.skills import Skill
    from kitbag.packing.substitutions import Given as Values


def prepares_skills(ground: Ground, options: Options, given: Given, stop: threading.Event) -> Prepare:
    """`stop` ends the commands of a skill that is being loaded."""
    made: list[Prepare] = []

    def check_stop(command: str, seconds: float) -> None:
        if stop.is_set():
            raise InvalidError(f"`{command}` was stopped after {seconds:.0f} s")

    def prepare(skill: "Skill", body: str, line: int, values: "Values") -> tuple[str, tuple[Diagnostic, ...]]:
        if not made:
            from kitbag.packing.prepare import RunsCommands
            from kitbag.packing.rights import Rights

            rights = Rights(
                ground.places, ground.library.settings, given=given, trust_workspace=options.trust_workspace
            )
            made.append(RunsCommands(rights, ground.places.cwd, progress=check_stop))
        return made[0](skill, body, line, values)

    return prepare


async def drop_unusable(session: Session, skills: SessionSkills) -> list[Notice]:
    """Skills of an earlier run that this one may not see: of a workspace that is no longer trusted, say."""
    notices: list[Notice] = []
    for name in list(session.skills):
        try:
            skills.find(name)
        except (LeftOutError, InvalidError) as error:
            await session.drop_skill(name, error.problem)
            notices.append(Notice("warning", f"the skill {name} is no longer loaded: {error.problem}"))
        except KitbagError:
            continue  # its file is gone: what was loaded stays
    return notices
