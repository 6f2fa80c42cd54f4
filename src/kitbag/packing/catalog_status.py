"""How each skill stands towards a model: described, shortened, by name, or not in its catalog at all, and why.

Used by `/skills`. Holds what the library would show now against the catalog that stands in the prompt, which is made
anew only now and then. Reads every skill's file: a caller with a loop uses a thread.
"""

from typing import Literal, NamedTuple

from kitbag.library.registry import Registry
from kitbag.library.skill_files import read_skill_body
from kitbag.library.skills import Skill
from kitbag.library.untrusted_items import LeftOut
from kitbag.library.visibility import Verdict
from kitbag.packing.catalog import Budget, entry_of, listed_in, name_in_list, render_skills
from kitbag.text.human_format import short_home
from kitbag.text.tokens import estimate_tokens

Shown = Literal["described", "shortened", "by name", "no"]
_SINCE = "since this conversation began"


class Standing(NamedTuple):
    skill: Skill
    verdict: Verdict
    shown: Shown
    """In the catalog that the model has."""
    why: str
    """Empty: it is described, and nothing stands in its way."""
    listed_tokens: int
    """What its line in that catalog costs."""
    body_tokens: int
    """What it costs when it is loaded."""

    @property
    def name(self) -> str:
        return self.skill.full_name


def standings(library: Registry, catalog: str, budget: Budget) -> list[Standing]:
    """In the order of their names. `catalog`: as the prompt has it, empty where it has none; `budget`: by which the
    next one is made."""
    there = listed_in(catalog)
    fresh = listed_in(render_skills(library.visible_skills(), budget).text)
    view = library.view()
    return [_standing(skill, library.judge(skill, view), there, fresh, budget) for skill in library.skills]


def standing_of(library: Registry, skill: Skill, catalog: str, budget: Budget) -> Standing:
    fresh = listed_in(render_skills(library.visible_skills(), budget).text)
    return _standing(skill, library.judge(skill), listed_in(catalog), fresh, budget)


def _standing(skill: Skill, verdict: Verdict, there: dict[str, str], fresh: dict[str, str], budget: Budget) -> Standing:
    name = name_in_list(skill)
    line, next_line = there.get(name, ""), fresh.get(name, "")
    shown = _shown(skill, line, budget)
    why = short_home(_why(verdict, shown, _shown(skill, next_line, budget), has_catalog=bool(there)))
    listed = estimate_tokens(line) if line else 0
    return Standing(skill, verdict, shown, why, listed, estimate_tokens(read_skill_body(skill).text))


def _shown(skill: Skill, line: str, budget: Budget) -> Shown:
    if not line:
        return "no"
    if line == f"- {name_in_list(skill)}":
        return "by name"
    return "described" if line == entry_of(skill, budget.entry) else "shortened"


def _why(verdict: Verdict, shown: Shown, next_shown: Shown, *, has_catalog: bool) -> str:
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


def left_out_skills(library: Registry) -> list[LeftOut]:
    """Of a workspace that is not trusted: what would be there if it were."""
    if not library.leave_out_project:
        return []
    return [item for item in library.left_out() if item.kind in ("skill", "command")]
