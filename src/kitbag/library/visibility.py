"""The one rule that decides who may see and use an item: listing, search, loading, preloading and spawning ask it.

It joins the state a person gave an item (on, name-only, user-only, off), what the file itself allows,
the chosen team and persona, and the agent that asks. Used by the registry; pure, holds no state.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from kitbag.library.names import normalize_name
from kitbag.library.skills import NO_MODEL, NO_USER, Skill, is_path_activated
from kitbag.settings import ItemState, SourcedValue

if TYPE_CHECKING:
    from kitbag.library.agents import AgentFile
    from kitbag.library.dialects.tool_lists import ToolAccess
    from kitbag.library.personas import Persona


class Verdict(NamedTuple):
    """Four separate axes, and why an axis is closed."""

    listed: bool
    """In the catalog a model starts with."""
    described: bool
    """With its description, where the budget allows."""
    model: bool
    """A model may load or spawn it by name."""
    user: bool
    """A person may invoke it."""
    preload: bool
    """An agent file may name it in `skills:`."""
    searchable: bool
    """Search may find it for a model."""
    state: ItemState
    reason: str

    @property
    def is_usable(self) -> bool:
        return self.model or self.user or self.preload


FULLY_VISIBLE = Verdict(True, True, True, True, True, True, "on", "")


def _hidden(state: ItemState, reason: str) -> Verdict:
    return Verdict(False, False, False, False, False, False, state, reason)


class VisibilityContext(NamedTuple):
    """Who looks: chosen once a session."""

    team: str = ""
    persona: "Persona | None" = None
    states: "dict[str, SourcedValue]" = {}  # noqa: RUF012 - never changed
    agent_tools: "ToolAccess | None" = None
    """The tools of the subagent that asks; None for the main loop."""


def evaluate_skill(skill: Skill, context: VisibilityContext) -> Verdict:
    state, source = _configured_state(skill.full_name, context)
    if state == "off":
        return _hidden("off", f"switched off in {source}")
    verdict = FULLY_VISIBLE._replace(state=state)
    if skill.team:
        verdict = _apply_team(skill, context, verdict)
        if not verdict.is_usable:
            return verdict
    if state == "user-only" or skill.flags & NO_MODEL:
        why = f"for the user only, by {source}" if state == "user-only" else "disable-model-invocation in its file"
        verdict = verdict._replace(
            listed=False, described=False, model=False, preload=False, searchable=False, reason=why
        )
    elif state == "name-only":
        verdict = verdict._replace(described=False, reason=f"name only, by {source}")
    elif verdict.described and is_path_activated(skill):
        verdict = verdict._replace(described=False, reason="described when a file is used that its `paths` match")
    if skill.flags & NO_USER:
        verdict = verdict._replace(user=False, reason=verdict.reason or "user-invocable is false in its file")
    why = _agent_restriction(skill, context.agent_tools)
    if why:
        verdict = verdict._replace(listed=False, described=False, model=False, searchable=False, reason=why)
    return verdict


def _agent_restriction(skill: Skill, tools: "ToolAccess | None") -> str:
    """Why the agent that asks may not load it. `Skill(name)` in its tools opens that one alone."""
    if tools is None:
        return ""
    if not tools.allows("Skill"):
        return "the agent has no Skill tool"
    rules = [rule for rule in tools.specifiers if rule.startswith("Skill(")]
    opened = [rule[6:-1].split(" ")[0].removesuffix(":*").strip() for rule in rules]
    return "the agent's tools name other skills" if opened and not is_named_in(skill, tuple(opened)) else ""


def evaluate_skills(skills: "Iterable[Skill]", context: VisibilityContext) -> "list[tuple[Skill, Verdict]]":
    """judge_skill for many, at the cost of one question where nothing is special about a skill."""
    if context.states or context.agent_tools is not None:
        return [(skill, evaluate_skill(skill, context)) for skill in skills]
    return [(skill, evaluate_skill(skill, context) if skill.flags or skill.team else FULLY_VISIBLE) for skill in skills]


def evaluate_agent(
    agent: "AgentFile", context: VisibilityContext, named_by_skills: frozenset[str] = frozenset()
) -> Verdict:
    """`named_by_skills`: agents that a visible skill lists under `subagents:`, in lower case."""
    state, source = _configured_state(agent.full_name, context)
    if state == "off":
        return _hidden("off", f"switched off in {source}")
    if agent.disabled:
        return _hidden("off", "disabled in its file")
    verdict = FULLY_VISIBLE._replace(state=state)
    if agent.team and not _is_agent_in_team(agent, context, named_by_skills):
        chosen = context.persona.full_name if context.persona else context.team
        why = f"not one of {chosen}'s" if chosen else f"belongs to team {agent.team}; choose a persona"
        return _hidden(state, why)._replace(user=not chosen)
    if state == "user-only" or not agent.model_invocable:
        why = f"for the user only, by {source}" if state == "user-only" else "its file keeps it from models"
        verdict = verdict._replace(listed=False, described=False, model=False, searchable=False, reason=why)
    elif state == "name-only":
        verdict = verdict._replace(described=False, reason=f"name only, by {source}")
    if agent.hidden:
        verdict = verdict._replace(listed=False, described=False, reason=verdict.reason or "hidden in its file")
    if not agent.user_invocable:
        verdict = verdict._replace(user=False)
    return verdict


def _configured_state(full_name: str, context: VisibilityContext) -> tuple[ItemState, str]:
    if not context.states:
        return "on", ""
    name = full_name.lower()
    found = context.states.get(name)
    if found is None and not name.isascii():  # an accent can be stored in two ways
        found = next(
            (state for key, state in context.states.items() if normalize_name(key) == normalize_name(name)), None
        )
    return (found.value, found.source) if found else ("on", "")


def _apply_team(skill: Skill, context: VisibilityContext, verdict: Verdict) -> Verdict:
    """A team's skill: in the catalog for its persona, by full name when nobody chose, else not there."""
    persona = context.persona
    if not context.team and not (persona and is_named_in(skill, persona.declared_skills)):
        why = f"belongs to team {skill.team}: load it as {skill.full_name}, or choose a persona"
        return verdict._replace(listed=False, described=False, searchable=False, reason=why)
    if context.team and normalize_name(context.team) != normalize_name(skill.team):
        return _hidden(verdict.state, f"belongs to team {skill.team}, not {context.team}")
    if persona is None:
        if skill.group == "core":
            return verdict
        why = f"no persona of {skill.team} is chosen: load it as {skill.full_name}"
        return verdict._replace(listed=False, described=False, searchable=False, reason=why)
    if is_named_in(skill, persona.on_demand_skills) and not is_named_in(skill, (*persona.core_skills, *persona.skills)):
        return verdict._replace(listed=False, described=False, reason=f"on demand for {persona.name}")
    own = skill.group == "core" or normalize_name(skill.group) == normalize_name(persona.name)
    if own or is_named_in(skill, persona.declared_skills):
        return verdict
    if not skill.group:
        why = f"not one of {persona.name}'s: load it as {skill.full_name}"
        return verdict._replace(listed=False, described=False, searchable=False, reason=why)
    return _hidden(verdict.state, f"belongs to {skill.group}, not to {persona.name}")


def is_named_in(item: "Skill | AgentFile", names: tuple[str, ...]) -> bool:
    """One of the names is the item's own or its full one."""
    wanted = (normalize_name(item.name), normalize_name(item.full_name))
    return any(normalize_name(name) in wanted for name in names)


def _is_agent_in_team(agent: "AgentFile", context: VisibilityContext, named_by_skills: frozenset[str]) -> bool:
    persona = context.persona
    if not context.team:
        return persona is not None and is_named_in(agent, persona.subagents or ())
    if normalize_name(context.team) != normalize_name(agent.team):
        return False
    if persona is None:
        return not agent.persona
    if agent.persona:
        return normalize_name(agent.persona) == normalize_name(persona.name)
    if persona.subagents is None or is_named_in(agent, persona.subagents):
        return True
    return agent.name.casefold() in named_by_skills or agent.full_name.casefold() in named_by_skills


def skill_to_json(skill: Skill, verdict: Verdict) -> dict[str, object]:
    return {
        "name": skill.name,
        "full_name": skill.full_name,
        "kind": skill.kind,
        "description": skill.description,
        "when_to_use": skill.when_to_use,
        "argument_hint": skill.argument_hint,
        "scope": skill.root.scope,
        "dialect": skill.root.dialect,
        "path": skill.path,
        "plugin": skill.root.plugin,
        "team": skill.team,
        "group": skill.group,
        "state": verdict.state,
        "listed": verdict.listed,
        "model_may_load": verdict.model,
        "user_may_invoke": verdict.user,
        "agents_may_preload": verdict.preload,
        "reason": verdict.reason,
    }
