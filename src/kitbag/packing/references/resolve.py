"""Resolves the references of one text: plan all tokens, settle permissions, then read, run and insert.

Inserted text is never scanned: the source is scanned once, and the result joins source text and insertions.
A token that can't be resolved leaves a marker in brackets and a warning with file and line.
Used by pack and prepare_skill. Synchronous: async callers run it in a thread.
"""

import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from typing import Literal, assert_never

import msgspec

from kitbag.errors import Diagnostic, InvalidError
from kitbag.packing.references.paths import ReferenceTarget, read_target
from kitbag.packing.references.plan import (
    CommandStep,
    EnvironmentStep,
    FilesStep,
    FillCommand,
    KeepStep,
    MarkerStep,
    PlanStep,
    ReferenceLimits,
    ReferencePlan,
    UnescapeStep,
    ValueStep,
    decide_target,
    diagnose,
    plan_references,
)
from kitbag.packing.references.policy import (
    AskAboutReferences,
    ReferenceDecision,
    ReferenceDeniedError,
    ReferencePolicy,
    ReferenceRequest,
    ReferenceSource,
    ReferenceUntrustedError,
    settle_requests,
)
from kitbag.packing.references.shell_quoting import is_result_exit_code
from kitbag.processes.command_runner import CommandResult, CommandRunner, ShellCommand, run_command
from kitbag.sandbox.environment import scrub_environment
from kitbag.text.hidden_characters import find_disguises, format_code_points, reveal_hidden
from kitbag.text.reference_syntax import ReferenceToken, find_references
from kitbag.text.source_files import FileProblem, SourceError

__all__ = [
    "AskAboutReferences",
    "CommandFailedError",
    "CommandProgress",
    "Insertion",
    "PreparedReferences",
    "ReferenceCounts",
    "ReferenceDecision",
    "ReferenceDeniedError",
    "ReferenceLimits",
    "ReferencePolicy",
    "ReferenceRequest",
    "ReferenceSource",
    "ReferenceUntrustedError",
    "ResolvedText",
    "apply_references",
    "prepare_references",
    "resolve_references",
    "settle_requests",
]  # fmt: skip

InsertionKind = Literal["file", "variable", "environment", "command", "marker"]
CommandProgress = Callable[[str, float], None]
"""Called every second with the running command and its elapsed seconds."""


class Insertion(msgspec.Struct, frozen=True, kw_only=True):
    """A span of the result that does not come from the source."""

    offset: int
    length: int
    """Both in characters of the result text."""
    kind: InsertionKind
    origin: str
    """The file, the variable name, or the command; for a marker, what it is about."""
    bytes: int
    omitted_bytes: int
    """Bytes dropped by a limit."""


class ReferenceCounts(msgspec.Struct, frozen=True, kw_only=True):
    found: int
    """Tokens in the source, not counting escapes."""
    resolved: int
    """Tokens replaced by something other than a marker."""
    files: int
    commands: int
    bytes: int
    """Sum over all insertions."""


class ResolvedText(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    insertions: tuple[Insertion, ...]
    warnings: tuple[Diagnostic, ...]
    counts: ReferenceCounts

    def map_source(self, substitute: Callable[[str], str]) -> str:
        """The text with `substitute` applied to what comes from the source, never to an insertion."""
        pieces: list[str] = []
        at = 0
        for insertion in self.insertions:
            end = insertion.offset + insertion.length
            pieces += [substitute(self.text[at : insertion.offset]), self.text[insertion.offset : end]]
            at = end
        return "".join([*pieces, substitute(self.text[at:])])


class CommandFailedError(InvalidError):
    """With `strict`: a command failed, was stopped, or could not run."""


class PreparedReferences(msgspec.Struct, frozen=True, kw_only=True):
    """A text with its plan; nothing has been read or run yet."""

    source: ReferenceSource
    plan: ReferencePlan
    diagnostics: list[Diagnostic]


def prepare_references(
    source: ReferenceSource,
    values: Mapping[str, str],
    policy: ReferencePolicy,
    limits: ReferenceLimits,
    fill: FillCommand | None = None,
) -> PreparedReferences:
    """Plans the text and asks the policy; then call settle_requests and apply_references. Reads and runs nothing."""
    found = find_references(source.text)
    planned = plan_references(found.tokens, source, values, policy, limits, fill)
    return PreparedReferences(
        source=source, plan=planned, diagnostics=[_diagnostic(source, note) for note in found.problems]
    )


def apply_references(
    prepared: PreparedReferences,
    limits: ReferenceLimits,
    policy: ReferencePolicy,
    *,
    runner: CommandRunner | None = None,
    workspace: str = "",
    environment: Mapping[str, str] | None = None,
    progress: CommandProgress | None = None,
    strict: bool = False,
) -> ResolvedText:
    """Executes the plan. All requests must be settled; the policy is asked again before each read or run.
    `runner` replaces the policy's own. Raises ReferenceDeniedError for what the policy denies by now."""
    source, planned, notes = prepared.source, prepared.plan, prepared.diagnostics
    if not planned.steps:
        return ResolvedText(
            text=source.text,
            insertions=(),
            warnings=tuple(notes),
            counts=ReferenceCounts(found=0, resolved=0, files=0, commands=0, bytes=0),
        )
    work = _Resolver(prepared, limits, policy, os.environ if environment is None else environment)
    work.directory = workspace or source.root
    work.warnings += notes + planned.warnings
    work.progress, work.runner, work.strict = progress, runner or policy.run, strict
    if strict:
        work.require_all_commands(planned.steps)
    return work.resolve(planned.steps)


def resolve_references(
    source: ReferenceSource,
    values: Mapping[str, str],
    policy: ReferencePolicy,
    limits: ReferenceLimits = ReferenceLimits(),  # noqa: B008 - immutable
    *,
    workspace: str = "",
    environment: Mapping[str, str] | None = None,
    ask: AskAboutReferences | None = None,
    progress: CommandProgress | None = None,
    runner: CommandRunner | None = None,
    strict: bool = False,
) -> ResolvedText:
    """Raises ReferenceDeniedError (6) or ReferenceUntrustedError (13) before anything is read or run.

    `workspace`: where commands run; default is the source's root. `strict`: raise CommandFailedError (6) if a command
    fails. `runner` replaces the policy's own.
    """
    prepared = prepare_references(source, values, policy, limits)
    settle_requests(prepared.plan.requests, ask)
    return apply_references(
        prepared,
        limits,
        policy,
        runner=runner,
        workspace=workspace,
        environment=environment,
        progress=progress,
        strict=strict,
    )


def _diagnostic(source: ReferenceSource, note: FileProblem) -> Diagnostic:
    return Diagnostic(
        severity="warning",
        code=note.code,
        file=source.path,
        line=source.first_line + note.line - 1,
        problem=note.problem,
        fix=note.fix,
    )


class _Resolver:
    """Executes the steps in order; holds the result so far and the remaining limits."""

    __slots__ = (
        "bytes_left", "commands", "directory", "environment", "files", "insertions", "limits", "offset", "parts",
        "policy", "progress", "resolved", "runner", "seconds_left", "settled", "source", "strict", "warnings",
    )  # fmt: skip

    def __init__(
        self,
        prepared: PreparedReferences,
        limits: ReferenceLimits,
        policy: ReferencePolicy,
        environment: Mapping[str, str],
    ) -> None:
        self.source = prepared.source
        self.settled = {(request.kind, request.subject): request for request in prepared.plan.requests}
        self.limits = limits
        self.policy = policy
        self.environment = environment
        self.directory = ""
        self.progress: CommandProgress | None = None
        self.runner: CommandRunner = run_command
        self.strict = False
        self.parts: list[str] = []
        self.offset = 0
        self.insertions: list[Insertion] = []
        self.warnings: list[Diagnostic] = []
        self.bytes_left = limits.total_bytes
        self.seconds_left = limits.total_seconds
        self.files = self.commands = self.resolved = 0

    def resolve(self, steps: list[PlanStep]) -> ResolvedText:
        text, at = self.source.text, 0
        for step in steps:
            self._copy(text[at : step.token.start])
            at = step.token.end
            before = len(self.insertions)
            self._step(step)
            if any(insertion.kind != "marker" for insertion in self.insertions[before:]):
                self.resolved += 1
        self._copy(text[at:])
        found = sum(1 for step in steps if not isinstance(step, UnescapeStep))
        inserted = sum(insertion.bytes for insertion in self.insertions)
        self.warnings.sort(key=lambda warning: warning.line)
        counts = ReferenceCounts(
            found=found, resolved=self.resolved, files=self.files, commands=self.commands, bytes=inserted
        )
        return ResolvedText(
            text="".join(self.parts), insertions=tuple(self.insertions), warnings=tuple(self.warnings), counts=counts
        )

    def require_all_commands(self, steps: list[PlanStep]) -> None:
        for step in steps:
            if step.token.kind == "command" and not isinstance(step, CommandStep):
                self._fail(step.token, "cannot run the command: missing value, or too many commands")

    def _step(self, step: PlanStep) -> None:
        token = step.token
        match step:
            case KeepStep():
                self._copy(self.source.text[token.start : token.end])
            case UnescapeStep():
                self._copy(token.value)
            case ValueStep():
                self._insert(token, "variable", token.value, step.text)
            case MarkerStep():
                self._mark(token.value, step.marker)
            case EnvironmentStep():
                self._look_up(token)
            case FilesStep():
                self._read(step)
            case CommandStep():
                self._run(token, step.command)
            case _:
                assert_never(step)

    def _copy(self, text: str) -> None:
        self.parts.append(text)
        self.offset += len(text)

    def _warn(self, token: ReferenceToken, code: str, problem: str, fix: str) -> None:
        self.warnings.append(diagnose(self.source, token, code, problem, fix))

    def _mark(self, origin: str, marker: str) -> None:
        """Markers are short and don't count against the limits."""
        self._add("marker", origin, marker, 0)

    def _add(self, kind: InsertionKind, origin: str, text: str, cut: int) -> None:
        self.insertions.append(
            Insertion(
                offset=self.offset, length=len(text), kind=kind, origin=origin, bytes=_size(text), omitted_bytes=cut
            )
        )
        self._copy(text)

    def _insert(
        self,
        token: ReferenceToken,
        kind: InsertionKind,
        origin: str,
        text: str,
        omitted_bytes: int = 0,
        closing: str = "",
    ) -> None:
        """Inserts as much as the remaining total allows, then `closing`, and a marker for the rest."""
        size = _size(text)
        over = size - self.bytes_left
        if over > 0:
            text = text.encode("utf-8", "surrogatepass")[: self.bytes_left].decode("utf-8", "ignore")
            omitted_bytes += over
        self.bytes_left = max(0, self.bytes_left - size)
        self._add(kind, origin, text, omitted_bytes)
        if closing:
            self._mark(origin, closing)
        if over > 0:
            limit = self.limits.total_bytes
            self._warn(
                token, "limit", f"{over} bytes omitted: the limit is {limit} bytes per text", "insert less content"
            )
            self._mark(origin, f"{_line_break(text + closing)}[truncated: {over} bytes omitted, the limit is {limit}]")

    def _check_still_allowed(self, kind: Literal["file", "environment"], subject: str, now: ReferenceDecision) -> None:
        """Rules may have changed since the request was settled. Raises ReferenceDeniedError."""
        request = self.settled.get((kind, subject))
        if now.verdict != "allow" and request is not None and now != request.decision:
            denied = msgspec.structs.replace(now, reason=f"no longer allowed: {now.reason}")
            raise ReferenceDeniedError(
                (msgspec.structs.replace(request, decision=denied),), "remove it, or change the rule"
            )

    def _look_up(self, token: ReferenceToken) -> None:
        self._check_still_allowed("environment", token.value, self.policy.environment(token.value, self.source))
        value = self.environment.get(token.value)
        if not value and token.default is not None:
            self._insert(token, "environment", token.value, token.default)
        elif value is None:
            self._warn(
                token, "no-value", f"environment variable {token.value} is not set", "set it, or write ${NAME:-default}"
            )
            self._copy(self.source.text[token.start : token.end])
        else:
            text = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            self._insert(token, "environment", token.value, text)

    def _read(self, step: FilesStep) -> None:
        """Each file with its path, in a fence of its own, so that its text can't be taken for the source's."""
        inserted_before = len(self.insertions)
        for index, target in enumerate(step.targets):
            if index:
                self._mark(target.resolved, _FILE_SEPARATOR)
            self._read_one(step.token, target)
        for marker in step.markers:
            self._mark(step.token.value, f"\n{marker}" if step.targets else marker)
        is_file = any(insertion.kind == "file" for insertion in self.insertions[inserted_before:])
        line_rest = self.source.text[step.token.end :].split("\n", 1)[0]
        if is_file and line_rest.strip():
            self._mark(step.token.value, "\n")

    def _read_one(self, token: ReferenceToken, target: ReferenceTarget) -> None:
        self._check_still_allowed("file", target.requested, decide_target(self.policy, target, self.source))
        name, limit = target.display_path, min(self.limits.file_bytes, max(0, self.bytes_left))
        try:
            content = read_target(target, limit)
        except SourceError as error:
            if os.path.isdir(target.resolved):
                word, problem, fix = "directory", "is a directory", "reference its files: dir/*.md"
            else:
                word = "binary" if error.code == "binary" else "unreadable"
                problem, fix = error.problem, error.fix
            self._warn(token, f"reference-{word}", f"{name}: {problem}", fix)
            self._mark(target.resolved, f"[{word}: {name}]")
            return
        self.files += 1
        text = content.text.rstrip("\n")
        if hidden := find_disguises(text):
            message = f"{name} contains hidden characters, shown as [U+...]: {format_code_points(hidden)}"
            self._warn(token, "hidden-characters", message, "remove them")
        text = reveal_hidden(text)
        for problem in content.problems:
            self._warn(token, problem.code, f"{name}: {problem.problem}", problem.fix)
        fence = _fence(text)
        self._mark(target.resolved, f"[file: {name}]\n{fence}{_language(name)}\n")
        self._insert(token, "file", target.resolved, text, content.omitted_bytes, f"{_line_break(text)}{fence}")
        if content.omitted_bytes:
            used_bytes = content.size - content.omitted_bytes
            self._warn(
                token, "limit", f"{name}: only {used_bytes} of {content.size} bytes are used", "use a shorter file"
            )
            marker = f"[truncated: first {used_bytes} of {content.size} bytes of {name}]"
            self._mark(target.resolved, f"\n{marker}")

    def _run(self, token: ReferenceToken, command: str) -> None:
        seconds = min(self.limits.command_seconds, self.seconds_left)
        if seconds <= 0:
            limit = f"the timeout for all commands together is {self.limits.total_seconds:g} s"
            self._fail(token, f"command not run: {limit}")
            self._mark(command, f"[not run: {limit}]")
            return
        shell_command = ShellCommand(
            text=command,
            directory=self.directory,
            environment=scrub_environment(self.environment.items()),
            timeout=seconds,
            max_characters=self.limits.output_characters,
        )
        progress, start = self.progress, time.monotonic()
        result = self.runner(shell_command, (lambda passed: progress(command, passed)) if progress else None)
        self.seconds_left -= time.monotonic() - start
        self.commands += 1
        text = reveal_hidden(result.text)
        marker = self._describe_failure(token, command, result, seconds)
        if marker:
            self._mark(command, f"{marker}\n" if text else marker)
        self._insert(token, "command", command, text, result.truncated_bytes)
        for note in result.notes:
            self._warn(
                token, "sandbox", note, "run `kitbag permissions run` to see what a command can do in the sandbox"
            )
        if result.truncated_bytes:
            self._warn(
                token,
                "limit",
                f"{result.truncated_bytes} bytes of command output omitted",
                "reduce the command's output",
            )
            self._mark(command, f"{_line_break(text)}[truncated: {result.truncated_bytes} more bytes of output]")

    def _describe_failure(self, token: ReferenceToken, command: str, result: CommandResult, seconds: float) -> str:
        """The marker to put before the output of a command that did not succeed; empty if it did."""
        if result.stop_reason == "time":
            marker = f"[command timed out after {seconds:g} s]"
        elif result.stop_reason == "output":
            marker = "[command stopped: too much output]"
        elif result.status == 0:
            return ""
        elif is_result_exit_code(command, result.status):
            return f"[exit code {result.status}]"
        elif result.status < 0:
            marker = f"[command killed by {_signal_name(-result.status)}]"
        else:
            marker = f"[command failed with exit code {result.status}]"
        first = command.strip().splitlines()[0]
        self._fail(token, f"`{first}`: {marker[1:-1]}", result.text)
        return marker

    def _fail(self, token: ReferenceToken, problem: str, output: str = "") -> None:
        fix = "run it manually to see why"
        if self.strict:
            location = f"{self.source.path}:{self.source.first_line + token.line - 1}"
            raise CommandFailedError(f"{location}: {problem}" + (f"\n{output[-2000:]}" if output else ""), fix)
        self._warn(token, "command-failed", problem, fix)


_FILE_SEPARATOR = "\n\n"
_BACKTICKS = re.compile("`+")


def _fence(text: str) -> str:
    """Longer than any run of backticks in the text, which therefore can't close it."""
    return "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))


def _language(name: str) -> str:
    extension = os.path.splitext(name)[1][1:]
    return extension if extension.isascii() and extension.isalnum() and len(extension) <= 10 else ""


def _line_break(text: str) -> str:
    return "\n" if text else ""


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
