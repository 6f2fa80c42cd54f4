"""What an agent's file gives it: in words for whoever has to allow its start, and as a mark, so that what starts later
is what was allowed.

Used by delegation, and by task_runner, which may run in another process and much later.
"""

import hashlib
import json
from typing import Final

from kitbag.errors import InvalidError
from kitbag.library.agents import Agent as AgentFile
from kitbag.tasks.model import Wish
from kitbag.text.hidden import one_line

MARK: Final = "agent_was"
"""Its name among the options of a wish."""


def tools_in_words(definition: AgentFile) -> str:
    """Whatever the one who starts it has: an agent's tools are its own."""
    access = definition.tools
    limited = {rule.partition("(")[0] for rule in access.specifiers}
    has = ", ".join(sorted((*(name for name in access.names if name not in limited), *access.specifiers)))
    if access.mode != "allow":
        has = f"all that your rules leave{', of some only ' if has else ''}{has}"
    has = f"{has}; not {', '.join(sorted(access.denied))}" if access.denied else has
    own = ", ".join(map(one_line, definition.own_servers))
    return f"{has}; it brings the servers {own}" if own else has


def mark_of(definition: AgentFile) -> str:
    """Of all that a person is shown of it, and of what its servers are."""
    servers = json.dumps(definition.own_servers, sort_keys=True)
    shown = "\0".join((definition.path, definition.permission_mode or "", tools_in_words(definition), servers))
    return hashlib.sha256(shown.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def must_be_the_same(definition: AgentFile, wish: Wish) -> None:
    """Raises InvalidError where it may do something else, or is another, since its start was allowed."""
    was = wish.options.get(MARK)
    if was and was != mark_of(definition):
        problem = f"the agent {definition.full_name} ({definition.path}) is not what it was when its start was allowed"
        raise InvalidError(problem, "look at its mode and tools, and start it again")
