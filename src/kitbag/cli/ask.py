"""From the options of the root command to a request without a person at hand."""

import os
from typing import Any

from kitbag.agent.loop import Limits
from kitbag.cli.headless import Wanted, run_headless
from kitbag.errors import UsageError
from kitbag.library.tool_aliases import split_names
from kitbag.runtime.agent import Options


def ask(options: dict[str, Any]) -> int:
    """The exit code."""
    directory = options["cwd"]
    if directory and not os.path.isdir(directory):
        raise UsageError(f"--cwd {directory}: not a directory", "give an existing directory")
    if options["go_on"] and options["resume"]:
        raise UsageError("--continue and --resume together", "give one of them")
    if options["fork"] and not (options["go_on"] or options["resume"]):
        raise UsageError("--fork without a session", "say which with --resume ID or --continue")
    given = Options(
        directory=directory,
        model=options["model"],
        mode=options["permission_mode"],
        agent=options["agent"],
        team=options["team"],
        persona=options["persona"],
        only_tools=_rules(options["allowed_tools"]),
        no_tools=_rules(options["disallowed_tools"]),
        trust_workspace=options["trust_workspace"],
        append=options["append"],
        effort=options["effort"] or "",
        extra=options["dirs"],
        limits=Limits(options["max_turns"] or 0, options["max_tokens"] or 0, options["max_cost"] or 0.0),
        resume="last" if options["go_on"] else options["resume"],
        fork=options["fork"],
    )
    return run_headless(Wanted(options["prompt"], given, options["output_format"], options["input_format"]))


def _rules(written: tuple[str, ...]) -> tuple[str, ...]:
    """`--allowed-tools "Read,Bash(git log:*)"`, or the option several times."""
    return tuple(rule for text in written for rule in split_names(text))
