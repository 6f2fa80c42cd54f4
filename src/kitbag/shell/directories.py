"""The working directories that each command may run in, relative to where the text starts, as far as `cd` determines
them.

Used by `analysis`. A `cd` applies to commands that follow it with `&&`; after `;` it may have failed, so there are
several. In loops, conditions, groups and functions they are unknown once a `cd` changes them.
"""

import posixpath
from collections.abc import Callable, Sequence
from typing import Final

from kitbag.shell.expansions import has_marker
from kitbag.shell.scan_model import ScanFrame, ScannedCommand, ShellScan
from kitbag.shell.words import ShellWord

Directories = tuple[str, ...]
"""Empty: unknown."""
Alternatives = Callable[[str, int, ScanFrame | None], list[tuple[str, ...]] | None]
_MAX_DIRECTORIES: Final = 8
_DIRECTORY_COMMANDS = frozenset({"cd", "pushd", "popd"})
# After these a `cd` may mean something else, or the directory may have changed.
_CAN_CHANGE_DIRECTORY = frozenset(
    {"eval", "source", ".", "alias", "shopt", "set", "enable", "builtin", "command", "trap", "unalias"}
)


class _State:
    __slots__ = ("directories", "possible")

    def __init__(self, directories: Directories) -> None:
        self.directories = directories
        """If everything before it on the `&&` list succeeded."""
        self.possible = directories
        """Wherever earlier commands may have left the shell."""


def track_directories(
    found: ShellScan, words: Sequence[Sequence[ShellWord]], start: Directories, alternatives: Alternatives
) -> list[Directories]:
    """One for each of `found.commands`, which are sorted; `words` are their words."""
    can_change = [_can_change_directory(command_words) for command_words in words]
    if not any(can_change):
        return [start] * len(words)
    if found.has_functions:
        return [()] * len(words)  # a function runs wherever it is called
    states: dict[int, _State] = {}
    unknown = {
        command.frame.number
        for command, changes in zip(found.commands, can_change, strict=True)
        if changes and command.frame.compound
    }
    result: list[Directories] = []
    for command, command_words, changes in zip(found.commands, words, can_change, strict=True):
        state = _state(command.frame, states, start, unknown)
        if command.connector not in ("&&", "|", "|&"):
            state.directories = state.possible
        result.append(state.directories)
        if changes:
            state.directories = _directories_after(command, command_words, state.directories, alternatives)
            both = tuple(dict.fromkeys((*state.possible, *state.directories)))
            is_known = state.possible and state.directories and len(both) <= _MAX_DIRECTORIES
            state.possible = both if is_known else ()
    return result


def _can_change_directory(words: Sequence[ShellWord]) -> bool:
    if not words:
        return False
    name = words[0].value
    return name is None or name in _CAN_CHANGE_DIRECTORY or any(word.value in _DIRECTORY_COMMANDS for word in words)


def _state(frame: ScanFrame, states: dict[int, _State], start: Directories, unknown: set[int]) -> _State:
    """A frame starts in the directory of the enclosing frame."""
    chain: list[ScanFrame] = []
    at: ScanFrame | None = frame
    while at is not None and at.number not in states:
        chain.append(at)
        at = at.outer
    for inner in reversed(chain):
        # Commands in a here document come after the command it belongs to.
        outside = states[inner.outer.number].directories if inner.outer else () if inner.number else start
        states[inner.number] = _State(() if inner.number in unknown else outside)
    return states[frame.number]


def _directories_after(
    command: ScannedCommand, words: Sequence[ShellWord], before: Directories, alternatives: Alternatives
) -> Directories:
    if words[0].value != "cd" or command.assignments:
        return ()
    if {command.connector, command.after} & {"|", "|&"}:
        return ()
    if any(operator not in (">", ">>", "&>", ">&") for operator, _ in command.redirects):
        return ()
    operands = list(words[1:])
    if len(operands) == 2 and operands[0].value in ("--", "-L"):
        del operands[0]
    if len(operands) != 1:
        return ()
    target = operands[0]
    choices = (
        [(target.value,)] if target.value is not None else alternatives(target.raw, command.start, command.frame) or []
    )
    after = [
        _enter(choice[0], place) if len(choice) == 1 else None for choice in choices for place in before or (None,)
    ]
    found = tuple(dict.fromkeys(place for place in after if place is not None))
    return found if None not in after and len(found) <= _MAX_DIRECTORIES else ()


def _enter(target: str, before: str | None) -> str | None:
    """The directory after `cd target`; None if unknown."""
    if not target or target.startswith(("-", "~")) or has_marker(target):
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
