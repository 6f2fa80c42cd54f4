"""What is served at a moment: the library as it is, the instructions a client starts with, and how to tell a change.

Laid anew as a whole, off the event loop, and put in place of the last one when something differs: whoever works with
the old one goes on with it undisturbed. Used by house; uses assembly/ground and packing/catalog.
"""

import os
from typing import Final, NamedTuple

from kitbag.assembly.environment import Ground, lay_ground, told_left_out
from kitbag.assembly.run_options import Options
from kitbag.library.scopes import find_places
from kitbag.packing.catalog import Budget, budget_of, render_agents, render_skills
from kitbag.permissions.rules.load import Given
from kitbag.text.hidden_characters import one_line, remove_hidden

BRIEF: Final = Budget(descriptions=800, names=300, entry=160)
"""The catalog in the description of a tool: some clients cut those at 2,048 characters."""
MOST_LEFT_OUT: Final = 2_000
MOST_ADDED: Final = 20_000

Mark = dict[tuple[str, str], object]
"""What each name stands for; two that are equal are the same files unchanged."""


class Served(NamedTuple):
    ground: Ground
    instructions: str
    skills_brief: str
    agents_brief: str
    mark: Mark
    notes: tuple[str, ...]
    """What the person who started the server should know."""


def given_of(options: Options) -> Given:
    return Given(options.mode, options.only_tools, options.ask, options.no_tools)


def lay_served(options: Options) -> Served:
    """Raises UsageError for a wrong rule or mode, NotFoundError for a team or persona that does not exist."""
    ground = lay_ground(
        find_places(options.directory or None),
        given=given_of(options),
        trust_workspace=options.trust_workspace,
        extra=options.extra,
        team=options.team,
        persona=options.persona,
        settings_mode=options.settings_mode,
    )
    library = ground.library
    skills, agents = library.visible_skills(), library.visible_agents()
    whole = budget_of(library.settings)
    brief = Budget(*map(min, BRIEF, whole))
    rest = whole._replace(descriptions=whole.descriptions - brief.descriptions, names=whole.names - brief.names)
    left_out = [f"{notice.text}. {notice.fix}" for notice in told_left_out(ground)]
    parts = [text("instructions"), *(_harmless(note[:MOST_LEFT_OUT]) for note in left_out)]
    parts += [render_skills(skills, rest, over_mcp=True).text, render_agents(agents, rest).text, *_additions(ground)]
    mark: Mark = {("trust", ""): (ground.trust.state, ground.trust.items)}
    mark |= {("skill", skill.full_name): (skill.path, skill.stamp) for skill, _ in skills}
    mark |= {("agent", agent.full_name): (agent.path, agent.head_stamp) for agent, _ in agents}
    notes = (*left_out, *(f"{found.place}: {found.problem}" for found in ground.diagnostics))
    return Served(
        ground,
        "\n\n".join(part for part in parts if part),
        render_skills(skills, brief, over_mcp=True).text,
        render_agents(agents, brief).text,
        mark,
        notes,
    )


def _additions(ground: Ground) -> list[str]:
    """Of the team and the persona that were chosen."""
    persona = ground.library.persona
    added = [ground.library.team_prompt(), persona.system_prompt_additions if persona else ""]
    return [remove_hidden(part)[:MOST_ADDED] for part in added if part]


def _harmless(note: str) -> str:
    """Names of things that nobody vouches for."""
    return remove_hidden(one_line(note)).replace("<", "&lt;")


def text(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), f"{name}.md"), encoding="utf-8") as file:
        return file.read().strip()
