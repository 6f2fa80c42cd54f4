"""Limits for one reply: how long a provider may be silent, how long a reply may take and how much it may contain.

StreamWatch applies them while a stream is read; ContentBudget counts what a parser keeps. Used by wire and adapters.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

T = TypeVar("T")

MAX_BLOCKS: Final = 1_024
"""Content blocks of one reply: texts, thoughts and tool calls."""
_WIRE_FACTOR: Final = 64
"""A stream may take this many times the bytes of the characters it may contain: each event repeats names and ids."""
_PROGRESS_BYTES: Final = 1_024
"""This many bytes of an incomplete line count as activity."""


class ReplyLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds and characters; 0: no limit."""

    first_byte: float = 300.0
    first_byte_local: float = 900.0
    """For a server on this machine, which may need long to read the prompt."""
    event: float = 60.0
    """Between two events; pings and comments are events."""
    reply: float = 3_600.0
    """For a whole reply."""
    characters: int = 2_000_000
    """Text, thinking and tool calls of a reply."""


class ReplyLimitError(Exception):
    """The reply is cut here; what has arrived is kept."""

    def __init__(self, reason: str, setting: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.setting = setting
        """The setting that raises the limit; empty if none does."""


class StalledError(Exception):
    def __init__(self, seconds: float, setting: str) -> None:
        super().__init__(seconds)
        self.seconds = seconds
        self.setting = setting


class ContentBudget:
    """Counts the content that a parser keeps."""

    def __init__(self, limits: ReplyLimits) -> None:
        self._limit = limits.characters
        self._characters = 0
        self._blocks = 0

    def take(self, text: str) -> str:
        """The part of the text that fits."""
        remaining = self._limit - self._characters
        self._characters += len(text)
        return text if not self._limit or len(text) <= remaining else text[: max(remaining, 0)]

    def fits(self, characters: int) -> bool:
        """Counts content that is kept as a whole or not at all."""
        self._characters += characters
        return not self._limit or self._characters <= self._limit

    def add_block(self) -> bool:
        """Whether one more block fits."""
        self._blocks += 1
        return self._blocks <= MAX_BLOCKS

    def check(self) -> None:
        """Raises ReplyLimitError."""
        if self._blocks > MAX_BLOCKS:
            raise ReplyLimitError(f"it has more than {MAX_BLOCKS:,} content blocks", "")
        if self._limit and self._characters > self._limit:
            raise ReplyLimitError(f"it is longer than {self._limit:,} characters", "limits.reply")


class StreamWatch:
    """The time and the bytes of one stream."""

    def __init__(self, limits: ReplyLimits, is_local: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._first_byte = limits.first_byte_local if is_local else limits.first_byte
        self._first_byte_setting = "timeouts.first_byte_local" if is_local else "timeouts.first_byte"
        self._clock = clock
        self._started = self._active = clock()
        self._bytes = self._pending_bytes = 0
        self.may_think: Callable[[], bool] = lambda: False
        """Whether the model thinks without sending anything."""

    async def wait(self, operation: Awaitable[T]) -> T:
        """Raises StalledError if nothing arrives in time, and ReplyLimitError if the reply takes too long."""
        import asyncio  # on first use: settings are read without it

        now = self._clock()
        silence, setting = self._allowed_silence()
        ends = [self._active + silence] if silence else []
        ends += [self._started + self._limits.reply] if self._limits.reply else []
        try:
            async with asyncio.timeout(max(min(ends) - now, 0.0) if ends else None):
                return await operation
        except TimeoutError:
            if self._limits.reply and self._clock() >= self._started + self._limits.reply:
                problem = f"it took longer than {self._limits.reply:.0f} s"
                raise ReplyLimitError(problem, "timeouts.reply") from None
            raise StalledError(silence, setting) from None

    def _allowed_silence(self) -> tuple[float, str]:
        if not self._bytes or self.may_think():
            return self._first_byte, self._first_byte_setting
        return self._limits.event, "timeouts.event"

    def received(self, size: int, *, is_event: bool) -> None:
        """Raises ReplyLimitError if there are too many bytes."""
        self._bytes += size
        self._pending_bytes += size
        if is_event or self._pending_bytes >= _PROGRESS_BYTES:
            self._active, self._pending_bytes = self._clock(), 0
        limit = self._limits.characters * _WIRE_FACTOR
        if limit and self._bytes > limit:
            raise ReplyLimitError(f"it is larger than {limit >> 20:,} MB", "limits.reply")
