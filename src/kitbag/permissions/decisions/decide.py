"""The one place that decides whether a tool call is allowed, given its arguments, the mode and the rules.

Used right before a tool runs and by `kitbag permissions`. Uses `path` for files, `command` for Bash and `other_tools`
for the rest. Order: deny rules, the agent's limits, what the mode forbids, ask rules, protections, allow rules, what
the mode allows; everything else asks.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, cast

import msgspec

from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.library.dialects.tool_aliases import SEARCH_TOOLS
from kitbag.library.dialects.tool_lists import ToolAccess
from kitbag.permissions.decisions.other_tools import decide_other_tool
from kitbag.permissions.decisions.outbound import WOULD_LEAK, outbound_texts
from kitbag.permissions.decisions.policy import PartVerdict, PermissionPolicy, deny_if_never_asking, verdict_by_rule
from kitbag.permissions.model import DecisionPart, PermissionDecision, SandboxSupport, Workspace, strictest_part
from kitbag.permissions.rules.matching import matches_parameter
from kitbag.permissions.rules.rule import COMPANION_TOOLS, EDIT_TOOLS, PermissionRule, PermissionRules
from kitbag.permissions.rules.tool_list_rules import tool_limits
from kitbag.permissions.workspace_identity import WorkspaceMovedError
from kitbag.processes.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from kitbag.permissions.decisions.found_files import SearchResultFilter
    from kitbag.permissions.rules.live_rules import LiveRules
    from kitbag.permissions.rules.load import LoadedPermissions

WEB_TOOLS: Final = frozenset(("WebFetch", "WebSearch"))
_PATH_KEYS: Final = ("file_path", "path", "notebook_path", "filePath", "file")
_DIRECTORY_KEYS: Final = ("cwd", "directory", "workdir", "working_directory")
_WORKSPACE_INDEPENDENT_TOOLS: Final = frozenset(
    ("AskUser", "ListLoadedSkills", "SearchSkills", SEARCH_TOOLS, "TaskOutput", "TaskStop", "TodoWrite",
     "UnloadSkill", "WebFetch", "WebSearch")
)  # fmt: skip
"""They still work when the workspace was moved or replaced."""


def child_mode(parent: PermissionMode, declared: PermissionMode | None) -> PermissionMode:
    """The mode of a child agent: its own, except that a child of plan mode is in plan mode."""
    return "plan" if parent == "plan" else declared or "default"


class Permissions:
    """The permissions of one agent. Immutable: restricting or extending them returns a new value."""

    __slots__ = (
        "_accesses",
        "_additions",
        "_cached",
        "_initial",
        "_live_rules",
        "_policy",
        "reveals_secret",
    )

    def __init__(
        self,
        workspace: Workspace,
        mode: PermissionMode,
        rules: PermissionRules,
        sandbox_support: SandboxSupport | Callable[[], SandboxSupport],
        *,
        network: bool = False,
        live_rules: "LiveRules | None" = None,
    ) -> None:
        """`network`: the setting `sandbox.network`. `live_rules`: replaces `rules`; each decision uses its current
        rules."""
        find_sandbox_support = sandbox_support if callable(sandbox_support) else lambda: sandbox_support
        self._initial = live_rules.current() if live_rules is not None else None
        """The rules of the settings when this value was created."""
        self._policy = PermissionPolicy(
            workspace=workspace,
            mode=mode,
            rules=self._initial.rules if self._initial is not None else rules,
            find_sandbox_support=find_sandbox_support,
            network=network,
            command_limits=live_rules.command_limits if live_rules is not None else DEFAULT_LIMITS,
        )
        self._accesses: tuple[tuple[ToolAccess, str], ...] = ()
        self._live_rules = live_rules
        self._additions: tuple[Callable[[PermissionRules], Iterable[PermissionRule]], ...] = ()
        """Functions that compute the rules to add, given the rules of the settings."""
        self._cached: tuple[LoadedPermissions | None, PermissionPolicy] = None, self._policy
        self.reveals_secret: Callable[[Iterable[str]], bool] = lambda _: False
        """Whether texts that leave this machine together contain a secret of the user."""

    @property
    def mode(self) -> PermissionMode:
        """The chosen mode; `current_mode` may be stricter."""
        return self._policy.mode

    @property
    def current_mode(self) -> PermissionMode:
        return self._current_policy().mode

    @property
    def current_rules(self) -> PermissionRules:
        return self._current_policy().rules

    @property
    def current_workspace(self) -> Workspace:
        """Without the roots that the settings no longer make writable."""
        return self._current_policy().workspace

    @property
    def live_rules(self) -> "LiveRules | None":
        """None: settings are not read again, and the rules never change."""
        return self._live_rules

    def private_hosts(self, default: Iterable[str]) -> tuple[str, ...]:
        """The current setting `fetch.private`; `default` if settings are not read again."""
        self._current_policy()
        return tuple(self._live_rules.setting("fetch.private") if self._live_rules is not None else default)

    def take_notices(self) -> list[str]:
        """Changes in the settings since the last call, for the person."""
        return self._live_rules.take_notices() if self._live_rules is not None else []

    def _current_policy(self) -> PermissionPolicy:
        """The policy for the settings as they are now."""
        if self._live_rules is None:
            return self._policy
        loaded = self._live_rules.current()
        if loaded is not self._cached[0]:
            rules = self._policy.rules if loaded is self._initial else loaded.rules
            for addition in self._additions if loaded is not self._initial else ():
                rules = rules.with_rules(addition(rules))
            live_rules = self._live_rules
            workspace, mode = live_rules.restrict_workspace(self.workspace), live_rules.limit_mode(self.mode)
            policy = msgspec.structs.replace(
                self._policy,
                rules=rules,
                mode=mode,
                network=live_rules.network,
                workspace=workspace,
                command_limits=live_rules.command_limits,
            )
            self._cached = loaded, policy
        return self._cached[1]

    @property
    def rules(self) -> PermissionRules:
        return self._policy.rules

    @property
    def workspace(self) -> Workspace:
        return self._policy.workspace

    @property
    def sandbox_support(self) -> SandboxSupport:
        return self._policy.sandbox_support

    def with_mode(self, mode: PermissionMode) -> "Permissions":
        return self._copy_with(msgspec.structs.replace(self._policy, mode=mode))

    def with_chosen_mode(self, mode: PermissionMode) -> "Permissions":
        """A mode that a person has just chosen; it overrides the mode of the settings."""
        if self._live_rules is not None:
            self._live_rules.accept_mode()
        return self.with_mode(mode)

    def with_workspace(self, workspace: Workspace) -> "Permissions":
        """Same rules in another workspace: patterns that start at the old root also start at the new one."""
        old = self.workspace.root

        def moved(rules: PermissionRules) -> list[PermissionRule]:
            return [msgspec.structs.replace(rule, base=workspace.root) for rule in rules.all if rule.base == old]

        return self._copy_with(msgspec.structs.replace(self._policy, workspace=workspace), moved)

    def with_rules(self, more: Iterable[PermissionRule]) -> "Permissions":
        """Add rules of the session, or those of a loaded skill (`tool_list_rules.skill_grants`)."""
        added = tuple(more)
        return self._copy_with(self._policy, lambda _: added)

    def with_secret_check(self, reveals_secret: Callable[[Iterable[str]], bool]) -> "Permissions":
        """Deny, in every mode, what would send a secret over the network."""
        copy = self._copy_with(self._policy)
        copy._cached, copy.reveals_secret = self._cached, reveals_secret
        return copy

    def with_approved_checks(self, checks: Iterable[str]) -> "Permissions":
        """Add runs of tests and linters (`DecisionPart.check`) that a person approved in this session."""
        approved = self._policy.approved_checks.union(checks)
        return self._copy_with(msgspec.structs.replace(self._policy, approved_checks=approved))

    def restricted_to(self, access: ToolAccess, source: str) -> "Permissions":
        """Restrict to an agent's tool list, in every mode; `source` is the agent's file."""
        limits, denied = tool_limits(access, source, self.workspace.root)
        merged = {tool: (*self._policy.limits.get(tool, ()), *limits.get(tool, ())) for tool in limits}
        policy = msgspec.structs.replace(self._policy, limits={**self._policy.limits, **merged})
        restricted = self._copy_with(policy, lambda _: denied)
        restricted._accesses = (*self._accesses, (access, source))
        return restricted

    def _copy_with(
        self, policy: PermissionPolicy, addition: Callable[[PermissionRules], Iterable[PermissionRule]] | None = None
    ) -> "Permissions":
        """A copy with another policy, plus the rules that `addition` computes."""
        copy = Permissions.__new__(Permissions)
        copy._accesses, copy._live_rules, copy._initial = self._accesses, self._live_rules, self._initial
        copy.reveals_secret = self.reveals_secret
        copy._additions = self._additions if addition is None else (*self._additions, addition)
        copy._policy = (
            policy
            if addition is None
            else msgspec.structs.replace(policy, rules=policy.rules.with_rules(addition(policy.rules)))
        )
        copy._cached = None, copy._policy
        return copy

    def excluded_by(self, tool: str) -> str:
        """The source of the tool list that leaves out the tool: an agent's file, or `--allowed-tools`. Empty: none."""
        missing = self._missing_tool(tool)
        return missing.source if missing is not None else ""

    def has_tool(self, tool: str, can_ask: bool = True) -> bool:
        """Whether to advertise a tool: the agent has it, no rule denies it entirely, and the mode can use it.
        `can_ask`: a person can answer now; if not, plan mode reads the web only where a rule allows it."""
        if self._missing_tool(tool) is not None:
            return False
        if any(rule.specifier is None for rule in self.rules.for_tool("deny", tool)):
            return False
        if self.mode == "plan" and tool in WEB_TOOLS:
            return can_ask or bool(self.rules.for_tool("allow", tool))
        return self.mode != "plan" or (tool not in EDIT_TOOLS and not tool.startswith("mcp__"))

    def decide(self, tool: str, arguments: Mapping[str, object], directory: str = "") -> PermissionDecision:
        """Never raises for a model's input. Commands and relative paths start from `directory`: absolute, by default
        the workspace root. Check results of Glob and Grep against `Read` file by file."""
        decision = self._decide(tool, arguments, directory)
        if decision.effect != "deny" and (texts := outbound_texts(tool, arguments, decision)):
            return _denied(tool, WOULD_LEAK) if self.reveals_secret(texts) else decision
        return decision

    def _decide(self, tool: str, arguments: Mapping[str, object], directory: str) -> PermissionDecision:
        missing = self._missing_tool(tool)
        policy = self._current_policy()
        if missing is not None:
            return _combine(policy, [PartVerdict(missing)])
        untyped = cast(object, arguments)
        if not isinstance(untyped, Mapping):
            return _denied(tool, "arguments must be a JSON object")
        start = os.path.join(self.workspace.root, directory) if directory else self.workspace.root
        if tool not in _WORKSPACE_INDEPENDENT_TOOLS and not policy.workspace.is_in_place:
            return _denied(tool, WorkspaceMovedError(policy.workspace.root).problem)
        decider = _DECIDERS.get(tool)
        if decider is not None:
            return decider(policy, tool, arguments, start)
        verdict = decide_other_tool(policy, tool, arguments)
        if policy.mode == "plan" and tool in WEB_TOOLS:  # reading the web needs approval, which changes nothing
            return PermissionDecision(effect=verdict.part.effect, reason=verdict.part.reason, parts=(verdict.part,))
        return _combine(policy, [verdict])

    def would_allow(
        self,
        rule: PermissionRule,
        tool: str,
        arguments: Mapping[str, object],
        directory: str,
        decision: PermissionDecision | None,
    ) -> bool:
        """Whether one more allow rule would allow this. If `decision` asks about a command, only the rule's effects
        are checked, so suggesting a rule takes no further decision."""
        command, has_directory = arguments.get("command"), any(arguments.get(key) for key in _DIRECTORY_KEYS)
        is_command = tool == "Bash" and isinstance(command, str) and not has_directory
        if is_command and decision is not None and decision.effect == "ask" and not decision.has_check:
            from kitbag.permissions.decisions.command import would_allow_command

            start = os.path.join(self.workspace.root, directory) if directory else self.workspace.root
            return would_allow_command(self._current_policy(), rule, str(command), start, decision)
        return self.with_rules((rule,)).decide(tool, arguments, directory).effect == "allow"

    def allows_writing(self, path: str, directory: str) -> bool:
        """Whether rules and mode allow to edit a path, or everything below it, and so to create it as a directory."""
        paths = (path, os.path.join(path, "\ufffe"))
        return any(self.decide("Edit", {"file_path": one}, directory).effect == "allow" for one in paths)

    def search_result_filter(self, start: str) -> "SearchResultFilter":
        """A fast check of search results below `start`: which files Read is certainly allowed to read."""
        from kitbag.permissions.decisions.found_files import SearchResultFilter

        return SearchResultFilter(self._current_policy(), start, usable=self._missing_tool("Read") is None)

    def _missing_tool(self, tool: str) -> DecisionPart | None:
        """Why the agent does not have the tool. Compares names exactly: `write` is not `Write`."""
        for access, source in self._accesses:
            is_companion = tool == SEARCH_TOOLS or (tool in COMPANION_TOOLS and access.allows("Skill"))
            if not access.allows(tool) and not is_companion:
                return DecisionPart(
                    what=tool, effect="deny", reason="the agent does not have this tool", rule="", source=source
                )
        return None


def _decide_bash(
    policy: PermissionPolicy, tool: str, arguments: Mapping[str, object], start: str
) -> PermissionDecision:
    from kitbag.permissions.decisions.command import decide_command

    command = arguments.get("command")
    if not isinstance(command, str) or not command.strip():
        return _denied(tool, "`command` must be a non-empty string")
    directories = [arguments[key] for key in _DIRECTORY_KEYS if arguments.get(key) not in (None, "")]
    if len(directories) > 1 or any(not isinstance(one, str) for one in directories):
        return _denied(tool, "conflicting or invalid working directory")
    return decide_command(policy, arguments, command, start, str(directories[0]) if directories else "")


def _decide_files(
    policy: PermissionPolicy, tool: str, arguments: Mapping[str, object], start: str
) -> PermissionDecision:
    from kitbag.permissions.decisions.path import PathAccess, decide_path

    paths = [arguments[key] for key in _PATH_KEYS if key in arguments]
    if not paths:
        return _denied(tool, "`file_path` is missing")
    verdicts = _verdicts_by_parameter(policy, tool, arguments)
    for path in paths:
        if not isinstance(path, str) or not path:
            return _denied(tool, "the path must be a non-empty string")
        writes = tool in EDIT_TOOLS
        verdicts.append(
            decide_path(policy, PathAccess(path=path, directory=start, tool=tool, writes=writes, what=f"{tool} {path}"))
        )
    return _combine(policy, verdicts)


def _decide_search(
    policy: PermissionPolicy, tool: str, arguments: Mapping[str, object], start: str
) -> PermissionDecision:
    from kitbag.permissions.decisions.search_paths import decide_search

    verdicts = _verdicts_by_parameter(policy, tool, arguments)
    for key in ("path", "pattern", "glob"):
        if not isinstance(arguments.get(key) or "", str):
            return _denied(tool, f"`{key}` must be a string")
    words = {key: str(arguments.get(key) or "") for key in ("path", "pattern", "glob")}
    pattern = words["pattern"] if tool == "Glob" else words["glob"]
    verdicts += decide_search(policy, tool, words["path"], pattern, start)
    return _combine(policy, verdicts)


_DECIDERS: Final[dict[str, Callable[[PermissionPolicy, str, Mapping[str, object], str], PermissionDecision]]] = {
    "Bash": _decide_bash,
    "Read": _decide_files,
    "Write": _decide_files,
    "Edit": _decide_files,
    "NotebookEdit": _decide_files,
    "Glob": _decide_search,
    "Grep": _decide_search,
}


def _verdicts_by_parameter(policy: PermissionPolicy, tool: str, arguments: Mapping[str, object]) -> list[PartVerdict]:
    return [
        verdict_by_rule(rule, tool)
        for effect in ("deny", "ask")
        for rule in policy.rules.for_tool(effect, tool)
        if matches_parameter(rule, arguments)
    ]


def _denied(tool: str, reason: str) -> PermissionDecision:
    return PermissionDecision(
        effect="deny", reason=reason, parts=(DecisionPart(what=tool, effect="deny", reason=reason),)
    )


def _combine(policy: PermissionPolicy, verdicts: list[PartVerdict]) -> PermissionDecision:
    parts = tuple(deny_if_never_asking(policy.mode, one.part) for one in verdicts)
    decisive = strictest_part(parts)
    return PermissionDecision(effect=decisive.effect, reason=decisive.reason, parts=parts)
