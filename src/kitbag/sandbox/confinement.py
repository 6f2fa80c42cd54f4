"""What a sandboxed command may do: its profile, network, limits, and exceptions for single paths.

Built from a permission decision by everything that runs commands; carried out by `confine`.
"""

from collections.abc import Callable
from concurrent.futures import Future

import msgspec

from kitbag.permissions.control_paths import control_reason
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import DeniedWrite, PermissionDecision, SandboxProfile
from kitbag.processes.limits import CommandLimits
from kitbag.sandbox.git_environment import git_environment

WriteQuestion = Callable[[str], "Future[str]"]
"""Decides about a protected path that a command wants to write: allowed if the answer is empty."""


def answer_by_rules(permissions: Permissions, directory: str) -> WriteQuestion:
    """For commands that run when no user can answer."""

    def answer(path: str) -> "Future[str]":
        future: Future[str] = Future()
        reason = permissions.decide("Edit", {"file_path": path}, directory).reason
        fix = "run the command where you can be asked, or add an Edit rule that names the path"
        future.set_result("" if permissions.allows_writing(path, directory) else f"{reason}; {fix}")
        return future

    return answer


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    profile: SandboxProfile
    network: bool = False
    protects_control_paths: bool = True
    """Whether control paths must stay read-only; False only if a person approved that."""
    allowed: tuple[str, ...] = ()
    """Control paths that the command may write, because a rule or a person allowed it."""
    denied_writes: tuple[DeniedWrite, ...] = ()
    limits: CommandLimits = CommandLimits()
    hardens_git: bool = False
    """Whether git must not run programs that a repository's configuration names."""
    on_question: WriteQuestion | None = None
    """None: other protected paths are denied without asking."""

    @staticmethod
    def of_decision(decision: PermissionDecision, on_question: WriteQuestion | None = None) -> "Confinement":
        return Confinement(
            profile=decision.sandbox,
            network=decision.network,
            allowed=tuple(part.path for part in decision.parts if part.path and control_reason(part.path)),
            denied_writes=decision.denied_writes,
            limits=decision.limits,
            hardens_git=decision.hardens_git,
            on_question=on_question,
        )

    @property
    def git_environment(self) -> dict[str, str]:
        return git_environment(read_only=self.profile == "read-only") if self.hardens_git else {}

    def describe_limit(self, name: str) -> str:
        """For users: which limit ended a command and how to change it, or what else did."""
        limits = self.limits
        exceeded = {
            "processes": (f"more than {limits.processes:,} processes", "sandbox.max_processes"),
            "memory": (f"more than {limits.memory >> 20:,} MB of memory", "sandbox.max_memory"),
            "file_size": (f"a file larger than {limits.file_size >> 20:,} MB", "sandbox.max_file_size"),
        }
        if name not in exceeded:
            return f"stopped: {name}"
        what, key = exceeded[name]
        return f"stopped: the command used {what} (setting `{key}`)"
