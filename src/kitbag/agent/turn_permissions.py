"""Permissions of one turn: those of the run, plus what the active skills allow and the user's message asks for, minus
what the skills forbid.

Used by execute for every decision about a call. session_skills tracks the active skills and clears them with each user
message; nothing is stored, so a resumed session has none.
"""

import re
from collections.abc import Iterable

from kitbag.packing.session_skills import SessionSkills
from kitbag.packing.skill_permissions import SkillPermissions
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.decisions.policy import NON_ASKING_MODES
from kitbag.permissions.rules.rule import COMPANION_TOOLS, PermissionRule, parse_rule


class TurnPermissions:
    def __init__(self, skills: SessionSkills) -> None:
        self._skills = skills
        self._announced: list[SkillPermissions] = []
        self._mentioned: tuple[str, ...] = ()
        """Agents that the user's message mentions."""
        self._cached: tuple[Permissions, object, Permissions] | None = None

    def mention_agents(self, names: Iterable[str]) -> None:
        """The user asks for these agents in this turn: modes that ask start them without a question, if read-only."""
        self._mentioned = (*self._mentioned, *names)

    def _mentioned_rules(self) -> tuple[PermissionRule, ...]:
        """For those that are read-only now: another file may have taken the name since."""
        rules: list[PermissionRule] = []
        for name in self._mentioned:
            agent = self._skills.library.agents.get_exact(name)
            # Other names could match more than themselves.
            if agent is not None and agent.permission_mode == "plan" and re.fullmatch(r"[\w:./-]+", name):
                rules.append(parse_rule(f"Task({name})", "allow", "the user's message", "session", "/"))
        return tuple(rules)

    def apply_to(self, base: Permissions) -> Permissions:
        """Deny and ask rules still win, and limits hold: see permissions/decisions/decide."""
        active = self._skills.active_permissions()
        requested = self._mentioned_rules() if self._mentioned and base.mode not in NON_ASKING_MODES else ()
        if not active and not requested:
            return base
        if self._cached is not None and self._cached[0] is base and self._cached[1] == (active, requested):
            return self._cached[2]
        permissions = base.with_rules((*(rule for skill in active for rule in skill.grants), *requested))
        for skill in active:
            if skill.tool_limit is not None:
                permissions = permissions.restricted_to(skill.tool_limit, skill.source)
        self._cached = (base, (active, requested), permissions)
        return permissions

    def blocked_reason(self, tool: str) -> str:
        """Why a tool is blocked at the moment; empty if it is not."""
        for skill in self._skills.active_permissions():
            limit = skill.tool_limit
            if limit is not None and not limit.allows(tool) and not (tool in COMPANION_TOOLS and limit.allows("Skill")):
                return f"{tool} can't be used now: the skill {skill.skill} is in use, and {skill.describe_limit()}"
        return ""

    def take_new(self) -> list[SkillPermissions]:
        """Skills that became active since the last call and that the user did not load themselves."""
        new = [
            skill
            for skill in self._skills.active_permissions()
            if skill.requested_by != "user" and skill not in self._announced
        ]
        self._announced += new
        return new
