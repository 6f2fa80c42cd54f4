"""`kitbag models`: which model a run would use and why, its details, and the available providers."""

from typing import Any

import click

from kitbag.cli import output
from kitbag.cli.library_options import json_option
from kitbag.errors import KitbagError
from kitbag.library.scopes import find_places


@click.command()
@click.option("--model", default="", metavar="NAME", help="Show this model.", show_default="the `model` setting")
@json_option
def command(model: str, as_json: bool) -> None:
    """Show which model is used and why, its limits and price, and which providers have API keys."""
    from kitbag.assembly.model_sources import load_model_sources
    from kitbag.models.model_selection import select_model
    from kitbag.runtime.model_list import model_to_json, providers_to_json
    from kitbag.settings import load_settings
    from kitbag.views.model import model_fields

    # Only the user's own settings and environment: a project has no say.
    sources, diagnostics = load_model_sources(load_settings(find_places().kitbag_home, ()))
    chosen = select_model(sources, model)
    problem = ""
    try:
        chosen.connect()
    except KitbagError as error:
        problem = f"{error.problem}; {error.fix}"
    providers = providers_to_json(sources)
    if as_json:
        about = {**model_to_json(chosen), "usable": not problem, "problem": problem}
        problems = [output.diagnostic_json(diagnostic) for diagnostic in diagnostics]
        return output.as_json({"chosen": about, "providers": providers, "problems": problems})
    output.echo(output.style(output.clean(chosen.name), "bold"))
    output.fields(model_fields(chosen, problem))
    output.echo()
    output.table(
        ("PROVIDER", "KEY", "SET", "ADDRESS"),
        [(p["name"], p["key_variable"] or "-", _key_state(p), p["address"] or p["problem"]) for p in providers],
    )
    for diagnostic in diagnostics:
        for line in output.diagnostic_lines(diagnostic):
            output.remark(line)
    return None


def _key_state(provider: dict[str, Any]) -> str:
    return "yes" if provider["has_key"] else "no" if provider["key_variable"] else "not needed"
