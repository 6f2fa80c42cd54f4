"""The values of the permission system: workspace, sandbox support, decisions and their parts.

Used by every module of this package and by its callers; imports none of them but `workspace_identity`, and
`processes` for limits.
"""

import os
from typing import Literal

import msgspec

from kitbag.permissions.workspace_identity import WorkspaceIdentity, WorkspaceMovedError
from kitbag.processes.limits import CommandLimits

Effect = Literal["allow", "ask", "deny"]
STRICTEST_EFFECT_FIRST: tuple[Effect, ...] = ("deny", "ask", "allow")
SandboxProfile = Literal["none", "read-only", "workspace"]
"""The sandbox a command runs in: none, nothing writable, or workspace writable."""


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """Where an agent works. Comes from the user's start directory, never from a model or a file."""

    root: str
    """Absolute and resolved: the git root of the start directory, else the start directory."""
    home: str
    kitbag_home: str
    extra_write_roots: tuple[str, ...] = ()
    """Other roots that the user opened for writing, resolved."""
    extra_read_roots: tuple[str, ...] = ()
    """Other readable roots, such as the directories of loaded skills."""
    identity: WorkspaceIdentity | None = None
    """Of the root when the work began; None: not checked."""

    @property
    def write_roots(self) -> tuple[str, ...]:
        return (self.root, *self.extra_write_roots)

    @property
    def read_roots(self) -> tuple[str, ...]:
        return (self.root, *self.extra_write_roots, *self.extra_read_roots)

    @property
    def is_in_place(self) -> bool:
        """False: the root was moved, deleted or replaced since the work began."""
        return self.identity is None or self.identity.is_at(self.root)

    def check_in_place(self) -> None:
        """Raises WorkspaceMovedError."""
        if not self.is_in_place:
            raise WorkspaceMovedError(self.root)


class SandboxSupport(msgspec.Struct, frozen=True, kw_only=True):
    """Which sandbox this machine supports, detected by a trial run."""

    kind: Literal["bubblewrap", "sandlock", "none"]
    version: str = ""
    carve_outs: bool = False
    """Whether control paths inside a writable workspace can be kept read-only."""
    problem: str = ""
    """Why no better sandbox is available."""
    fix: str = ""

    def supports(self, profile: SandboxProfile) -> bool:
        if profile == "none":
            return True
        return self.kind != "none" and (profile == "read-only" or self.carve_outs)


class DecisionPart(msgspec.Struct, frozen=True, kw_only=True):
    """One effect of an action, and the decision about it."""

    what: str
    """For people: `git log -5`, `writes src/a.py`. May contain any character; escape it before printing."""
    effect: Effect
    reason: str
    rule: str = ""
    """The deciding rule as written; empty if no rule decided."""
    source: str = ""
    """The file with its line, `command line` or `session`; empty if no rule decided."""
    path: str = ""
    """The resolved path that it writes; empty if it writes none."""
    check: str = ""
    """What it is if it runs tests or linters, such as `run tests: pytest`: one approval is enough for a session."""

    def reason_with_rule(self, source: str) -> str:
        """The reason, the rule if the reason doesn't name it, and `source`: where the rule is."""
        if not self.rule:
            return self.reason
        return f"{self.reason} ({source})" if self.rule in self.reason else f"{self.reason} `{self.rule}` ({source})"

    def to_json(self) -> dict[str, str]:
        return {
            "what": self.what,
            "effect": self.effect,
            "reason": self.reason,
            "rule": self.rule,
            "source": self.source,
        }


class DeniedWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A path pattern that a rule denies writing, for the sandbox."""

    anchor: str
    """In NFC."""
    regex: str
    """Matches the folded path below the anchor."""
    only_names: bool
    """Match only the last component of a path."""
    rule: str


class PermissionDecision(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a tool call is allowed, denied or needs approval: the strictest of its parts."""

    effect: Effect
    reason: str
    parts: tuple[DecisionPart, ...] = ()
    sandbox: SandboxProfile = "none"
    """The sandbox that a command must run in for this decision to be valid."""
    network: bool = False
    """Whether the sandbox has network access."""
    denied_writes: tuple[DeniedWrite, ...] = ()
    limits: CommandLimits = CommandLimits()
    hardens_git: bool = False
    """Whether git must not run programs that a repository's configuration names, because no person and no rule allowed
    all of the command."""

    @property
    def has_check(self) -> bool:
        """Whether it runs tests or linters."""
        return any(part.check for part in self.parts)

    @property
    def outcome(self) -> tuple[object, ...]:
        """What a person approves besides the action itself: effects, reasons and rules, without the rules' sources."""
        parts = tuple((part.what, part.effect, part.reason, part.rule) for part in self.parts)
        return self.effect, parts, self.sandbox, self.network


def strictest_part(parts: tuple[DecisionPart, ...]) -> DecisionPart:
    """The first part with the strictest effect. `parts` must not be empty."""
    return min(parts, key=lambda part: STRICTEST_EFFECT_FIRST.index(part.effect))


def is_inside(path: str, directory: str) -> bool:
    """Both resolved. Compares whole components, so `/w/app-x` is outside `/w/app`."""
    return path == directory or path.startswith(directory if directory.endswith(os.sep) else directory + os.sep)
