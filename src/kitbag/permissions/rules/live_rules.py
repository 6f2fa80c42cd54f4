"""The permission rules of the current settings files, reloaded when a file changes.

Used by `decide` for every decision and by `packing/references`; uses `load`. Costs one stat per file while nothing
changes. An unreadable file makes every tool ask, and its last known deny and ask rules stay in force. A project's deny
and ask rules at the start of a run apply until its end, since only trust could lift them.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from kitbag.errors import Diagnostic
from kitbag.library.dialects.permission_modes import PermissionMode, strictest_mode
from kitbag.library.scopes import Places
from kitbag.permissions.model import Workspace
from kitbag.permissions.rules.load import LoadedPermissions, PermissionFlags, load_permissions, resolve_workspace
from kitbag.permissions.rules.rule import PermissionRule
from kitbag.processes.limits import CommandLimits
from kitbag.settings import PermissionEntry, Settings, load_settings


class _Snapshot(NamedTuple):
    """One reading of the files. Replaced as a whole, so threads can share it."""

    settings: Settings
    loaded: LoadedPermissions
    writable: tuple[str, ...]


class LiveRules:
    def __init__(
        self,
        places: Places,
        workspace: Workspace,
        settings: Settings,
        *,
        trusted: bool | Callable[[Settings], bool],
        flags: PermissionFlags,
        settings_mode: str = "",
        removed_restrictions: Iterable[PermissionEntry] = (),
    ) -> None:
        """`settings`: just loaded, of user and project. `trusted`: whether the project's deny and ask rules apply.
        `settings_mode`: the attribute's value when the task was requested, if that was earlier. `removed_restrictions`:
        see `load_permissions`. Raises UsageError for `flags`."""
        self._places = places
        self._workspace = workspace
        self._trusted = trusted
        self._flags = flags
        self._removed_restrictions = tuple(removed_restrictions)
        self._last_restrictions: dict[str, tuple[PermissionRule, ...]] = {}
        """File to its deny and ask rules when it was last readable."""
        self._project_restrictions: tuple[PermissionRule, ...] = ()
        self._snapshot = self._load(settings)
        self._project_restrictions = tuple(
            rule for rule in _restricting_rules(self._snapshot.loaded) if rule.scope == "project"
        )
        self.settings_mode: str = settings_mode or self._snapshot.loaded.settings_mode_key
        """The `settings_mode_key` of the settings when the task was requested."""
        self._notices: list[str] = []

    def current(self) -> LoadedPermissions:
        """The same object until something changes."""
        if not self._snapshot.settings.is_current():
            before = self._snapshot
            snapshot = self._load(load_settings(self._places.kitbag_home, self._places.project_dirs))
            if _restrictions(snapshot) != _restrictions(before):
                self._notices.append("permission settings changed; the new rules are in effect")
            known = _problems(before)
            self._notices += [problem for problem in _problems(snapshot) if problem not in known]
            self._snapshot = snapshot._replace(loaded=before.loaded) if _is_same(snapshot, before) else snapshot
        return self._snapshot.loaded

    @property
    def workspace(self) -> Workspace:
        """As given at the start."""
        return self._workspace

    def setting(self, key: str) -> Any:
        """A value of the last loaded settings."""
        return self._snapshot.settings.get(key)

    @property
    def network(self) -> bool:
        return self.setting("sandbox.network") == "on"

    @property
    def command_limits(self) -> CommandLimits:
        return CommandLimits(
            processes=self.setting("sandbox.max_processes"),
            memory=self.setting("sandbox.max_memory") << 20,
            file_size=self.setting("sandbox.max_file_size") << 20,
        )

    def restrict_workspace(self, workspace: Workspace) -> Workspace:
        """Remove the roots that were writable when the run began and no longer are."""
        left = tuple(path for path in workspace.extra_write_roots if path in self._snapshot.writable)
        return (
            workspace
            if left == workspace.extra_write_roots
            else msgspec.structs.replace(workspace, extra_write_roots=left)
        )

    def limit_mode(self, mode: PermissionMode) -> PermissionMode:
        """The settings' mode if it is stricter and has changed since the request or became unreadable."""
        loaded = self._snapshot.loaded
        return mode if loaded.settings_mode_key == self.settings_mode else strictest_mode(mode, loaded.settings_mode)

    def accept_mode(self) -> None:
        """A person has just chosen a mode: the current settings don't limit it."""
        self.settings_mode = self.current().settings_mode_key

    def take_notices(self) -> list[str]:
        """Changes since the last call, for the person."""
        news, self._notices = self._notices, []
        return news

    def _load(self, settings: Settings) -> _Snapshot:
        trusted = self._trusted(settings) if callable(self._trusted) else self._trusted
        loaded = load_permissions(
            settings,
            self._workspace,
            trusted=trusted,
            flags=self._flags,
            removed_restrictions=self._removed_restrictions,
        )
        files = (settings.user_file, *settings.project_files)
        retained = [
            rule
            for file in files
            if file in settings.unreadable_files
            for rule in self._last_restrictions.get(file, ())
        ]
        for file in files:
            if file not in settings.unreadable_files:
                self._last_restrictions[file] = tuple(
                    rule for rule in _restricting_rules(loaded) if _is_from_file(rule, file)
                )
        retained_rules = [*retained, *self._project_restrictions]
        if retained_rules:
            loaded = msgspec.structs.replace(loaded, rules=loaded.rules.with_rules(retained_rules))
        return _Snapshot(settings, loaded, resolve_workspace(self._places, settings)[0].extra_write_roots)


def _restricting_rules(loaded: LoadedPermissions) -> tuple[PermissionRule, ...]:
    return (*loaded.rules.deny, *loaded.rules.ask)


def _is_from_file(rule: PermissionRule, file: str) -> bool:
    return rule.source == file or rule.source.startswith(f"{file}:")


def _restrictions(snapshot: _Snapshot) -> object:
    """Everything that restricts, without line numbers, which change with every edit."""
    loaded, network = snapshot.loaded, snapshot.settings.get("sandbox.network")
    limits = [snapshot.settings.get(f"sandbox.max_{name}") for name in ("processes", "memory", "file_size")]
    return (
        loaded.mode,
        loaded.settings_mode_key,
        _without_sources(_restricting_rules(loaded)),
        network,
        limits,
        snapshot.writable,
    )


def _is_same(one: _Snapshot, other: _Snapshot) -> bool:
    allow = [_without_sources(snapshot.loaded.rules.allow) for snapshot in (one, other)]
    return allow[0] == allow[1] and _restrictions(one) == _restrictions(other) and _problems(one) == _problems(other)


def _without_sources(rules: tuple[PermissionRule, ...]) -> list[PermissionRule]:
    return [msgspec.structs.replace(rule, source="") for rule in rules]


def _problems(snapshot: _Snapshot) -> dict[str, None]:
    """Problems of the files, without line numbers."""
    diagnostics: tuple[Diagnostic, ...] = (*snapshot.settings.diagnostics, *snapshot.loaded.diagnostics)
    return {f"{one.file}: {one.problem}": None for one in diagnostics if one.severity != "info"}
