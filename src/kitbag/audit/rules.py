"""The rules of rules.toml: what is reported, why, and their patterns.

Used by patterns, severity, sarif and the command line.
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
"""Hidden text must not be able to suppress itself; changes are accepted by a lock file, not by a comment."""


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
    """The maximum severity in an example, which may never run."""


@functools.cache
def _load_document() -> list[dict[str, object]]:
    text = files("kitbag.audit").joinpath("rules.toml").read_text("utf-8")
    return cast("list[dict[str, object]]", tomllib.loads(text)["rule"])


@functools.cache
def load_rules() -> dict[str, AuditRule]:
    """By id, in file order."""
    return {
        str(raw["id"]): AuditRule(**{field: cast("Any", raw[field]) for field in AuditRule._fields})
        for raw in _load_document()
    }


@functools.cache
def load_patterns() -> tuple[RulePattern, ...]:
    loaded: list[RulePattern] = []
    for raw in _load_document():
        for pattern in cast("list[dict[str, object]]", raw.get("pattern", [])):
            loaded.append(
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
    return tuple(loaded)
