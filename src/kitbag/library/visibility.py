"""The one rule that decides who sees and uses an item: for listing, search, loading, preloading and spawning.

Combines the state set by the user (on, name-only, user-only, off), the file's own flags, the selected team
and persona, and the tools of the agent. Used by the registry; pure, holds no state.
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
    """Who sees and uses an item, and why some may not."""

    listed: bool
    """Appears in the catalog that a model gets at start."""
    described: bool
    """Appears there with its description, if the budget allows."""
    model: bool
    """A model may load or spawn it by name."""
    user: bool
    """The user may invoke it."""
    preload: bool
    """An agent file may name it in `skills:`."""
    searchable: bool
    """A model may find it by search."""
    state: ItemState
    reason: str

    @property
    def is_usable(self) -> bool:
        return self.model or self.user or self.preload


FULLY_VISIBLE = Verdict(
    listed=True, described=True, model=True, user=True, preload=True, searchable=True, state="on", reason=""
)


def _hidden(state: ItemState, reason: str) -> Verdict:
    return Verdict(
        listed=False,
        described=False,
        model=False,
        user=False,
        preload=False,
        searchable=False,
        state=state,
        reason=reason,
    )


class VisibilityContext(NamedTuple):
    """Who is asking: fixed for a session."""

    team: str = ""
    persona: "Persona | None" = None
    states: "dict[str, SourcedValue]" = {}  # noqa: RUF012 - never changed
    agent_tools: "ToolAccess | None" = None
    """The tools of the subagent that asks; None for the main agent."""


def evaluate_skill(skill: Skill, context: VisibilityContext) -> Verdict:
    state, source = _configured_state(skill.full_name, context)
    if state == "off":
        return _hidden("off", f"disabled in {source}")
    visibility = FULLY_VISIBLE._replace(state=state)
    if skill.team:
        visibility = _apply_team(skill, context, visibility)
        if not visibility.is_usable:
            return visibility
    elif reason := _core_restriction(skill, context.persona):
        visibility = visibility._replace(listed=False, described=False, searchable=False, reason=reason)
    if state == "user-only" or skill.flags & NO_MODEL:
        reason = f"user-only in {source}" if state == "user-only" else "disable-model-invocation is set in its file"
        visibility = visibility._replace(
            listed=False, described=False, model=False, preload=False, searchable=False, reason=reason
        )
    elif state == "name-only":
        visibility = visibility._replace(described=False, reason=f"name-only in {source}")
    elif visibility.described and is_path_activated(skill):
        visibility = visibility._replace(
            described=False, reason="described when a file that matches its `paths` is used"
        )
    if skill.flags & NO_USER:
        visibility = visibility._replace(user=False, reason=visibility.reason or "user-invocable is false in its file")
    reason = _agent_restriction(skill, context.agent_tools)
    if reason:
        visibility = visibility._replace(listed=False, described=False, model=False, searchable=False, reason=reason)
    return visibility


def _agent_restriction(skill: Skill, tools: "ToolAccess | None") -> str:
    """Why the agent may not load the skill; empty if it may. `Skill(name)` in its tools allows only that skill."""
    if tools is None:
        return ""
    if not tools.allows("Skill"):
        return "the agent has no Skill tool"
    rules = [rule for rule in tools.specifiers if rule.startswith("Skill(")]
    allowed = [rule[6:-1].split(" ")[0].removesuffix(":*").strip() for rule in rules]
    return "the agent's tools allow only other skills" if allowed and not is_named_in(skill, tuple(allowed)) else ""


def evaluate_skills(skills: "Iterable[Skill]", context: VisibilityContext) -> "list[tuple[Skill, Verdict]]":
    """evaluate_skill for many skills, with a fast path for skills without flags and team."""
    narrows_core = context.persona is not None and context.persona.core_skills
    if context.states or context.agent_tools is not None or narrows_core:
        return [(skill, evaluate_skill(skill, context)) for skill in skills]
    return [(skill, evaluate_skill(skill, context) if skill.flags or skill.team else FULLY_VISIBLE) for skill in skills]


def evaluate_agent(
    agent: "AgentFile", context: VisibilityContext, named_by_skills: frozenset[str] = frozenset()
) -> Verdict:
    """`named_by_skills`: normalized names of agents that a visible skill lists under `subagents:`."""
    state, source = _configured_state(agent.full_name, context)
    if state == "off":
        return _hidden("off", f"disabled in {source}")
    if agent.disabled:
        return _hidden("off", "disabled in its file")
    visibility = FULLY_VISIBLE._replace(state=state)
    if agent.team and not _is_agent_in_team(agent, context, named_by_skills):
        selected = context.persona.full_name if context.persona else context.team
        reason = f"not available to {selected}" if selected else f"belongs to team {agent.team}; choose a persona"
        return _hidden(state, reason)._replace(user=not selected)
    if state == "user-only" or not agent.model_invocable:
        reason = f"user-only in {source}" if state == "user-only" else "its file disables model invocation"
        visibility = visibility._replace(listed=False, described=False, model=False, searchable=False, reason=reason)
    elif state == "name-only":
        visibility = visibility._replace(described=False, reason=f"name-only in {source}")
    if agent.hidden:
        visibility = visibility._replace(
            listed=False, described=False, reason=visibility.reason or "hidden in its file"
        )
    if not agent.user_invocable:
        visibility = visibility._replace(user=False)
    return visibility


def _configured_state(full_name: str, context: VisibilityContext) -> tuple[ItemState, str]:
    if not context.states:
        return "on", ""
    configured = context.states.get(normalize_name(full_name))
    return (configured.value, configured.source) if configured else ("on", "")


def _apply_team(skill: Skill, context: VisibilityContext, visibility: Verdict) -> Verdict:
    """A team's skill is listed for its persona, loadable by full name if no team is selected, otherwise hidden."""
    persona = context.persona
    if not context.team and not (persona and is_named_in(skill, persona.declared_skills)):
        reason = f"belongs to team {skill.team}: load it as {skill.full_name}, or choose a persona"
        return visibility._replace(listed=False, described=False, searchable=False, reason=reason)
    if context.team and normalize_name(context.team) != normalize_name(skill.team):
        return _hidden(visibility.state, f"belongs to team {skill.team}, not {context.team}")
    if persona is None:
        if skill.group == "core":
            return visibility
        reason = f"no persona of team {skill.team} is active: load it as {skill.full_name}"
        return visibility._replace(listed=False, described=False, searchable=False, reason=reason)
    if is_named_in(skill, persona.on_demand_skills) and not is_named_in(skill, (*persona.core_skills, *persona.skills)):
        return visibility._replace(listed=False, described=False, reason=f"on demand for {persona.name}")
    if reason := _core_restriction(skill, persona):
        return visibility._replace(listed=False, described=False, searchable=False, reason=reason)
    is_own = skill.group == "core" or normalize_name(skill.group) == normalize_name(persona.name)
    if is_own or is_named_in(skill, persona.declared_skills):
        return visibility
    if not skill.group:
        reason = f"not assigned to {persona.name}: load it as {skill.full_name}"
        return visibility._replace(listed=False, described=False, searchable=False, reason=reason)
    return _hidden(visibility.state, f"belongs to {skill.group}, not {persona.name}")


def _core_restriction(skill: Skill, persona: "Persona | None") -> str:
    """Why a skill of a `core` folder, the team's or the shared one, is not in the catalog; else empty. A persona that
    declares `core_skills` has only those."""
    if persona is None or not persona.core_skills or is_named_in(skill, persona.declared_skills):
        return ""
    is_shared = not skill.team and skill.root.kind == "skills" and skill.location.startswith("core/")
    if skill.group != "core" and not is_shared:
        return ""
    return f"not a core skill of {persona.name}: load it as {skill.full_name}"


def is_named_in(item: "Skill | AgentFile", names: tuple[str, ...]) -> bool:
    """Whether one of the names is the item's name or full name."""
    own_names = (normalize_name(item.name), normalize_name(item.full_name))
    return any(normalize_name(name) in own_names for name in names)


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
    return not named_by_skills.isdisjoint((normalize_name(agent.name), normalize_name(agent.full_name)))


def skill_to_json(skill: Skill, visibility: Verdict) -> dict[str, object]:
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
        "state": visibility.state,
        "listed": visibility.listed,
        "model_may_load": visibility.model,
        "user_may_invoke": visibility.user,
        "agents_may_preload": visibility.preload,
        "reason": visibility.reason,
    }
