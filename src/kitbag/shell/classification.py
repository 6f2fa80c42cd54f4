"""The classification of one command: its parsed arguments, and whether it only reads, only edits, or neither.

Used by `command_table` and `programs`.
"""

from collections.abc import Callable
from typing import Final, Literal

import msgspec

CommandKind = Literal["read", "edit", "other"]


class ParsedArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The words of one command by role."""

    options: tuple[tuple[str, str | None], ...]
    operands: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    has_program: bool
    """An option replaces the first operand."""


class Classification(msgspec.Struct, frozen=True, kw_only=True):
    kind: CommandKind
    reason: str = ""
    """Why it is "other"; empty if there is nothing more to say than that it may modify files."""
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    shows_environment: bool = False
    """Whether it prints environment variables, like `env`."""
    loads: tuple[str, ...] = ()
    """Files of a workspace from which the program may run code."""


OTHER: Final = Classification(kind="other")
UNKNOWN_WORD: Final = Classification(kind="other", reason="an argument is only known at run time")
UNKNOWN_PATH: Final = Classification(kind="other", reason="a path is only known at run time")
UNKNOWN_OPTION: Final = Classification(kind="other", reason="has an option that may modify files or run programs")


ProgramCheck = Callable[[ParsedArguments, Classification], Classification]
