"""From a tool call to a permit: decide, ask a person if needed, and bind the answer to exactly what was shown.

Used by everything that runs tools: `authorize` before the call, `Permit.use` when it runs. dialogs/approver, the
background queue and MCP implement Approver. Uses `decisions/decide`, and `suggest_rule` for rules.
"""

import asyncio
import json
import os
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from kitbag.errors import InvalidError, KitbagError
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import PermissionDecision
from kitbag.permissions.rules.rule import PermissionRule, parse_rule

ApprovalChoice = Literal["allow", "deny"]
ApprovalScope = Literal["once", "session", "rule"]
_PATH_KEYS = ("file_path", "path", "notebook_path")
DENIED_BY_USER: Final = "the user denied this action"
"""Starts the reason of every denial by a person; UIs and the offline model look for it."""


class ApprovalRequest(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    tool: str
    arguments: str
    """Canonical JSON. An answer applies to these arguments only."""
    directory: str
    """Absolute: where a command or a relative path starts."""
    decision: PermissionDecision
    digest: str
    """Hash of tool, arguments and directory."""
    asked_by: str = ""
    """The agent and its session."""
    facts: tuple[tuple[str, str], ...] = ()
    """What else the person must know: where a path leads, the mode and tools of an agent to start."""
    suggestion: str = ""
    """A rule that would allow this and similar actions; empty if no rule should be suggested."""


class ApprovalAnswer(msgspec.Struct, frozen=True, kw_only=True):
    choice: ApprovalChoice
    scope: ApprovalScope = "once"
    rule: str = ""
    """For the scopes session and rule. Without a rule, session means exactly this action."""
    reason: str = ""
    answers: tuple[str, ...] = ()
    """To the questions of AskUser, one each; empty: not answered."""


class Approver(Protocol):
    """Asks a person. Cancellation while waiting is not an answer."""

    @property
    def one_at_a_time(self) -> bool:
        """Whether requests are shown one after another; an answer may settle later requests too."""
        ...

    async def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
        """Raises KitbagError if no person can be asked."""
        ...


class PermitError(InvalidError):
    """A permit was used for another action, twice, or after the decision it is based on has changed."""


class Denial(NamedTuple):
    reason: str
    """Shown to the model too; says what to do instead, if there is something."""
    by: Literal["rules", "person", "nobody"]


class Permit:
    """For one use of one tool with these arguments. Decided again when it is used, not only when it is issued."""

    __slots__ = ("_approved", "_permissions", "_unused", "arguments", "decision", "digest", "notice")

    def __init__(
        self, request: ApprovalRequest, permissions: Permissions, approved_by_person: bool, notice: str = ""
    ) -> None:
        self.arguments: dict[str, object] = json.loads(request.arguments)
        """The arguments that were shown; run the tool with these."""
        self.digest = request.digest
        self.decision = request.decision
        self.notice = notice
        """A secondary problem for the person, such as a rule that could not be saved."""
        self._approved = request if approved_by_person else None
        self._permissions = permissions
        self._unused = [True]

    def use(
        self,
        tool: str,
        arguments: Mapping[str, object],
        directory: str = "",
        permissions: Permissions | None = None,
    ) -> PermissionDecision:
        """Decide again by the current permissions and return the decision to run under. Raises PermitError."""
        try:
            self._unused.pop()  # atomic, even if two threads try
        except IndexError:
            raise PermitError(
                "this permit was already used", "request approval again; a permit is valid for one use"
            ) from None
        current = permissions or self._permissions
        start = directory or current.workspace.root
        try:
            is_same = action_digest(tool, canonical_json(arguments), start) == self.digest
        except ValueError:
            is_same = False
        if not is_same:
            raise PermitError("this is not the action that was approved", "request approval for this action")
        decision = current.decide(tool, self.arguments, start)
        if decision.effect == "deny":
            raise PermitError(f"no longer allowed: {decision.reason}", "change the rule, or skip this action")
        if decision.effect == "ask":
            facts = path_facts(current, tool, self.arguments, start)
            approved = self._approved
            if approved is None or facts != approved.facts or not approved.decision.covers(decision):
                raise PermitError(
                    "the effects of this action have changed since it was approved", "request approval again"
                )
        return decision


class Approvals:
    """The approval requests and answers of one session."""

    def __init__(self, approver: Approver | None, settings_file: str = "", is_background: bool = False) -> None:
        """`settings_file`: the user's settings, where lasting rules are saved. `is_background`: no user waits for the
        questions; they are answered some time later."""
        self._approver = approver
        self._is_background = is_background
        self._settings_file = settings_file
        self._rules: tuple[PermissionRule, ...] = ()
        self._checks: frozenset[str] = frozenset()
        """Tests and linters that were approved."""
        self._approved: set[tuple[str, object, object]] = set()
        self._asking = asyncio.Lock()
        self._waiting: list[str] = []

    @property
    def can_ask(self) -> bool:
        """Whether a person can answer now."""
        return self._approver is not None and not self._is_background

    def waiting_agents(self) -> tuple[str, ...]:
        """`asked_by` of each request that waits for an answer or for its turn to be shown."""
        return tuple(self._waiting)

    @property
    def approved_count(self) -> int:
        """How many exact actions need no further approval in this session."""
        return len(self._approved)

    def with_session_rules(self, permissions: Permissions) -> Permissions:
        """Add the rules, and the runs of tests and linters, that were approved in this session."""
        if self._checks:
            permissions = permissions.with_approved_checks(self._checks)
        return permissions.with_rules(self._rules) if self._rules else permissions

    async def authorize(
        self,
        permissions: Permissions,
        tool: str,
        arguments: Mapping[str, object],
        directory: str = "",
        asked_by: str = "",
        facts: tuple[tuple[str, str], ...] = (),
    ) -> Permit | Denial:
        """`facts`: what the caller knows and the person should see, such as an agent's mode and tools."""
        try:
            text = canonical_json(arguments)
        except ValueError as error:
            return Denial(f"arguments are not valid JSON: {error}", "rules")
        start = directory or permissions.workspace.root
        approver = self._approver
        checked = self._check(permissions, tool, text, start, asked_by, facts)
        if not isinstance(checked, ApprovalRequest):
            return checked
        if approver is None:
            return Denial(self._no_approver_reason(permissions, checked), "nobody")
        must_wait = bool(self._waiting)
        self._waiting.append(asked_by)
        try:
            if not approver.one_at_a_time:
                return await self._ask(approver, permissions, checked, facts)
            async with self._asking:
                if must_wait:  # the answer to another request may have settled this one
                    checked = self._check(permissions, tool, text, start, asked_by, facts)
                return (
                    await self._ask(approver, permissions, checked, facts)
                    if isinstance(checked, ApprovalRequest)
                    else checked
                )
        finally:
            self._waiting.remove(asked_by)

    async def ask_question(
        self, tool: str, arguments: Mapping[str, object], directory: str, asked_by: str
    ) -> ApprovalAnswer:
        """Asks what needs no permission, but a person: the questions of an agent. Raises KitbagError if no person can
        be asked."""
        if self._approver is None:
            raise InvalidError("no user can answer here", "decide yourself")
        text = canonical_json(arguments)
        request = ApprovalRequest(
            id=_new_id(),
            tool=tool,
            arguments=text,
            directory=directory,
            decision=PermissionDecision(effect="ask", reason="a question for you"),
            digest=action_digest(tool, text, directory),
            asked_by=asked_by,
        )
        self._waiting.append(asked_by)
        try:
            return await self._approver.ask(request)
        finally:
            self._waiting.remove(asked_by)

    def _check(
        self,
        permissions: Permissions,
        tool: str,
        text: str,
        start: str,
        asked_by: str,
        facts: tuple[tuple[str, str], ...],
    ) -> Permit | Denial | ApprovalRequest:
        current = self.with_session_rules(permissions)
        copy = json.loads(text)  # a copy, so that the arguments can't change after the decision
        decision = current.decide(tool, copy, start)
        if decision.effect == "deny":
            return Denial(_denial_reason(decision), "rules")
        places = path_facts(current, tool, copy, start) if decision.effect == "ask" else ()
        request = ApprovalRequest(
            id=_new_id(),
            tool=tool,
            arguments=text,
            directory=start,
            decision=decision,
            digest=action_digest(tool, text, start),
            asked_by=asked_by,
            facts=places,
        )
        if decision.effect == "allow":
            return Permit(request, current, approved_by_person=False)
        if (request.digest, _outcome(decision, places), facts) in self._approved:
            return Permit(request, current, approved_by_person=True)
        return request

    async def _ask(
        self, approver: Approver, permissions: Permissions, request: ApprovalRequest, facts: tuple[tuple[str, str], ...]
    ) -> Permit | Denial:
        from kitbag.permissions.approvals.suggest_rule import suggest_rule

        current = self.with_session_rules(permissions)
        arguments = json.loads(request.arguments)
        suggestion = suggest_rule(current, request.tool, arguments, request.directory, request.decision)
        try:
            shown = msgspec.structs.replace(request, facts=(*request.facts, *facts), suggestion=suggestion)
            answer = await approver.ask(shown)
        except KitbagError as error:
            return Denial(f"needs approval, but the request failed: {error.problem}", "nobody")
        if answer.choice != "allow":
            return Denial(_person_denial_reason(answer), "person")
        self._checks |= approvable_checks(request.decision)
        notice = self._apply_rule(current, answer) or _uncovered_notice(current, answer, request)
        if answer.scope == "session" and not answer.rule:
            self._approved.add((request.digest, _outcome(request.decision, request.facts), facts))
        return Permit(request, current, approved_by_person=True, notice=notice)

    def _no_approver_reason(self, permissions: Permissions, request: ApprovalRequest) -> str:
        """Names the rule that would allow it, if there is one."""
        from kitbag.permissions.approvals.suggest_rule import suggest_rule

        current, arguments = self.with_session_rules(permissions), json.loads(request.arguments)
        rule = suggest_rule(current, request.tool, arguments, request.directory, request.decision)
        rule = f"the rule `{rule}`" if rule else "an allow rule"
        return (
            f"needs approval, and this run is not interactive: {request.decision.reason}. To allow it, the user adds"
            f" {rule} to permissions.allow in their settings, or runs Kitbag interactively"
        )

    def _apply_rule(self, current: Permissions, answer: ApprovalAnswer) -> str:
        """Add the rule of an answer. A bad rule does not revoke the answer itself."""
        if answer.scope == "once" or not answer.rule:
            return ""
        try:
            source = self._settings_file if answer.scope == "rule" else "session"
            scope = "user" if answer.scope == "rule" else "session"
            rule = parse_rule(answer.rule, "allow", source, scope, current.workspace.kitbag_home)
            if answer.scope == "rule":
                from kitbag.permissions.rules.save_rule import save_rule

                save_rule(self._settings_file, answer.rule)
                if current.live_rules is not None:  # it applies as part of the settings, as long as it stays there
                    return ""
            self._rules = (*self._rules, rule)
        except KitbagError as error:
            return f"allowed once; the rule `{answer.rule}` could not be saved: {error.problem}"
        return ""


def _uncovered_notice(current: Permissions, answer: ApprovalAnswer, request: ApprovalRequest) -> str:
    """For a rule that the user wrote and that does not allow this call: it would be asked about again."""
    if answer.scope != "rule":
        return ""
    rule = parse_rule(answer.rule, "allow", "", "user", current.workspace.kitbag_home)
    arguments = json.loads(request.arguments)
    if current.would_allow(rule, request.tool, arguments, request.directory, request.decision):
        return ""
    decision = current.with_rules((rule,)).decide(request.tool, arguments, request.directory)
    asking = next((part for part in decision.parts if part.effect == "ask"), None)
    why = f"{asking.what}: {asking.reason}" if asking is not None and asking.what else decision.reason
    return f"allowed once; the rule `{answer.rule}` was added, but does not cover this call ({why})"


def approvable_checks(decision: PermissionDecision) -> frozenset[str]:
    """The tests and linters of a command that are not asked about again in this session, once it is approved."""
    if decision.sandbox != "workspace":
        return frozenset()
    return frozenset(part.check for part in decision.parts if part.effect == "ask" and part.check)


def canonical_json(arguments: Mapping[str, object]) -> str:
    """One text per value, in ASCII. Raises ValueError if it is not JSON."""
    try:
        text = json.dumps(dict(arguments), sort_keys=True, allow_nan=False, separators=(",", ":"))
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if not all(isinstance(name, str) for name in arguments):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError("argument names must be strings")
    return text


def action_digest(tool: str, arguments: str, directory: str) -> str:
    import hashlib

    return hashlib.sha256(json.dumps([tool, arguments, directory]).encode()).hexdigest()


def outcome_digest(decision: PermissionDecision) -> str:
    """Stored, so that another process can compare its own decision with this one."""
    import hashlib

    return hashlib.sha256(json.dumps(decision.outcome).encode()).hexdigest()[:16]


def path_facts(
    permissions: Permissions, tool: str, arguments: Mapping[str, object], directory: str
) -> tuple[tuple[str, str], ...]:
    """Where a tool's paths lead with all links followed, and what is special about them."""
    from kitbag.permissions.paths import examine_path

    notes: list[tuple[str, str]] = []
    for name in _PATH_KEYS:
        value = arguments.get(name)
        if isinstance(value, str) and value:
            facts = examine_path(value, permissions.workspace, directory)
            remarks = [
                reason for reason in (facts.control_reason, facts.private_reason, facts.special_reason) if reason
            ]
            notes.append(("resolves to", "; ".join([facts.resolved, *remarks])))
    return tuple(notes)


def _outcome(decision: PermissionDecision, facts: tuple[tuple[str, str], ...]) -> object:
    """What a person approved; the same action elsewhere is a different outcome."""
    return decision.outcome, facts


def _denial_reason(decision: PermissionDecision) -> str:
    deciding = next((part for part in decision.parts if part.effect == "deny"), None)
    rule = f" (`{deciding.rule}`)" if deciding and deciding.rule and deciding.rule not in decision.reason else ""
    return f"{decision.reason}{rule}"


def _person_denial_reason(answer: ApprovalAnswer) -> str:
    if answer.reason:
        return f"{DENIED_BY_USER}: {answer.reason}"
    return f"{DENIED_BY_USER}. Do not attempt it another way; ask the user what to do instead"


def _new_id() -> str:
    return os.urandom(4).hex()
