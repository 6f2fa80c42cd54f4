"""`kitbag models`: which model a run would use and why, what is known about it, which providers could be used."""

import os
from typing import Any

import click

from kitbag.cli import output
from kitbag.cli.options import json_option
from kitbag.errors import KitbagError
from kitbag.library.scopes import find_places


@click.command()
@click.option("--model", default="", metavar="NAME", help="As if --model were given.")
@json_option
def command(model: str, as_json: bool) -> None:
    """Which model would be used, and why; what is known about it; which providers have keys."""
    from kitbag.models.choice import choose
    from kitbag.runtime.sources import model_sources
    from kitbag.settings import load_settings

    # Only the user's own settings and environment: no project has a say in it.
    sources, problems = model_sources(load_settings(find_places().kitbag_home, ()))
    chosen = choose(sources, model)
    usable, fix = True, ""
    try:
        chosen.connect()
    except KitbagError as error:
        usable, fix = False, f"{error.problem}; {error.fix}"
    known = chosen.known
    about = {
        "name": chosen.name,
        "why": chosen.why,
        "usable": usable,
        "problem": fix,
        "window": known.window,
        "max_output": known.max_output,
        "images": known.images,
        "dollars_per_million": {
            "input": known.input,
            "cached": known.cached,
            "written": known.written,
            "output": known.said,
        },
        "source": known.source,
    }
    providers = [_provider(name, sources) for name in _names(sources)]
    if as_json:
        found = [output.diagnostic_json(problem) for problem in problems]
        return output.as_json({"chosen": about, "providers": providers, "problems": found})
    _show(about)
    output.echo()
    output.table(
        ("PROVIDER", "KEY", "SET", "ADDRESS"),
        [(p["name"], p["key_variable"] or "-", _yes(p), p["address"] or p["problem"]) for p in providers],
    )
    for problem in problems:
        for line in output.diagnostic_lines(problem):
            output.remark(line)
    return None


def _names(sources: Any) -> list[str]:
    from kitbag.models.choice import known_providers

    return known_providers(sources)


def _provider(name: str, sources: Any) -> dict[str, Any]:
    """Names of variables and whether they are set; never what is in them."""
    from kitbag.models.choice import endpoint, key_variable

    variable = key_variable(name, sources)
    found = {"name": name, "key_variable": variable, "has_key": bool(variable and os.environ.get(variable, "").strip())}
    try:
        place = endpoint(name, sources)
        return {**found, "address": _without_user(place.address), "needs_key": place.needs_key, "problem": ""}
    except KitbagError as error:
        return {**found, "address": "", "needs_key": False, "problem": error.problem}


def _without_user(address: str) -> str:
    """An address may hold a name and a password, and a query may hold a key."""
    scheme, _, rest = address.partition("://")
    host, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def _yes(provider: dict[str, Any]) -> str:
    return "yes" if provider["has_key"] else "no" if provider["key_variable"] else "needs none"


def _show(about: dict[str, Any]) -> None:
    prices = about["dollars_per_million"]
    cost = f"${prices['input']:g} in, ${prices['output']:g} out for a million tokens" if prices["input"] else ""
    output.echo(output.style(output.clean(about["name"]), "bold"))
    output.fields(
        [
            ("chosen by", about["why"]),
            ("can't be used", about["problem"]),
            ("window", f"{about['window']:,} tokens, replies up to {about['max_output']:,}"),
            ("images", "yes" if about["images"] else "no"),
            ("price", cost or ("nothing" if prices["input"] == 0 else "not known")),
            ("known from", about["source"]),
        ]
    )
