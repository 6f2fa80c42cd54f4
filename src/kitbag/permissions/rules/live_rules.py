"""The permission rules as the settings files say now: read again as soon as one of the files changes.

Used by decide at every decision and by packing/rights; uses rule_files. While nothing changes it costs a stat of each
file. A file that can't be read makes every tool ask, and what it denied or asked about before still counts. What a
project denied or asked about when the run began counts until the run ends: only trust could take that away.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from kitbag.errors import Diagnostic
from kitbag.library.dialects.permission_modes import Mode, strictest
from kitbag.library.scopes import Places
from kitbag.permissions.model import Workspace
from kitbag.permissions.rules.load import Given, Loaded, load_permissions, workspace_of
from kitbag.permissions.rules.rule import Rule
from kitbag.settings import Entry, Settings, load_settings


class _Read(NamedTuple):
    """One reading of the files. Replaced as a whole, so that threads may share it."""

    settings: Settings
    loaded: Loaded
    writable: tuple[str, ...]


class LiveRules:
    def __init__(
        self,
        places: Places,
        workspace: Workspace,
        settings: Settings,
        *,
        trusted: bool | Callable[[Settings], bool],
        given: Given,
        settings_mode: str = "",
        agreed: Iterable[Entry] = (),
    ) -> None:
        """`settings`: read just now, of user and project. `trusted`: whether what the project's deny and ask counts.
        `settings_mode`: what this had as `settings_mode` when the work was requested, where that was earlier. `agreed`:
        as load_permissions has it. Raises UsageError for `given`."""
        self._places = places
        self._workspace = workspace
        self._trusted = trusted
        self._given = given
        self._agreed = tuple(agreed)
        self._held: dict[str, tuple[Rule, ...]] = {}
        """By file: what it denied and asked about when it could last be read."""
        self._of_project: tuple[Rule, ...] = ()
        self._read = self._load(settings)
        self._of_project = tuple(rule for rule in _restricting(self._read.loaded) if rule.scope == "project")
        self.settings_mode: str = settings_mode or self._read.loaded.settings_word
        """Of the settings when the work was requested, as Loaded.settings_word has it."""
        self._news: list[str] = []

    def now(self) -> Loaded:
        """The same object while nothing has changed."""
        if not self._read.settings.is_current():
            before = self._read
            now = self._load(load_settings(self._places.kitbag_home, self._places.project_dirs))
            if _restrictions(now) != _restrictions(before):
                self._news.append("the permission settings have changed; the rules in force are the new ones")
            known = _problems(before)
            self._news += [problem for problem in _problems(now) if problem not in known]
            self._read = now._replace(loaded=before.loaded) if _same(now, before) else now
        return self._read.loaded

    def setting(self, key: str) -> Any:
        """Of the settings as they were read last."""
        return self._read.settings.get(key)

    @property
    def network(self) -> bool:
        return self.setting("sandbox.network") == "on"

    def narrowed(self, workspace: Workspace) -> Workspace:
        """Without the folders that the settings let be written when the run began, and do not any more."""
        left = tuple(path for path in workspace.also_writable if path in self._read.writable)
        return workspace if left == workspace.also_writable else workspace._replace(also_writable=left)

    def mode(self, mode: Mode) -> Mode:
        """A mode as the settings limit it: where they have become stricter since the request, or can't be read any
        more, theirs."""
        loaded = self._read.loaded
        return mode if loaded.settings_word == self.settings_mode else strictest(mode, loaded.settings_mode)

    def accept_mode(self) -> None:
        """A person has chosen a mode just now: what the settings say at this moment does not limit it."""
        self.settings_mode = self.now().settings_word

    def take_news(self) -> list[str]:
        """What has changed since the last time, for the person."""
        news, self._news = self._news, []
        return news

    def _load(self, settings: Settings) -> _Read:
        trusted = self._trusted(settings) if callable(self._trusted) else self._trusted
        loaded = load_permissions(settings, self._workspace, trusted=trusted, given=self._given, agreed=self._agreed)
        files = (settings.user_file, *settings.project_files)
        held = [rule for file in files if file in settings.unreadable for rule in self._held.get(file, ())]
        for file in files:
            if file not in settings.unreadable:
                self._held[file] = tuple(rule for rule in _restricting(loaded) if _is_of(rule, file))
        more = [*held, *self._of_project]
        if more:
            loaded = loaded._replace(rules=loaded.rules.plus(more))
        return _Read(settings, loaded, workspace_of(self._places, settings)[0].also_writable)


def _restricting(loaded: Loaded) -> tuple[Rule, ...]:
    return (*loaded.rules.deny, *loaded.rules.ask)


def _is_of(rule: Rule, file: str) -> bool:
    return rule.source == file or rule.source.startswith(f"{file}:")


def _restrictions(read: _Read) -> object:
    """What holds something back, without the lines, which change with every edit of a file."""
    loaded, network = read.loaded, read.settings.get("sandbox.network")
    return loaded.mode, loaded.settings_word, _texts(_restricting(loaded)), network, read.writable


def _same(one: _Read, other: _Read) -> bool:
    allow = [_texts(read.loaded.rules.allow) for read in (one, other)]
    return allow[0] == allow[1] and _restrictions(one) == _restrictions(other) and _problems(one) == _problems(other)


def _texts(rules: tuple[Rule, ...]) -> list[Rule]:
    return [rule._replace(source="") for rule in rules]


def _problems(read: _Read) -> dict[str, None]:
    """What is wrong with the files, in words, without its lines."""
    found: tuple[Diagnostic, ...] = (*read.settings.diagnostics, *read.loaded.diagnostics)
    return {f"{one.file}: {one.problem}": None for one in found if one.severity != "info"}
