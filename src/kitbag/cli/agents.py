"""`kitbag agents`: list, search, show, run, enable and disable agents."""

from typing import TYPE_CHECKING, Any

import click

from kitbag.cli import output
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.library_options import json_option, library_options, open_registry, project_option, set_state
from kitbag.cli.number_types import IntRange
from kitbag.errors import InvalidError, UsageError
from kitbag.library.agents import AgentFile
from kitbag.library.registry import Registry
from kitbag.library.visibility import Verdict
from kitbag.text.tokens import estimate_tokens
from kitbag.views.agent_card import agent_fields, format_tool_access, read_agent_body

if TYPE_CHECKING:
    from kitbag.library.routing.agent_search import AgentMatch


class _Group(CommandGroup):
    """Imports the command that runs an agent on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "run"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "run":
            from kitbag.cli.agents_run import run

            return run
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Group)
def command() -> None:
    """List, search, show, run, enable and disable agents."""


def agent_json(agent: AgentFile, verdict: Verdict) -> dict[str, Any]:
    return {
        **agent.to_json(),
        "state": verdict.state,
        "listed": verdict.listed,
        "model_may_spawn": verdict.model,
        "user_may_run": verdict.user,
        "reason": verdict.reason,
    }


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Include disabled agents and those of other teams.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["list", "table"]),
    help="Print the catalog that the model sees, in this format.",
    show_default="none: print a human-readable listing",
)
@library_options
@json_option
def list_(everything: bool, form: Any, dirs: tuple[str, ...], team: str, persona: str, as_json: bool) -> None:
    """List agents with their sources and tools."""
    registry = open_registry(dirs, team, persona)
    if form:
        from kitbag.packing.catalog import catalog_budget, render_agents

        catalog = render_agents(registry.visible_agents(), catalog_budget(registry.settings), form)
        return output.as_json(catalog.to_json()) if as_json else output.exact(catalog.text)
    view = registry.visibility_context("agents")
    verdicts = [(agent, registry.evaluate(agent, view)) for agent in registry.agents]
    shown = [pair for pair in verdicts if everything or pair[1].listed or (pair[1].user and not pair[0].team)]
    if as_json:
        return output.as_json([agent_json(agent, verdict) for agent, verdict in shown])
    output.table(
        ("NAME", "SCOPE", "MODEL", "MODE", "TOOLS", "DESCRIPTION"),
        [
            (
                agent.full_name,
                agent.root.scope,
                agent.model.name,
                agent.permission_mode,
                format_tool_access(agent.tools),
                agent.description,
            )
            for agent, _ in shown
        ],
    )
    output.footer(
        "agent", len(shown), len(verdicts) - len(shown), registry.problem_count(), registry.incomplete_searches()
    )
    return None


@command.command()
@click.argument("name")
@click.option("--body", is_flag=True, help="Print only the instructions.")
@click.option("--prompt", is_flag=True, help="Print the system prompt the agent starts with.")
@click.option(
    "--task", default="", metavar="TEXT", help="Set the task for the agent (with --prompt).", show_default="none"
)
@click.option("--explain", is_flag=True, help="List the parts of the prompt instead (with --prompt).")
@library_options
@json_option
def show(
    name: str,
    body: bool,
    prompt: bool,
    task: str,
    explain: bool,
    dirs: tuple[str, ...],
    team: str,
    persona: str,
    as_json: bool,
) -> None:
    """Show an agent: its tools, permissions, instructions and token cost."""
    if task and not (prompt or explain):
        raise UsageError("--task needs --prompt", "add --prompt")
    registry = open_registry(dirs, team, persona)
    agent = registry.find_agent(name)
    if prompt or explain:
        return _show_prompt(registry, agent, task, explain, as_json)
    text = read_agent_body(agent)
    if body and not as_json:
        return output.exact(text)
    verdict = registry.evaluate(agent)
    problems = registry.diagnostics(agent.path)
    if as_json:
        details = {**agent_json(agent, verdict), "body": text, "body_tokens": estimate_tokens(text)}
        details["shadows"] = [loser.path for winner, loser in registry.agents.shadowed if winner is agent]
        return output.as_json({**details, "problems": [output.diagnostic_json(d) for d in problems]})
    output.echo(output.style(output.clean(agent.full_name), "bold"))
    output.fields(agent_fields(registry, agent, verdict, text))
    for problem in problems:
        for line in output.diagnostic_lines(problem):
            output.echo(line)
    return None


def _show_prompt(registry: Registry, agent: AgentFile, task: str, explain: bool, as_json: bool) -> None:
    from kitbag.cli.pack import print_ledger
    from kitbag.packing.agent_prompt import compose_agent_prompt, detect_environment
    from kitbag.text.tokens import token_counter

    verdict = registry.evaluate(agent)
    if not verdict.model and not verdict.user:
        raise InvalidError(f"{agent.full_name!r} can't be started: {verdict.reason}")
    read_agent_body(agent)
    counter = token_counter()
    environment = detect_environment(registry.places.cwd)
    made = compose_agent_prompt(agent, registry, counter.count, environment, task)
    if as_json:
        ledger = {"prompt": made.ledger.payload, "tokens": made.ledger.tokens, "token_counter": counter.name}
        warnings = [f"{warning.place}: {warning.problem}" for warning in made.warnings]
        return output.as_json({**ledger, "warnings": warnings, "ledger": made.ledger.to_json()})
    if explain:
        print_ledger(made.ledger)
    else:
        output.exact(made.ledger.payload.rstrip("\n"))
    for warning in made.warnings:
        for line in output.diagnostic_lines(warning):
            output.remark(line)
    return None


@command.command()
@click.argument("name")
@project_option
@json_option
def enable(name: str, project: bool, as_json: bool) -> None:
    """Enable an agent."""
    set_state("agents", name, "on", project, as_json)


@command.command()
@click.argument("name")
@project_option
@json_option
def disable(name: str, project: bool, as_json: bool) -> None:
    """Disable an agent: it is neither listed nor started."""
    set_state("agents", name, "off", project, as_json)


@command.command()
@click.argument("request", nargs=-1, required=True)
@click.option("--most", type=IntRange(1), default=10, show_default=True, help="Show at most this many results.")
@library_options
@json_option
def search(request: tuple[str, ...], most: int, dirs: tuple[str, ...], team: str, persona: str, as_json: bool) -> None:
    """Find agents for a prompt by its words, its meaning with the extra `semantic`, and the extensions of files it
    names."""
    from kitbag.library.routing.agent_search import AgentCandidate, rank_agents

    registry = open_registry(dirs, team, persona)
    visible = {agent.full_name: agent for agent, _ in registry.visible_agents()}
    candidates = [AgentCandidate(name, agent.description, agent.file_extensions) for name, agent in visible.items()]
    matches = rank_agents(candidates, " ".join(request), registry)[:most]
    if as_json:
        return output.as_json([_match_to_json(match) for match in matches])
    output.table(
        ("NAME", "WHY", "DESCRIPTION"),
        [(match.name, _format_match(match), visible[match.name].description) for match in matches],
    )
    if not matches:
        output.remark("no matches")
    return None


def _match_to_json(match: "AgentMatch") -> dict[str, Any]:
    from kitbag.library.routing.agent_search import CONFIDENCE_LEVELS

    return {
        "name": match.name,
        "score": match.score,
        "fit": CONFIDENCE_LEVELS[match.level],
        "words": list(match.words),
        "files": list(match.files),
    }


def _format_match(match: "AgentMatch") -> str:
    return ", ".join((*match.files, *match.words)) or "similar meaning"
