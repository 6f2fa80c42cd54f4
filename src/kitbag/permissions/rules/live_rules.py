"""The permission rules as the settings files say now: read again as soon as one of the files changes.

Used by decide at every decision and by packing/rights; uses rule_files. While nothing changes it costs a stat of each
file. A file that can't be read makes every tool ask, and what it denied or asked about before still counts. What a
project denied or asked about when the run began counts until the run ends: only trust could take that away.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kitbag.errors import Diagnostic
from kitbag.library.dialects.permission_modes import PermissionMode, strictest_mode
from kitbag.library.scopes import Places
from kitbag.permissions.model import Workspace
from kitbag.permissions.rules.load import LoadedPermissions, PermissionFlags, load_permissions, resolve_workspace
from kitbag.permissions.rules.rule import PermissionRule
from kitbag.settings import PermissionEntry, Settings, load_settings


class _Snapshot(NamedTuple):
    """One reading of the files. Replaced as a whole, so that threads may share it."""

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
        """`settings`: read just now, of user and project. `trusted`: whether what the project's deny and ask counts.
        `settings_mode`: what this had as `settings_mode` when the work was requested, where that was earlier. `agreed`:
        as load_permissions has it. Raises UsageError for `given`."""
        self._places = places
        self._workspace = workspace
        self._trusted = trusted
        self._flags = flags
        self._removed_restrictions = tuple(removed_restrictions)
        self._last_restrictions: dict[str, tuple[PermissionRule, ...]] = {}
        """By file: what it denied and asked about when it could last be read."""
        self._project_restrictions: tuple[PermissionRule, ...] = ()
        self._snapshot = self._load(settings)
        self._project_restrictions = tuple(
            rule for rule in _restricting_rules(self._snapshot.loaded) if rule.scope == "project"
        )
        self.settings_mode: str = settings_mode or self._snapshot.loaded.settings_mode_key
        """Of the settings when the work was requested, as Loaded.settings_word has it."""
        self._notices: list[str] = []

    def current(self) -> LoadedPermissions:
        """The same object while nothing has changed."""
        if not self._snapshot.settings.is_current():
            before = self._snapshot
            now = self._load(load_settings(self._places.kitbag_home, self._places.project_dirs))
            if _restrictions(now) != _restrictions(before):
                self._notices.append("the permission settings have changed; the rules in force are the new ones")
            known = _problems(before)
            self._notices += [problem for problem in _problems(now) if problem not in known]
            self._snapshot = now._replace(loaded=before.loaded) if _is_same(now, before) else now
        return self._snapshot.loaded

    def setting(self, key: str) -> Any:
        """Of the settings as they were read last."""
        return self._snapshot.settings.get(key)

    @property
    def network(self) -> bool:
        return self.setting("sandbox.network") == "on"

    def restrict_workspace(self, workspace: Workspace) -> Workspace:
        """Without the folders that the settings let be written when the run began, and do not any more."""
        left = tuple(path for path in workspace.extra_write_roots if path in self._snapshot.writable)
        return workspace if left == workspace.extra_write_roots else workspace._replace(extra_write_roots=left)

    def limit_mode(self, mode: PermissionMode) -> PermissionMode:
        """A mode as the settings limit it: where they have become stricter since the request, or can't be read any
        more, theirs."""
        loaded = self._snapshot.loaded
        return mode if loaded.settings_mode_key == self.settings_mode else strictest_mode(mode, loaded.settings_mode)

    def accept_mode(self) -> None:
        """A person has chosen a mode just now: what the settings say at this moment does not limit it."""
        self.settings_mode = self.current().settings_mode_key

    def take_notices(self) -> list[str]:
        """What has changed since the last time, for the person."""
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
        held = [
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
        more = [*held, *self._project_restrictions]
        if more:
            loaded = loaded._replace(rules=loaded.rules.with_rules(more))
        return _Snapshot(settings, loaded, resolve_workspace(self._places, settings)[0].extra_write_roots)


def _restricting_rules(loaded: LoadedPermissions) -> tuple[PermissionRule, ...]:
    return (*loaded.rules.deny, *loaded.rules.ask)


def _is_from_file(rule: PermissionRule, file: str) -> bool:
    return rule.source == file or rule.source.startswith(f"{file}:")


def _restrictions(read: _Snapshot) -> object:
    """What holds something back, without the lines, which change with every edit of a file."""
    loaded, network = read.loaded, read.settings.get("sandbox.network")
    return loaded.mode, loaded.settings_mode_key, _without_sources(_restricting_rules(loaded)), network, read.writable


def _is_same(one: _Snapshot, other: _Snapshot) -> bool:
    allow = [_without_sources(read.loaded.rules.allow) for read in (one, other)]
    return allow[0] == allow[1] and _restrictions(one) == _restrictions(other) and _problems(one) == _problems(other)


def _without_sources(rules: tuple[PermissionRule, ...]) -> list[PermissionRule]:
    return [rule._replace(source="") for rule in rules]


def _problems(read: _Snapshot) -> dict[str, None]:
    """What is wrong with the files, in words, without its lines."""
    found: tuple[Diagnostic, ...] = (*read.settings.diagnostics, *read.loaded.diagnostics)
    return {f"{one.file}: {one.problem}": None for one in found if one.severity != "info"}
