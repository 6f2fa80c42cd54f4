"""The questions that resolving references asks before it reads or runs anything, and what becomes of the answers.

    RefusedError            6   policy says no, or nobody could be asked
    └── UntrustedError     13   policy would say yes to a workspace that is trusted
Used by references and by whoever packs; `rights` is the policy that answers by trust and permissions.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

from kitbag.errors import KitbagError
from kitbag.library.scopes import Scope
from kitbag.processes.command_runner import CommandResult, ProgressCallback, ShellCommand
from kitbag.text.hidden_characters import escape_for_terminal

ReferenceVerdict = Literal["allow", "ask", "deny", "untrusted"]


class ReferenceSource(NamedTuple):
    """A text whose references are to be resolved, and where it comes from."""

    text: str
    path: str
    scope: Scope
    base: str
    """Where relative `@` paths start; what is not found there is looked for in the root."""
    root: str
    """What an `@` path may not leave: the workspace, or the plugin's own directory."""
    first_line: int = 1
    """The line of `path` that `text` begins with."""


class ReferenceDecision(NamedTuple):
    verdict: ReferenceVerdict
    reason: str = ""


class ReferenceRequest(NamedTuple):
    """One thing that a token wants, as a person would be asked about it."""

    kind: Literal["file", "environment", "command"]
    subject: str
    """The path, the variable's name, or the command exactly as it would be run."""
    file: str
    line: int
    column: int
    decision: ReferenceDecision


class ReferencePolicy(Protocol):
    """Asked before anything is read or run. Answers don't depend on what is in the files."""

    def read(self, path: str, source: ReferenceSource) -> ReferenceDecision:
        """Asked for the path as it is written (absolute) and, where links lead elsewhere, for where they lead."""
        ...

    def environment(self, name: str, source: ReferenceSource) -> ReferenceDecision: ...

    def command(self, text: str, source: ReferenceSource) -> ReferenceDecision: ...

    def run(self, command: ShellCommand, tick: ProgressCallback | None, /) -> CommandResult:
        """Runs what it allowed, in what it allowed it for."""
        ...


AskAboutReferences = Callable[[tuple[ReferenceRequest, ...]], bool]
"""Shown everything that needs an answer, at once; True allows all of it."""


TRUST_FIX = "`kitbag trust` shows what the workspace would run, and asks; --trust-workspace trusts it for this run"
_MAX_SHOWN = 20


class ReferenceDeniedError(KitbagError):
    """All that was refused at once, each with file and line."""

    exit_code = 6

    def __init__(self, requests: tuple[ReferenceRequest, ...], fix: str) -> None:
        shown = [_describe_denial(request) for request in requests[:_MAX_SHOWN]]
        more = len(requests) - _MAX_SHOWN
        super().__init__("; ".join(shown) + (f"; and {more} more" if more > 0 else ""), fix)
        self.requests = requests


class ReferenceUntrustedError(ReferenceDeniedError):
    exit_code = 13


def _describe_denial(request: ReferenceRequest) -> str:
    what = {"file": "reading", "environment": "the variable", "command": "the command"}[request.kind]
    reason = request.decision.reason or "policy says no"
    return f"{request.file}:{request.line}: {what} `{escape_for_terminal(request.subject)}` is refused: {reason}"


def settle_requests(requests: Sequence[ReferenceRequest], ask: AskAboutReferences | None) -> None:
    """Returns when everything is allowed: by policy, or by one answer to one question about all that is open."""
    refused = [request for request in requests if request.decision.verdict in ("deny", "untrusted")]
    if refused:
        # What trust would not change is said first.
        refused.sort(key=lambda request: request.decision.verdict)
        if refused[0].decision.verdict == "untrusted":
            raise ReferenceUntrustedError(tuple(refused), TRUST_FIX)
        fix = (
            "remove it, or the rule that denies it; if it is only an example, put it in backticks or a backslash first"
        )
        raise ReferenceDeniedError(tuple(refused), fix)
    asked = tuple(request for request in requests if request.decision.verdict == "ask")
    if not asked:
        return
    if ask is None:
        raise ReferenceDeniedError(_unanswered(asked), _how_to_allow(asked))
    if not ask(asked):
        no = ReferenceDecision("deny", "the answer was no")
        raise ReferenceDeniedError(tuple(request._replace(decision=no) for request in asked), "")


def _unanswered(requests: tuple[ReferenceRequest, ...]) -> tuple[ReferenceRequest, ...]:
    return tuple(
        request._replace(decision=ReferenceDecision("deny", f"{why}nobody can be asked"))
        for request in requests
        for why in [f"{request.decision.reason}, and " if request.decision.reason else "it needs an answer and "]
    )


def _how_to_allow(requests: tuple[ReferenceRequest, ...]) -> str:
    """What to add to the command line, for the kinds of things that are open."""
    kinds = {request.kind for request in requests}
    ways = [
        "a command with --allow-commands or a rule such as --allow 'Bash(git log:*)'" if "command" in kinds else "",
        "a variable with --allow-env NAME" if "environment" in kinds else "",
        "a file with a rule such as --allow 'Read(./docs/**)'" if "file" in kinds else "",
    ]
    return f"allow {', '.join(way for way in ways if way)}"
