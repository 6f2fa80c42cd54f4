"""Decides about Glob and Grep: each directory that their path and pattern lead to, as a path.

Used by `decide`; uses `path`. The tools check each result against the rules again.
"""

import os
import re
from collections.abc import Iterator

from kitbag.permissions.decisions.path import PathAccess, decide_path
from kitbag.permissions.decisions.policy import PartVerdict, PermissionPolicy, make_verdict

_WILD = re.compile(r"[*?\[{]")


def decide_search(policy: PermissionPolicy, tool: str, path: str, pattern: str, start: str) -> Iterator[PartVerdict]:
    """`pattern` is matched against names: the pattern of Glob, the `glob` of Grep."""
    searched = path or start
    shown = f"{tool} {pattern} in {path}" if pattern and path else f"{tool} {pattern or path}".strip()
    fixed, rest = _split_at_wildcard(pattern)
    if _can_leave_directory(rest):
        yield make_verdict("ask", shown, "cannot tell which directories the pattern searches")
    if fixed.startswith(("/", "~")):
        yield _decide_directory(policy, tool, fixed, start, shown)
        if not path:
            return
    elif fixed:
        inside = os.path.join(searched, fixed)
        yield _decide_directory(policy, tool, inside, start, shown)
        if tool == "Glob" and not path:
            return
    yield _decide_directory(policy, tool, searched, start, shown)


def _decide_directory(policy: PermissionPolicy, tool: str, directory: str, start: str, shown: str) -> PartVerdict:
    return decide_path(policy, PathAccess(path=directory, directory=start, tool=tool, recursive=True, what=shown))


def _split_at_wildcard(pattern: str) -> tuple[str, str]:
    """The components before the first wildcard, and the rest."""
    parts = pattern.split("/")
    for at, part in enumerate(parts):
        if _WILD.search(part):
            return "/".join(parts[:at]) or ("/" if at else ""), "/".join(parts[at:])
    return pattern, ""


def _can_leave_directory(rest: str) -> bool:
    """Whether the part after a wildcard may lead up or elsewhere: `*/../..`, `{/etc,a}`, `{..,a}`."""
    plain = rest.replace("\\", "")
    pieces = re.split(r"[/{},]", plain)
    return ".." in pieces or bool(re.search(r"[{,][/~]", plain))
