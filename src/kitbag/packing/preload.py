"""Preloaded skills: those that an agent file names under `skills:`, in declared order, before the agent's body.

Each skill is included whole or not at all; an unknown name or a skill that does not fit is a warning. Used by
agent_prompt, and by pack, which charges them first; uses skill_delivery.
"""

from collections.abc import Callable

import msgspec

from kitbag.errors import Diagnostic, KitbagError, first_diagnostics
from kitbag.ledger import Entry, full_entry
from kitbag.library.agents import AgentFile
from kitbag.library.registry import Registry
from kitbag.library.skills import Skill
from kitbag.packing.skill_delivery import render_skill
from kitbag.text.frontmatter import find_field_line


class PreloadedSkills(msgspec.Struct, frozen=True, kw_only=True):
    skills: tuple[Skill, ...]
    entries: tuple[Entry, ...]
    warnings: tuple[Diagnostic, ...]

    @property
    def tokens(self) -> int:
        return sum(entry.tokens for entry in self.entries)


def declared_budget(agent: AgentFile) -> int | None:
    """The token budget for skills in an agent file; None: the setting applies."""
    value = agent.extra.get("token-budget") or agent.extra.get("token_budget")
    if value is None:
        return None
    from kitbag.packing.fit import parse_token_count

    return parse_token_count(value)


def skills_budget(agent: AgentFile, registry: Registry) -> int:
    declared = declared_budget(agent)
    return int(registry.settings.get("budget.skills")) if declared is None else declared


def preload_skills(agent: AgentFile, registry: Registry, limit: int, count: Callable[[str], int]) -> PreloadedSkills:
    skills: dict[str, Skill] = {}
    entries: list[Entry] = []
    warnings: list[Diagnostic] = []
    remaining = limit

    def warn(name: str, problem: str, fix: str) -> None:
        message = f"the skill {name!r} is not preloaded: {problem}"
        warnings.append(
            Diagnostic(
                severity="warning",
                code="preload",
                file=agent.path,
                line=find_field_line(agent.path, "skills", agent.root.boundary),
                problem=message,
                fix=fix,
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
            warn(
                name,
                verdict.reason or "it is not available to agents",
                "make it available, or remove it from `skills:`",
            )
            continue
        delivery = render_skill(skill)
        warnings += delivery.problems
        if any(problem.severity == "error" for problem in delivery.problems):
            warn(name, "cannot read file", "fix the file")
            continue
        entry = full_entry("preload", skill.path, delivery.text + "\n\n", count, skill.root.scope, "L1")
        if entry.tokens > remaining:
            problem = f"it needs {entry.tokens:,} tokens; the skills budget has {max(remaining, 0):,} left"
            warn(name, problem, "raise budget.skills")
            reason = "over the skills budget; preloads are never truncated"
            entries.append(
                msgspec.structs.replace(
                    entry, text="", tokens=0, tokens_cut=entry.tokens, status="omitted", reason=reason
                )
            )
            continue
        remaining -= entry.tokens
        skills[skill.full_name] = skill
        entries.append(entry)
    return PreloadedSkills(
        skills=tuple(skills.values()), entries=tuple(entries), warnings=tuple(first_diagnostics(warnings))
    )


def _find_skill(name: str, agent: AgentFile, registry: Registry) -> Skill:
    """A plugin's agent searches its own plugin first."""
    if agent.root.plugin:
        own = registry.skills.get_exact(f"{agent.root.plugin}:{name}")
        if own is not None:
            return own
    return registry.find_skill(name)
