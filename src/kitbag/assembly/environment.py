"""The environment of a run, loaded from the user's start directory and settings: trust, library, workspace,
permissions.

Used by base_agent and by the commands that explain a decision. Reads only; the sandbox is probed when needed.
"""

import os
from typing import TYPE_CHECKING

import msgspec

from kitbag.assembly.run_options import Options
from kitbag.errors import Diagnostic
from kitbag.events import Notice
from kitbag.library.registry import Registry
from kitbag.library.scopes import Places
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import Workspace
from kitbag.permissions.rules.live_rules import LiveRules
from kitbag.permissions.rules.load import LoadedPermissions, PermissionFlags, resolve_workspace
from kitbag.permissions.trust.workspace_items import count_items
from kitbag.permissions.trust.workspace_trust import WorkspaceTrust, check_trust, removed_restrictions
from kitbag.permissions.workspace_identity import WorkspaceIdentity, WorkspaceMovedError
from kitbag.settings import load_settings
from kitbag.text.human_format import format_count

if TYPE_CHECKING:
    from kitbag.library.dialects.permission_modes import PermissionMode
    from kitbag.packing.references.permissions import ReferencePermissions


class AgentEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    places: Places
    trust: WorkspaceTrust
    library: Registry
    workspace: Workspace
    permissions: Permissions
    live_rules: LiveRules
    loaded_rules: LoadedPermissions
    """What `live_rules` returned at the start."""
    diagnostics: tuple[Diagnostic, ...]
    """Of the settings, the permission rules in them, and the selected persona."""
    trust_workspace: bool | str = False
    """As in the options of the run."""
    allow_env: tuple[str, ...] = ()
    """Environment variables that texts may read as `${NAME}`."""

    def reference_permissions(self, mode: "PermissionMode", *, allow_commands: bool = False) -> "ReferencePermissions":
        """What the references of skills and tasks may read and run in this mode."""
        from kitbag.packing.references.permissions import ReferencePermissions

        return ReferencePermissions(
            self.places,
            self.library.settings,
            allow_commands=allow_commands,
            allow_environment=frozenset(self.allow_env),
            trust_workspace=self.trust_workspace,
            live=self.live_rules,
            mode=mode,
        )


def load_environment(
    places: Places,
    *,
    permission_options: PermissionFlags,
    trust_workspace: bool | str = False,
    extra: tuple[str, ...] = (),
    team: str = "",
    persona: str = "",
    settings_mode: str = "",
    identity: WorkspaceIdentity | None = None,
    allow_env: tuple[str, ...] = (),
) -> AgentEnvironment:
    """`settings_mode` and `identity`: the mode in the settings and the workspace when the work was requested, if that
    was earlier. Raises UsageError for an invalid rule or mode, NotFoundError for an unknown team or persona, and
    WorkspaceMovedError."""
    root = os.path.realpath(places.project)
    if identity is not None and not identity.is_at(root):
        raise WorkspaceMovedError(root)
    identity = WorkspaceIdentity.of_directory(root)
    trust = check_trust(places, trusted_for_run=trust_workspace, if_untrusted="names")
    library = Registry(
        places,
        extra=extra,
        team=team,
        persona=persona,
        omit_project=not trust.can_load_items,
        is_still_trusted=lambda: check_trust(places, trusted_for_run=trust_workspace).can_load_items,
    )
    # All files, so that ignored project settings are reported, too.
    settings = load_settings(places.kitbag_home, places.project_dirs)
    workspace, problems = resolve_workspace(places, settings)
    workspace = msgspec.structs.replace(workspace, extra_read_roots=_list_skill_roots(library), identity=identity)
    live = LiveRules(
        places,
        workspace,
        settings,
        trusted=trust.applies_restrictions,
        flags=permission_options,
        settings_mode=settings_mode,
        removed_restrictions=removed_restrictions(places, lambda: trust),
    )
    loaded = live.current()
    permissions = _make_permissions(workspace, live)
    persona_problems = library.check_persona()  # selects the persona, which may add a problem to the settings
    diagnostics = (*library.settings.diagnostics, *problems, *loaded.diagnostics, *persona_problems)
    return AgentEnvironment(
        places=places,
        trust=trust,
        library=library,
        workspace=workspace,
        permissions=permissions,
        live_rules=live,
        loaded_rules=loaded,
        diagnostics=diagnostics,
        trust_workspace=trust_workspace,
        allow_env=allow_env,
    )


def load_run_environment(places: Places, options: Options) -> AgentEnvironment:
    """For the options of a run. Raises what `load_environment` raises."""
    return load_environment(
        places,
        permission_options=PermissionFlags(
            mode=options.mode, allow=options.only_tools, ask=options.ask, deny=options.no_tools
        ),
        trust_workspace=options.trust_workspace,
        extra=options.extra,
        team=options.team,
        persona=options.persona,
        settings_mode=options.settings_mode,
        identity=options.workspace,
        allow_env=options.allow_env,
    )


def with_persona(environment: AgentEnvironment, team: str, persona: str) -> AgentEnvironment:
    """The same environment as another persona sees it: skills and agents are read again; trust, rules and workspace
    stay. Raises NotFoundError and AmbiguousError for a team or persona, UntrustedItemError for one that is not
    trusted."""
    library_before = environment.library
    library = Registry(
        library_before.places,
        extra=library_before.extra,
        team=team,
        persona=persona,
        omit_project=library_before.omit_project
        or (library_before.is_still_trusted is not None and not library_before.is_still_trusted()),
        is_still_trusted=library_before.is_still_trusted,
    )
    _ = library.persona  # resolve it now
    permissions = _make_permissions(environment.workspace, environment.live_rules)
    return msgspec.structs.replace(environment, library=library, permissions=permissions)


def _make_permissions(workspace: Workspace, live_rules: LiveRules) -> Permissions:
    from kitbag.sandbox.confine import detect_sandbox

    loaded = live_rules.current()
    return Permissions(
        workspace, loaded.mode, loaded.rules, detect_sandbox, network=live_rules.network, live_rules=live_rules
    )


def diagnostic_notice(diagnostic: Diagnostic) -> Notice:
    return Notice(severity=diagnostic.severity, text=f"{diagnostic.place}: {diagnostic.problem}", fix=diagnostic.fix)


def trust_lost_notices(library: Registry) -> list[Notice]:
    """Once, when the workspace changes during a session."""
    if not library.has_lost_trust:
        return []
    library.has_lost_trust = False
    problem = (
        "the workspace has changed and is no longer trusted; its skills, agents, servers and settings are not used"
    )
    return [Notice(severity="warning", text=problem, fix="run `kitbag trust` to review the changes, then /reload")]


def untrusted_notices(environment: AgentEnvironment, *, is_brief: bool = False) -> list[Notice]:
    """One line that counts what is omitted because the workspace is not trusted; `kitbag trust show` has the names.
    `is_brief`: at a terminal, where a longer line would take a second row."""
    trust = environment.trust
    if trust.can_load_items:
        return []
    reason = "changed" if trust.state == "changed" else "not trusted"
    counts = format_count(len(trust.items), "item") if is_brief and trust.items else count_items(trust.items)
    omitted = (counts or "its items") + ("" if trust.is_complete else " or more")
    fix = "review with `kitbag trust`" + ("" if is_brief else ", or run with --trust-workspace")
    return [Notice(severity="warning", text=f"workspace {reason}: {omitted} omitted; {fix}")]


def _list_skill_roots(library: Registry) -> tuple[str, ...]:
    """Folders of skills outside the project, whose files may be read; the project's are in the workspace anyway."""
    resolved: dict[str, str] = {}
    for skill in library.skills:
        root = skill.root
        folder = skill.directory if root.scope != "project" else ""
        while folder not in resolved and folder.startswith(root.path):
            # Links in the user's own folder point to what is theirs, too.
            real = os.path.realpath(folder) if folder == root.path or os.path.islink(folder) else ""
            resolved[folder] = real if real and not root.refusal(real) else ""
            folder = os.path.dirname(folder)
        if root.plugin_path:
            resolved[root.plugin_path] = os.path.realpath(root.plugin_path)
    return tuple(sorted(set(resolved.values()) - {""}))
