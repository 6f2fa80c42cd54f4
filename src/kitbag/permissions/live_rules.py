"""The permission rules as the settings files say now: read again as soon as one of the files changes.

Used by decide at every decision and by packing/rights; uses rule_files. While nothing changes it costs a stat of each
file. A file that can't be read makes every tool ask, and what it denied or asked about before still counts. What a
project denied or asked about when the run began counts until the run ends: only trust could take that away.
"""

from collections.abc import Callable
from typing import NamedTuple

from kitbag.library.modes import STRICTEST_FIRST, Mode
from kitbag.library.scopes import Places
from kitbag.permissions.model import Workspace
from kitbag.permissions.rule_files import Given, Loaded, load_permissions
from kitbag.permissions.rules import Rule
from kitbag.settings import Settings, load_settings


class _Read(NamedTuple):
    """One reading of the files. Replaced as a whole, so that threads may share it."""

    settings: Settings
    loaded: Loaded


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
    ) -> None:
        """`settings`: read just now, of user and project. `trusted`: whether the project's count. `settings_mode`: the
        mode in the settings when the work was requested, where that was earlier. Raises UsageError for `given`."""
        self._places = places
        self._workspace = workspace
        self._trusted = trusted
        self._given = given
        self._held: dict[str, tuple[Rule, ...]] = {}
        """By file: what it denied and asked about when it could last be read."""
        self._of_project: tuple[Rule, ...] = ()
        self._read = self._load(settings)
        self._of_project = tuple(rule for rule in _restricting(self._read.loaded) if rule.scope == "project")
        self.settings_mode: str = settings_mode or self._read.loaded.settings_mode
        """Of the settings when the work was requested."""
        self._news: list[str] = []

    def now(self) -> Loaded:
        """The same object while nothing has changed."""
        if not self._read.settings.is_current():
            before = self._read
            self._read = self._load(load_settings(self._places.kitbag_home, self._places.project_dirs), before.loaded)
            if _restrictions(self._read.loaded) != _restrictions(before.loaded):
                self._news.append("the permission settings have changed; the rules in force are the new ones")
                self._news += [
                    f"{found.place}: {found.problem}"
                    for found in (*self._read.settings.diagnostics, *self._read.loaded.diagnostics)
                    if found.severity == "error"
                ]
        return self._read.loaded

    @property
    def network(self) -> bool:
        return self._read.settings.get("sandbox.network") == "on"

    def mode(self, mode: Mode) -> Mode:
        """A mode as the settings limit it: where they have become stricter since the request, theirs."""
        wanted = self._read.loaded.settings_mode
        if wanted == self.settings_mode or STRICTEST_FIRST.index(wanted) >= STRICTEST_FIRST.index(mode):
            return mode
        return wanted

    def accept_mode(self) -> None:
        """A person has chosen a mode just now: what the settings say at this moment does not limit it."""
        self.settings_mode = self.now().settings_mode

    def take_news(self) -> list[str]:
        """What has changed since the last time, for the person."""
        news, self._news = self._news, []
        return news

    def _load(self, settings: Settings, before: Loaded | None = None) -> _Read:
        trusted = self._trusted(settings) if callable(self._trusted) else self._trusted
        loaded = load_permissions(settings, self._workspace, trusted=trusted, given=self._given)
        files = (settings.user_file, *settings.project_files)
        held = [rule for file in files if file in settings.unreadable for rule in self._held.get(file, ())]
        for file in files:
            if file not in settings.unreadable:
                self._held[file] = tuple(rule for rule in _restricting(loaded) if _is_of(rule, file))
        more = [*held, *self._of_project]
        if more:
            loaded = loaded._replace(rules=loaded.rules.plus(more))
        if before is not None and _same(before, loaded):
            loaded = before
        return _Read(settings, loaded)


def _restricting(loaded: Loaded) -> tuple[Rule, ...]:
    return (*loaded.rules.deny, *loaded.rules.ask)


def _is_of(rule: Rule, file: str) -> bool:
    return rule.source == file or rule.source.startswith(f"{file}:")


def _restrictions(loaded: Loaded) -> object:
    """What holds something back, without the lines, which change with every edit of a file."""
    return loaded.mode, loaded.settings_mode, _texts(_restricting(loaded))


def _same(one: Loaded, other: Loaded) -> bool:
    return _restrictions(one) == _restrictions(other) and _texts(one.rules.allow) == _texts(other.rules.allow)


def _texts(rules: tuple[Rule, ...]) -> list[tuple[str, ...]]:
    return [(rule.effect, rule.tool, rule.text, rule.scope, rule.base) for rule in rules]
