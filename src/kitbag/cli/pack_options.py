"""How a task is packed: the options of `kitbag pack` and `kitbag agents run --pack`."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from kitbag.cli.permission_options import allow_env_option
from kitbag.errors import UsageError
from kitbag.packing.fit import parse_token_count
from kitbag.packing.loading_strategy import STRATEGIES
from kitbag.packing.output_contract import OUTPUT_KINDS

F = TypeVar("F", bound=Callable[..., Any])
ALLOW_OPTIONS: Final = ("--allow-commands", "--allow-env")
_OPTIONS: Final = (
    click.option(
        "--skills",
        "names",
        metavar="A,B",
        help="Include these skills; the first is the primary skill.",
        show_default="selected to match the task",
    ),
    click.option(
        "--strategy",
        type=click.Choice(STRATEGIES),
        help="Set how much of each skill to include.",
        show_default="chosen by budget",
    ),
    click.option(
        "--output-requirements",
        "kind",
        type=click.Choice(OUTPUT_KINDS),
        help="Set how the subagent reports its result.",
        show_default="manifest+file, or text for an agent that can't write files",
    ),
    click.option("--var", "variables", multiple=True, metavar="K=V", help="Set the variable {{K}} to V. Repeatable."),
    click.option(
        "--budget",
        "budgets",
        multiple=True,
        metavar="NAME=N",
        help="Set a budget: protocol, task, skills, total or fill. Repeatable.",
        show_default="the `budget.*` settings",
    ),
    click.option("--allow-commands", is_flag=True, help="Approve every !`command` that needs approval."),
)


def pack_options(function: F) -> F:
    for option in reversed((*_OPTIONS, allow_env_option)):
        function = option(function)
    return function


def parse_names(value: str | None) -> tuple[str, ...]:
    names = tuple(name.strip() for name in (value or "").split(",") if name.strip())
    if value is not None and not names:
        raise UsageError(
            "--skills contains no skill", "name a skill, or remove the option to select skills automatically"
        )
    return names


def parse_pairs(option: str, written: tuple[str, ...]) -> dict[str, str]:
    values: dict[str, str] = {}
    for pair in written:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} {pair}: no `=`", f"write {option} NAME=value")
        values[name.strip()] = value
    return values


def parse_budgets(written: tuple[str, ...]) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for name, value in parse_pairs("--budget", written).items():
        number = parse_token_count(value)
        if number is None:
            raise UsageError(f"--budget {name}={value[:40]}: not a number of tokens", "write --budget NAME=tokens")
        numbers[name] = number
    return numbers
