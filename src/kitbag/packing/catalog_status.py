"""How each skill is listed in a model's catalog (described, shortened, by name, not at all), and why.

Compares what the library would list now with the catalog in the prompt, which is rebuilt only occasionally.
Reads every skill file: async callers run it in a thread. Used by `/skills`; uses catalog.
"""

from typing import Literal

import msgspec

from kitbag.library.registry import Registry
from kitbag.library.skills import Skill
from kitbag.library.untrusted_items import UntrustedItem
from kitbag.library.visibility import Verdict
from kitbag.packing.catalog import Budget, catalog_name, parse_catalog_lines, render_entry, render_skills
from kitbag.packing.skill_delivery import render_skill
from kitbag.text.human_format import shorten_home
from kitbag.text.tokens import estimate_tokens

CatalogListing = Literal["described", "shortened", "by name", "no"]
_SINCE = "since this session started"


class SkillStatus(msgspec.Struct, frozen=True, kw_only=True):
    skill: Skill
    verdict: Verdict
    listing: CatalogListing
    """In the model's current catalog."""
    reason: str
    """Empty if the skill is described and loadable."""
    listed_tokens: int
    """Tokens of its catalog line."""
    loaded_tokens: int
    """Tokens of what a model gets when it loads the skill."""

    @property
    def name(self) -> str:
        return self.skill.full_name


def skill_statuses(library: Registry, catalog: str, budget: Budget) -> list[SkillStatus]:
    """Sorted by name. `catalog`: the one in the prompt, empty if it has none. `budget`: for the next catalog."""
    current = parse_catalog_lines(catalog)
    fresh = parse_catalog_lines(render_skills(library.visible_skills(), budget).text)
    view = library.visibility_context()
    return [_skill_status(skill, library.evaluate(skill, view), current, fresh, budget) for skill in library.skills]


def skill_status(library: Registry, skill: Skill, catalog: str, budget: Budget) -> SkillStatus:
    fresh = parse_catalog_lines(render_skills(library.visible_skills(), budget).text)
    return _skill_status(skill, library.evaluate(skill), parse_catalog_lines(catalog), fresh, budget)


def _skill_status(
    skill: Skill, verdict: Verdict, current: dict[str, str], fresh: dict[str, str], budget: Budget
) -> SkillStatus:
    name = catalog_name(skill)
    line, next_line = current.get(name, ""), fresh.get(name, "")
    listing = _listing_of(skill, line, budget)
    reason = shorten_home(_explain(verdict, listing, _listing_of(skill, next_line, budget), has_catalog=bool(current)))
    listed = estimate_tokens(line) if line else 0
    return SkillStatus(
        skill=skill,
        verdict=verdict,
        listing=listing,
        reason=reason,
        listed_tokens=listed,
        loaded_tokens=estimate_tokens(render_skill(skill).text),
    )


def _listing_of(skill: Skill, line: str, budget: Budget) -> CatalogListing:
    if not line:
        return "no"
    if line == f"- {catalog_name(skill)}":
        return "by name"
    return "described" if line == render_entry(skill, budget.entry) else "shortened"


def _explain(verdict: Verdict, listing: CatalogListing, next_listing: CatalogListing, *, has_catalog: bool) -> str:
    if listing != next_listing and listing == "no" and has_catalog:
        return f"added or enabled {_SINCE}; the model was notified and can load it"
    if listing != "no" and next_listing == "no":
        return f"{verdict.reason or 'no longer fits'}; listed until the prompt is rebuilt"
    if next_listing == "by name" and listing in ("described", "shortened"):
        return f"{verdict.reason or 'no longer fits'}, once the prompt is rebuilt"
    if listing != "described" and next_listing == "described":
        return f"changed or enabled {_SINCE}" if has_catalog else "this agent's prompt has no catalog"
    if verdict.reason:
        return verdict.reason
    if listing == "shortened":
        return f"truncated: over the catalog's budget for descriptions, or changed {_SINCE}"
    if listing == "by name":
        return "name only: over the catalog's budget for descriptions; still suggested for matching messages"
    if listing == "no":
        cause = "over the catalog's budget for names" if has_catalog else "this agent's prompt has no catalog"
        return f"omitted: {cause}; can be loaded by name"
    return ""


def skills_awaiting_trust(library: Registry) -> list[UntrustedItem]:
    """Skills of an untrusted workspace that trust would make available."""
    if not library.omit_project:
        return []
    return [item for item in library.untrusted_items() if item.kind in ("skill", "command")]
