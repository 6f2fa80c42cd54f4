"""How a skill's text is made ready for a run; what that takes is imported with the first skill that is loaded.

Used by Agent.
"""

import threading
from typing import TYPE_CHECKING

from kitbag.errors import Diagnostic, InvalidError
from kitbag.packing.session_skills import Prepare
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
