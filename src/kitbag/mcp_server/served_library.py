"""A snapshot of what is served: the library, the client instructions, and a fingerprint to detect changes.

Reloaded as a whole off the event loop and swapped if it differs; calls in progress keep the old one. Used by
server_state; uses assembly/environment and packing/catalog.
"""

import os
from typing import Final

import msgspec

from kitbag.assembly.environment import AgentEnvironment, load_environment, untrusted_notices
from kitbag.assembly.run_options import Options
from kitbag.library.scopes import find_places
from kitbag.library.visibility import evaluate_skills
from kitbag.packing.catalog import Budget, catalog_budget, render_agents, render_skills
from kitbag.permissions.rules.load import PermissionFlags
from kitbag.text.hidden_characters import collapse_whitespace, remove_hidden

BRIEF_BUDGET: Final = Budget(descriptions=800, names=300, entry=160)
"""For the catalog in a tool's description: some clients truncate it at 2,048 characters."""
MAX_NOTICE_CHARACTERS: Final = 2_000
MAX_ADDITION_CHARACTERS: Final = 20_000

LibraryFingerprint = dict[tuple[str, str], object]
"""Identifies the content behind each name; equal values mean unchanged files."""


class ServedLibrary(msgspec.Struct, frozen=True, kw_only=True):
    environment: AgentEnvironment
    instructions: str
    skills_brief: str
    agents_brief: str
    fingerprint: LibraryFingerprint
    notices: tuple[str, ...]
    """For the user who started the server."""


def permission_inputs(options: Options) -> PermissionFlags:
    return PermissionFlags(mode=options.mode, allow=options.only_tools, ask=options.ask, deny=options.no_tools)


def load_served_library(options: Options) -> ServedLibrary:
    """Raises UsageError for an invalid rule or mode, NotFoundError for an unknown team or persona."""
    environment = load_environment(
        find_places(options.directory or None),
        permission_options=permission_inputs(options),
        trust_workspace=options.trust_workspace,
        extra=options.extra,
        team=options.team,
        persona=options.persona,
        settings_mode=options.settings_mode,
        identity=options.workspace,
    )
    library = environment.library
    skills, agents = library.visible_skills(), library.visible_agents()
    budget = catalog_budget(library.settings)
    brief = Budget(
        descriptions=min(BRIEF_BUDGET.descriptions, budget.descriptions),
        names=min(BRIEF_BUDGET.names, budget.names),
        entry=min(BRIEF_BUDGET.entry, budget.entry),
    )
    rest = msgspec.structs.replace(
        budget, descriptions=budget.descriptions - brief.descriptions, names=budget.names - brief.names
    )
    untrusted = [f"{notice.text}. {notice.fix}" for notice in untrusted_notices(environment)]
    parts = [load_text("instructions"), *(_escape_notice(note[:MAX_NOTICE_CHARACTERS]) for note in untrusted)]
    parts += [
        render_skills(skills, rest, over_mcp=True).text,
        render_agents(agents, rest).text,
        *_prompt_additions(environment),
    ]
    fingerprint: LibraryFingerprint = {("trust", ""): (environment.trust.state, environment.trust.items)}
    fingerprint |= {
        ("skill", skill.full_name): (skill.path, skill.stamp, verdict)
        for skill, verdict in evaluate_skills(library.skills, library.visibility_context())
        if verdict.is_usable
    }
    fingerprint |= {("agent", agent.full_name): (agent.path, agent.frontmatter_stamp) for agent, _ in agents}
    notices = (*untrusted, *(f"{diagnostic.place}: {diagnostic.problem}" for diagnostic in environment.diagnostics))
    return ServedLibrary(
        environment=environment,
        instructions="\n\n".join(part for part in parts if part),
        skills_brief=render_skills(skills, brief, over_mcp=True).text,
        agents_brief=render_agents(agents, brief).text,
        fingerprint=fingerprint,
        notices=notices,
    )


def _prompt_additions(environment: AgentEnvironment) -> list[str]:
    """From the chosen team and persona."""
    persona = environment.library.persona
    added = [environment.library.team_prompt(), persona.system_prompt_additions if persona else ""]
    return [remove_hidden(part)[:MAX_ADDITION_CHARACTERS] for part in added if part]


def _escape_notice(notice: str) -> str:
    """Names from untrusted files can't inject markup."""
    return remove_hidden(collapse_whitespace(notice)).replace("<", "&lt;")


def load_text(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), f"{name}.md"), encoding="utf-8") as file:
        return file.read().strip()
