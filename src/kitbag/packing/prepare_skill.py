"""Prepares a skill's text for delivery: resolves its references under a policy, then substitutes arguments and paths.

The same resolver as for packed skills. Inserted text is never scanned: no argument is substituted in it and nothing in
it runs. What is not allowed stays as written, with a warning; a command that is not allowed denies the whole skill,
unless the skill is preloaded. Used by session_skills and preload. Synchronous: async callers run it in a thread.
"""

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

from kitbag.errors import Diagnostic
from kitbag.library.registry import Registry
from kitbag.library.skills import Skill
from kitbag.packing.references.plan import ReferenceLimits, keep_denied_as_text
from kitbag.packing.references.policy import (
    AskAboutReferences,
    ReferenceDecision,
    ReferenceKind,
    ReferencePolicy,
    ReferenceSource,
    settle_requests,
)
from kitbag.packing.references.resolve import CommandProgress, ResolvedText, apply_references, prepare_references
from kitbag.packing.references.shell_quoting import FilledCommand
from kitbag.packing.skill_delivery import path_variables, replace_path_variables
from kitbag.packing.substitutions import ArgumentSubstitution, InvocationArguments
from kitbag.processes.command_runner import CommandResult, ProgressCallback, ShellCommand

_ALL_KINDS: Final[tuple[ReferenceKind, ...]] = ("file", "environment", "command")


class SkillPreparer(msgspec.Struct, frozen=True, kw_only=True):
    """A session_skills.PrepareSkill. Raises ReferenceDeniedError (6) or ReferenceUntrustedError (13) before anything
    runs, and CommandFailedError (6) if a command fails."""

    policy: ReferencePolicy
    workspace: str
    """Working directory of the commands, and where `@` paths may lead."""
    values: Mapping[str, str] = {}
    """For `{{NAME}}`."""
    ask: AskAboutReferences | None = None
    limits: ReferenceLimits = ReferenceLimits()
    progress: CommandProgress | None = None
    kept: tuple[ReferenceKind, ...] = ("file", "environment")
    """What stays as text where it is not allowed."""

    def __call__(
        self, skill: Skill, body: str, first_line: int, arguments: InvocationArguments
    ) -> tuple[str, tuple[Diagnostic, ...]]:
        substitution = ArgumentSubstitution(arguments, body, path_variables(skill))
        resolved = self._resolve(skill, body, first_line, substitution, self.kept, strict="command" not in self.kept)
        text = resolved.map_source(substitution.substitute_in_text)
        return substitution.append_unused_arguments(text), resolved.warnings

    def prepare_preload(self, skill: Skill, body: str, first_line: int) -> tuple[str, tuple[Diagnostic, ...]]:
        """Without arguments. Nothing keeps an agent from starting: what is not allowed stays as text, and a command
        that fails leaves its status."""
        paths = ArgumentSubstitution(InvocationArguments(), "", path_variables(skill))
        resolved = self._resolve(skill, body, first_line, paths, _ALL_KINDS, strict=False)
        return resolved.map_source(lambda text: replace_path_variables(text, skill)), resolved.warnings

    def _resolve(
        self,
        skill: Skill,
        body: str,
        first_line: int,
        substitution: ArgumentSubstitution,
        kept: Collection[ReferenceKind],
        *,
        strict: bool,
    ) -> ResolvedText:
        root = skill.root.plugin_path or self.workspace
        source = ReferenceSource(
            text=body, path=skill.path, scope=skill.root.scope, base=skill.directory, root=root, first_line=first_line
        )

        def fill(command: str) -> FilledCommand:
            # Other tools' skills write `{{...}}` in commands, too: what has no value is the command's own.
            return msgspec.structs.replace(substitution.substitute_in_command(command, self.values), unknown=())

        prepared = prepare_references(source, self.values, self.policy, self.limits, fill)
        prepared = msgspec.structs.replace(prepared, plan=keep_denied_as_text(prepared.plan, source, kept))
        settle_requests(prepared.plan.requests, self.ask)
        return apply_references(
            prepared, self.limits, self.policy, workspace=self.workspace, progress=self.progress, strict=strict
        )


class NoCommands(msgspec.Struct, frozen=True):
    """A policy that runs nothing: for showing a prompt, and for programs that only read skills."""

    policy: ReferencePolicy
    reason: str = "commands run only when an agent uses the skill"

    def read(self, path: str, source: ReferenceSource) -> ReferenceDecision:
        return self.policy.read(path, source)

    def environment(self, name: str, source: ReferenceSource) -> ReferenceDecision:
        return self.policy.environment(name, source)

    def command(self, text: str, source: ReferenceSource) -> ReferenceDecision:
        return ReferenceDecision("deny", self.reason)

    def run(self, command: ShellCommand, tick: ProgressCallback | None, /) -> CommandResult:
        raise AssertionError(f"no command is allowed: {command.text}")


def reading_preparer(library: Registry) -> SkillPreparer:
    """Inserts files and values under the user's rules, and runs nothing."""
    from kitbag.packing.references.permissions import ReferencePermissions

    return SkillPreparer(
        policy=NoCommands(ReferencePermissions(library.places, library.settings)),
        workspace=library.places.cwd,
        values=library.settings.variables(),
        kept=_ALL_KINDS,
    )
