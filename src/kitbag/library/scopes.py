"""Where things are found, and in which order: the roots of CONTRACT §1 as data.

Used by the registry. A root is one directory that may hold one kind of item; ranks decide
collisions, lower first.
"""

import os
from typing import Literal, NamedTuple

Kind = Literal["skills", "agents", "commands", "personas"]
Scope = Literal["extra", "project", "user", "plugin", "built-in"]
Dialect = Literal["kitbag", "claude", "copilot", "opencode", "gemini", "codex", "cursor", "agents"]
Precedence = Literal["kitbag", "project-first", "claude"]

KINDS: tuple[Kind, ...] = ("skills", "agents", "commands", "personas")


class Root(NamedTuple):
    path: str
    kind: Kind
    scope: Scope
    dialect: Dialect
    rank: tuple[int, int]
    """Compared as it is: the smaller one wins a collision."""
    plugin: str = ""
    """The plugin that brings it; its items are called `plugin:name`."""
