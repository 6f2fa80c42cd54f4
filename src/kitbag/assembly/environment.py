"""What a run stands on, made from the user's start directory, settings and environment: trust, library, permissions.

Used by runtime/agent and by the commands that explain a decision. Reads only; the sandbox is tried when it is needed.
"""

import os
from typing import NamedTuple

from kitbag.assembly.run_options import Options
from kitbag.errors import Diagnostic
from kitbag.events import Notice
from kitbag.library.registry import Registry
from kitbag.library.scopes import Places
from kitbag.permissions.decisions.decide import READ_ONLY_AGENTS, Permissions
from kitbag.permissions.model import Workspace
from kitbag.permissions.rules.live_rules import LiveRules
from kitbag.permissions.rules.load import Given, Loaded, workspace_of
from kitbag.permissions.trust.workspace_trust import Trust, taken_back, workspace_trust
from kitbag.settings import load_settings


class Ground(NamedTuple):
    places: Places
    trust: Trust
    library: Registry
    workspace: Workspace
    permissions: Permissions
    live: LiveRules
    loaded: Loaded
    """What `live` said at the start."""
    diagnostics: tuple[Diagnostic, ...]
    """Of the settings, and of the rules in them."""


def lay_ground(
    places: Places,
    *,
    given: Given,
    trust_workspace: bool | str = False,
    extra: tuple[str, ...] = (),
    team: str = "",
    persona: str = "",
    settings_mode: str = "",
) -> Ground:
    """`settings_mode`: of the settings when the work was requested, where that was earlier. Raises UsageError for a
    wrong rule or mode, NotFoundError for a team or persona that does not exist."""
    trust = workspace_trust(places, trusted_for_now=trust_workspace)
    library = Registry(
        places,
        extra=extra,
        team=team,
        persona=persona,
        leave_out_project=not trust.is_open,
        still_trusted=lambda: workspace_trust(places, trusted_for_now=trust_workspace).is_open,
    )
    # All files, so that what a project would like is told even where it does not count.
    settings = load_settings(places.kitbag_home, places.project_dirs)
    workspace, problems = workspace_of(places, settings)
    workspace = workspace._replace(also_readable=_skill_roots(library))
    live = LiveRules(
        places,
        workspace,
        settings,
        trusted=trust.restricts,
        given=given,
        settings_mode=settings_mode,
        agreed=taken_back(places, lambda: trust),
    )
    loaded = live.now()
    permissions = _permissions(workspace, live, library)
    diagnostics = (*library.settings.diagnostics, *problems, *loaded.diagnostics)
    return Ground(places, trust, library, workspace, permissions, live, loaded, diagnostics)


def ground_for(places: Places, options: Options) -> Ground:
    """For what a person said about a run. Raises what `lay_ground` raises."""
    return lay_ground(
        places,
        given=Given(options.mode, options.only_tools, options.ask, options.no_tools),
        trust_workspace=options.trust_workspace,
        extra=options.extra,
        team=options.team,
        persona=options.persona,
        settings_mode=options.settings_mode,
    )


def seen_as(ground: Ground, team: str, persona: str) -> Ground:
    """The same ground as somebody else sees it, with skills and agents read anew; trust, rules and workspace stay.
    Raises NotFoundError and AmbiguousError for a team or persona, LeftOutError for one that is not trusted."""
    old = ground.library
    library = Registry(
        old.places,
        extra=old.extra,
        team=team,
        persona=persona,
        leave_out_project=old.leave_out_project or (old.still_trusted is not None and not old.still_trusted()),
        still_trusted=old.still_trusted,
    )
    _ = library.persona  # which is looked up now
    return ground._replace(library=library, permissions=_permissions(ground.workspace, ground.live, library))


def _permissions(workspace: Workspace, live: LiveRules, library: Registry) -> Permissions:
    from kitbag.sandbox.confine import protection

    loaded = live.now()
    return Permissions(
        workspace,
        loaded.mode,
        loaded.rules,
        protection,
        network=live.network,
        read_only_agents=lambda: _read_only_agents(library),
        live=live,
    )


def notice_of(found: Diagnostic) -> Notice:
    return Notice(found.severity, f"{found.place}: {found.problem}", found.fix)


def told_trust_is_lost(library: Registry) -> list[Notice]:
    """For a session in which the workspace changes; once."""
    if not library.has_lost_trust:
        return []
    library.has_lost_trust = False
    what = "the workspace has changed and is not trusted as it is now; nothing that it brings is used from here on"
    return [Notice("warning", what, "`kitbag trust` shows what has changed, and asks; then /reload")]


def told_left_out(ground: Ground) -> list[Notice]:
    """What of an untrusted workspace does not count, by name."""
    trust = ground.trust
    if trust.is_open:
        return []
    items = [f"{item.kind} {item.full_name}" for item in ground.library.left_out()]
    listed = ("skill", "command", "agent", "persona")
    items += [f"{item.kind} {item.path}" for item in trust.items if item.kind not in listed]
    more = f" and {len(items) - _MOST_NAMED} more" if len(items) > _MOST_NAMED else ""
    why = "has changed since it was trusted" if trust.state == "changed" else "is not trusted"
    fix = "`kitbag trust` shows what it would run, and asks; --trust-workspace trusts it for one run"
    what = f"the workspace {why}; left out: {', '.join(items[:_MOST_NAMED]) or 'all that it brings'}{more}"
    return [Notice("warning", what, fix)]


_MOST_NAMED = 100


def _skill_roots(library: Registry) -> tuple[str, ...]:
    """Where skills that may be loaded keep the files they name; the project's are in the workspace anyway."""
    found: dict[str, str] = {}
    for skill in library.skills:
        root = skill.root
        folder = skill.directory if root.scope != "project" else ""
        while folder not in found and folder.startswith(root.path):
            # Links in a person's own folder lead to what is theirs, too.
            real = os.path.realpath(folder) if folder == root.path or os.path.islink(folder) else ""
            found[folder] = real if real and not root.refusal(real) else ""
            folder = os.path.dirname(folder)
        if root.plugin_path:
            found[root.plugin_path] = os.path.realpath(root.plugin_path)
    return tuple(sorted(set(found.values()) - {""}))


def _read_only_agents(library: Registry) -> frozenset[str]:
    """The built-in ones whose names nobody else has taken by now: files may come while a session runs."""
    return frozenset(
        agent.name for agent in library.agents if agent.root.scope == "built-in" and agent.name in READ_ONLY_AGENTS
    )
