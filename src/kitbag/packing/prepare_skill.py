"""A skill's text made ready for delivery: its commands run under a policy, arguments and paths put in their places.

Commands come first, and what they print is never looked at again: no argument is put into it, nothing in it runs.
`@path`, `{{NAME}}` and `${NAME}` stay the text they are. Given to session_skills; settles and runs through references.
Synchronous: an asynchronous caller gives it a thread.
"""

from typing import NamedTuple

from kitbag.errors import Diagnostic
from kitbag.library.skills import Skill
from kitbag.packing.references.plan import Leave, Limits, Plan, Run, Step, Unescape
from kitbag.packing.references.policy import Ask, Decision, Policy, Request, Source, settle
from kitbag.packing.references.resolve import Prepared, Progress, Resolved, finish
from kitbag.packing.skill_delivery import path_variables
from kitbag.packing.substitutions import Given, Substitution
from kitbag.text.reference_syntax import Token, find_tokens


class RunsCommands(NamedTuple):
    """A session_skills.Prepare. Raises RefusedError (6) or UntrustedError (13) before anything ran, and
    CommandFailedError (6) when a command failed."""

    policy: Policy
    workspace: str
    """Where commands run."""
    ask: Ask | None = None
    limits: Limits = Limits()
    progress: Progress | None = None

    def __call__(self, skill: Skill, body: str, first_line: int, given: Given) -> tuple[str, tuple[Diagnostic, ...]]:
        root = skill.root.plugin_path or self.workspace
        source = Source(body, skill.path, skill.root.scope, skill.directory, root, first_line)
        substitution = Substitution(given, body, path_variables(skill))
        planned = self._plan(source, substitution)
        settle(planned.requests, self.ask)
        done = finish(
            Prepared(source, planned, []),
            self.limits,
            self.policy,
            workspace=self.workspace,
            progress=self.progress,
            strict=True,
        )
        return substitution.with_rest(_around(done, substitution)), done.warnings

    def _plan(self, source: Source, substitution: Substitution) -> Plan:
        steps: list[Step] = []
        requests: list[Request] = []
        for token in find_tokens(source.text).tokens:
            if token.kind == "escape" and token.value == "!":
                steps.append(Unescape(token))
            elif token.kind == "command":
                filled = substitution.in_command(token.value)
                decision = self.policy.command(filled.text, source)
                if filled.unsafe and decision.verdict in ("allow", "ask"):
                    decision = Decision("deny", filled.unsafe)
                line = source.first_line + token.line - 1
                requests.append(Request("command", filled.text, source.path, line, token.column, decision))
                steps.append(self._run_or_leave(token, filled.text, len(requests)))
        return Plan(steps, requests, [])

    def _run_or_leave(self, token: Token, command: str, number: int) -> Step:
        most = self.limits.commands
        return Run(token, command) if number <= most else Leave(token, f"[not run: more than {most} commands]")


def _around(done: Resolved, substitution: Substitution) -> str:
    """Arguments and paths in the stretches between what was inserted."""
    pieces: list[str] = []
    at = 0
    for insertion in done.insertions:
        end = insertion.offset + insertion.length
        pieces += [substitution.in_text(done.text[at : insertion.offset]), done.text[insertion.offset : end]]
        at = end
    return "".join([*pieces, substitution.in_text(done.text[at:])])
