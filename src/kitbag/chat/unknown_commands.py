"""Detects a mistyped `/command`, which is shown as an error and not sent to the model.

Used by chat. Paths and text that can't be a name are sent unchanged.
"""

import difflib
import os
import re
from typing import Final

from kitbag.chat.commands import COMMANDS
from kitbag.errors import KitbagError, NotFoundError
from kitbag.packing.session_skills import SessionSkills
from kitbag.views.blocks import NoticeBlock

_NAME: Final = re.compile(r"/([\w.:-]+)(?!\S)")
_OF_A_SERVER: Final = "mcp__"
_MOST: Final = 4


def describe_unknown_command(text: str, skills: SessionSkills) -> NoticeBlock | None:
    """None: send it."""
    found = _NAME.match(text.strip())
    if found is None or found[1].startswith(_OF_A_SERVER) or os.path.lexists(found[0]):
        return None
    try:
        skills.find(found[1], "user")
    except NotFoundError:
        near = _near(found[1].casefold(), skills)
        fix = f"did you mean {', '.join(f'/{name}' for name in near)}?" if near else "/help tells what can be typed"
        return NoticeBlock("error", f"no command or skill is called {found[0]}; nothing was sent", fix)
    except KitbagError:  # the run reports it
        pass
    return None


def _near(name: str, skills: SessionSkills) -> list[str]:
    library = skills.library
    view = library.visibility_context()
    callable_ = (skill.full_name for skill in library.skills if library.evaluate(skill, view).user)
    known = {one.casefold(): one for one in (*COMMANDS, *callable_)}
    near = [one for one in known if one.startswith(name)]
    near += [one for one in difflib.get_close_matches(name, known, n=_MOST, cutoff=0.7) if one not in near]
    return [known[one] for one in near[:_MOST]]
