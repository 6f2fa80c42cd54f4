"""A skill's text made ready for delivery: its commands run under a policy, arguments and paths put in their places.

Commands come first, and what they print is never looked at again: no argument is put into it, nothing in it runs.
`@path`, `{{NAME}}` and `${NAME}` stay the text they are. Given to session_skills; settles and runs through references.
Synchronous: an asynchronous caller gives it a thread.
"""

from typing import NamedTuple

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


class SkillPreparer(NamedTuple):
    """A session_skills.Prepare. Raises RefusedError (6) or UntrustedError (13) before anything ran, and
    CommandFailedError (6) when a command failed."""

    policy: ReferencePolicy
    workspace: str
    """Where commands run."""
    ask: AskAboutReferences | None = None
    limits: ReferenceLimits = ReferenceLimits()
    progress: CommandProgress | None = None

    def __call__(
        self, skill: Skill, body: str, first_line: int, arguments: InvocationArguments
    ) -> tuple[str, tuple[Diagnostic, ...]]:
        root = skill.root.plugin_path or self.workspace
        source = ReferenceSource(body, skill.path, skill.root.scope, skill.directory, root, first_line)
        substitution = ArgumentSubstitution(arguments, body, path_variables(skill))
        planned = self._plan(source, substitution)
        settle_requests(planned.requests, self.ask)
        done = apply_references(
            PreparedReferences(source, planned, []),
            self.limits,
            self.policy,
            workspace=self.workspace,
            progress=self.progress,
            strict=True,
        )
        return substitution.append_unused_arguments(_substitute_around(done, substitution)), done.warnings

    def _plan(self, source: ReferenceSource, substitution: ArgumentSubstitution) -> ReferencePlan:
        steps: list[PlanStep] = []
        requests: list[ReferenceRequest] = []
        for token in find_references(source.text).tokens:
            if token.kind == "escape" and token.value == "!":
                steps.append(UnescapeStep(token))
            elif token.kind == "command":
                filled = substitution.substitute_in_command(token.value)
                decision = self.policy.command(filled.text, source)
                if filled.unsafe and decision.verdict in ("allow", "ask"):
                    decision = ReferenceDecision("deny", filled.unsafe)
                line = source.first_line + token.line - 1
                requests.append(ReferenceRequest("command", filled.text, source.path, line, token.column, decision))
                steps.append(self._run_or_leave(token, filled.text, len(requests)))
        return ReferencePlan(steps, requests, [])

    def _run_or_leave(self, token: ReferenceToken, command: str, number: int) -> PlanStep:
        most = self.limits.commands
        return (
            CommandStep(token, command)
            if number <= most
            else MarkerStep(token, f"[not run: more than {most} commands]")
        )


def _substitute_around(done: ResolvedText, substitution: ArgumentSubstitution) -> str:
    """Arguments and paths in the stretches between what was inserted."""
    pieces: list[str] = []
    at = 0
    for insertion in done.insertions:
        end = insertion.offset + insertion.length
        pieces += [substitution.substitute_in_text(done.text[at : insertion.offset]), done.text[insertion.offset : end]]
        at = end
    return "".join([*pieces, substitution.substitute_in_text(done.text[at:])])
