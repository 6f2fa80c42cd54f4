"""From the options of the root command to requests without a person at hand."""

from typing import Any

from kitbag.cli.headless import Wanted, run_headless
from kitbag.cli.run_options import check_options, options_of
from kitbag.cli.run_output import report_for
from kitbag.errors import KitbagError


def ask(options: dict[str, Any]) -> int:
    """The exit code."""
    try:
        check_options(options)
        wanted = Wanted(
            options["prompt"], options_of(options), options["output_format"], options["input_format"], options["waits"]
        )
    except KitbagError as error:
        report_for(options["output_format"]).fail(error)
        return error.exit_code
    return run_headless(wanted)
