"""The `pack` argument of the Task tool: a task and options of `kitbag pack` in one line, so the schema stays small.

Used by task, and by mcp_server, which packs tasks for models, too. What only a user may allow is no option here.
"""

import os
import shlex
from typing import Final

from kitbag.errors import InvalidError, UsageError
from kitbag.tools.base import ToolContext
from kitbag.tools.delegation import PackSelection

_OPTIONS: Final = ("--skills", "--strategy", "--output-requirements", "--var", "--team", "--persona")
_USER_OPTIONS: Final = ("--allow-env", "--allow-commands", "--allow", "--trust-workspace", "--permission-mode")


def parse_pack_arguments(text: str) -> tuple[str, PackSelection]:
    """The task, empty if there is none, and how to pack it. Raises UsageError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"pack: {error}", "quote values as in a shell") from error
    tasks: list[str] = []
    given: dict[str, list[str]] = {option: [] for option in _OPTIONS}
    remaining = iter(words)
    for word in remaining:
        option, equals, value = word.partition("=")
        if not word.startswith("--"):
            tasks.append(word)
        elif option in _USER_OPTIONS:
            raise UsageError(f"pack: only the user can set {option}", f"ask the user to start kitbag with {option}")
        elif option not in given:
            raise UsageError(f"pack: unknown option {option}", f"use {', '.join(_OPTIONS)}")
        else:
            given[option].append(value if equals else next(remaining, ""))
    if len(tasks) != 1 and words:
        raise UsageError(f"pack: {len(tasks)} tasks", "write one task ID or file, then options")
    return "".join(tasks), _selection(given)


def check_task_reference(reference: str, context: ToolContext) -> str:
    """Reads a file only if the rules let a model read it. Raises InvalidError."""
    if reference == "-":
        raise UsageError("standard input is not available", "pass the ID, a file, or the task itself")
    path = os.path.join(context.directory, os.path.expanduser(reference)) if "\0" not in reference else ""
    if path and os.path.exists(path):
        decision = context.permissions.with_mode("default").decide("Read", {"file_path": os.path.realpath(path)})
        if decision.effect != "allow":
            raise InvalidError(f"cannot read {reference[:300]}: {decision.reason}", "pass the task itself")
    return reference


def _selection(given: dict[str, list[str]]) -> PackSelection:
    def last(option: str) -> str:
        return given[option][-1] if given[option] else ""

    values: dict[str, str] = {}
    for pair in given["--var"]:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"pack: --var {pair}: no `=`", "write --var NAME=value")
        values[name] = value
    return PackSelection(
        skills=tuple(name for text in given["--skills"] for name in text.split(",") if name),
        strategy=last("--strategy"),
        output=last("--output-requirements"),
        values=values,
        team=last("--team"),
        persona=last("--persona"),
    )
