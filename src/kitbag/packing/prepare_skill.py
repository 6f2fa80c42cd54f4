"""Prepares a skill's text for delivery: runs its commands under a policy, then substitutes arguments and paths.

Command output is never scanned: no argument is substituted in it and nothing in it runs. `@path`, `{{NAME}}` and
`${NAME}` stay as text. Passed to session_skills; uses references and substitutions. Synchronous: async callers run
it in a thread.
"""

import msgspec

from kitbag.errors import Diagnostic
from kitbag.library.skills import Skill
from kitbag.packing.references.plan import (
    CommandStep,
    MarkerStep,
    PlanStep,
    ReferenceLimits,
    ReferencePlan,
    UnescapeStep,
)
from kitbag.packing.references.policy import (
    AskAboutReferences,
    ReferenceDecision,
    ReferencePolicy,
    ReferenceRequest,
    ReferenceSource,
    settle_requests,
)
from kitbag.packing.references.resolve import CommandProgress, PreparedReferences, ResolvedText, apply_references
from kitbag.packing.skill_delivery import path_variables
from kitbag.packing.substitutions import ArgumentSubstitution, InvocationArguments
from kitbag.text.reference_syntax import ReferenceToken, find_references


class SkillPreparer(msgspec.Struct, frozen=True, kw_only=True):
    """A session_skills.PrepareSkill. Raises ReferenceDeniedError (6) or ReferenceUntrustedError (13) before anything
    runs, and CommandFailedError (6) if a command fails."""

    policy: ReferencePolicy
    workspace: str
    """Working directory of the commands."""
    ask: AskAboutReferences | None = None
    limits: ReferenceLimits = ReferenceLimits()
    progress: CommandProgress | None = None

    def __call__(
        self, skill: Skill, body: str, first_line: int, arguments: InvocationArguments
    ) -> tuple[str, tuple[Diagnostic, ...]]:
        root = skill.root.plugin_path or self.workspace
        source = ReferenceSource(
            text=body, path=skill.path, scope=skill.root.scope, base=skill.directory, root=root, first_line=first_line
        )
        substitution = ArgumentSubstitution(arguments, body, path_variables(skill))
        planned = self._plan(source, substitution)
        settle_requests(planned.requests, self.ask)
        resolved = apply_references(
            PreparedReferences(source=source, plan=planned, diagnostics=[]),
            self.limits,
            self.policy,
            workspace=self.workspace,
            progress=self.progress,
            strict=True,
        )
        return substitution.append_unused_arguments(_substitute_around(resolved, substitution)), resolved.warnings

    def _plan(self, source: ReferenceSource, substitution: ArgumentSubstitution) -> ReferencePlan:
        steps: list[PlanStep] = []
        requests: list[ReferenceRequest] = []
        for token in find_references(source.text).tokens:
            if token.kind == "escape" and token.value == "!":
                steps.append(UnescapeStep(token=token))
            elif token.kind == "command":
                filled = substitution.substitute_in_command(token.value)
                decision = self.policy.command(filled.text, source)
                if filled.unsafe and decision.verdict in ("allow", "ask"):
                    decision = ReferenceDecision("deny", filled.unsafe)
                line = source.first_line + token.line - 1
                requests.append(
                    ReferenceRequest(
                        kind="command",
                        subject=filled.text,
                        file=source.path,
                        line=line,
                        column=token.column,
                        decision=decision,
                    )
                )
                steps.append(self._run_or_leave(token, filled.text, len(requests)))
        return ReferencePlan(steps=steps, requests=requests, warnings=[])

    def _run_or_leave(self, token: ReferenceToken, command: str, number: int) -> PlanStep:
        limit = self.limits.commands
        return (
            CommandStep(token=token, command=command)
            if number <= limit
            else MarkerStep(token=token, marker=f"[not run: more than {limit} commands]")
        )


def _substitute_around(resolved: ResolvedText, substitution: ArgumentSubstitution) -> str:
    """Substitutes arguments and paths outside the insertions."""
    pieces: list[str] = []
    at = 0
    for insertion in resolved.insertions:
        end = insertion.offset + insertion.length
        pieces += [
            substitution.substitute_in_text(resolved.text[at : insertion.offset]),
            resolved.text[insertion.offset : end],
        ]
        at = end
    return "".join([*pieces, substitution.substitute_in_text(resolved.text[at:])])
