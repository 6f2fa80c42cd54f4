"""Preloaded skills: those that an agent file names under `skills:`, in declared order, before the agent's body.

Each skill is included whole or not at all; an unknown name or a skill that does not fit is a warning. Its references
are resolved where that is allowed. Used by agent_prompt, and by pack, which charges them first; uses skill_delivery.
"""

from collections.abc import Callable

import msgspec

from kitbag.errors import Diagnostic, KitbagError, first_diagnostics
from kitbag.ledger import Entry, full_entry
from kitbag.library.agents import AgentFile
from kitbag.library.registry import Registry
from kitbag.library.skills import Skill
from kitbag.packing.skill_delivery import RenderedSkill, render_skill
from kitbag.text.frontmatter import find_field_line

PreparePreload = Callable[[Skill, str, int], tuple[str, tuple[Diagnostic, ...]]]
"""(skill, its body, the line at which the body starts) -> (text to include, warnings)."""


class PreloadedSkills(msgspec.Struct, frozen=True, kw_only=True):
    skills: tuple[Skill, ...]
    entries: tuple[Entry, ...]
    warnings: tuple[Diagnostic, ...]

    @property
    def tokens(self) -> int:
        return sum(entry.tokens for entry in self.entries)


def skills_budget(agent: AgentFile, registry: Registry) -> int:
    """The agent file's `token-budget`, or the setting."""
    declared = None
    if agent.skills:
        from kitbag.packing.fit import declared_budget

        declared = declared_budget(agent)
    return int(registry.settings.get("budget.skills")) if declared is None else declared


def preload_skills(
    agent: AgentFile,
    registry: Registry,
    limit: int,
    count: Callable[[str], int],
    prepare: PreparePreload | None = None,
    find_denial: Callable[[Skill], str] = lambda skill: "",
) -> PreloadedSkills:
    """`prepare`: resolves references; without it, commands stay text. `find_denial`: why rules deny a skill, or
    empty."""
    prepare = prepare or (_reading_prepare(registry) if agent.skills else None)
    named, warnings = _find_preloads(agent, registry, find_denial)
    skills: list[Skill] = []
    entries: list[Entry] = []
    remaining = limit
    for name, skill in named:
        entry, problems = _make_entry(skill, prepare, remaining, count)
        warnings += problems
        if entry is None:
            warnings.append(_not_preloaded(agent, name, "cannot read file", "fix the file"))
            continue
        if entry.tokens > remaining:
            problem = f"it needs {entry.tokens:,} tokens, more than is left of the skills budget of {limit:,}"
            warnings.append(_not_preloaded(agent, name, problem, "raise budget.skills"))
            reason = "over the skills budget; preloads are never truncated"
            entries.append(
                msgspec.structs.replace(
                    entry, text="", tokens=0, tokens_cut=entry.tokens, status="omitted", reason=reason
                )
            )
            continue
        remaining -= entry.tokens
        skills.append(skill)
        entries.append(entry)
    return PreloadedSkills(skills=tuple(skills), entries=tuple(entries), warnings=tuple(first_diagnostics(warnings)))


def _find_preloads(
    agent: AgentFile, registry: Registry, find_denial: Callable[[Skill], str] = lambda skill: ""
) -> tuple[list[tuple[str, Skill]], list[Diagnostic]]:
    """The skills that it names and may preload, each once with the name, and why it gets no others."""
    found: dict[str, tuple[str, Skill]] = {}
    warnings: list[Diagnostic] = []
    for name in agent.skills:
        try:
            skill = _find_skill(name, agent, registry)
        except KitbagError as error:
            warnings.append(_not_preloaded(agent, name, error.problem, error.fix))
            continue
        verdict = registry.evaluate(skill)
        if not verdict.preload:
            problem = verdict.reason or "it is not available to agents"
            warnings.append(_not_preloaded(agent, name, problem, "make it available, or remove it from `skills:`"))
        elif denial := find_denial(skill):
            fix = "change the rule, or remove it from `skills:`"
            warnings.append(_not_preloaded(agent, name, f"your rules deny it: {denial}", fix))
        else:
            found.setdefault(skill.full_name, (name, skill))
    return list(found.values()), warnings


def _not_preloaded(agent: AgentFile, name: str, problem: str, fix: str) -> Diagnostic:
    return Diagnostic(
        severity="warning",
        code="preload",
        file=agent.path,
        line=find_field_line(agent.path, "skills", agent.root.boundary),
        problem=f"the skill {name!r} is not preloaded: {problem}",
        fix=fix,
    )


def _make_entry(
    skill: Skill, prepare: PreparePreload | None, remaining: int, count: Callable[[str], int]
) -> tuple[Entry | None, tuple[Diagnostic, ...]]:
    """With references resolved if that fits. None if the file can't be read."""
    delivery, problems = _render(skill, prepare)
    if any(problem.severity == "error" for problem in delivery.problems):
        return None, problems
    entry = full_entry("preload", skill.path, delivery.text + "\n\n", count, skill.root.scope, "L1")
    if entry.tokens > remaining and (literal := _render(skill, None)[0]).text != delivery.text:
        shorter = full_entry("preload", skill.path, literal.text + "\n\n", count, skill.root.scope, "L1")
        if shorter.tokens <= remaining:
            problem = f"its references need {entry.tokens - shorter.tokens:,} tokens and stay as written"
            return shorter, (*literal.problems, _over_budget(skill, f"{problem}: over the skills budget"))
    return entry, problems


def _render(skill: Skill, prepare: PreparePreload | None) -> tuple[RenderedSkill, tuple[Diagnostic, ...]]:
    """The block, and all problems with it."""
    found: list[Diagnostic] = []

    def prepared(body: str, first_line: int) -> str:
        assert prepare is not None
        text, warnings = prepare(skill, body, first_line)
        found.extend(warnings)
        return text

    rendered = render_skill(skill, prepare=prepared if prepare is not None else None)
    return rendered, (*rendered.problems, *found)


def _over_budget(skill: Skill, problem: str) -> Diagnostic:
    return Diagnostic(
        severity="warning", code="preload", file=skill.path, line=0, problem=problem, fix="raise budget.skills"
    )


def _reading_prepare(registry: Registry) -> PreparePreload:
    from kitbag.packing.prepare_skill import reading_preparer

    return reading_preparer(registry).prepare_preload


def _find_skill(name: str, agent: AgentFile, registry: Registry) -> Skill:
    """A plugin's agent searches its own plugin first."""
    if agent.root.plugin:
        own = registry.skills.get_exact(f"{agent.root.plugin}:{name}")
        if own is not None:
            return own
    return registry.find_skill(name)
