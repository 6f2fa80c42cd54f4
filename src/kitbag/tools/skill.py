"""The skill tools: Skill, SearchSkills, ListLoadedSkills, UnloadSkill.

Used by the agent loop. packing/session_skills and the library's visibility rule decide everything about a skill.
Loading runs in a thread, because commands in a skill may take a while.
"""

import asyncio
from typing import Annotated

from msgspec import Meta, structs

from kitbag.packing.catalog import render_entry
from kitbag.packing.session_skills import SkillFork
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.tools.base import Arguments, Tool, ToolContext, ToolOutput, error_output, load_description, text_output
from kitbag.tools.delegation import Delegation, DelegationRequest
from kitbag.tools.files.paths import visible_line
from kitbag.tools.task import escape_tags, render_report

MAX_SEARCH_RESULTS = 20


class SkillArguments(Arguments, frozen=True):
    skill: Annotated[str, Meta(min_length=1, max_length=300)]
    args: Annotated[str, Meta(max_length=20_000, description="Arguments, if any.")] = ""
    reason: Annotated[str, Meta(max_length=2_000, description="Why, briefly.")] = ""
    part: int = 0
    """Explained by the first part of a long skill."""


class SearchSkillsArguments(Arguments, frozen=True):
    query: Annotated[str, Meta(min_length=1, max_length=2_000)]


class UnloadSkillArguments(Arguments, frozen=True):
    skill: Annotated[str, Meta(min_length=1, max_length=300)]


class NoArguments(Arguments, frozen=True):
    pass


async def _load_skill(arguments: SkillArguments, context: ToolContext) -> ToolOutput:
    name = arguments.skill.lstrip("/")
    denial = await asyncio.to_thread(_find_denial, name, arguments.args, context)
    if denial is not None:
        return denial
    if context.delegation is not None:
        fork = await asyncio.to_thread(context.skills.fork, name, arguments.args)
        if fork is not None:
            return await run_forked_skill(fork, context, context.delegation)
    delivered = await asyncio.to_thread(context.skills.load, name, arguments.args, part=arguments.part)
    warnings = delivered.warnings if delivered.loaded else ()
    already_loaded = "" if delivered.loaded else " (already loaded)"
    shown = f"{delivered.name}, {delivered.part}" if delivered.part else delivered.name
    summary = f"{shown}, {delivered.tokens:,} tokens{already_loaded}"
    limits = delivered.permissions.model_notice() if delivered.permissions is not None else ""
    warning_lines = "\n".join(f"Warning: {collapse_whitespace(escape_tags(warning))}" for warning in warnings)
    text = "\n\n".join(part for part in (delivered.text, limits, warning_lines) if part)
    return structs.replace(text_output(text, summary), loaded_skill=delivered.loaded, notices=warnings)


def _find_denial(name: str, arguments: str, context: ToolContext) -> ToolOutput | None:
    """The rules for the names of the skill itself: the call may name it by its directory, or by a short name."""
    skill = context.skills.find(name)
    for own_name in dict.fromkeys((skill.full_name, skill.name)):
        decision = context.permissions.decide("Skill", {"skill": own_name, "args": arguments}, context.directory)
        if decision.effect == "deny" or (decision.effect == "ask" and own_name != name):
            fix = "Continue without it." if decision.effect == "deny" else f"Load it as {own_name}."
            return error_output(f"Skill is not allowed: {own_name}: {decision.reason}", fix)
    return None


async def run_forked_skill(fork: SkillFork, context: ToolContext, delegation: Delegation) -> ToolOutput:
    """Run the skill as a subagent and return its answer. Starting an agent needs its own permission."""
    request = DelegationRequest(agent=fork.agent, prompt=fork.text, description=f"skill {fork.name}", model=fork.model)
    denial = await delegation.request_permission(request, context.permissions, context.directory)
    if denial:
        return error_output(f"skill {fork.name} runs as agent {fork.agent}, which is not allowed: {denial}")
    report = await delegation.start(request, context.progress)
    output = render_report(structs.replace(report, warnings=(*fork.warnings, *report.warnings)))
    return structs.replace(output, notices=fork.warnings)


async def _search_skills(arguments: SearchSkillsArguments, context: ToolContext) -> ToolOutput:
    from kitbag.library.routing.skill_search import search_skills

    hits = search_skills(context.library, arguments.query, MAX_SEARCH_RESULTS)
    if not hits:
        return text_output(
            "No matching skills. Try different keywords, or continue without a skill.", "no skills found"
        )
    context.skills.note_found((hit.skill.full_name for hit in hits), "search")
    lines = [render_entry(hit.skill) for hit in hits]
    return text_output("\n".join(lines), f"{len(hits)} found")


async def _list_loaded_skills(_: NoArguments, context: ToolContext) -> ToolOutput:
    loaded = context.skills.loaded()
    if not loaded:
        return text_output("No skills are loaded.", "none")
    lines = [f"- {one.name}: {one.tokens} tokens, loaded {one.loaded_at}" for one in loaded]
    lines.append(f"{len(loaded)} loaded, {sum(one.tokens for one in loaded)} tokens in total.")
    return text_output("\n".join(lines), f"{len(loaded)} loaded")


async def _unload_skill(arguments: UnloadSkillArguments, context: ToolContext) -> ToolOutput:
    name = context.skills.unload(arguments.skill)
    if name is None:
        return text_output(f"{visible_line(arguments.skill)} is not loaded.", "not loaded")
    return structs.replace(
        text_output(f"Unloaded skill {name}; its instructions are no longer in the conversation.", name),
        unloaded_skill=name,
    )


# Skill is not read-only: loading a skill may run commands.
SKILL = Tool(name="Skill", description=load_description("Skill"), arguments=SkillArguments, run=_load_skill)
SEARCH_SKILLS = Tool(
    name="SearchSkills",
    description=load_description("SearchSkills"),
    arguments=SearchSkillsArguments,
    run=_search_skills,
    read_only=True,
)
LIST_LOADED_SKILLS = Tool(
    name="ListLoadedSkills",
    description=load_description("ListLoadedSkills"),
    arguments=NoArguments,
    run=_list_loaded_skills,
    read_only=True,
)
UNLOAD_SKILL = Tool(
    name="UnloadSkill", description=load_description("UnloadSkill"), arguments=UnloadSkillArguments, run=_unload_skill
)
