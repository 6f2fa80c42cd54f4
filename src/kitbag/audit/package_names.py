"""Finds packages whose names are one slip away from a popular one: `reqeusts`, `loadsh`.

Used by examine_item; uses shell_checks to find install commands.
"""

import functools
import itertools
import re
from typing import Final

from kitbag.audit.expressions import load_words
from kitbag.audit.patterns import RuleHit
from kitbag.audit.regions import AuditedText
from kitbag.audit.shell_checks import find_installed_packages

_MIN_LENGTH: Final = 5
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


_REQUIREMENT = re.compile(
    r"^(?P<name>[A-Za-z][\w.-]{2,60})(?:\[[\w,-]+\])?[ \t]*(?:[=<>~!]=[^\n]{0,60}|;[^\n]{0,80}|#[^\n]{0,80})?$",
    re.MULTILINE,
)
_DEPENDENCY = re.compile(r"\"(?P<name>[a-z][\w.-]{2,60})\"\s*:\s*\"[~^>=<]{0,2}[\d*][\w.*-]{0,30}\"")
_MAX_LISTED: Final = 300


def _find_listed(source: AuditedText) -> list[tuple[int, int, str, str]]:
    """What the list of a project's packages names."""
    name = source.content.name.lower()
    if name.startswith("requirements") and name.endswith((".txt", ".in")):
        regex, tool = _REQUIREMENT, "pip install"
    elif name == "package.json" and source.has("dependencies"):
        regex, tool = _DEPENDENCY, "npm install"
    else:
        return []
    found = itertools.islice(regex.finditer(source.text), _MAX_LISTED)
    return [(match.start(), match.end(), tool, match["name"]) for match in found]


def find_imitated_packages(source: AuditedText) -> list[RuleHit]:
    hits: list[RuleHit] = []
    lines: dict[int, int] = {}
    """How many imitations a line installs; one may be a slip of the pen."""
    for start, end, tool, name in [*find_installed_packages(source), *_find_listed(source)]:
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
    whole = _closest(language, package)
    if whole or package in _real() or "-" not in package:
        return whole
    # `urlib3-secure`: nobody misspells a name and adds a word to it.
    parts = [_closest(language, part) for part in package.split("-") if len(part) > _MIN_LENGTH]
    return min(filter(None, parts), default="")


def _closest(language: str, name: str) -> str:
    """The popular package one slip away from a name."""
    popular = _popular(language)
    if len(name) < _MIN_LENGTH or name in _real() or not name[0].isalpha():
        return ""
    close = [other for other in _one_slip_away(name) if other in popular and len(other) >= _MIN_LENGTH]
    # `vitest2` is a next version; `urlib3` is not one of `urllib`.
    return min((other for other in close if not name[-1].isdigit() or other[-1] == name[-1]), default="")


def _one_slip_away(name: str) -> set[str]:
    """Names with two letters swapped, one missing, one more or one changed."""
    halves = [(name[:at], name[at:]) for at in range(len(name) + 1)]
    swapped = {left + right[1] + right[0] + right[2:] for left, right in halves if len(right) > 1}
    shorter = {left + right[1:] for left, right in halves if right and len(name) > _MIN_LENGTH}
    longer = {left + letter + right for left, right in halves for letter in _LETTERS}
    changed = {left + letter + right[1:] for left, right in halves if right for letter in _LETTERS}
    return (swapped | shorter | longer | changed) - {name}
