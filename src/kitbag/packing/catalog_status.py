"""How each skill stands towards a model: described, shortened, by name, or not in its catalog at all, and why.

Used by `/skills`. Holds what the library would show now against the catalog that stands in the prompt, which is made
anew only now and then. Reads every skill's file: a caller with a loop uses a thread.
"""

from typing import Literal, NamedTuple

from kitbag.library.registry import Registry
from kitbag.library.skill_files import read_skill_body
from kitbag.library.skills import Skill
from kitbag.library.untrusted_items import UntrustedItem
from kitbag.library.visibility import Verdict
from kitbag.packing.catalog import Budget, catalog_name, parse_catalog_lines, render_entry, render_skills
from kitbag.text.human_format import shorten_home
from kitbag.text.tokens import estimate_tokens

CatalogListing = Literal["described", "shortened", "by name", "no"]
_SINCE = "since this conversation began"


class SkillStatus(NamedTuple):
    skill: Skill
    verdict: Verdict
    listing: CatalogListing
    """In the catalog that the model has."""
    reason: str
    """Empty: it is described, and nothing stands in its way."""
    listed_tokens: int
    """What its line in that catalog costs."""
    body_tokens: int
    """What it costs when it is loaded."""

    @property
    def name(self) -> str:
        return self.skill.full_name


def skill_statuses(library: Registry, catalog: str, budget: Budget) -> list[SkillStatus]:
    """In the order of their names. `catalog`: as the prompt has it, empty where it has none; `budget`: by which the
    next one is made."""
    there = parse_catalog_lines(catalog)
    fresh = parse_catalog_lines(render_skills(library.visible_skills(), budget).text)
    view = library.visibility_context()
    return [_skill_status(skill, library.evaluate(skill, view), there, fresh, budget) for skill in library.skills]


def skill_status(library: Registry, skill: Skill, catalog: str, budget: Budget) -> SkillStatus:
    fresh = parse_catalog_lines(render_skills(library.visible_skills(), budget).text)
    return _skill_status(skill, library.evaluate(skill), parse_catalog_lines(catalog), fresh, budget)


def _skill_status(
    skill: Skill, verdict: Verdict, there: dict[str, str], fresh: dict[str, str], budget: Budget
) -> SkillStatus:
    name = catalog_name(skill)
    line, next_line = there.get(name, ""), fresh.get(name, "")
    shown = _listing_of(skill, line, budget)
    why = shorten_home(_explain(verdict, shown, _listing_of(skill, next_line, budget), has_catalog=bool(there)))
    listed = estimate_tokens(line) if line else 0
    return SkillStatus(skill, verdict, shown, why, listed, estimate_tokens(read_skill_body(skill).text))


def _listing_of(skill: Skill, line: str, budget: Budget) -> CatalogListing:
    if not line:
        return "no"
    if line == f"- {catalog_name(skill)}":
        return "by name"
    return "described" if line == render_entry(skill, budget.entry) else "shortened"


def _explain(verdict: Verdict, shown: CatalogListing, next_shown: CatalogListing, *, has_catalog: bool) -> str:
    if shown != next_shown and shown == "no" and has_catalog:
        return f"it came, or was switched on, {_SINCE}: the model was told, and can load it"
    if shown != "no" and next_shown == "no":
        return f"{verdict.reason or 'it does not fit any more'}; the prompt still names it until it is made anew"
    if next_shown == "by name" and shown in ("described", "shortened"):
        return f"{verdict.reason or 'no room for it any more'}, once the prompt is made anew"
    if shown != "described" and next_shown == "described":
        return f"it was changed or switched on {_SINCE}" if has_catalog else "this agent's prompt has no catalog"
    if verdict.reason:
        return verdict.reason
    if shown == "shortened":
        return "shortened: the catalog's budget for descriptions, or what it says was changed since"
    if shown == "by name":
        return "left by name: the catalog's budget for descriptions; words that fit still suggest it"
    if shown == "no":
        why = "the catalog's budget for names" if has_catalog else "this agent's prompt has no catalog"
        return f"left out: {why}; it can be loaded by its name"
    return ""


def skills_awaiting_trust(library: Registry) -> list[UntrustedItem]:
    """Of a workspace that is not trusted: what would be there if it were."""
    if not library.omit_project:
        return []
    return [item for item in library.untrusted_items() if item.kind in ("skill", "command")]
