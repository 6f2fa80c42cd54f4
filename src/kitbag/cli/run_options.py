"""Converts options of the root command to those of a run, for `-p` and the chat."""

import os
from typing import TYPE_CHECKING, Any, Final

from kitbag.cli.output import is_interactive
from kitbag.errors import UsageError
from kitbag.library.dialects.tool_aliases import split_tool_names

if TYPE_CHECKING:
    from kitbag.assembly.run_options import Options


CHOOSE_SESSION: Final = "?"
"""`--resume` without an ID."""


def check_options(options: dict[str, Any]) -> None:
    """Raises UsageError for conflicting options, before anything is loaded."""
    for name, directory in (("--cwd", options["cwd"]), *(("--dir", one) for one in options["dirs"])):
        if directory and not os.path.isdir(directory):
            raise UsageError(f"{name} {directory}: not a directory", "use an existing directory")
    if options["continue_newest"] and options["resume"]:
        raise UsageError("--continue and --resume can't be combined", "remove one of them")
    if options["fork"] and not (options["continue_newest"] or options["resume"]):
        raise UsageError("--fork needs a session", "add --resume ID or --continue")
    if options["resume"].startswith("-"):  # not parsed as an option: an ID from elsewhere must not become one
        problem = f"{options['resume'][:80]!r} was read as the session ID of --resume"
        raise UsageError(problem, "to choose from a list, write --resume last; else add the ID")
    if options["resume"] == CHOOSE_SESSION and options["fork"]:
        raise UsageError("--fork needs a session", "add the ID: --resume ID --fork")
    if options["resume"] == CHOOSE_SESSION and (options["prompt"] is not None or not is_interactive()):
        fix = "list sessions with `kitbag sessions list`, or use --continue for the newest"
        raise UsageError("--resume needs a session ID here: it can only ask in an interactive chat", fix)
    for name in ("allowed_tools", "disallowed_tools"):
        _split_rules(f"--{name.replace('_', '-')}", options[name])


def build_run_options(options: dict[str, Any]) -> "Options":
    from kitbag.agent.turn_limits import Limits
    from kitbag.assembly.run_options import Options

    return Options(
        directory=options["cwd"],
        model=options["model"],
        mode=options["permission_mode"],
        agent=options["agent"],
        team=options["team"],
        persona=options["persona"],
        only_tools=_split_rules("--allowed-tools", options["allowed_tools"]),
        no_tools=_split_rules("--disallowed-tools", options["disallowed_tools"]),
        trust_workspace=options["trust_workspace"],
        allow_env=options["environment"],
        append=options["append"],
        effort=options["effort"] or "",
        extra=options["dirs"],
        limits=Limits(
            turns=options["max_turns"] or 0,
            tokens=options["max_tokens"] or 0,
            cost=options["max_cost"] or 0.0,
            seconds=options["max_time"] or 0.0,
        ),
        resume="last" if options["continue_newest"] else options["resume"].removeprefix(CHOOSE_SESSION),
        fork=options["fork"],
    )


def _split_rules(name: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """`--allowed-tools "Read,Bash(git log:*)"`, or the option several times. Rejects an option without rules, which
    would mean no limit."""
    rules = tuple(rule for text in values for rule in split_tool_names(text))
    if values and not rules:
        raise UsageError(f"{name} contains no tool", "name a tool or remove the option")
    return rules
