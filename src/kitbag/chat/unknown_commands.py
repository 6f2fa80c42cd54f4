"""A line that begins with `/` and names nothing is told, and not sent: a slip of the fingers is no request to a model.

Used by chat. What is a path, or can be no name, goes to the model as it is.
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
    """None: it is to be sent."""
    found = _NAME.match(text.strip())
    if found is None or found[1].startswith(_OF_A_SERVER) or os.path.lexists(found[0]):
        return None
    try:
        skills.find(found[1], "user")
    except NotFoundError:
        near = _near(found[1].casefold(), skills)
        fix = f"did you mean {', '.join(f'/{name}' for name in near)}?" if near else "/help tells what can be typed"
        return NoticeBlock("error", f"no command or skill is called {found[0]}; nothing was sent", fix)
    except KitbagError:  # which the run will tell
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
