"""The values that permissions are about: places, protection, and what was decided and why.

Used by every module of this package and by whoever asks it; imports none of them.
"""

import os
from typing import Literal, NamedTuple

Effect = Literal["allow", "ask", "deny"]
STRICTEST_EFFECT_FIRST: tuple[Effect, ...] = ("deny", "ask", "allow")
SandboxProfile = Literal["none", "read-only", "workspace"]
"""Which sandbox a command runs in: none, one that can write nowhere, one that can write in the workspace."""


class Workspace(NamedTuple):
    """Where an agent works. Comes from the user's start directory, never from a model or a file."""

    root: str
    """Absolute and resolved: the git root of the start directory, else the start directory."""
    home: str
    """The user's home directory."""
    kitbag_home: str
    extra_write_roots: tuple[str, ...] = ()
    """Other roots that the user opened for writing, resolved."""
    extra_read_roots: tuple[str, ...] = ()
    """Other roots that may be read, such as the directories of skills in use."""

    @property
    def write_roots(self) -> tuple[str, ...]:
        return (self.root, *self.extra_write_roots)

    @property
    def read_roots(self) -> tuple[str, ...]:
        return (self.root, *self.extra_write_roots, *self.extra_read_roots)


class SandboxSupport(NamedTuple):
    """What the machine can hold a command in; found by trying, not by looking."""

    kind: Literal["bubblewrap", "sandlock", "none"]
    version: str = ""
    carve_outs: bool = False
    """Whether control paths inside a writable workspace can be held read-only."""
    problem: str = ""
    """Why nothing better runs here."""
    fix: str = ""

    def supports(self, profile: SandboxProfile) -> bool:
        if profile == "none":
            return True
        return self.kind != "none" and (profile == "read-only" or self.carve_outs)


class DecisionPart(NamedTuple):
    """One thing that an action would do, and what was decided about it."""

    what: str
    """As a person reads it: `git log -5`, `writes src/a.py`. May hold any character: escape it before showing."""
    effect: Effect
    reason: str
    rule: str = ""
    """The rule that decided, as it is written; empty when none did."""
    source: str = ""
    """The file with its line, `command line`, `session`; empty when no rule decided."""


class PermissionDecision(NamedTuple):
    """The answer to `may it?`: the strictest of its parts."""

    effect: Effect
    reason: str
    parts: tuple[DecisionPart, ...] = ()
    sandbox: SandboxProfile = "none"
    """What a command must run in for the judgement to hold."""
    network: bool = False
    """Whether that sandbox lets it reach the network."""

    @property
    def outcome(self) -> tuple[object, ...]:
        """What a person agrees to, apart from the action itself, and by which rules; not where those stand."""
        parts = tuple((part.what, part.effect, part.reason, part.rule) for part in self.parts)
        return self.effect, parts, self.sandbox, self.network


def strictest_part(parts: tuple[DecisionPart, ...]) -> DecisionPart:
    """The first of the strictest ones. There must be one."""
    return min(parts, key=lambda part: STRICTEST_EFFECT_FIRST.index(part.effect))


def is_inside(path: str, directory: str) -> bool:
    """Both resolved: whole parts are compared, so `/w/app-x` is outside `/w/app`."""
    return path == directory or path.startswith(directory if directory.endswith(os.sep) else directory + os.sep)
