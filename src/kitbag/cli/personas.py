"""`kitbag personas`: the choices for --team and --persona, and what each would see."""

from typing import Any

import click

from kitbag.cli import output
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.library_options import json_option, library_options, open_registry
from kitbag.library.names import normalize_name
from kitbag.library.personas import Persona
from kitbag.library.registry import Registry
from kitbag.text.tokens import estimate_tokens


@click.group(cls=CommandGroup)
def command() -> None:
    """List and show personas."""


def persona_json(persona: Persona) -> dict[str, Any]:
    return {
        "name": persona.name,
        "full_name": persona.full_name,
        "display_name": persona.display_name,
        "description": persona.description,
        "team": persona.team,
        "scope": persona.root.scope,
        "path": persona.path,
        "core_skills": list(persona.core_skills),
        "skills": list(persona.skills),
        "on_demand_skills": list(persona.on_demand_skills),
        "subagents": None if persona.subagents is None else list(persona.subagents),
        "default_model": persona.default_model,
        "system_prompt_additions": persona.system_prompt_additions,
    }


@command.command("list")
@library_options
@json_option
def list_(dirs: tuple[str, ...], team: str, persona: str, as_json: bool) -> None:
    """List personas and their teams."""
    registry = open_registry(dirs)
    wanted = [p for p in registry.personas if not team or normalize_name(p.team) == normalize_name(team)]
    wanted = [p for p in wanted if not persona or normalize_name(p.name) == normalize_name(persona)]
    if as_json:
        return output.as_json([persona_json(p) for p in wanted])
    output.table(
        ("NAME", "TEAM", "SCOPE", "DESCRIPTION"),
        [(p.name, p.team, p.root.scope, p.description) for p in wanted],
    )
    output.footer("persona", len(wanted), 0, registry.problem_count())
    return None


@command.command()
@click.argument("name")
@library_options
@json_option
def show(name: str, dirs: tuple[str, ...], team: str, persona: str, as_json: bool) -> None:
    """Show a persona and the skills and agents available in its sessions."""
    found = open_registry(dirs).find_persona(f"{team}/{name}" if team and "/" not in name else name)
    registry = open_registry(dirs, found.team, found.full_name)
    seen = _visible_items(registry)
    problems = registry.diagnostics(found.path)
    if as_json:
        details = {**persona_json(found), **seen, "problems": [output.diagnostic_json(d) for d in problems]}
        return output.as_json(details)
    output.echo(output.style(output.clean(found.full_name), "bold"))
    output.fields(
        [
            ("display name", found.display_name),
            ("description", found.description),
            ("model", found.default_model),
            ("skills", ", ".join(seen["catalog_skills"])),
            ("on demand", ", ".join(seen["found_on_demand"])),
            ("agents", ", ".join(seen["catalog_agents"])),
            ("path", output.shorten_path(found.path)),
            ("cost", f"{seen['catalog_tokens']:,} catalog tokens at start"),
        ]
    )
    if found.system_prompt_additions:
        output.echo("\n" + output.style("adds to the prompt", "bold"))
        for line in found.system_prompt_additions.splitlines():
            output.echo(f"  {output.clean(line)}".rstrip())
    for problem in problems:
        for line in output.diagnostic_lines(problem):
            output.echo(line)
    return None


def _visible_items(registry: Registry) -> dict[str, Any]:
    from kitbag.packing.catalog import catalog_budget, render_agents, render_skills

    view = registry.visibility_context()
    budget = catalog_budget(registry.settings)
    skills, agents = registry.visible_skills(), registry.visible_agents()
    on_demand = [s for s in registry.skills if (v := registry.evaluate(s, view)).searchable and not v.listed]
    catalogs = render_skills(skills, budget).text + render_agents(agents, budget).text
    return {
        "catalog_skills": [skill.full_name for skill, _ in skills],
        "found_on_demand": [skill.full_name for skill in on_demand],
        "catalog_agents": [agent.full_name for agent, _ in agents],
        "catalog_tokens": estimate_tokens(catalogs),
    }
