"""The files that an agent's tools used in the last turns: they raise skills for such files in the ranking of the next
message.

Used by assembly/user_messages and session_routing; reads the messages of the session.
"""

import os
from typing import Final

from kitbag.agent.session import Session, is_user_message
from kitbag.tools.path_skills import FILE_ARGUMENTS

_TURNS: Final = 3
_MAX_FILES: Final = 20


def list_touched_files(session: Session) -> tuple[str, ...]:
    """Newest first; a path that is not absolute is relative to the session's directory."""
    files: dict[str, None] = {}
    turns = 0
    for message in reversed(session.messages()):
        if is_user_message(message):
            turns += 1
            if turns == _TURNS:
                break
        for call in reversed(message.calls):
            path = call.arguments.get(FILE_ARGUMENTS.get(call.name, ""))
            if isinstance(path, str) and path and "\0" not in path:
                files[os.path.normpath(os.path.join(session.directory, os.path.expanduser(path)))] = None
                if len(files) >= _MAX_FILES:
                    return tuple(files)
    return tuple(files)
