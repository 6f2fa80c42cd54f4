"""Where Glob and Grep would look: the folders that their path and pattern lead to, each judged as a path.

Used by decide; uses decide_path. What is found there is held against the rules again, file by file, by the tools.
"""

import os
import re
from collections.abc import Iterator

from kitbag.permissions.decisions.path import Use, judge_path
from kitbag.permissions.decisions.policy import Policy, Verdict, verdict

_WILD = re.compile(r"[*?\[{]")


def search_places(policy: Policy, tool: str, path: str, pattern: str, start: str) -> Iterator[Verdict]:
    """`pattern` is what names are matched against: Glob's pattern, Grep's `glob`."""
    place = path or start
    shown = f"{tool} {pattern} in {path}" if pattern and path else f"{tool} {pattern or path}".strip()
    fixed, rest = _fixed_part(pattern)
    if _leaves(rest):
        yield verdict("ask", shown, "where the pattern looks can't be told")
    if fixed.startswith(("/", "~")):
        yield _judged(policy, tool, fixed, start, shown)
        if not path:
            return
    elif fixed:
        inside = os.path.join(place, fixed)
        yield _judged(policy, tool, inside, start, shown)
        if tool == "Glob" and not path:
            return
    yield _judged(policy, tool, place, start, shown)


def _judged(policy: Policy, tool: str, place: str, start: str, shown: str) -> Verdict:
    return judge_path(policy, Use(place, start, tool, folder=True, what=shown))


def _fixed_part(pattern: str) -> tuple[str, str]:
    """The folders before the first wildcard, and the rest."""
    parts = pattern.split("/")
    for at, part in enumerate(parts):
        if _WILD.search(part):
            return "/".join(parts[:at]) or ("/" if at else ""), "/".join(parts[at:])
    return pattern, ""


def _leaves(rest: str) -> bool:
    """Whether what stands behind a wildcard may lead back up, or elsewhere: `*/../..`, `{/etc,a}`, `{..,a}`."""
    plain = rest.replace("\\", "")
    pieces = re.split(r"[/{},]", plain)
    return ".." in pieces or bool(re.search(r"[{,][/~]", plain))
