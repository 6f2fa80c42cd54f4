"""`kitbag models`: which model a run would use and why, its details, and the available providers."""

from typing import Any

import click

from kitbag.cli import output
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.library_options import json_option
from kitbag.errors import KitbagError
from kitbag.library.scopes import find_places


@click.group(cls=CommandGroup)
def command() -> None:
    """Show which model is used and why, and which providers have API keys."""


@command.command("list")
@click.option("--model", default="", metavar="NAME", help="Show this model.", show_default="the `model` setting")
@json_option
def list_(model: str, as_json: bool) -> None:
    """Show which model is used and why, its limits and price, and which providers have API keys."""
    _show(model, "--model", as_json, with_providers=True)


@command.command()
@click.argument("name", default="", required=False)
@json_option
def show(name: str, as_json: bool) -> None:
    """Show one model: its limits, price and whether it can be used. Default: the one that is used."""
    _show(name, "", as_json, with_providers=False)


def _show(model: str, reason: str, as_json: bool, *, with_providers: bool) -> None:
    from kitbag.assembly.model_sources import load_model_sources
    from kitbag.models.model_selection import resolve_model, select_model
    from kitbag.runtime.model_list import model_to_json, providers_to_json
    from kitbag.settings import load_settings
    from kitbag.views.model import model_fields

    # Only the user's own settings and environment: a project has no say.
    sources, diagnostics = load_model_sources(load_settings(find_places().kitbag_home, ()))
    chosen = resolve_model(model, sources, reason) if model and model != "inherit" else select_model(sources)
    problem = ""
    try:
        chosen.connect()
    except KitbagError as error:
        problem = f"{error.problem}; {error.fix}"
    providers = providers_to_json(sources) if with_providers else []
    if as_json:
        about = {**model_to_json(chosen), "usable": not problem, "problem": problem}
        problems = [output.diagnostic_json(diagnostic) for diagnostic in diagnostics]
        listed = {"providers": providers} if with_providers else {}
        return output.as_json({"chosen": about, **listed, "problems": problems})
    output.echo(output.style(output.clean(chosen.name), "bold"))
    output.fields(model_fields(chosen, problem))
    if providers:
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
