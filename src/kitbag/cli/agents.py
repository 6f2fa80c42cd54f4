"""`kitbag agents ...`: what a person does with agents."""

from typing import Any

import click

from kitbag.cli import output
from kitbag.cli.options import json_option, library_options, open_registry, project_option
from kitbag.cli.states import set_state
from kitbag.library.agents import Agent
from kitbag.library.visibility import Verdict
from kitbag.text.tokens import estimate_tokens


@click.group()
def command() -> None:
    """List, inspect and switch agents."""


def agent_json(agent: Agent, verdict: Verdict) -> dict[str, Any]:
    return {
        **agent.to_json(),
        "state": verdict.state,
        "listed": verdict.listed,
        "model_may_spawn": verdict.model,
        "user_may_run": verdict.user,
        "reason": verdict.reason,
    }


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Also what is switched off or belongs to another team.")
@click.option("--format", "form", type=click.Choice(["list", "table"]), help="The catalog as a model gets it.")
@library_options
@json_option
def list_(everything: bool, form: Any, dirs: tuple[str, ...], team: str, persona: str, as_json: bool) -> None:
    """Agents, with where each comes from and what it may do."""
    registry = open_registry(dirs, team, persona)
    if form:
        from kitbag.packing.catalog import budget_of, render_agents

        catalog = render_agents(registry.visible_agents(), budget_of(registry.settings), form)
        return output.as_json(catalog._asdict()) if as_json else output.block(catalog.text)
    view = registry.view("agents")
    judged = [(agent, registry.judge(agent, view)) for agent in registry.agents]
    shown = [pair for pair in judged if everything or pair[1].listed or (pair[1].user and not pair[0].team)]
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
                tools_in_words(agent),
                agent.description,
            )
            for agent, _ in shown
        ],
    )
    output.footer("agent", len(shown), len(judged) - len(shown), registry.problem_count())
    return None


def tools_in_words(agent: Agent) -> str:
    tools = agent.tools
    denied = f" but {', '.join(tools.denied)}" if tools.denied else ""
    if tools.mode in ("inherit", "all"):
        return "all" + denied
    if tools.mode == "deny":
        return "all" + denied
    if tools.mode == "none":
        return "none"
    return ", ".join(tools.names) + denied


@command.command()
@click.argument("name")
@click.option("--body", is_flag=True, help="Print only the instructions.")
@library_options
@json_option
def show(name: str, body: bool, dirs: tuple[str, ...], team: str, persona: str, as_json: bool) -> None:
    """One agent: what it may do, what it is told, what that costs."""
    registry = open_registry(dirs, team, persona)
    agent = registry.find_agent(name)
    text = agent.body()
    if body and not as_json:
        return output.block(text)
    verdict = registry.judge(agent)
    problems = [d for d in registry.diagnostics() if d.file == agent.path]
    if as_json:
        found = {**agent_json(agent, verdict), "body": text, "body_tokens": estimate_tokens(text)}
        found["shadows"] = [loser.path for winner, loser in registry.agents.shadowed if winner is agent]
        return output.as_json({**found, "problems": [output.diagnostic_json(d) for d in problems]})
    output.echo(output.style(output.clean(agent.full_name), "bold"))
    output.fields(
        [
            ("description", agent.description),
            ("model", agent.model.name),
            ("mode", agent.permission_mode),
            ("max turns", str(agent.max_turns or "")),
            ("tools", tools_in_words(agent)),
            ("rules", ", ".join(rule for rule in agent.tools.specifiers if "(" in rule)),
            ("unknown tools", ", ".join(agent.tools.unknown)),
            ("skills", ", ".join(agent.skills)),
            ("files", ", ".join(agent.file_extensions)),
            ("background", "yes" if agent.background else ""),
            ("found in", f"{agent.root.scope} ({registry.rule_of(agent.root)})"),
            ("path", output.short_path(agent.path)),
            ("state", verdict.state + (f" ({verdict.reason})" if verdict.reason else "")),
            ("cost", f"{estimate_tokens(text):,} tokens of instructions, read when it starts"),
        ]
    )
    for problem in problems:
        for line in output.diagnostic_lines(problem):
            output.echo(line)
    return None


@command.command()
@click.argument("name")
@project_option
@json_option
def enable(name: str, project: bool, as_json: bool) -> None:
    """Switch an agent on again."""
    set_state("agents", name, "on", project, as_json)


@command.command()
@click.argument("name")
@project_option
@json_option
def disable(name: str, project: bool, as_json: bool) -> None:
    """Switch an agent off: nobody sees or starts it."""
    set_state("agents", name, "off", project, as_json)
