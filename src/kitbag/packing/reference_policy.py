"""Who may read, run or learn what: the questions that resolving references asks, and the answers until
permissions exist. Rights follow the scope of the file that contains the token (CONTRACT §7).

    RefusedError            6   policy says no
    └── UntrustedError     13   policy would say yes to a workspace that is trusted
Used by references and by whoever packs.
"""

import os
import re
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple, Protocol

from kitbag.errors import KitbagError
from kitbag.library.scopes import Scope
from kitbag.permissions.environment import looks_secret
from kitbag.permissions.model import is_inside
from kitbag.text.hidden import for_terminal

Verdict = Literal["allow", "ask", "deny", "untrusted"]

_SYSTEM_PLACES: Final = ("/proc/", "/sys/", "/dev/")
_PRIVATE_PARTS: Final = frozenset((".git", ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".password-store"))
_PRIVATE_FILE = re.compile(
    r"\.env(?!\.(?:example|sample|template|dist)$)(?:\..*)?|\.(?:netrc|npmrc|pypirc|pgpass|git-credentials|htpasswd)"
    r"|id_(?:rsa|dsa|ecdsa|ed25519).*|.*\.(?:pem|key|p12|pfx|kdbx|keystore)",
    re.DOTALL,
)


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


Ask = Callable[[tuple[Request, ...]], bool]
"""Shown everything that needs an answer, at once; True allows all of it."""


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
            raise UntrustedError(
                tuple(refused), "read that file, then allow it with --allow-commands or --allow-env NAME"
            )
        fix = "remove it; if it is only an example, put it in backticks or write a backslash first"
        raise RefusedError(tuple(refused), fix)
    asked = tuple(request for request in requests if request.decision.verdict == "ask")
    if not asked:
        return
    if ask is None:
        raise RefusedError(_because(asked, "it needs an answer and nobody can be asked"), "allow it with a rule")
    if not ask(asked):
        raise RefusedError(_because(asked, "the answer was no"), "")


def _because(requests: tuple[Request, ...], reason: str) -> tuple[Request, ...]:
    return tuple(request._replace(decision=Decision("deny", reason)) for request in requests)


class DefaultPolicy(NamedTuple):
    """Commands and environment only as the command line allows; files only inside the roots."""

    allow_commands: bool = False
    allow_environment: frozenset[str] = frozenset()
    read_roots: tuple[str, ...] = ()
    """Readable besides a source's own root; not for plugins."""

    def read(self, path: str, source: Source) -> Decision:
        """By the words of the path alone: where links lead elsewhere it is asked again with where they lead."""
        place = os.path.normpath(path)
        root = next((root for one in self._roots(source) if (root := _root_of(place, one))), None)
        if reason := _private(place, root):
            return Decision("deny", reason)
        if root is None:
            where = "the plugin's directory" if source.scope == "plugin" else "the workspace"
            return Decision("deny", f"it is outside {where}")
        return Decision("allow")

    def _roots(self, source: Source) -> tuple[str, ...]:
        if source.scope == "plugin":
            return (source.root,)
        if source.scope == "project":  # a link to a folder elsewhere must not open that folder
            return (source.root, *self.read_roots)
        return (source.root, source.base, *self.read_roots)

    def environment(self, name: str, source: Source) -> Decision:
        if source.scope == "plugin":
            return Decision("deny", "a plugin's text may not read the environment")
        if looks_secret(name):
            return Decision("deny", "its name looks like a secret's")
        if name in self.allow_environment:
            return Decision("allow")
        return _not_allowed(source, "environment variables are read only when they are allowed by name")

    def command(self, text: str, source: Source) -> Decision:
        if source.scope == "plugin":
            return Decision("deny", "a plugin's text may not run commands")
        if self.allow_commands:
            return Decision("allow")
        return _not_allowed(source, "commands run only when they are allowed")


def _root_of(real: str, root: str) -> str:
    """The root, resolved, when the resolved path is inside it. What begins a resolved path is resolved itself."""
    if root.startswith(os.sep) and is_inside(real, root):
        return root
    resolved = os.path.realpath(root)
    return resolved if is_inside(real, resolved) else ""


def _not_allowed(source: Source, reason: str) -> Decision:
    if source.scope == "project":
        return Decision("untrusted", f"{reason}, and the workspace is not trusted")
    return Decision("deny", reason)


def _private(path: str, root: str | None) -> str:
    """Why nobody may read it, inside the roots or not; empty when nothing speaks against it."""
    if f"{path}/".startswith(_SYSTEM_PLACES) and not is_inside(path, "/dev/shm"):  # noqa: S108
        return "it is a device or belongs to the system's insides"
    below = path[len(root) :] if root is not None and is_inside(path, root) else path
    parts = below.casefold().split(os.sep)
    if not _PRIVATE_PARTS.isdisjoint(parts):
        return "that folder holds secrets or a repository's insides"
    if _PRIVATE_FILE.fullmatch(parts[-1]):
        return "such files hold secrets"
    return ""
