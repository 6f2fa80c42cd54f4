"""When a provider accepts requests again, read from the headers of its response.

Understands retry-after (seconds or a date), retry-after-ms, and the rate-limit resets of Anthropic and OpenAI. Used by
api_errors.
"""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Final

_MAX_SECONDS: Final = 366 * 86_400.0
"""Anything longer is not a time to wait for."""
_FIRST_EPOCH: Final = 1_000_000_000
"""A larger number is a date in seconds or, from 1e11, in milliseconds."""
_DURATION: Final = re.compile(
    r"(?=.)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?", re.ASCII
)
"""As OpenAI writes it: `6m0s`, `20ms`."""
_RESET: Final = re.compile(r"(?:anthropic-|x-)?ratelimit-(?:(.+)-)?reset(?:-(.+))?")


def parse_retry_time(headers: Mapping[str, str], now: Callable[[], float] = time.time) -> float | None:
    """Seconds to wait; None if the provider does not say. `headers`: names in lowercase."""
    milliseconds = _parse_number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return _limit(milliseconds / 1_000)
    stated = headers.get("retry-after", "")
    if stated:
        seconds = _parse_number(stated)
        return _limit(seconds if seconds is not None else _parse_date(stated, now()))
    resets = [_limit(wait) for wait in _exhausted_resets(headers, now())]
    return max((wait for wait in resets if wait is not None), default=None)


def _exhausted_resets(headers: Mapping[str, str], now: float) -> Iterator[float | None]:
    """The waits for the limits that have nothing left."""
    for name, value in headers.items():
        match = _RESET.fullmatch(name)
        if match is None:
            continue
        remaining = _parse_number(headers.get(name.replace("reset", "remaining"), "0"))
        if remaining is not None and remaining <= 0:
            yield _parse_reset(value.strip(), now)


def _parse_reset(value: str, now: float) -> float | None:
    number = _parse_number(value)
    if number is not None:
        if number < _FIRST_EPOCH:
            return number
        return number / (1_000 if number >= _FIRST_EPOCH * 100 else 1) - now
    match = _DURATION.fullmatch(value)
    if match is not None:
        units = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
        return sum(float(part or 0) * unit for part, unit in zip(match.groups(), units, strict=True))
    return _parse_date(value, now)


def _parse_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _parse_date(text: str, now: float) -> float | None:
    """An HTTP date or a timestamp of RFC 3339."""
    from email.utils import parsedate_to_datetime

    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            return parse(text).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            continue
    return None


def _limit(seconds: float | None) -> float | None:
    return max(seconds, 0.0) if seconds is not None and seconds <= _MAX_SECONDS else None
