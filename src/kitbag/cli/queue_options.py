"""Options of commands that queue a background agent: when it starts, and before which others."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeVar

import click

from kitbag.cli.number_types import IntRange
from kitbag.errors import UsageError
from kitbag.library.agents import MAX_PRIORITY
from kitbag.tools.delegation import QueueOptions

MAX_KEY_LENGTH: Final = 200
_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION: Final = re.compile(r"([0-9]{1,9})\s*([smhd])")
_MAX_SECONDS: Final = 10 * 365 * 86_400
F = TypeVar("F", bound=Callable[..., Any])


def queue_options(function: F) -> F:
    for option in (
        click.option(
            "--in", "delay", default="", metavar="TIME", help="Start after this time, such as 30s, 10m, 2h or 1d.",
            show_default="start now",
        ),
        click.option(
            "--at", "start_at", default="", metavar="TIME",
            help="Start at this time, such as 2026-05-01T08:00 or 08:00; without a time zone, local time.",
            show_default="start now",
        ),
        click.option(
            "--key", default="", metavar="TEXT",
            help="If an unfinished task has the same key, print that task and start nothing.", show_default="none",
        ),
        click.option(
            "--priority", type=IntRange(-MAX_PRIORITY, MAX_PRIORITY), metavar="N",
            help="Start before queued agents with a lower priority.", show_default="the agent's own, else 0",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


def parse_queue_options(options: dict[str, Any]) -> QueueOptions:
    """Raises UsageError."""
    key = str(options["key"])
    if key and (len(key) > MAX_KEY_LENGTH or not key.isprintable()):
        raise UsageError("invalid --key", f"use up to {MAX_KEY_LENGTH} printable characters")
    if options["delay"] and options["start_at"]:
        raise UsageError("--at and --in can't be combined", "use one of them")
    given = QueueOptions(
        priority=options["priority"],
        key=key,
        not_before=_timestamp(_parse_time(str(options["start_at"]))) if options["start_at"] else "",
        delay=_parse_duration(str(options["delay"])) if options["delay"] else 0,
    )
    if given != QueueOptions() and not options["background"]:
        raise UsageError("--priority, --key, --at and --in are for background agents", "add --background")
    if given != QueueOptions() and options["resume"]:
        raise UsageError("--priority, --key, --at and --in are for new tasks", "omit them, or --resume")
    return given


def _parse_duration(text: str) -> int:
    match = _DURATION.fullmatch(text.strip())
    seconds = int(match[1]) * _UNITS[match[2]] if match else _MAX_SECONDS + 1
    if seconds > _MAX_SECONDS:
        raise UsageError(f"invalid time {text[:80]!r} for --in", "use a number with s, m, h or d, such as 10m")
    return seconds


def _parse_time(text: str) -> float:
    """A time of day is the next one."""
    now = datetime.now().astimezone()
    fix = "use a date and time such as 2026-05-01T08:00 or 2026-05-01T06:00Z, or a time of day such as 08:00"
    try:
        if re.fullmatch(r"[0-9]{1,2}:[0-9]{2}", text.strip()):
            hour, minute = text.split(":")
            today = now.replace(hour=int(hour), minute=int(minute), second=0, microsecond=0)
            return today.timestamp() if today >= now else today.timestamp() + _UNITS["d"]
        moment = datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(f"invalid time {text[:80]!r} for --at", fix) from error
    if not -_UNITS["d"] <= moment.timestamp() - now.timestamp() <= _MAX_SECONDS:
        raise UsageError(f"{text[:80]} is in the past, or more than ten years ahead", fix)
    return moment.timestamp()


def _timestamp(seconds: float) -> str:
    from kitbag.tasks.task import timestamp

    return timestamp(seconds)
