"""`kitbag skills budget`: how the catalog's budget is spent."""

from collections import Counter
from typing import TYPE_CHECKING

import click

from kitbag.cli import output
from kitbag.cli.library_options import json_option, library_options, limit_option, open_registry
from kitbag.cli.number_types import IntRange
from kitbag.text.human_format import shorten_home

if TYPE_CHECKING:
    from kitbag.packing.budget_report import BudgetReport


@click.command("budget")
@click.option("--all", "everything", is_flag=True, help="Also list skills that are described in full or hidden.")
@click.option(
    "--window",
    type=IntRange(1_000),
    default=200_000,
    show_default=True,
    help="Context window in tokens, for a budget in percent.",
)
@limit_option
@library_options
@json_option
def budget(
    everything: bool, window: int, limit: int, dirs: tuple[str, ...], team: str, persona: str, as_json: bool
) -> None:
    """Show which skills the catalog describes, shortens, lists by name or omits, and why."""
    from kitbag.packing.budget_report import report_budget
    from kitbag.packing.catalog import catalog_budget

    registry = open_registry(dirs, team, persona)
    report = report_budget(registry, catalog_budget(registry.settings, window))
    if as_json:
        return output.as_json(report.to_json())
    rows = [row for row in report.rows if everything or row.listing in ("shortened", "by name", "omitted")]
    shown = rows[: limit or None]
    if shown:
        output.table(
            ("SKILL", "LISTING", "CHARACTERS", "WHY"),
            [
                (
                    row.name,
                    row.listing,
                    f"{row.characters:,} of {row.wanted:,}" if row.wanted else "-",
                    shorten_home(row.reason),
                )
                for row in shown
            ],
            whole=("LISTING", "CHARACTERS"),
            omit=("WHY",),
        )
        output.report_omitted("more skill", len(rows) - len(shown))
        output.echo()
    output.fields(_summarize(report))
    return None


def _summarize(report: "BudgetReport") -> list[tuple[str, str]]:
    """For each listing the number of skills, and the reasons that hold for more than one of them."""
    found: list[tuple[str, str]] = []
    for listing in ("described", "shortened", "by name", "omitted", "hidden"):
        reasons = Counter(row.reason for row in report.rows if row.listing == listing)
        shared = [shorten_home(reason) for reason, count in reasons.most_common() if reason and count > 1]
        if reasons:
            why = f": {'; '.join(shared)}" if shared else ""
            found.append((listing, f"{reasons.total():,}{why}"))
    budget = report.budget
    return [
        *(found or [("described", "no skills")]),
        ("descriptions", f"{report.descriptions:,} of {budget.descriptions:,} characters"),
        ("names", f"{report.names:,} of {budget.names:,} characters"),
        ("total", f"{report.tokens:,} tokens"),
    ]
