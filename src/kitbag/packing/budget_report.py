"""How the catalog's budget is spent: which skills are described, shortened, listed by name or omitted, and why.

For a session that starts now. Used by `kitbag skills budget`; uses catalog, which decides.
"""

from typing import Any, Literal

import msgspec

from kitbag.library.registry import Registry
from kitbag.library.skills import Skill
from kitbag.library.visibility import Verdict
from kitbag.packing.catalog import Budget, catalog_name, parse_catalog_lines, render_entry, render_skills
from kitbag.text.tokens import estimate_tokens

BudgetListing = Literal["described", "shortened", "by name", "omitted", "hidden"]


class BudgetRow(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    listing: BudgetListing
    reason: str
    """Empty if the skill is described."""
    characters: int
    """Of its line in the catalog."""
    wanted: int
    """Of its line with the whole description."""

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "listing": self.listing,
            "reason": self.reason,
            "characters": self.characters,
            "wanted": self.wanted,
        }


class BudgetReport(msgspec.Struct, frozen=True, kw_only=True):
    budget: Budget
    rows: tuple[BudgetRow, ...]
    descriptions: int
    """Characters of descriptions in the catalog."""
    names: int
    tokens: int
    """Of the whole catalog."""

    def count(self, listing: BudgetListing) -> int:
        return sum(row.listing == listing for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        listings: tuple[BudgetListing, ...] = ("described", "shortened", "by name", "omitted", "hidden")
        return {
            "descriptions": {"used": self.descriptions, "limit": self.budget.descriptions},
            "names": {"used": self.names, "limit": self.budget.names},
            "entry": self.budget.entry,
            "tokens": self.tokens,
            "counts": {listing: self.count(listing) for listing in listings},
            "skills": [row.to_json() for row in self.rows],
        }


def report_budget(library: Registry, budget: Budget) -> BudgetReport:
    catalog = render_skills(library.visible_skills(), budget).text
    lines = parse_catalog_lines(catalog)
    view = library.visibility_context()
    rows = [
        _row(skill, library.evaluate(skill, view), lines.get(catalog_name(skill), ""), budget)
        for skill in library.skills
    ]
    names = sum(map(len, lines))
    descriptions = sum(len(line) - len(name) - len("- : ") for name, line in lines.items() if line != f"- {name}")
    return BudgetReport(
        budget=budget,
        rows=tuple(rows),
        descriptions=descriptions,
        names=names,
        tokens=estimate_tokens(catalog) if catalog else 0,
    )


def _row(skill: Skill, verdict: Verdict, line: str, budget: Budget) -> BudgetRow:
    whole = render_entry(skill, 1_000_000)
    listing, reason = _explain(skill, verdict, line, whole, budget)
    return BudgetRow(
        name=skill.full_name, listing=listing, reason=reason, characters=len(line), wanted=len(whole) if line else 0
    )


def _explain(skill: Skill, verdict: Verdict, line: str, whole: str, budget: Budget) -> tuple[BudgetListing, str]:
    if not verdict.listed:
        return "hidden", verdict.reason
    if not line:
        return "omitted", f"over catalog.names ({budget.names:,} characters); found by search, and loaded by name"
    if line == whole:
        return "described", ""
    if line != f"- {catalog_name(skill)}":
        if line == render_entry(skill, budget.entry):
            return "shortened", f"longer than catalog.entry ({budget.entry:,} characters)"
        return (
            "shortened",
            f"all descriptions together exceed catalog.descriptions ({budget.descriptions:,} characters)",
        )
    if not verdict.described:
        return "by name", verdict.reason
    if not skill.summary:
        return "by name", "it has no description"
    return "by name", f"no room in catalog.descriptions ({budget.descriptions:,} characters); suggested when it matches"
