"""The rules of rules.toml: what is reported, why, and the patterns that are data.

Used by patterns, judge, sarif and the command line.
"""

import functools
import re
import tomllib
from importlib.resources import files
from typing import Any, Final, NamedTuple, cast

from kitbag.audit.findings import Confidence, Severity

NEVER_SUPPRESSED: Final = frozenset(
    (
        "hidden-characters", "hidden-comment", "not-read", "suppression-no-reason", "suppression-unknown",
        "suppression-unused", "capability-added", "content-changed", "capability-removed",
    )
)  # fmt: skip
"""What hides text must not be able to hide itself; a lock file, not a comment, accepts changes."""


class AuditRule(NamedTuple):
    id: str
    severity: Severity
    confidence: Confidence
    title: str
    why: str
    fix: str


class RulePattern(NamedTuple):
    rule: str
    words: tuple[str, ...]
    regex: "re.Pattern[str]"
    where: str
    severity: Severity
    confidence: Confidence
    max_example_severity: Severity
    """The most that it is in an example, which nobody may ever run."""


@functools.cache
def _load_document() -> list[dict[str, object]]:
    text = files("kitbag.audit").joinpath("rules.toml").read_text("utf-8")
    return cast("list[dict[str, object]]", tomllib.loads(text)["rule"])


@functools.cache
def load_rules() -> dict[str, AuditRule]:
    """By id, in the order of the file."""
    return {
        str(raw["id"]): AuditRule(**{field: cast("Any", raw[field]) for field in AuditRule._fields})
        for raw in _load_document()
    }


@functools.cache
def load_patterns() -> tuple[RulePattern, ...]:
    found: list[RulePattern] = []
    for raw in _load_document():
        for pattern in cast("list[dict[str, object]]", raw.get("pattern", [])):
            found.append(
                RulePattern(
                    str(raw["id"]),
                    tuple(cast("list[str]", pattern["words"])),
                    re.compile(str(pattern["regex"]), re.IGNORECASE),
                    str(pattern["where"]),
                    cast("Severity", pattern.get("severity", raw["severity"])),
                    cast("Confidence", pattern.get("confidence", raw["confidence"])),
                    cast("Severity", pattern.get("example", "high")),
                )
            )
    return tuple(found)
