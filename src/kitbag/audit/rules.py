"""The rules of rules.toml: what is reported, why, and their patterns.

Used by patterns, severity, sarif and the command line.
"""

import functools
import itertools
import re
import tomllib
from importlib.resources import files
from typing import Any, Final, Literal, cast

import msgspec

from kitbag.audit.findings import Confidence, Severity

NEVER_SUPPRESSED: Final = frozenset(
    (
        "hidden-characters", "hidden-comment", "not-read", "suppression-no-reason", "suppression-unknown",
        "suppression-unused", "capability-added", "content-changed", "capability-removed",
    )
)  # fmt: skip
"""Hidden text must not be able to suppress itself; changes are accepted by a lock file, not by a comment."""


_RULE_FIELDS: Final = ("id", "severity", "confidence", "title", "why", "fix")
"""Keys in rules.toml, named like the fields of AuditRule."""


class AuditRule(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    severity: Severity
    confidence: Confidence
    title: str
    why: str
    fix: str

    def to_json(self) -> dict[str, str]:
        return {
            "id": self.id,
            "severity": self.severity,
            "confidence": self.confidence,
            "title": self.title,
            "why": self.why,
            "fix": self.fix,
        }


class RulePattern(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    rule: str
    words: tuple[str, ...]
    expression: str
    where: str
    severity: Severity
    confidence: Confidence
    max_example_severity: Severity
    """The maximum severity in an example, which may never run."""
    also: tuple[str, ...]
    """Words of which one must be elsewhere in the file."""

    @functools.cached_property
    def regex(self) -> "re.Pattern[str]":
        """Compiled for the first text that has the words."""
        return re.compile(self.expression, re.IGNORECASE)


class RuleCombination(msgspec.Struct, frozen=True, kw_only=True):
    """Expressions that are dangerous in one paragraph, or in one block of code."""

    rule: str
    parts: tuple[str, ...]
    """Names of expressions (a fact of prose_facts.toml, or `code.NAME`) that must all match."""
    without: tuple[str, ...]
    """Names of expressions that must not match."""
    near: int
    """How many characters the parts may be apart."""
    is_rare_last: bool
    """The last part is the rarest: it is searched first."""
    foreign: bool
    """The paragraph or block must name a host that is neither local nor well known."""
    section: bool
    """The parts may be in different paragraphs below one heading."""
    severity: Severity
    note: str


@functools.cache
def _load_document() -> list[dict[str, object]]:
    text = files("kitbag.audit").joinpath("rules.toml").read_text("utf-8")
    return cast("list[dict[str, object]]", tomllib.loads(text)["rule"])


@functools.cache
def load_rules() -> dict[str, AuditRule]:
    """By id, in file order."""
    return {
        str(raw["id"]): AuditRule(**{field: cast("Any", raw[field]) for field in _RULE_FIELDS})
        for raw in _load_document()
    }


@functools.cache
def load_limits_alone() -> dict[str, Severity]:
    """For some rules, the maximum severity unless something else in the item makes it an attack."""
    return {str(raw["id"]): cast("Severity", raw["alone"]) for raw in _load_document() if "alone" in raw}


@functools.cache
def load_patterns() -> tuple[RulePattern, ...]:
    loaded: list[RulePattern] = []
    for raw in _load_document():
        for pattern in cast("list[dict[str, object]]", raw.get("pattern", [])):
            loaded.append(
                RulePattern(
                    rule=str(raw["id"]),
                    words=tuple(cast("list[str]", pattern["words"])),
                    expression=str(pattern["regex"]),
                    where=str(pattern["where"]),
                    severity=cast("Severity", pattern.get("severity", raw["severity"])),
                    confidence=cast("Confidence", pattern.get("confidence", raw["confidence"])),
                    max_example_severity=cast("Severity", pattern.get("example", "high")),
                    also=tuple(cast("list[str]", pattern.get("also", []))),
                )
            )
    return tuple(loaded)


@functools.cache
def load_combinations(kind: Literal["combination", "code"] = "combination") -> tuple[RuleCombination, ...]:
    """Those for paragraphs of prose, or those for code."""
    return tuple(
        RuleCombination(
            rule=str(raw["id"]),
            parts=parts,
            without=tuple(cast("list[str]", combination.get("without", []))),
            near=cast("int", combination.get("near", 600)),
            is_rare_last=bool(combination.get("rare_last", False)),
            foreign=bool(combination.get("foreign", False)),
            section=bool(combination.get("section", False)),
            severity=cast("Severity", combination.get("severity", "high")),
            note=str(combination.get("note", "")),
        )
        for raw in _load_document()
        for combination in cast("list[dict[str, object]]", raw.get(kind, []))
        for parts in itertools.product(*(part.split("|") for part in cast("list[str]", combination["parts"])))
    )
