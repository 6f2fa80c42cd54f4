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

    # Only the user's own settings and environment: a project has no say.
    sources, problems = load_model_sources(load_settings(find_places().kitbag_home, ()))
    chosen = select_model(sources, model)
    usable, fix = True, ""
    try:
        chosen.connect()
    except KitbagError as error:
        usable, fix = False, f"{error.problem}; {error.fix}"
    about = {**model_to_json(chosen), "usable": usable, "problem": fix}
    providers = providers_to_json(sources)
    if as_json:
        diagnostics = [output.diagnostic_json(problem) for problem in problems]
        return output.as_json({"chosen": about, "providers": providers, "problems": diagnostics})
    _print_model(about)
    output.echo()
    output.table(
        ("PROVIDER", "KEY", "SET", "ADDRESS"),
        [(p["name"], p["key_variable"] or "-", _key_state(p), p["address"] or p["problem"]) for p in providers],
    )
    for problem in problems:
        for line in output.diagnostic_lines(problem):
            output.remark(line)
    return None


def _key_state(provider: dict[str, Any]) -> str:
    return "yes" if provider["has_key"] else "no" if provider["key_variable"] else "not needed"


def _print_model(about: dict[str, Any]) -> None:
    from kitbag.runtime.model_list import format_price

    output.echo(output.style(output.clean(about["name"]), "bold"))
    output.fields(
        [
            ("chosen by", about["why"]),
            ("unusable", about["problem"]),
            ("window", f"{about['window']:,} tokens, replies up to {about['max_output']:,}"),
            ("images", "yes" if about["images"] else "no"),
            ("price", format_price(about["dollars_per_million"])),
            ("known from", about["source"]),
        ]
    )
