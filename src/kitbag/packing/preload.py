"""Skills that an agent file names under `skills:`: whole, in declared order, before the agent's own body.

All or nothing for each: an unknown name or one that does not fit is a warning, never a piece. Used by
compose for an agent's prompt and by pack, which charges them first.
"""

from collections.abc import Callable
from typing import NamedTuple

from kitbag.errors import Diagnostic, KitbagError
from kitbag.ledger import Entry, full_entry
from kitbag.library.agents import AgentFile
from kitbag.library.registry import Registry
from kitbag.library.skills import Skill
from kitbag.packing.skill_delivery import render_skill
from kitbag.text.frontmatter import find_field_line


class PreloadedSkills(NamedTuple):
    skills: tuple[Skill, ...]
    entries: tuple[Entry, ...]
    warnings: tuple[Diagnostic, ...]

    @property
    def tokens(self) -> int:
        return sum(entry.tokens for entry in self.entries)


def preload_skills(agent: AgentFile, registry: Registry, limit: int, count: Callable[[str], int]) -> PreloadedSkills:
    skills: dict[str, Skill] = {}
    entries: list[Entry] = []
    warnings: list[Diagnostic] = []
    left = limit

    def warn(name: str, problem: str, fix: str) -> None:
        what = f"the skill {name!r} is not preloaded: {problem}"
        warnings.append(
            Diagnostic(
                "warning", "preload", agent.path, find_field_line(agent.path, "skills", agent.root.boundary), what, fix
            )
        )

    for name in agent.skills:
        try:
            skill = _find_skill(name, agent, registry)
        except KitbagError as error:
            warn(name, error.problem, error.fix)
            continue
        if skill.full_name in skills:
            continue
        verdict = registry.evaluate(skill)
        if not verdict.preload:
            warn(name, verdict.reason or "it is closed to agents", "open it, or remove it from `skills:`")
            continue
        delivery = render_skill(skill)
        warnings += delivery.problems
        if any(problem.severity == "error" for problem in delivery.problems):
            warn(name, "it can't be read", "mend the file")
            continue
        entry = full_entry("preload", skill.path, delivery.text + "\n\n", count, skill.root.scope, "L1")
        if entry.tokens > left:
            room = f"{entry.tokens:,} tokens, and {max(left, 0):,} are left of the skills budget"
            warn(name, room, "raise budget.skills")
            why = "over the skills budget; preloads are never cut"
            entries.append(entry._replace(text="", tokens=0, tokens_cut=entry.tokens, status="omitted", reason=why))
            continue
        left -= entry.tokens
        skills[skill.full_name] = skill
        entries.append(entry)
    return PreloadedSkills(tuple(skills.values()), tuple(entries), tuple(warnings))


def _find_skill(name: str, agent: AgentFile, registry: Registry) -> Skill:
    """A plugin's agent looks in its own plugin first."""
    if agent.root.plugin:
        own = registry.skills.get_exact(f"{agent.root.plugin}:{name}")
        if own is not None:
            return own
    return registry.find_skill(name)
