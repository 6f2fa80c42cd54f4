"""Whether files that a search found may be read, for many of them at once: only the plain ones, the others are asked
about one by one.

Made by `Permissions.found_files`; used by the tools that search. It says yes only where `decide` would, and is faster
because what is the same for all files of a folder is looked at once. It lives no longer than the look at one result,
since folders may be exchanged for links.
"""

import os
import stat
from collections.abc import Callable

from kitbag.permissions.decisions.policy import Policy
from kitbag.permissions.paths import examine
from kitbag.permissions.rules.matching import Place, matches_parameter, matches_path
from kitbag.text.secret_paths import private_reason, special_reason


class FoundFiles:
    __slots__ = ("_folders", "_limits", "_policy", "_rules", "_start", "_usable")

    def __init__(self, policy: Policy, start: str, *, usable: bool) -> None:
        """`start` is the folder that was searched, absolute; `usable`: whether the agent has Read at all."""
        self._policy = policy
        self._start = start
        self._rules = (*policy.rules.matching("deny", "Read"), *policy.rules.matching("ask", "Read"))
        self._limits = policy.limits.get("Read", ())
        # In locked mode only a rule allows, and which one that is `decide` finds out.
        self._usable = usable and policy.mode != "locked" and all(rule.specifier for rule in self._rules)
        self._folders: dict[str, str] = {}
        """Where each folder leads; empty when it is anything but plain."""

    def surely_readable(self, path: str) -> bool:
        """A path below `start`, absolute and normal. False means: ask `decide`."""
        folder, _, name = path.rpartition("/")
        if not self._usable or private_reason(path) or special_reason(path) or not (place := self._folder(folder)):
            return False
        resolved = f"{place}/{name}"
        if resolved != path and (private_reason(resolved) or special_reason(resolved)):
            return False
        return _is(path, stat.S_ISREG) and self._is_left_alone((path, resolved))

    def _is_left_alone(self, spellings: tuple[str, str]) -> bool:
        """By the rules that deny or ask, and within the agent's limits."""
        if not self._rules and not self._limits:
            return True
        place = Place(tuple(dict.fromkeys(spellings)))
        workspace, given = self._policy.workspace, {"file_path": spellings[0]}
        if any(matches_path(rule, place, workspace) or matches_parameter(rule, given) for rule in self._rules):
            return False
        return all(any(matches_path(rule, place, workspace) for rule in limit) for limit in self._limits)

    def _folder(self, folder: str) -> str:
        known = self._folders.get(folder)
        if known is None:
            known = self._folders[folder] = self._first() if folder == self._start else self._below(folder)
        return known

    def _first(self) -> str:
        facts = examine(self._start, self._policy.workspace)
        plain = facts.readable and not facts.between and facts.requested == self._start
        return facts.resolved if plain and facts.resolved != "/" else ""

    def _below(self, folder: str) -> str:
        above, _, name = folder.rpartition("/")
        if not folder.startswith(f"{self._start}/"):
            return ""
        place = self._folder(above)
        return f"{place}/{name}" if place and _is(folder, stat.S_ISDIR) else ""


def _is(path: str, kind: Callable[[int], bool]) -> bool:
    try:
        return kind(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False
