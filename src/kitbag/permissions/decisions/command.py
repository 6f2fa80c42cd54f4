"""Decides about a command line: each command in it, each path they name, and the sandbox they need.

Used by `decide`; uses `shell/analysis` for what would run and `command_paths` for paths. Analysis only saves approvals:
whatever it can't determine asks, and whatever it finds is matched against all deny rules.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from kitbag.permissions.decisions.command_paths import PathBudget, decide_command_paths, expand_home, is_file_write
from kitbag.permissions.decisions.git_command import decide_git_repository
from kitbag.permissions.decisions.policy import (
    PartVerdict,
    PermissionPolicy,
    deny_if_never_asking,
    make_verdict,
    verdict_by_rule,
    verdict_outside_limit,
)
from kitbag.permissions.model import (
    DecisionPart,
    DeniedWrite,
    Effect,
    PermissionDecision,
    SandboxProfile,
    strictest_part,
)
from kitbag.permissions.rules.matching import allows_command, compiled_command_rules, matches_parameter
from kitbag.permissions.rules.path_patterns import denied_writes
from kitbag.permissions.rules.rule import PermissionRule
from kitbag.shell.analysis import ShellAnalysis, SimpleCommand, analyze

# They print all environment variables, or what others do on this machine.
_PRIVATE_INFO_COMMANDS: Final = frozenset(("users", "who", "w", "last", "env"))
# In bubblewrap they see only the processes and the network of the command itself.
_PROCESS_COMMANDS: Final = frozenset(("ps", "pgrep", "lsof", "ss", "netstat"))
_REMOVES: Final = "only removes files that undo restores"
_RESTRICTING_EFFECTS: Final[tuple[Effect, ...]] = ("deny", "ask")


def decide_command(
    policy: PermissionPolicy, arguments: Mapping[str, object], text: str, start: str, requested_directory: str
) -> PermissionDecision:
    """`start` is absolute: where the command starts. `requested_directory` comes from the model and grants nothing."""
    directory = os.path.normpath(os.path.join(start, expand_home(requested_directory, policy.workspace.home)))
    analysis = analyze(text)
    if not analysis.parts and not analysis.uncertainties:
        return PermissionDecision(
            effect="deny",
            reason="the command is empty",
            parts=(DecisionPart(what=text, effect="deny", reason="the command is empty"),),
        )
    verdicts: list[PartVerdict] = [*_decide_whole_text(policy, arguments, text, analysis)]
    budget = PathBudget()
    for simple in analysis.parts:
        verdicts += _decide_simple_command(policy, simple, directory, budget)
    if arguments.get("run_in_background") and policy.mode == "acceptEdits":
        verdicts = [_require_undo(one) for one in verdicts]
    return _combine(policy, verdicts, analysis)


def would_allow_command(
    policy: PermissionPolicy, rule: PermissionRule, text: str, start: str, decision: PermissionDecision
) -> bool:
    """Whether `decision`, which asks, would allow if there were this allow rule too; for one simple command."""
    analysis = analyze(text)
    if len(analysis.parts) != 1 or analysis.uncertainties or analysis.parts[0].uncertainties:
        return False
    if any(part.effect != "allow" and part.rule for part in decision.parts):  # rules that deny or ask come first
        return False
    (simple,) = analysis.parts
    if not allows_command(rule, simple.allow_form, simple.raw):
        return False
    verdicts = decide_command_paths(policy, simple, os.path.normpath(start), rule, PathBudget())
    return all(verdict.part.effect == "allow" for verdict in verdicts)


def _decide_whole_text(
    policy: PermissionPolicy, arguments: Mapping[str, object], text: str, analysis: ShellAnalysis
) -> Iterator[PartVerdict]:
    whole = (" ".join(text.split()),)
    for effect in _RESTRICTING_EFFECTS:
        rule = compiled_command_rules(policy.rules, effect).first_match(whole)
        others = (one for one in policy.rules.for_tool(effect, "Bash") if matches_parameter(one, arguments))
        rule = rule or next(others, None)
        if rule is not None:
            yield verdict_by_rule(rule, text)
    for uncertainty in analysis.uncertainties:
        yield make_verdict("ask", text, uncertainty)


def _decide_simple_command(
    policy: PermissionPolicy, simple: SimpleCommand, start: str, budget: PathBudget
) -> Iterator[PartVerdict]:
    what = simple.raw
    rule = compiled_command_rules(policy.rules, "deny").first_match(simple.forms)
    if rule is not None:
        yield verdict_by_rule(rule, what)
        return
    for limit in policy.limits.get("Bash", ()):
        if not any(allows_command(rule, simple.allow_form, what) for rule in limit):
            yield verdict_outside_limit(limit, what)
            return
    allow_rule = _find_allow_rule(policy, simple)
    yield _decide_command_only(policy, simple, allow_rule)
    if allow_rule is None and policy.mode != "autonomous":
        directories = [os.path.normpath(os.path.join(start, directory)) for directory in simple.directories]
        yield from decide_git_repository(simple, directories, policy.workspace.home)
    yield from decide_command_paths(policy, simple, start, allow_rule if policy.mode != "plan" else None, budget)


def _find_allow_rule(policy: PermissionPolicy, simple: SimpleCommand) -> PermissionRule | None:
    for rule in policy.rules.for_tool("allow", "Bash"):
        if allows_command(rule, simple.allow_form, simple.raw):
            return rule
    return None


def _decide_command_only(
    policy: PermissionPolicy, simple: SimpleCommand, allow_rule: PermissionRule | None
) -> PartVerdict:
    what, mode = simple.raw, policy.mode
    if mode == "plan" and (simple.kind == "edit" or simple.writes):
        return make_verdict("deny", what, "plan mode is read-only")
    rule = compiled_command_rules(policy.rules, "ask").first_match(simple.forms)
    if rule is not None:
        return verdict_by_rule(rule, what)
    rule = _find_possible_rule(policy, simple)
    if rule is not None:
        return _verdict_by_possible_rule(rule, simple)
    if mode == "plan":
        return make_verdict("allow", what, "plan mode runs it in a read-only sandbox without network access")
    if allow_rule is not None:
        return verdict_by_rule(allow_rule, what)
    if mode == "locked":
        return make_verdict("deny", what, "locked mode denies everything unless a rule allows it")
    if mode == "autonomous":
        return make_verdict("allow", what, "autonomous mode runs it in the workspace sandbox")
    return _decide_by_analysis(policy, simple)


def _decide_by_analysis(policy: PermissionPolicy, simple: SimpleCommand) -> PartVerdict:
    what = simple.raw
    if simple.uncertainties:
        return make_verdict("ask", what, simple.uncertainties[0])
    if simple.check is not None:
        return _decide_check(policy, what, simple.check.label)
    if simple.network:
        return make_verdict("ask", what, "uses the network")
    name = os.path.basename(simple.words[0] or "") if simple.words else ""
    if name == "id" and len(simple.words) == 1:
        return make_verdict("ask", what, "shows your user and groups")
    if simple.shows_environment or name in _PRIVATE_INFO_COMMANDS:
        shows_users = name in _PRIVATE_INFO_COMMANDS and name != "env"
        reason = "shows who uses this machine" if shows_users else "prints environment variables"
        return make_verdict("ask", what, reason)
    if name in _PROCESS_COMMANDS and policy.sandbox_support.kind != "bubblewrap":
        return make_verdict("ask", what, "shows processes and connections of this machine")
    if simple.kind == "read":
        return make_verdict("allow", what, "read-only")
    if simple.kind == "edit" and policy.mode == "acceptEdits":
        return make_verdict("allow", what, _REMOVES if name == "rm" else "only modifies the files it names")
    return make_verdict("ask", what, "modifies files" if simple.kind == "edit" else simple.reason or "may modify files")


def _decide_check(policy: PermissionPolicy, what: str, label: str) -> PartVerdict:
    """Tests and linters run code of the project: asked about once per session, and only in the sandbox."""
    if label in policy.approved_checks and policy.sandbox_support.supports("workspace"):
        return PartVerdict(DecisionPart(what=what, effect="allow", reason=f"{label}, approved in this session"), "rule")
    return PartVerdict(DecisionPart(what=what, effect="ask", reason=label, check=label))


def _require_undo(verdict: PartVerdict) -> PartVerdict:
    """Removing files needs an approval where undo can't restore them."""
    part = verdict.part
    if part.effect != "allow" or part.reason != _REMOVES:
        return verdict
    return make_verdict("ask", part.what, "removes files in the background, where undo does not cover it")


def _find_possible_rule(policy: PermissionPolicy, simple: SimpleCommand) -> PermissionRule | None:
    """A deny or ask rule for specific commands that the command could evade, because it is built at run time."""
    unknown = bool(simple.uncertainties) or (bool(simple.words) and simple.words[0] is None)
    for effect in _RESTRICTING_EFFECTS:
        rules = compiled_command_rules(policy.rules, effect)
        rule = rules.first_possible_match(simple.possible_forms) or (rules.first_specific_rule if unknown else None)
        if rule is not None:
            return rule
    return None


def _verdict_by_possible_rule(rule: PermissionRule, simple: SimpleCommand) -> PartVerdict:
    verb = "denies" if rule.effect == "deny" else "asks about"
    cause = f"{simple.uncertainties[0]}, so it " if simple.uncertainties else ""
    reason = f"{cause}may run a command that `{rule.text}` {verb}"
    return PartVerdict(DecisionPart(what=simple.raw, effect="ask", reason=reason, rule=rule.text, source=rule.source))


def _combine(policy: PermissionPolicy, verdicts: list[PartVerdict], analysis: ShellAnalysis) -> PermissionDecision:
    """Choose the sandbox, and ask about what this machine has no sandbox for."""
    sandbox, network = _choose_sandbox(policy, verdicts, analysis)
    verdicts = [_require_sandbox(policy, one, sandbox) for one in verdicts]
    parts = tuple(deny_if_never_asking(policy.mode, one.part) for one in dict.fromkeys(verdicts))
    decisive = strictest_part(parts)
    if decisive.effect == "deny":
        return PermissionDecision(
            effect="deny", reason=decisive.reason, parts=parts, sandbox="read-only", network=False
        )
    if decisive.effect == "ask" and not policy.sandbox_support.supports(sandbox):
        sandbox, network = "none", True  # the person must know that it runs without a sandbox
    return PermissionDecision(
        effect=decisive.effect,
        reason=decisive.reason,
        parts=parts,
        sandbox=sandbox,
        network=network,
        denied_writes=_denied_writes(policy) if sandbox == "workspace" else (),
        limits=policy.command_limits,
        hardens_git=decisive.effect == "allow" and any(one.allowed_by in ("mode", "skill") for one in verdicts),
    )


def _denied_writes(policy: PermissionPolicy) -> tuple[DeniedWrite, ...]:
    """What the sandbox must keep programs from writing, although the command does not name it."""
    rules = (rule for rule in policy.rules.for_tool("deny", "Edit") if rule.specifier is not None)
    return tuple(
        pattern
        for rule in rules
        for pattern in denied_writes(rule.specifier or "", rule.base, policy.workspace, rule.text)
    )


def _choose_sandbox(
    policy: PermissionPolicy, verdicts: Iterable[PartVerdict], analysis: ShellAnalysis
) -> tuple[SandboxProfile, bool]:
    """The sandbox it would run in. Only what a person allows, by rule or approval, may run without one."""
    if policy.mode == "plan":
        return "read-only", False
    reads = is_read_only(analysis)
    by_a_person = any(one.part.effect == "ask" or one.allowed_by == "rule" for one in verdicts)
    if not by_a_person and reads and policy.mode != "autonomous":
        return "read-only", False
    network = policy.network or (by_a_person and any(simple.network for simple in analysis.parts))
    if not by_a_person or policy.mode == "autonomous" or policy.sandbox_support.supports("workspace"):
        return "workspace", network
    automatic = any(one.part.effect == "allow" and one.allowed_by in ("mode", "skill") for one in verdicts)
    if automatic and reads and policy.sandbox_support.supports("read-only"):
        return "read-only", False
    return "none", True


def is_read_only(analysis: ShellAnalysis) -> bool:
    if analysis.uncertainties:
        return False
    return not any(
        simple.kind != "read" or simple.uncertainties or any(is_file_write(redirect) for redirect in simple.redirects)
        for simple in analysis.parts
    )


def _require_sandbox(policy: PermissionPolicy, verdict: PartVerdict, sandbox: SandboxProfile) -> PartVerdict:
    """What no person allowed needs a working sandbox, and so does everything in autonomous mode."""
    if (
        verdict.part.effect != "allow"
        or verdict.allowed_by == "place"
        or (verdict.allowed_by == "rule" and policy.mode != "autonomous")
    ):
        return verdict
    if sandbox != "none" and policy.sandbox_support.supports(sandbox):
        return verdict
    required = "sandbox" if sandbox == "read-only" else "sandbox that protects control files"
    reason = f"{verdict.part.reason}, but no {required} is available"
    return PartVerdict(msgspec.structs.replace(verdict.part, effect="ask", reason=reason))
