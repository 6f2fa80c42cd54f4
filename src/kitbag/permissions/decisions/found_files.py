"""A fast bulk check of which search results may be read. Only plain files pass; `decide` decides about the others.

Created by `Permissions.search_result_filter`; used by the search tools. It allows only what `decide` would allow, and
is faster because each directory is examined once. Use it for one result only, since directories can be replaced by
links.
"""

import os
import stat
from collections.abc import Callable

from kitbag.permissions.decisions.policy import PermissionPolicy
from kitbag.permissions.paths import examine_path
from kitbag.permissions.rules.matching import RulePath, matches_parameter, matches_path
from kitbag.text.secret_paths import secret_path_reason, special_path_reason


class SearchResultFilter:
    __slots__ = ("_directories", "_limits", "_policy", "_rules", "_start", "_usable")

    def __init__(self, policy: PermissionPolicy, start: str, *, usable: bool) -> None:
        """`start`: the searched directory, absolute. `usable`: whether the agent has Read at all."""
        self._policy = policy
        self._start = start
        self._rules = (*policy.rules.for_tool("deny", "Read"), *policy.rules.for_tool("ask", "Read"))
        self._limits = policy.limits.get("Read", ())
        # In locked mode only rules allow, and only `decide` knows which one.
        self._usable = usable and policy.mode != "locked" and all(rule.specifier for rule in self._rules)
        self._directories: dict[str, str] = {}
        """Resolved path of each directory; empty if it needs a full decision."""

    def is_surely_readable(self, path: str) -> bool:
        """`path` is below `start`, absolute and normalized. False means: call `decide`."""
        folder, _, name = path.rpartition("/")
        if (
            not self._usable
            or secret_path_reason(path)
            or special_path_reason(path)
            or not (directory := self._resolve_directory(folder))
        ):
            return False
        resolved = f"{directory}/{name}"
        if resolved != path and (secret_path_reason(resolved) or special_path_reason(resolved)):
            return False
        return _has_type(path, stat.S_ISREG) and self._is_unrestricted((path, resolved))

    def _is_unrestricted(self, spellings: tuple[str, str]) -> bool:
        """No deny or ask rule matches, and the path is within the agent's limits."""
        if not self._rules and not self._limits:
            return True
        path = RulePath(tuple(dict.fromkeys(spellings)))
        workspace, arguments = self._policy.workspace, {"file_path": spellings[0]}
        if any(matches_path(rule, path, workspace) or matches_parameter(rule, arguments) for rule in self._rules):
            return False
        return all(any(matches_path(rule, path, workspace) for rule in limit) for limit in self._limits)

    def _resolve_directory(self, folder: str) -> str:
        known = self._directories.get(folder)
        if known is None:
            known = self._directories[folder] = (
                self._resolve_start() if folder == self._start else self._resolve_below(folder)
            )
        return known

    def _resolve_start(self) -> str:
        facts = examine_path(self._start, self._policy.workspace)
        plain = facts.readable and not facts.link_spellings and facts.requested == self._start
        return facts.resolved if plain and facts.resolved != "/" else ""

    def _resolve_below(self, folder: str) -> str:
        parent_path, _, name = folder.rpartition("/")
        if not folder.startswith(f"{self._start}/"):
            return ""
        parent = self._resolve_directory(parent_path)
        return f"{parent}/{name}" if parent and _has_type(folder, stat.S_ISDIR) else ""


def _has_type(path: str, kind: Callable[[int], bool]) -> bool:
    try:
        return kind(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False
