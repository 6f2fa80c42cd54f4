"""Plans how each reference token of a text will be resolved, and which permissions that needs.

Checks which files exist and lists directories that the policy allows; opens no file and runs nothing.
Used by resolve and prepare_skill; uses paths for files and shell_quoting for commands.
"""

import os
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

import msgspec

from kitbag.errors import Diagnostic, Severity
from kitbag.packing.references.paths import (
    MAX_ALTERNATIVES,
    PatternMatches,
    ReferenceTarget,
    WalkBudget,
    candidate_paths,
    display_path,
    expand_pattern,
    is_valid_filename,
    locate_target,
    parse_path_pattern,
    resolve_target,
)
from kitbag.packing.references.policy import (
    ReferenceDecision,
    ReferenceKind,
    ReferencePolicy,
    ReferenceRequest,
    ReferenceSource,
    how_to_allow,
)
from kitbag.packing.references.shell_quoting import FilledCommand, fill_command
from kitbag.text.reference_syntax import ReferenceToken, is_glob

_STRICTEST_FIRST = ("deny", "untrusted", "ask", "allow")
FillCommand = Callable[[str], FilledCommand]
"""Fills values into a command; a name in `unknown` keeps it from running."""


class ReferenceLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for what one text may insert. Reaching one leaves a marker and a warning."""

    files: int = 100
    file_bytes: int = 256 * 1024
    total_bytes: int = 2 * 1024 * 1024
    """Sum over all insertions."""
    commands: int = 20
    command_seconds: float = 120.0
    total_seconds: float = 300.0
    """Sum over all commands."""
    output_characters: int = 30_000
    """Per command."""


class KeepStep(msgspec.Struct, frozen=True, kw_only=True):
    """The token stays as written."""

    token: ReferenceToken


class UnescapeStep(msgspec.Struct, frozen=True, kw_only=True):
    token: ReferenceToken


class ValueStep(msgspec.Struct, frozen=True, kw_only=True):
    """Insert a known value."""

    token: ReferenceToken
    text: str


class EnvironmentStep(msgspec.Struct, frozen=True, kw_only=True):
    """Insert an environment variable."""

    token: ReferenceToken


class MarkerStep(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing can be inserted; the marker explains why."""

    token: ReferenceToken
    marker: str


class FilesStep(msgspec.Struct, frozen=True, kw_only=True):
    token: ReferenceToken
    targets: tuple[ReferenceTarget, ...]
    markers: tuple[str, ...] = ()
    """Inserted after the files."""


class CommandStep(msgspec.Struct, frozen=True, kw_only=True):
    token: ReferenceToken
    command: str


PlanStep: TypeAlias = KeepStep | UnescapeStep | ValueStep | EnvironmentStep | MarkerStep | FilesStep | CommandStep


class ReferencePlan(msgspec.Struct, frozen=True, kw_only=True):
    steps: list[PlanStep]
    requests: list[ReferenceRequest]
    warnings: list[Diagnostic]


def plan_references(
    tokens: list[ReferenceToken],
    source: ReferenceSource,
    values: Mapping[str, str],
    policy: ReferencePolicy,
    limits: ReferenceLimits,
    fill: FillCommand | None = None,
) -> ReferencePlan:
    """`fill` replaces how values are filled into commands."""
    planner = _Planner(source, values, policy, limits, fill or (lambda command: fill_command(command, values)))
    return ReferencePlan(
        steps=[planner.step(token) for token in tokens], requests=planner.requests, warnings=planner.warnings
    )


def keep_denied_as_text(
    plan: ReferencePlan, source: ReferenceSource, kinds: Collection[ReferenceKind]
) -> ReferencePlan:
    """References of these kinds that are not allowed stay as written, each with a warning, instead of denying the
    whole text."""
    kept: dict[tuple[int, int], ReferenceRequest] = {}
    for request in plan.requests:
        if request.kind in kinds and request.decision.verdict != "allow":
            kept.setdefault((request.line, request.column), request)
    if not kept:
        return plan

    def place(step: PlanStep) -> tuple[int, int]:
        return source.first_line + step.token.line - 1, step.token.column

    warnings = list(plan.warnings)
    for step in plan.steps:
        if (request := kept.get(place(step))) is not None:
            written = source.text[step.token.start : step.token.end].split("\n", 1)[0]
            reason = request.decision.reason or "denied by policy"
            problem = f"`{display_path(written)}` stays as written: {reason}"
            warnings.append(diagnose(source, step.token, "reference-kept", problem, how_to_allow([request])))
    return ReferencePlan(
        steps=[KeepStep(token=step.token) if place(step) in kept else step for step in plan.steps],
        requests=[request for request in plan.requests if (request.line, request.column) not in kept],
        warnings=warnings,
    )


def diagnose(
    source: ReferenceSource, token: ReferenceToken, code: str, problem: str, fix: str, severity: Severity = "warning"
) -> Diagnostic:
    return Diagnostic(
        severity=severity,
        code=code,
        file=source.path,
        line=source.first_line + token.line - 1,
        problem=problem,
        fix=fix,
    )


def set_value_fix(name: str) -> str:
    return f"set vars.{name} in your settings, or pass --var {name}=... when you pack a task"


def decide_target(policy: ReferencePolicy, target: ReferenceTarget, source: ReferenceSource) -> ReferenceDecision:
    """The stricter decision of the path as written and the path that symlinks lead to."""
    decision = policy.read(target.requested, source)
    if target.resolved != target.requested:
        resolved = policy.read(target.resolved, source)
        decision = min(decision, resolved, key=lambda candidate: _STRICTEST_FIRST.index(candidate.verdict))
    return decision


class _Planner:
    __slots__ = (
        "commands",
        "directories",
        "files_left",
        "fill",
        "limits",
        "policy",
        "requests",
        "source",
        "values",
        "walk",
        "warnings",
    )

    def __init__(
        self,
        source: ReferenceSource,
        values: Mapping[str, str],
        policy: ReferencePolicy,
        limits: ReferenceLimits,
        fill: FillCommand,
    ) -> None:
        self.source = source
        self.fill = fill
        self.values = values
        self.policy = policy
        self.limits = limits
        self.requests: list[ReferenceRequest] = []
        self.warnings: list[Diagnostic] = []
        self.files_left = limits.files
        self.commands = 0
        self.directories: dict[str, str] = {}
        self.walk: WalkBudget | None = None

    def step(self, token: ReferenceToken) -> PlanStep:
        match token.kind:
            case "escape":
                return UnescapeStep(token=token)
            case "variable":
                return self._variable(token)
            case "environment":
                self._request(token, "environment", token.value, self.policy.environment(token.value, self.source))
                return EnvironmentStep(token=token)
            case "command":
                return self._command(token)
            case "file" if not is_valid_filename(token.value):
                return self._mark_missing(
                    token, "missing", display_path(token.value), "is not a valid file name", "check the path"
                )
            case "file":
                return self._pattern(token) if is_glob(token.value) else self._file(token)

    def _warn(self, token: ReferenceToken, code: str, problem: str, fix: str, severity: Severity = "warning") -> None:
        self.warnings.append(diagnose(self.source, token, code, problem, fix, severity))

    def _request(
        self,
        token: ReferenceToken,
        kind: ReferenceKind,
        subject: str,
        decision: ReferenceDecision,
    ) -> None:
        line = self.source.first_line + token.line - 1
        self.requests.append(
            ReferenceRequest(
                kind=kind, subject=subject, file=self.source.path, line=line, column=token.column, decision=decision
            )
        )

    def _variable(self, token: ReferenceToken) -> PlanStep:
        value = self.values.get(token.value)
        if value is not None:
            return ValueStep(token=token, text=value)
        self._warn(token, "no-value", f"no value for {{{{{token.value}}}}}", set_value_fix(token.value))
        return KeepStep(token=token)

    def _command(self, token: ReferenceToken) -> PlanStep:
        filled = self.fill(token.value)
        if filled.unknown:
            names = ", ".join(f"{{{{{name}}}}}" for name in filled.unknown)
            fix = set_value_fix(filled.unknown[0])
            self._warn(token, "no-value", f"command not run: no value for {names}", fix)
            return KeepStep(token=token)
        decision = self.policy.command(filled.text, self.source)
        if filled.unsafe and decision.verdict in ("allow", "ask"):
            decision = ReferenceDecision("deny", filled.unsafe)
        self._request(token, "command", filled.text, decision)
        self.commands += 1
        if self.commands > self.limits.commands:
            limit = self.limits.commands
            self._warn(token, "limit", f"command not run: more than {limit} commands", "use fewer commands")
            return MarkerStep(token=token, marker=f"[not run: more than {limit} commands]")
        return CommandStep(token=token, command=filled.text)

    def _file(self, token: ReferenceToken) -> PlanStep:
        target, exists = locate_target(token.value, self.source, self.directories)
        if not exists and not token.is_certain:
            return KeepStep(token=token)
        decision = decide_target(self.policy, target, self.source)
        if not exists and decision.verdict != "allow" and token.value.startswith("/"):
            # Many projects write `@/lib/x.ts` for "from the source folder"; there is no file to deny.
            self._warn(
                token,
                "reference-missing",
                f"{target.display_path} does not exist; kept as text",
                "check the path",
                "info",
            )
            return KeepStep(token=token)
        if exists or decision.verdict in ("deny", "untrusted"):
            self._request(token, "file", target.requested, decision)
        if not exists:
            return self._mark_missing(token, "missing", target.display_path, "does not exist", "check the path")
        return self._read(token, target)

    def _read(self, token: ReferenceToken, target: ReferenceTarget) -> PlanStep:
        if self.files_left <= 0:
            limit = self.limits.files
            self._warn(
                token, "limit", f"{target.display_path} omitted: more than {limit} files", "reference fewer files"
            )
            return MarkerStep(
                token=token, marker=f"[truncated: {target.display_path} omitted, more than {limit} files]"
            )
        self.files_left -= 1
        return FilesStep(token=token, targets=(target,))

    def _mark_missing(self, token: ReferenceToken, word: str, name: str, problem: str, fix: str) -> MarkerStep:
        self._warn(token, f"reference-{word}", f"{name} {problem}", fix)
        return MarkerStep(token=token, marker=f"[{word}: {name}]")

    def _pattern(self, token: ReferenceToken) -> PlanStep:
        if any(map(os.path.lexists, candidate_paths(token.value, self.source))):
            return self._file(token)  # `app/[id]/page.tsx` is also a file name
        pattern = parse_path_pattern(token.value)
        self.walk = self.walk or WalkBudget()
        matches = PatternMatches(targets=[], is_complete=True, alternatives=pattern.alternatives)
        for index, path in enumerate(candidate_paths(pattern.directory or ".", self.source)):
            directory = resolve_target(ReferenceTarget(requested=path, resolved="", display_path=display_path(path)))
            decision = decide_target(self.policy, directory, self.source)
            if decision.verdict in ("deny", "untrusted"):
                if index == 0:
                    self._request(token, "file", os.path.join(os.path.normpath(path), *pattern.branches[0]), decision)
                    return KeepStep(token=token)
                break
            matches = expand_pattern(pattern, directory.resolved, self.walk)
            if matches.targets:
                break
        return self._choose_files(token, matches)

    def _choose_files(self, token: ReferenceToken, matches: PatternMatches) -> PlanStep:
        """The files to read, with markers for the rest."""
        name = display_path(token.value)
        chosen, refused = self._readable(token, matches.targets)
        markers: list[str] = []
        if refused:
            some = ", ".join(target.display_path for target in refused[:3])
            self._warn(
                token,
                "reference-refused",
                f"reading {len(refused)} files that match {name} is not allowed: {some}",
                "move them to a directory where reading is allowed",
            )
            markers.append(f"[omitted: {len(refused)} files; reading them is not allowed]")
        total = len(matches.targets) - len(refused)
        if len(chosen) < total or not matches.is_complete:
            more = "" if matches.is_complete else "more than "
            markers.append(f"[truncated: {len(chosen)} of {more}{total} files]")
            self._warn(
                token, "limit", f"{name}: only {len(chosen)} of {more}{total} files are used", "reference fewer files"
            )
        if matches.alternatives > MAX_ALTERNATIVES:
            counted = f"{MAX_ALTERNATIVES} of {matches.alternatives} alternatives"
            markers.append(f"[truncated: {counted}]")
            self._warn(token, "limit", f"{name}: only {counted} are used", "use fewer braces")
        if not chosen and not markers:
            return self._mark_missing(token, "no-files", name, "matches no file", "check the path")
        return FilesStep(token=token, targets=tuple(chosen), markers=tuple(markers))

    def _readable(
        self, token: ReferenceToken, targets: list[ReferenceTarget]
    ) -> tuple[list[ReferenceTarget], list[ReferenceTarget]]:
        """As many readable targets as the limit allows, and the denied ones before them."""
        chosen: list[ReferenceTarget] = []
        refused: list[ReferenceTarget] = []
        for target in targets:
            if self.files_left <= 0:
                break
            target = resolve_target(target)
            decision = decide_target(self.policy, target, self.source)
            if decision.verdict in ("deny", "untrusted"):
                refused.append(target)
                continue
            self._request(token, "file", target.requested, decision)
            chosen.append(target)
            self.files_left -= 1
        return chosen, refused
