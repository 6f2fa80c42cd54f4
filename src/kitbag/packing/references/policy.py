"""The questions that resolving references asks before it reads or runs anything, and what becomes of the answers.

    RefusedError            6   policy says no, or nobody could be asked
    └── UntrustedError     13   policy would say yes to a workspace that is trusted
Used by references and by whoever packs; `rights` is the policy that answers by trust and permissions.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

from kitbag.errors import KitbagError
from kitbag.library.scopes import Scope
from kitbag.processes.command_runner import Command, Ran, Tick
from kitbag.text.hidden_characters import for_terminal

Verdict = Literal["allow", "ask", "deny", "untrusted"]


class Source(NamedTuple):
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


class Decision(NamedTuple):
    verdict: Verdict
    reason: str = ""


class Request(NamedTuple):
    """One thing that a token wants, as a person would be asked about it."""

    kind: Literal["file", "environment", "command"]
    subject: str
    """The path, the variable's name, or the command exactly as it would be run."""
    file: str
    line: int
    column: int
    decision: Decision


class Policy(Protocol):
    """Asked before anything is read or run. Answers don't depend on what is in the files."""

    def read(self, path: str, source: Source) -> Decision:
        """Asked for the path as it is written (absolute) and, where links lead elsewhere, for where they lead."""
        ...

    def environment(self, name: str, source: Source) -> Decision: ...

    def command(self, text: str, source: Source) -> Decision: ...

    def run(self, command: Command, tick: Tick | None, /) -> Ran:
        """Runs what it allowed, in what it allowed it for."""
        ...


Ask = Callable[[tuple[Request, ...]], bool]
"""Shown everything that needs an answer, at once; True allows all of it."""


TRUST_FIX = "`kitbag trust` shows what the workspace would run, and asks; --trust-workspace trusts it for this run"
_MOST_SHOWN = 20


class RefusedError(KitbagError):
    """All that was refused at once, each with file and line."""

    exit_code = 6

    def __init__(self, requests: tuple[Request, ...], fix: str) -> None:
        shown = [_refusal(request) for request in requests[:_MOST_SHOWN]]
        more = len(requests) - _MOST_SHOWN
        super().__init__("; ".join(shown) + (f"; and {more} more" if more > 0 else ""), fix)
        self.requests = requests


class UntrustedError(RefusedError):
    exit_code = 13


def _refusal(request: Request) -> str:
    what = {"file": "reading", "environment": "the variable", "command": "the command"}[request.kind]
    reason = request.decision.reason or "policy says no"
    return f"{request.file}:{request.line}: {what} `{for_terminal(request.subject)}` is refused: {reason}"


def settle(requests: Sequence[Request], ask: Ask | None) -> None:
    """Returns when everything is allowed: by policy, or by one answer to one question about all that is open."""
    refused = [request for request in requests if request.decision.verdict in ("deny", "untrusted")]
    if refused:
        # What trust would not change is said first.
        refused.sort(key=lambda request: request.decision.verdict)
        if refused[0].decision.verdict == "untrusted":
            raise UntrustedError(tuple(refused), TRUST_FIX)
        fix = (
            "remove it, or the rule that denies it; if it is only an example, put it in backticks or a backslash first"
        )
        raise RefusedError(tuple(refused), fix)
    asked = tuple(request for request in requests if request.decision.verdict == "ask")
    if not asked:
        return
    if ask is None:
        raise RefusedError(_unanswered(asked), _how_to_allow(asked))
    if not ask(asked):
        no = Decision("deny", "the answer was no")
        raise RefusedError(tuple(request._replace(decision=no) for request in asked), "")


def _unanswered(requests: tuple[Request, ...]) -> tuple[Request, ...]:
    return tuple(
        request._replace(decision=Decision("deny", f"{why}nobody can be asked"))
        for request in requests
        for why in [f"{request.decision.reason}, and " if request.decision.reason else "it needs an answer and "]
    )


def _how_to_allow(requests: tuple[Request, ...]) -> str:
    """What to add to the command line, for the kinds of things that are open."""
    kinds = {request.kind for request in requests}
    ways = [
        "a command with --allow-commands or a rule such as --allow 'Bash(git log:*)'" if "command" in kinds else "",
        "a variable with --allow-env NAME" if "environment" in kinds else "",
        "a file with a rule such as --allow 'Read(./docs/**)'" if "file" in kinds else "",
    ]
    return f"allow {', '.join(way for way in ways if way)}"
