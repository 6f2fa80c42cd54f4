"""Runs `kitbag -p` with the options of the root command."""

from typing import Any

from kitbag.cli.headless import HeadlessOptions, run_headless
from kitbag.cli.run_options import build_run_options, check_options
from kitbag.cli.run_output import create_run_output
from kitbag.errors import KitbagError


def ask(options: dict[str, Any]) -> int:
    """Returns the exit code."""
    try:
        check_options(options)
        headless_options = HeadlessOptions(
            prompt=options["prompt"],
            options=build_run_options(options),
            output_format=options["output_format"],
            input_format=options["input_format"],
            wait_for_background=options["waits"],
        )
    except KitbagError as error:
        create_run_output(options["output_format"]).fail(error)
        return error.exit_code
    return run_headless(headless_options)
