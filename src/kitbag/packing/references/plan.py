"""What resolving a text will do, token by token, and what has to be allowed for it. Does none of it.

Looks at which files exist and lists directories that policy lets it read; opens no file, runs nothing.
Used by references; uses reference_paths for files and shell_words for commands.
"""

import os
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from kitbag.errors import Diagnostic, Severity
from kitbag.packing.references.paths import (
    MOST_ALTERNATIVES,
    Matches,
    Target,
    Walk,
    candidates,
    expand,
    is_name,
    locate,
    read_pattern,
    shown,
    with_resolved,
)
from kitbag.packing.references.policy import Decision, Policy, Request, Source
from kitbag.packing.references.shell_quoting import fill_command
from kitbag.text.reference_syntax import Token, is_pattern

_WORST_FIRST = ("deny", "untrusted", "ask", "allow")


class Limits(NamedTuple):
    """What one text may bring in. Reaching one leaves a marker and a warning."""

    files: int = 100
    file_bytes: int = 256 * 1024
    total_bytes: int = 2 * 1024 * 1024
    """Of everything inserted."""
    commands: int = 20
    command_seconds: float = 120.0
    total_seconds: float = 300.0
    """Of all commands together."""
    output_characters: int = 30_000
    """Of each command."""


class Keep(NamedTuple):
    """Stays as it is written."""

    token: Token


class Unescape(NamedTuple):
    token: Token


class Insert(NamedTuple):
    """A value that is known already."""

    token: Token
    text: str


class LookUp(NamedTuple):
    """A variable of the environment."""

    token: Token


class Leave(NamedTuple):
    """Nothing can be inserted; the marker says why."""

    token: Token
    marker: str


class Read(NamedTuple):
    token: Token
    targets: tuple[Target, ...]
    markers: tuple[str, ...] = ()
    """What is said behind the files."""
    headed: bool = False
    """Each file is named before its text."""


class Run(NamedTuple):
    token: Token
    command: str


Step: TypeAlias = Keep | Unescape | Insert | LookUp | Leave | Read | Run


class Plan(NamedTuple):
    steps: list[Step]
    requests: list[Request]
    warnings: list[Diagnostic]


def plan(tokens: list[Token], source: Source, values: Mapping[str, str], policy: Policy, limits: Limits) -> Plan:
    planner = _Planner(source, values, policy, limits)
    return Plan([planner.step(token) for token in tokens], planner.requests, planner.warnings)


def diagnose(
    source: Source, token: Token, code: str, problem: str, fix: str, severity: Severity = "warning"
) -> Diagnostic:
    return Diagnostic(severity, code, source.path, source.first_line + token.line - 1, problem, fix)


def judge_target(policy: Policy, target: Target, source: Source) -> Decision:
    """The stricter answer about the path as it is written and about where it leads."""
    decision = policy.read(target.requested, source)
    if target.resolved != target.requested:
        led = policy.read(target.resolved, source)
        decision = min(decision, led, key=lambda one: _WORST_FIRST.index(one.verdict))
    return decision


class _Planner:
    __slots__ = (
        "commands",
        "directories",
        "files_left",
        "limits",
        "policy",
        "requests",
        "source",
        "values",
        "walk",
        "warnings",
    )

    def __init__(self, source: Source, values: Mapping[str, str], policy: Policy, limits: Limits) -> None:
        self.source = source
        self.values = values
        self.policy = policy
        self.limits = limits
        self.requests: list[Request] = []
        self.warnings: list[Diagnostic] = []
        self.files_left = limits.files
        self.commands = 0
        self.directories: dict[str, str] = {}
        self.walk: Walk | None = None

    def step(self, token: Token) -> Step:
        match token.kind:
            case "escape":
                return Unescape(token)
            case "variable":
                return self._variable(token)
            case "environment":
                self._request(token, "environment", token.value, self.policy.environment(token.value, self.source))
                return LookUp(token)
            case "command":
                return self._command(token)
            case "file" if not is_name(token.value):
                return self._leave(token, "missing", shown(token.value), "can't be a file's name", "check the path")
            case "file":
                return self._pattern(token) if is_pattern(token.value) else self._file(token)

    def _warn(self, token: Token, code: str, problem: str, fix: str, severity: Severity = "warning") -> None:
        self.warnings.append(diagnose(self.source, token, code, problem, fix, severity))

    def _request(
        self, token: Token, kind: Literal["file", "environment", "command"], subject: str, decision: Decision
    ) -> None:
        line = self.source.first_line + token.line - 1
        self.requests.append(Request(kind, subject, self.source.path, line, token.column, decision))

    def _variable(self, token: Token) -> Step:
        value = self.values.get(token.value)
        if value is not None:
            return Insert(token, value)
        self._warn(token, "no-value", f"nobody gives a value for {{{{{token.value}}}}}", f"--var {token.value}=...")
        return Keep(token)

    def _command(self, token: Token) -> Step:
        filled = fill_command(token.value, self.values)
        if filled.unknown:
            names = ", ".join(f"{{{{{name}}}}}" for name in filled.unknown)
            self._warn(
                token, "no-value", f"a command is not run: nobody gives a value for {names}", "give it with --var"
            )
            return Keep(token)
        decision = self.policy.command(filled.text, self.source)
        if filled.unsafe and decision.verdict in ("allow", "ask"):
            decision = Decision("deny", filled.unsafe)
        self._request(token, "command", filled.text, decision)
        self.commands += 1
        if self.commands > self.limits.commands:
            most = self.limits.commands
            self._warn(token, "limit", f"a command is not run: {most} are the most", "use fewer commands")
            return Leave(token, f"[not run: more than {most} commands]")
        return Run(token, filled.text)

    def _file(self, token: Token) -> Step:
        target, exists = locate(token.value, self.source, self.directories)
        if not exists and not token.sure:
            return Keep(token)
        decision = judge_target(self.policy, target, self.source)
        if not exists and decision.verdict != "allow" and token.value.startswith("/"):
            # `@/lib/x.ts` is how many projects write "from the source folder"; there is nothing to refuse.
            self._warn(token, "reference-missing", f"{target.shown} does not exist; left as text", "check it", "info")
            return Keep(token)
        if exists or decision.verdict in ("deny", "untrusted"):
            self._request(token, "file", target.requested, decision)
        if not exists:
            return self._leave(token, "missing", target.shown, "does not exist", "check the path")
        return self._read(token, target)

    def _read(self, token: Token, target: Target) -> Step:
        if self.files_left <= 0:
            most = self.limits.files
            self._warn(token, "limit", f"{target.shown} is left out: {most} files are the most", "name fewer files")
            return Leave(token, f"[truncated: {target.shown} left out, more than {most} files]")
        self.files_left -= 1
        return Read(token, (target,))

    def _leave(self, token: Token, word: str, name: str, problem: str, fix: str) -> Leave:
        self._warn(token, f"reference-{word}", f"{name} {problem}", fix)
        return Leave(token, f"[{word}: {name}]")

    def _pattern(self, token: Token) -> Step:
        if any(map(os.path.lexists, candidates(token.value, self.source))):
            return self._file(token)  # `app/[id]/page.tsx` is a file's name, too
        pattern = read_pattern(token.value)
        self.walk = self.walk or Walk()
        matches = Matches([], True, pattern.alternatives)
        for index, place in enumerate(candidates(pattern.directory or ".", self.source)):
            directory = with_resolved(Target(place, "", shown(place)))
            decision = judge_target(self.policy, directory, self.source)
            if decision.verdict in ("deny", "untrusted"):
                if index == 0:
                    self._request(token, "file", os.path.join(os.path.normpath(place), *pattern.rests[0]), decision)
                    return Keep(token)
                break
            matches = expand(pattern, directory.resolved, self.walk)
            if matches.targets:
                break
        return self._choose(token, matches)

    def _choose(self, token: Token, matches: Matches) -> Step:
        """The files that are read, and what is said of the others."""
        name = shown(token.value)
        chosen, refused = self._readable(token, matches.targets)
        markers: list[str] = []
        if refused:
            some = ", ".join(target.shown for target in refused[:3])
            self._warn(
                token, "reference-refused", f"{len(refused)} files of {name} may not be read: {some}", "move them"
            )
            markers.append(f"[left out: {len(refused)} files that may not be read]")
        total = len(matches.targets) - len(refused)
        if len(chosen) < total or not matches.all_seen:
            more = "" if matches.all_seen else "more than "
            markers.append(f"[truncated: {len(chosen)} of {more}{total} files]")
            self._warn(token, "limit", f"{name}: {len(chosen)} of {more}{total} files are used", "name fewer files")
        if matches.alternatives > MOST_ALTERNATIVES:
            counted = f"{MOST_ALTERNATIVES} of {matches.alternatives} alternatives"
            markers.append(f"[truncated: {counted}]")
            self._warn(token, "limit", f"{name}: only {counted} are looked at", "use fewer braces")
        if not chosen and not markers:
            return self._leave(token, "no-files", name, "matches no file", "check the path")
        return Read(token, tuple(chosen), tuple(markers), headed=True)

    def _readable(self, token: Token, targets: list[Target]) -> tuple[list[Target], list[Target]]:
        """As many as may still be read, and those before them that may not."""
        chosen: list[Target] = []
        refused: list[Target] = []
        for target in targets:
            if self.files_left <= 0:
                break
            target = with_resolved(target)
            decision = judge_target(self.policy, target, self.source)
            if decision.verdict in ("deny", "untrusted"):
                refused.append(target)
                continue
            self._request(token, "file", target.requested, decision)
            chosen.append(target)
            self.files_left -= 1
        return chosen, refused
