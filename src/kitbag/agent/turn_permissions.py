"""The rights of one turn: those of the run, with what the skills in use allow, less what they take away.

Used by the executor, for every decision about a call. What skills are in use is known by session_skills, which forgets
it when the person speaks; nothing of it is kept, so a resumed session has none.
"""

from kitbag.packing.session_skills import SessionSkills
from kitbag.packing.skill_permissions import SkillPermissions
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.rules.rule import COMPANION_TOOLS


class TurnPermissions:
    def __init__(self, skills: SessionSkills) -> None:
        self._skills = skills
        self._announced: list[SkillPermissions] = []
        self._cached: tuple[Permissions, tuple[SkillPermissions, ...], Permissions] | None = None

    def apply_to(self, base: Permissions) -> Permissions:
        """Rules that deny or ask still win, and so do limits: see permissions/decide."""
        in_use = self._skills.active_permissions()
        if not in_use:
            return base
        if self._cached is not None and self._cached[0] is base and self._cached[1] == in_use:
            return self._cached[2]
        made = base.with_rules(rule for one in in_use for rule in one.grants)
        for one in in_use:
            if one.tool_limit is not None:
                made = made.restricted_to(one.tool_limit, one.source)
        self._cached = (base, in_use, made)
        return made

    def blocked_reason(self, tool: str) -> str:
        """Why a tool can't be used at all for now; empty when it can."""
        for one in self._skills.active_permissions():
            limit = one.tool_limit
            if limit is not None and not limit.allows(tool) and not (tool in COMPANION_TOOLS and limit.allows("Skill")):
                return f"{tool} can't be used now: the skill {one.skill} is in use, and {one.describe_limit()}"
        return ""

    def take_new(self) -> list[SkillPermissions]:
        """What came into use since this was asked last, for the person, who heard of what they asked for."""
        found = [
            one
            for one in self._skills.active_permissions()
            if one.requested_by != "user" and one not in self._announced
        ]
        self._announced += found
        return found
