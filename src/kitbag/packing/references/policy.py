"""The policy protocol for references, its requests and decisions, and how open requests are settled.

    ReferenceDeniedError             exit code 6    denied by policy, or approval was needed and not given
    └── ReferenceUntrustedError      exit code 13   the policy would allow it in a trusted workspace
Used by plan, resolve, pack and prepare_skill; permissions.ReferencePermissions implements the policy.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Literal, Protocol

import msgspec

from kitbag.errors import KitbagError
from kitbag.library.scopes import Scope
from kitbag.processes.command_runner import CommandResult, ProgressCallback, ShellCommand
from kitbag.text.hidden_characters import escape_for_terminal

ReferenceVerdict = Literal["allow", "ask", "deny", "untrusted"]
ReferenceKind = Literal["file", "environment", "command"]


class ReferenceSource(msgspec.Struct, frozen=True, kw_only=True):
    """A text with references, and where it comes from."""

    text: str
    path: str
    scope: Scope
    base: str
    """Directory for relative `@` paths; if a file is not found there, `root` is tried."""
    root: str
    """`@` paths may not leave it: the workspace, or the plugin's directory."""
    first_line: int = 1
    """Line of `path` at which `text` starts."""


class ReferenceDecision(msgspec.Struct, frozen=True):
    verdict: ReferenceVerdict
    reason: str = ""


class ReferenceRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What one token needs permission for, as shown to the user."""

    kind: ReferenceKind
    subject: str
    """The path, the variable name, or the exact command."""
    file: str
    line: int
    column: int
    decision: ReferenceDecision


class ReferencePolicy(Protocol):
    """Asked before anything is read or run. Decisions don't depend on file contents."""

    def read(self, path: str, source: ReferenceSource) -> ReferenceDecision:
        """`path` is absolute. Asked for the path as written and, if symlinks lead elsewhere, for the resolved path."""
        ...

    def environment(self, name: str, source: ReferenceSource) -> ReferenceDecision: ...

    def command(self, text: str, source: ReferenceSource) -> ReferenceDecision: ...

    def run(self, command: ShellCommand, tick: ProgressCallback | None, /) -> CommandResult:
        """Runs an allowed command, confined as the decision requires."""
        ...


AskAboutReferences = Callable[[tuple[ReferenceRequest, ...]], bool]
"""Gets all requests that need approval at once; True allows all of them."""


TRUST_FIX = "run `kitbag trust` to review and trust the workspace, or use --trust-workspace for this run"
_MAX_SHOWN = 20


class ReferenceDeniedError(KitbagError):
    """Lists all denied requests, each with file and line."""

    exit_code = 6

    def __init__(self, requests: tuple[ReferenceRequest, ...], fix: str) -> None:
        denials = [_describe_denial(request) for request in requests[:_MAX_SHOWN]]
        more = len(requests) - _MAX_SHOWN
        super().__init__("; ".join(denials) + (f"; and {more} more" if more > 0 else ""), fix)
        self.requests = requests


class ReferenceUntrustedError(ReferenceDeniedError):
    exit_code = 13


def _describe_denial(request: ReferenceRequest) -> str:
    action = {"file": "reading", "environment": "the variable", "command": "the command"}[request.kind]
    reason = request.decision.reason or "denied by policy"
    return f"{request.file}:{request.line}: {action} `{escape_for_terminal(request.subject)}` is denied: {reason}"


def settle_requests(
    requests: Sequence[ReferenceRequest], ask: AskAboutReferences | None, options: Collection[str] = ()
) -> None:
    """Returns if every request is allowed, by policy or by one approval for all open requests; raises otherwise.
    `options`: those of the user's command that allow requests, such as `--allow-env`."""
    denied = [request for request in requests if request.decision.verdict in ("deny", "untrusted")]
    if denied:
        # Denials that trust would not change come first.
        denied.sort(key=lambda request: request.decision.verdict)
        if denied[0].decision.verdict == "untrusted":
            raise ReferenceUntrustedError(tuple(denied), TRUST_FIX)
        fix = (
            "remove it, or change the rule; if it is only an example, put it in backticks or escape it with a backslash"
        )
        raise ReferenceDeniedError(tuple(denied), fix)
    open_requests = tuple(request for request in requests if request.decision.verdict == "ask")
    if not open_requests:
        return
    if ask is None:
        raise ReferenceDeniedError(_unanswered(open_requests), how_to_allow(open_requests, options))
    if not ask(open_requests):
        rejected = ReferenceDecision("deny", "you declined")
        raise ReferenceDeniedError(
            tuple(msgspec.structs.replace(request, decision=rejected) for request in open_requests), ""
        )


def _unanswered(requests: tuple[ReferenceRequest, ...]) -> tuple[ReferenceRequest, ...]:
    return tuple(
        msgspec.structs.replace(request, decision=ReferenceDecision("deny", f"{prefix}needs an interactive terminal"))
        for request in requests
        for prefix in [f"{request.decision.reason}; approval " if request.decision.reason else "approval "]
    )


def how_to_allow(requests: Sequence[ReferenceRequest], options: Collection[str] = ()) -> str:
    """How a user allows these kinds of requests: with the options of this command, else before Kitbag is started."""
    if any(request.decision.verdict == "untrusted" for request in requests):
        return TRUST_FIX
    kinds = {request.kind for request in requests}
    rule = "a rule such as --allow '{}'" if "--allow" in options else 'the rule `allow = ["{}"]` under [permissions]'
    by_rule = rule.format("Bash(git log:*)")
    start = "with" if "--allow-env" in options else "by starting kitbag with"
    ways = {
        "command": f"a command with {'--allow-commands or ' if '--allow-commands' in options else ''}{by_rule}",
        "environment": f"a variable {start} --allow-env NAME",
        "file": f"a file with {rule.format('Read(./docs/**)')}",
    }
    allowed = ", ".join(way for kind, way in ways.items() if kind in kinds)
    return f"allow {allowed}; if it is only an example, put it in backticks or escape it with a backslash"
