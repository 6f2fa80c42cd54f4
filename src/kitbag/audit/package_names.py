"""Finds packages whose names are one slip away from a popular one: `reqeusts`, `loadsh`.

Used by examine_item; uses shell_checks to find install commands.
"""

import functools
from typing import Final

from kitbag.audit.expressions import load_words
from kitbag.audit.patterns import RuleHit
from kitbag.audit.regions import AuditedText
from kitbag.audit.shell_checks import find_installed_packages

_MIN_LENGTH: Final = 5
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


def find_imitated_packages(source: AuditedText) -> list[RuleHit]:
    hits: list[RuleHit] = []
    lines: dict[int, int] = {}
    """How many imitations a line installs; one may be a slip of the pen."""
    for start, end, tool, name in find_installed_packages(source):
        package = name.rstrip(".")
        if tool.split()[0] in ("go", "cargo", "gem") or not package.replace("-", "").replace(".", "").isalnum():
            continue
        popular = _imitated("python" if "pip" in tool or tool.startswith("uv") else "node", package.lower())
        if popular:
            note = f"{package} looks like {popular}"
            line = source.line_at(start)
            lines[line] = lines.get(line, 0) + 1
            severity = "high" if lines[line] > 1 else None
            hits.append(
                RuleHit(
                    rule="look-alike-package",
                    start=start,
                    end=end,
                    severity=severity,
                    note=note,
                    is_final=bool(severity),
                )
            )
    return hits


@functools.cache
def _popular(language: str) -> frozenset[str]:
    return frozenset(load_words(f"package_names.{language}"))


@functools.cache
def _real() -> frozenset[str]:
    """Packages that are real although they resemble a popular one."""
    return frozenset(load_words("package_names.real")) | _popular("python") | _popular("node")


@functools.lru_cache(maxsize=512)
def _imitated(language: str, package: str) -> str:
    """The popular package that a name imitates; empty if it imitates none."""
    popular = _popular(language)
    if len(package) < _MIN_LENGTH or package in _real() or package[-1].isdigit() or not package[0].isalpha():
        return ""
    close = [other for other in _one_slip_away(package) if other in popular and len(other) >= _MIN_LENGTH]
    return min(close, default="")


def _one_slip_away(name: str) -> set[str]:
    """Names with two letters swapped, one missing, one more or one changed."""
    halves = [(name[:at], name[at:]) for at in range(len(name) + 1)]
    swapped = {left + right[1] + right[0] + right[2:] for left, right in halves if len(right) > 1}
    shorter = {left + right[1:] for left, right in halves if right and len(name) > _MIN_LENGTH}
    longer = {left + letter + right for left, right in halves for letter in _LETTERS}
    changed = {left + letter + right[1:] for left, right in halves if right for letter in _LETTERS}
    return (swapped | shorter | longer | changed) - {name}
