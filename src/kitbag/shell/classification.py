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
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    shows_environment: bool = False
    """Whether it prints environment variables, like `env`."""


OTHER: Final = Classification(kind="other")


ProgramCheck = Callable[[ParsedArguments, Classification], Classification]
