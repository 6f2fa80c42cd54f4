"""The working directory of each command, relative to where the text starts, as far as `cd` determines it.

Used by `analysis`. A `cd` applies to commands that follow it with `&&`; after `;` it may have failed, so the directory
is unknown. In loops, conditions, groups and functions it is unknown once it changes.
"""

import posixpath
from collections.abc import Sequence

from kitbag.shell.scan_model import ScanFrame, ScannedCommand, ShellScan
from kitbag.shell.words import ShellWord

_DIRECTORY_COMMANDS = frozenset({"cd", "pushd", "popd"})
# After these a `cd` may mean something else, or the directory may have changed.
_CAN_CHANGE_DIRECTORY = frozenset(
    {"eval", "source", ".", "alias", "shopt", "set", "enable", "builtin", "command", "trap", "unalias"}
)


class _State:
    __slots__ = ("directory", "moved")

    def __init__(self, directory: str | None) -> None:
        self.directory = directory
        self.moved = False


def track_directories(found: ShellScan, words: Sequence[Sequence[ShellWord]], start: str | None) -> list[str | None]:
    """One for each of `found.commands`, which are sorted; `words` are their words."""
    can_change = [_can_change_directory(command_words) for command_words in words]
    if not any(can_change):
        return [start] * len(words)
    if found.has_functions:
        return [None] * len(words)  # a function runs wherever it is called
    states: dict[int, _State] = {}
    unknown = {
        command.frame.number
        for command, changes in zip(found.commands, can_change, strict=True)
        if changes and command.frame.compound
    }
    result: list[str | None] = []
    for command, command_words, changes in zip(found.commands, words, can_change, strict=True):
        state = _state(command.frame, states, start, unknown)
        if state.moved and command.connector not in ("&&", "|", "|&"):
            state.directory = None
        result.append(state.directory)
        if changes:
            state.directory = _directory_after(command, command_words, state.directory)
            state.moved = True
    return result


def _can_change_directory(words: Sequence[ShellWord]) -> bool:
    if not words:
        return False
    name = words[0].value
    return name is None or name in _CAN_CHANGE_DIRECTORY or any(word.value in _DIRECTORY_COMMANDS for word in words)


def _state(frame: ScanFrame, states: dict[int, _State], start: str | None, unknown: set[int]) -> _State:
    """A frame starts in the directory of the enclosing frame."""
    chain: list[ScanFrame] = []
    at: ScanFrame | None = frame
    while at is not None and at.number not in states:
        chain.append(at)
        at = at.outer
    for inner in reversed(chain):
        # Commands in a here document come after the command it belongs to.
        outside = states[inner.outer.number].directory if inner.outer else None if inner.number else start
        states[inner.number] = _State(None if inner.number in unknown else outside)
    return states[frame.number]


def _directory_after(command: ScannedCommand, words: Sequence[ShellWord], before: str | None) -> str | None:
    values = [word.value for word in words]
    if values[0] != "cd" or command.redirects or command.assignments or "|" in (command.connector + command.after):
        return None
    if len(values) == 3 and values[1] in ("--", "-L"):
        del values[1]
    if len(values) != 2:
        return None
    target = values[1]
    if target is None or not target or target.startswith(("-", "~")):
        return None
    parts = [part for part in target.split("/") if part not in ("", ".")]
    if target.startswith("/"):
        return None if ".." in parts else target
    if before is None:
        return None
    if ".." not in parts:
        return posixpath.join(before, *parts)
    # Back along the path we came. Other ways up depend on links, and on whether bash finds the directory at all.
    visited = [part for part in before.split("/") if part]
    if all(part == ".." for part in parts) and len(parts) <= len(visited) and not before.startswith("/"):
        return "/".join(visited[: len(visited) - len(parts)])
    return None
