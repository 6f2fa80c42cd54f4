"""Limits of a command. Apart from `supervised`, because permission decisions contain them."""

from typing import Final

import msgspec


class CommandLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What all processes of a command may use together; 0: no limit."""

    processes: int = 0
    memory: int = 0
    """Bytes."""
    file_size: int = 0
    """Bytes, for each file."""


DEFAULT_LIMITS: Final = CommandLimits(processes=1_000, memory=8_000 << 20, file_size=10_000 << 20)
"""Without settings; those have the same defaults."""
