"""The reference policy that decides by workspace trust and permission rules what a packed text may read or run.

Permissions follow the scope of the file that holds the token: user and built-in files act under the rules, project
files also need a trusted workspace, plugin files never run commands or read the environment. Trust, rules and the
sandbox are loaded only when a token needs them. Used by pack and prepare_skill; uses kitbag.permissions and sandbox.
"""

import os
from typing import TYPE_CHECKING, Final

import msgspec

from kitbag.library.scopes import Places
from kitbag.packing.references.policy import ReferenceDecision, ReferenceSource
from kitbag.permissions.model import PermissionDecision, SandboxSupport, Workspace, is_inside, strictest_part
from kitbag.processes.command_runner import CommandResult, ProgressCallback, ShellCommand, run_command
from kitbag.settings import PermissionEntry, Settings
from kitbag.store.secret_names import is_secret_name
from kitbag.text.secret_paths import secret_path_reason, special_path_reason

if TYPE_CHECKING:
    from kitbag.library.dialects.permission_modes import PermissionMode
    from kitbag.permissions.decisions.decide import Permissions
    from kitbag.permissions.rules.live_rules import LiveRules
    from kitbag.permissions.rules.load import PermissionFlags
    from kitbag.permissions.trust.workspace_trust import WorkspaceTrust

_NO_SANDBOX: Final = SandboxSupport(kind="none")
_TRUST_REASONS: Final = {
    "untrusted": "the workspace is not trusted",
    "changed": "the workspace has changed since it was trusted",
    "nothing": "it is not covered by `kitbag trust`",
    "trusted": "it was added after the workspace was trusted",
}


class ReferencePermissions:
    __slots__ = (
        "_allow_commands", "_allow_environment", "_allowed", "_deciding", "_given", "_given_live", "_mode", "_places",
        "_project", "_reading", "_rules", "_settings", "_trust", "_trust_workspace",
    )  # fmt: skip

    def __init__(
        self,
        places: Places,
        settings: Settings,
        *,
        given: "PermissionFlags | None" = None,
        allow_commands: bool = False,
        allow_environment: frozenset[str] = frozenset(),
        trust_workspace: bool | str = False,
        live: "LiveRules | None" = None,
        mode: "PermissionMode | None" = None,
    ) -> None:
        """`allow_commands`: answer yes where a command needs approval; grants neither trust nor a rule.
        `trust_workspace`: trust for this run only. `live`: the rules of the enclosing run, used instead of `given`.
        `mode`: overrides the mode that the rules come with."""
        self._places = places
        self._settings = settings
        self._given = given
        self._given_live = live
        self._mode: PermissionMode | None = mode
        self._allow_commands = allow_commands
        self._allow_environment = allow_environment
        self._trust_workspace = trust_workspace
        self._project = os.path.realpath(places.project)
        self._trust: WorkspaceTrust | None = None
        self._rules: tuple[LiveRules, Workspace] | None = None
        self._reading: dict[tuple[str, ...], Permissions] = {}
        self._deciding: Permissions | None = None
        self._allowed: dict[str, PermissionDecision] = {}

    # --- files ------------------------------------------------------------------------------------

    def read(self, path: str, source: ReferenceSource) -> ReferenceDecision:
        """Decides by the path string alone; the caller asks again for the path that symlinks lead to."""
        target = os.path.normpath(path)
        if reason := special_path_reason(target) or secret_path_reason(target):
            return ReferenceDecision("deny", reason)
        roots = self._roots(source)
        root = next((root for candidate in roots if (root := _matching_root(target, candidate))), None)
        if root is None:
            where = "the plugin's directory" if source.scope == "plugin" else "the workspace"
            return ReferenceDecision("deny", f"it is outside {where}")
        if ".git" in target[len(root) :].casefold().split(os.sep):
            return ReferenceDecision("deny", "it is inside a .git directory")
        return self._decide_read_by_rules(target, roots) if self._has_rules() else ReferenceDecision("allow")

    def _roots(self, source: ReferenceSource) -> tuple[str, ...]:
        if source.scope == "plugin":
            return (source.root,)
        if source.scope == "project":  # a symlink to a directory elsewhere must not grant access to it
            return (source.root, self._places.project)
        return (source.root, source.base, self._places.project)

    def _has_rules(self) -> bool:
        """Without rules and with the default mode, every file inside the roots may be read."""
        loaded = self._live.current()
        return (
            bool(loaded.rules.all) or loaded.settings_mode_key != "default" or (self._mode or loaded.mode) != "default"
        )

    def _decide_read_by_rules(self, path: str, roots: tuple[str, ...]) -> ReferenceDecision:
        """A file inside the roots is readable unless a rule or the mode denies it."""
        if roots not in self._reading:
            self._reading[roots] = self._permissions(_NO_SANDBOX, tuple(map(os.path.realpath, roots)))
        return _to_decision(self._reading[roots].decide("Read", {"file_path": path}))

    # --- environment variables --------------------------------------------------------------------

    def environment(self, name: str, source: ReferenceSource) -> ReferenceDecision:
        if source.scope == "plugin":
            return ReferenceDecision("deny", "plugins are not allowed to read environment variables")
        if is_secret_name(name):
            return ReferenceDecision("deny", "its name looks like a secret")
        if untrusted := self._untrusted_reason(source):
            return ReferenceDecision("untrusted", untrusted)
        if name in self._allow_environment:
            return ReferenceDecision("allow")
        reason = "environment variables must be allowed by name"
        from kitbag.permissions.decisions.policy import NON_ASKING_MODES

        mode = self._live.limit_mode(self._mode or self._live.current().mode)
        return (
            ReferenceDecision("deny", f"{reason}; {mode} mode never asks")
            if mode in NON_ASKING_MODES
            else ReferenceDecision("ask", reason)
        )

    # --- commands ---------------------------------------------------------------------------------

    def command(self, text: str, source: ReferenceSource) -> ReferenceDecision:
        if source.scope == "plugin":
            return ReferenceDecision("deny", "plugins are not allowed to run commands in their text")
        if untrusted := self._untrusted_reason(source):
            # No sandbox is probed; a deny rule takes precedence over missing trust.
            found = self._permissions(_NO_SANDBOX).decide("Bash", {"command": text}, self._places.cwd)
            denied = any(part.effect == "deny" and part.rule for part in found.parts)
            return _to_decision(found) if denied else ReferenceDecision("untrusted", untrusted)
        if self._deciding is None:
            from kitbag.sandbox.confine import detect_sandbox

            self._deciding = self._permissions(detect_sandbox())
        found = self._deciding.decide("Bash", {"command": text}, self._places.cwd)
        if found.effect != "deny":
            self._allowed[text] = found
        if found.effect == "ask" and self._allow_commands:
            return ReferenceDecision("allow")
        return _to_decision(found)

    def run(self, command: ShellCommand, tick: ProgressCallback | None, /) -> CommandResult:
        """Runs in the sandbox that the decision requires. A command without a decision does not run."""
        from kitbag.sandbox.confine import run_confined
        from kitbag.sandbox.confinement import Confinement, answer_by_rules

        found = self._still_allowed(command)
        if found.sandbox == "none":  # only for what the user allowed, by a rule or an answer
            return run_command(command, tick)
        deciding = self._deciding
        answer = answer_by_rules(deciding, self._places.cwd) if deciding is not None else None
        # What is approved here is a text with commands, not a path.
        confinement = msgspec.structs.replace(Confinement.of_decision(found, answer), allowed=())
        return run_confined(
            command, tick, confinement=confinement, workspace=self._live.restrict_workspace(self._workspace)
        )

    def _still_allowed(self, command: ShellCommand) -> PermissionDecision:
        """The rules may have changed since the approval. Raises RefusedError if they deny the command now."""
        from kitbag.permissions.approvals.approval import PermitError

        found = self._allowed[command.text]
        deciding = self._deciding
        now = deciding.decide("Bash", {"command": command.text}, self._places.cwd) if deciding is not None else found
        is_answered = self._allow_commands or now.outcome == found.outcome
        if now.effect == "deny" or (now.effect == "ask" and not is_answered):
            raise PermitError(f"`{command.text}` is no longer allowed: {now.reason}", "remove it, or change the rule")
        return now

    # --- trust and rules --------------------------------------------------------------------------

    def _untrusted_reason(self, source: ReferenceSource) -> str:
        """Why missing trust stops this text from acting; empty if it may act."""
        if not self._belongs_to_project(source):
            return ""
        trust = self._load_trust()
        return "" if trust.covers(source.path, source.text, self._places) else _TRUST_REASONS[trust.state]

    def _belongs_to_project(self, source: ReferenceSource) -> bool:
        """True for project scope, and for an extra directory that is inside the workspace."""
        if source.scope != "extra" or not self._places.project_dirs:
            return source.scope == "project"
        return is_inside(os.path.realpath(source.path), self._project)

    def _load_trust(self) -> "WorkspaceTrust":
        if self._trust is None:
            from kitbag.permissions.trust.workspace_trust import check_trust

            self._trust = check_trust(self._places, self._trust_workspace, if_untrusted="nothing")
        return self._trust

    def _permissions(self, protection: SandboxSupport, also_readable: tuple[str, ...] = ()) -> "Permissions":
        from kitbag.permissions.decisions.decide import Permissions

        live = self._live
        loaded = live.current()
        opened = msgspec.structs.replace(self._workspace, extra_read_roots=also_readable)
        mode = self._mode or loaded.mode
        return Permissions(opened, mode, loaded.rules, protection, network=live.network, live_rules=live)

    def _load_rules(self) -> "tuple[LiveRules, Workspace]":
        if self._rules is None:
            from kitbag.permissions.rules.live_rules import LiveRules
            from kitbag.permissions.rules.load import NO_FLAGS, resolve_workspace

            workspace, _ = resolve_workspace(self._places, self._settings)
            live = self._given_live or LiveRules(
                self._places,
                workspace,
                self._settings,
                trusted=self._is_trusted,
                flags=self._given or NO_FLAGS,
                removed_restrictions=self._revoked_entries(),
            )
            self._rules = live, msgspec.structs.replace(workspace, identity=live.workspace.identity)
        return self._rules

    @property
    def _live(self) -> "LiveRules":
        return self._load_rules()[0]

    @property
    def _workspace(self) -> Workspace:
        return self._load_rules()[1]

    def _revoked_entries(self) -> "list[PermissionEntry]":
        if not os.path.lexists(os.path.join(self._places.kitbag_home, "trust.json")):
            return []  # nothing was ever trusted, so the trust modules need not be imported
        from kitbag.permissions.trust.workspace_trust import removed_restrictions

        return removed_restrictions(self._places, self._load_trust)

    def _is_trusted(self, settings: Settings) -> bool:
        """Whether the project's settings apply. Checking trust scans the workspace, so only if it has settings."""
        of_project = any(not entry.is_user for entry in settings.permission_entries) or any(
            path != settings.user_file for path in settings.unreadable_files
        )
        return of_project and self._load_trust().applies_restrictions


def _to_decision(found: PermissionDecision) -> ReferenceDecision:
    part = strictest_part(found.parts) if found.parts else None
    rule = f" `{part.rule}` ({part.source})" if part is not None and part.rule else ""
    return ReferenceDecision(found.effect, f"{found.reason}{rule}")


def _matching_root(path: str, root: str) -> str:
    """The resolved root if the resolved path is inside it, else empty. A prefix of a resolved path is resolved."""
    if root.startswith(os.sep) and is_inside(path, root):
        return root
    resolved = os.path.realpath(root)
    return resolved if is_inside(path, resolved) else ""
