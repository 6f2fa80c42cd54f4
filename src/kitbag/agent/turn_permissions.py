"""The rights of one turn: those of the run, with what the skills in use allow, less what they take away.

Used by the executor, for every decision about a call. What skills are in use is known by session_skills, which forgets
it when the person speaks; nothing of it is kept, so a resumed session has none.
"""

from kitbag.packing.session_skills import SessionSkills
from kitbag.packing.skill_permissions import SkillRights
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.rules.rule import COMPANIONS


class TurnRights:
    def __init__(self, skills: SessionSkills) -> None:
        self._skills = skills
        self._told: list[SkillRights] = []
        self._made: tuple[Permissions, tuple[SkillRights, ...], Permissions] | None = None

    def permissions(self, base: Permissions) -> Permissions:
        """Rules that deny or ask still win, and so do limits: see permissions/decide."""
        in_use = self._skills.in_use()
        if not in_use:
            return base
        if self._made is not None and self._made[0] is base and self._made[1] == in_use:
            return self._made[2]
        made = base.with_rules(rule for one in in_use for rule in one.grants)
        for one in in_use:
            if one.limit is not None:
                made = made.narrowed(one.limit, one.source)
        self._made = (base, in_use, made)
        return made

    def closed(self, tool: str) -> str:
        """Why a tool can't be used at all for now; empty when it can."""
        for one in self._skills.in_use():
            limit = one.limit
            if limit is not None and not limit.allows(tool) and not (tool in COMPANIONS and limit.allows("Skill")):
                return f"{tool} can't be used now: the skill {one.skill} is in use, and {one.limit_in_words()}"
        return ""

    def news(self) -> list[SkillRights]:
        """What came into use since this was asked last, for the person, who heard of what they asked for."""
        found = [one for one in self._skills.in_use() if one.by != "user" and one not in self._told]
        self._told += found
        return found
