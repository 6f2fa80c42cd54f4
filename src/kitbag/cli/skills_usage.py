"""`kitbag skills usage`: how skills were used in this workspace."""

from typing import Any, Final

import click

from kitbag.cli import output
from kitbag.cli.library_options import json_option
from kitbag.library.scopes import find_places

_COLUMNS: Final = ("SKILL", "SUGGESTED", "LOADED", "AFTER SUGGESTION", "AFTER SEARCH", "INVOKED", "PRIOR", "LAST")
_ONLY_WIDE: Final = ("AFTER SUGGESTION", "AFTER SEARCH")
_WIDE: Final = 110
"""Columns of a terminal that has room for all columns and the names of skills."""


@click.command("usage")
@click.option("--reset", is_flag=True, help="Start over: what was used until now no longer counts. Sessions stay.")
@json_option
def usage(reset: bool, as_json: bool) -> None:
    """Show how often skills were suggested, loaded, found by search and invoked in this workspace."""
    from kitbag.agent.skill_usage import read_usage, reset_usage
    from kitbag.assembly.open_journal import open_journal
    from kitbag.assembly.open_store import has_journal
    from kitbag.library.routing.usage_prior import weigh_loads
    from kitbag.settings import load_settings

    places = find_places()
    rows: list[Any] = []
    if has_journal(places.kitbag_home):
        with open_journal(places.kitbag_home) as journal:
            if reset:
                reset_usage(journal, places.project)
            rows = read_usage(journal, places.project)
    learns = load_settings(places.kitbag_home, places.project_dirs).get("routing.learning") == "on"
    if as_json:
        skills = [{**row.to_json(), "prior": weigh_loads(row.score) if learns else 0.0} for row in rows]
        return output.as_json({"workspace": places.project, "learning": learns, "skills": skills})
    if reset:
        output.echo("reset: past use of skills in this workspace no longer counts")
        return None
    screen = output.terminal_width()
    headers = [one for one in _COLUMNS if screen is None or screen >= _WIDE or one not in _ONLY_WIDE]
    table = [
        {
            "SKILL": row.name,
            "SUGGESTED": str(row.suggested),
            "LOADED": str(row.loaded),
            "AFTER SUGGESTION": str(row.loaded_after_suggestion),
            "AFTER SEARCH": str(row.loaded_after_search),
            "INVOKED": str(row.invoked),
            "PRIOR": f"+{weigh_loads(row.score):.2f}" if learns and row.score else "-",
            "LAST": row.last[:16].replace("T", " "),
        }
        for row in rows
    ]
    output.table(headers, [[row[one] for one in headers] for row in table], whole=headers[1:], omit=("LAST",))
    if not rows:
        output.remark("no skill was suggested or used in this workspace yet")
    elif not learns:
        output.remark("routing.learning is off: use does not affect the ranking")
    return None
