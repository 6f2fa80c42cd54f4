"""Decides about a command line: every command in it, every path they name, and the sandbox that all of it needs.

Used by decide; uses shell_analysis for what would run and command_paths for paths. Analysis only saves questions: what
it can't tell is asked, and what it finds anywhere is held against every rule that denies.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kitbag.permissions.decisions.command_paths import Looks, in_home, judge_paths, writes_a_file
from kitbag.permissions.decisions.policy import Policy, Verdict, by_rule, outside_limit, verdict, without_questions
from kitbag.permissions.model import Effect, Judgement, Part, Profile, strictest
from kitbag.permissions.rules.matching import allows_command, command_rules, matches_parameter
from kitbag.permissions.rules.rule import Rule
from kitbag.shell.analysis import Analysis, Simple, analyse

# They read nothing in the workspace, and what they tell is nobody's business.
_ABOUT_THE_USER: Final = frozenset(
    ("id", "whoami", "groups", "logname", "users", "who", "w", "last", "env", "printenv", "hostname", "ps", "pgrep")
)
_FORBIDDING: Final[tuple[Effect, ...]] = ("deny", "ask")


def decide_command(policy: Policy, arguments: Mapping[str, object], text: str, start: str, chosen: str) -> Judgement:
    """`start` is absolute: where a command starts; `chosen` is where the model wants it to, which widens nothing."""
    directory = os.path.normpath(os.path.join(start, in_home(chosen, policy.workspace.home)))
    found = analyse(text)
    if not found.parts and not found.doubts:
        return Judgement("deny", "there is no command in it", (Part(text, "deny", "there is no command in it"),))
    verdicts: list[Verdict] = [*_of_the_whole(policy, arguments, text, found)]
    looks = Looks()
    for simple in found.parts:
        verdicts += _judge(policy, simple, directory, looks)
    return _settled(policy, verdicts, found)


def _of_the_whole(policy: Policy, arguments: Mapping[str, object], text: str, found: Analysis) -> Iterator[Verdict]:
    whole = (" ".join(text.split()),)
    for effect in _FORBIDDING:
        rule = command_rules(policy.rules, effect).matching(whole)
        others = (one for one in policy.rules.matching(effect, "Bash") if matches_parameter(one, arguments))
        rule = rule or next(others, None)
        if rule is not None:
            yield by_rule(rule, text)
    for doubt in found.doubts:
        yield verdict("ask", text, doubt)


def _judge(policy: Policy, simple: Simple, start: str, looks: Looks) -> Iterator[Verdict]:
    what = simple.raw
    rule = command_rules(policy.rules, "deny").matching(simple.forms)
    if rule is not None:
        yield by_rule(rule, what)
        return
    for limit in policy.limits.get("Bash", ()):
        if not any(allows_command(rule, simple.allow_form, what) for rule in limit):
            yield outside_limit(limit, what)
            return
    grant = _allowing_rule(policy, simple)
    yield _judge_command(policy, simple, grant)
    yield from judge_paths(policy, simple, start, grant if policy.mode != "plan" else None, looks)


def _allowing_rule(policy: Policy, simple: Simple) -> Rule | None:
    for rule in policy.rules.matching("allow", "Bash"):
        if allows_command(rule, simple.allow_form, simple.raw):
            return rule
    return None


def _judge_command(policy: Policy, simple: Simple, grant: Rule | None) -> Verdict:
    what, mode = simple.raw, policy.mode
    if mode == "plan" and (simple.kind == "edit" or simple.writes):
        return verdict("deny", what, "plan mode changes nothing")
    rule = command_rules(policy.rules, "ask").matching(simple.forms)
    if rule is not None:
        return by_rule(rule, what)
    if _hides_from_rules(policy, simple):
        return verdict("ask", what, "what it runs can't be told, so it can't be held against the rules")
    if mode == "plan":
        return verdict("allow", what, "plan mode runs it where nothing can be written and nothing reached")
    if grant is not None:
        return by_rule(grant, what)
    if mode == "locked":
        return verdict("deny", what, "no rule allows it, and locked mode allows nothing else")
    if mode == "autonomous":
        return verdict("allow", what, "autonomous mode runs it where only the workspace can be written")
    return _by_analysis(policy, simple)


def _by_analysis(policy: Policy, simple: Simple) -> Verdict:
    what = simple.raw
    if simple.doubts:
        return verdict("ask", what, simple.doubts[0])
    if simple.network:
        return verdict("ask", what, "it reaches the network")
    if simple.words and simple.words[0] is not None and os.path.basename(simple.words[0]) in _ABOUT_THE_USER:
        return verdict("ask", what, "it tells about you and this machine, not about the workspace")
    if simple.kind == "read":
        return verdict("allow", what, "it only reads")
    if simple.kind == "edit" and policy.mode == "acceptEdits":
        return verdict("allow", what, "it only changes the files it names")
    return verdict("ask", what, "it changes files" if simple.kind == "edit" else "it is not known to only read")


def _hides_from_rules(policy: Policy, simple: Simple) -> bool:
    """Whether a rule that denies or asks about some commands could be evaded by not saying which one it is."""
    known = simple.words[0] is not None if simple.words else True
    if known and not simple.doubts:
        return False
    return any(command_rules(policy.rules, effect).are_specific for effect in _FORBIDDING)


def _settled(policy: Policy, verdicts: list[Verdict], found: Analysis) -> Judgement:
    """The sandbox that all of it needs, and what becomes of what no sandbox here holds."""
    sandbox, network = _sandbox(policy, verdicts, found)
    verdicts = [_held(policy, one, sandbox) for one in verdicts]
    parts = tuple(without_questions(policy.mode, one.part) for one in dict.fromkeys(verdicts))
    decisive = strictest(parts)
    if decisive.effect == "deny":
        return Judgement("deny", decisive.reason, parts, "read-only", False)
    if decisive.effect == "ask" and not policy.protection.holds(sandbox):
        sandbox, network = "none", True  # whoever says yes has to know that nothing will hold it
    return Judgement(decisive.effect, decisive.reason, parts, sandbox, network)


def _sandbox(policy: Policy, verdicts: Iterable[Verdict], found: Analysis) -> tuple[Profile, bool]:
    """What it would run in. Only what a person allows, by a rule or by an answer, may run without."""
    if policy.mode == "plan":
        return "read-only", False
    reads = only_reads(found)
    by_a_person = any(one.part.effect == "ask" or one.by == "rule" for one in verdicts)
    if not by_a_person and reads and policy.mode != "autonomous":
        return "read-only", False
    network = policy.network or (by_a_person and any(simple.network for simple in found.parts))
    if not by_a_person or policy.mode == "autonomous" or policy.protection.holds("workspace"):
        return "workspace", network
    automatic = any(one.part.effect == "allow" and one.by in ("mode", "skill") for one in verdicts)
    if automatic and reads and policy.protection.holds("read-only"):
        return "read-only", False
    return "none", True


def only_reads(found: Analysis) -> bool:
    if found.doubts:
        return False
    return not any(
        simple.kind != "read" or simple.doubts or any(writes_a_file(redirect) for redirect in simple.redirects)
        for simple in found.parts
    )


def _held(policy: Policy, one: Verdict, sandbox: Profile) -> Verdict:
    """What is allowed without a person needs a sandbox that runs; so does everything in autonomous mode."""
    if one.part.effect != "allow" or one.by == "place" or (one.by == "rule" and policy.mode != "autonomous"):
        return one
    if sandbox != "none" and policy.protection.holds(sandbox):
        return one
    wanted = "a sandbox" if sandbox == "read-only" else "a sandbox that keeps control files read-only"
    why = f"{one.part.reason}, but only in {wanted}, and none runs here"
    return Verdict(one.part._replace(effect="ask", reason=why))
