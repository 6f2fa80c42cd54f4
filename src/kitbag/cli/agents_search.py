"""`kitbag agents search`: ranks agents for a prompt."""

from typing import Any

import click

from kitbag.cli import output
from kitbag.cli.library_options import json_option, library_options, open_registry
from kitbag.library.routing.agent_search import CONFIDENCE_LEVELS, AgentCandidate, AgentMatch, rank_agents


@click.command()
@click.argument("request", nargs=-1, required=True)
@click.option("--most", type=click.IntRange(1), default=10, show_default=True, help="Maximum number of results.")
@library_options
@json_option
def search(request: tuple[str, ...], most: int, dirs: tuple[str, ...], team: str, persona: str, as_json: bool) -> None:
    """Find agents for a request, by its words and the extensions of files it names."""
    registry = open_registry(dirs, team, persona)
    visible = {agent.full_name: agent for agent, _ in registry.visible_agents()}
    candidates = [AgentCandidate(name, agent.description, agent.file_extensions) for name, agent in visible.items()]
    matches = rank_agents(candidates, " ".join(request))[:most]
    if as_json:
        return output.as_json([_match_json(match) for match in matches])
    output.table(
        ("NAME", "WHY", "DESCRIPTION"),
        [(match.name, _format_match(match), visible[match.name].description) for match in matches],
    )
    if not matches:
        output.remark("no matches")
    return None


def _match_json(match: AgentMatch) -> dict[str, Any]:
    return {
        "name": match.name,
        "score": match.score,
        "fit": CONFIDENCE_LEVELS[match.level],
        "words": list(match.words),
        "files": list(match.files),
    }


def _format_match(match: AgentMatch) -> str:
    return ", ".join((*match.files, *match.words))
