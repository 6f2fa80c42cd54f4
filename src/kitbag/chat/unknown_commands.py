"""Detects a mistyped `/command`, which is shown as an error and not sent to the model.

Used by chat. Paths and text that can't be a name are sent unchanged.
"""

import difflib
import os
import re
from typing import Final

from kitbag.chat.commands import COMMANDS
from kitbag.errors import KitbagError, NotFoundError
from kitbag.library.names import normalize_name
from kitbag.packing.session_skills import SessionSkills
from kitbag.text.unicode_forms import compose
from kitbag.views.blocks import NoticeBlock

_NAME: Final = re.compile(r"/([\w.:-]+)(?!\S)")
_MCP_PREFIX: Final = "mcp__"
_MAX_SUGGESTIONS: Final = 4


def describe_unknown_command(text: str, skills: SessionSkills) -> NoticeBlock | None:
    """None: send it."""
    match = _NAME.match(compose(text.strip()))  # a separate accent is no letter
    if match is None or match[1].startswith(_MCP_PREFIX) or os.path.lexists(match[0]):
        return None
    try:
        skills.find(match[1], "user")
    except NotFoundError:
        similar = _similar_names(normalize_name(match[1]), skills)
        fix = f"did you mean {', '.join(f'/{name}' for name in similar)}?" if similar else "type /help for commands"
        return NoticeBlock("error", f"no command or skill named {match[0]}; nothing was sent", fix)
    except KitbagError:  # the run reports it
        pass
    return None


def _similar_names(name: str, skills: SessionSkills) -> list[str]:
    library = skills.library
    view = library.visibility_context()
    callable_ = (skill.full_name for skill in library.skills if library.evaluate(skill, view).user)
    by_folded_name = {normalize_name(one): one for one in (*COMMANDS, *callable_)}
    similar = [one for one in by_folded_name if one.startswith(name)]
    similar += [
        one
        for one in difflib.get_close_matches(name, by_folded_name, n=_MAX_SUGGESTIONS, cutoff=0.7)
        if one not in similar
    ]
    return [by_folded_name[one] for one in similar[:_MAX_SUGGESTIONS]]
