"""The tools for skills: Skill, SearchSkills, ListLoadedSkills, UnloadSkill.

Used by the loop. Everything about a skill, from its name to its text, is decided by packing/session_skills and the
library's one visibility rule; commands in a skill may take a while, so loading has a thread of its own.
"""

import asyncio
from typing import Annotated

from msgspec import Meta

from kitbag.packing.catalog import entry_of
from kitbag.packing.session_skills import Fork
from kitbag.tools.base import Arguments, Context, Outcome, Tool, answer, description, failure
from kitbag.tools.delegation import Delegation, Errand
from kitbag.tools.files.paths import visible
from kitbag.tools.task import told

MOST_FOUND = 20


class SkillArguments(Arguments, frozen=True):
    skill: Annotated[str, Meta(min_length=1, max_length=300, description="The skill's name.")]
    args: Annotated[str, Meta(max_length=20_000, description="Arguments for it, if it takes any.")] = ""
    reason: Annotated[str, Meta(max_length=2_000, description="What for, in a few words.")] = ""


class SearchArguments(Arguments, frozen=True):
    query: Annotated[str, Meta(min_length=1, max_length=2_000, description="Words that describe the work.")]


class NameArguments(Arguments, frozen=True):
    skill: Annotated[str, Meta(min_length=1, max_length=300, description="The loaded skill's name.")]


class NoArguments(Arguments, frozen=True):
    pass


async def _load(arguments: SkillArguments, context: Context) -> Outcome:
    name = arguments.skill.lstrip("/")
    if context.delegation is not None:
        fork = await asyncio.to_thread(context.skills.fork, name, arguments.args)
        if fork is not None:
            return await run_fork(fork, context, context.delegation)
    delivered = await asyncio.to_thread(context.skills.load, arguments.skill.lstrip("/"), arguments.args)
    warnings = [problem.problem for problem in delivered.problems if problem.severity != "info"]
    known = "" if delivered.loaded else " (already there)"
    summary = f"{delivered.name}, {delivered.tokens} tokens{known}" + (f"; {warnings[0]}" if warnings else "")
    limits = delivered.rights.for_model() if delivered.rights is not None else ""
    text = f"{delivered.text}\n\n{limits}" if limits else delivered.text
    return answer(text, summary)._replace(loaded=delivered.loaded)


async def run_fork(fork: Fork, context: Context, delegation: Delegation) -> Outcome:
    """An agent does what the skill says, and only its answer comes here. To start one is a permission of its own."""
    errand = Errand(fork.agent, fork.text, f"skill {fork.name}", model=fork.model)
    refused = await delegation.refused(errand, context.permissions, context.directory)
    if refused:
        return failure(f"the skill {fork.name} runs as the agent {fork.agent}, which is not allowed: {refused}")
    return told(await delegation.start(errand, context.progress))


async def _search(arguments: SearchArguments, context: Context) -> Outcome:
    from kitbag.library.routing.skill_search import search

    hits = search(context.library, arguments.query, MOST_FOUND)
    if not hits:
        return answer("No skill matches these words. Try others, or work without one.", "nothing found")
    lines = [entry_of(hit.skill) for hit in hits]
    return answer("\n".join(lines), f"{len(hits)} found")


async def _listed(_: NoArguments, context: Context) -> Outcome:
    loaded = context.skills.loaded()
    if not loaded:
        return answer("No skills are loaded.", "none")
    lines = [f"- {one.name}: {one.tokens} tokens, loaded {one.at}" for one in loaded]
    lines.append(f"{len(loaded)} loaded, {sum(one.tokens for one in loaded)} tokens in all.")
    return answer("\n".join(lines), f"{len(loaded)} loaded")


async def _unload(arguments: NameArguments, context: Context) -> Outcome:
    name = context.skills.unload(arguments.skill)
    if name is None:
        return answer(f"{visible(arguments.skill)} is not loaded.", "was not loaded")
    return answer(f"The skill {name} is unloaded; its text is no longer in the conversation.", name)._replace(
        dropped=name
    )


# Not one that only reads: a skill may have commands that its loading runs.
SKILL = Tool("Skill", description("Skill"), SkillArguments, _load)
SEARCH_SKILLS = Tool("SearchSkills", description("SearchSkills"), SearchArguments, _search, reads_only=True)
LIST_LOADED_SKILLS = Tool("ListLoadedSkills", description("ListLoadedSkills"), NoArguments, _listed, reads_only=True)
UNLOAD_SKILL = Tool("UnloadSkill", description("UnloadSkill"), NameArguments, _unload)
