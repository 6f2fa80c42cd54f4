"""Token buckets: how many requests and tokens per minute may be used, shared by all processes that share a store.

A bucket holds one minute's worth and refills continuously. A take may overdraw it: the caller then waits until the debt
is refilled, so callers are served in order and ask once. Used by the journal: a file keeps its buckets beside it,
PostgreSQL in a table (`kitbag_take`), by the server's clock.
"""

import contextlib
import json
import os
import time
from typing import Any, Final, cast

import msgspec

from kitbag.store import private_files

_FILE: Final = "state/rate-limits.json"
_LOCK: Final = "state/rate-limits.lock"


class RateLimit(msgspec.Struct, frozen=True, kw_only=True):
    """Per minute; 0: no limit."""

    requests: float = 0
    tokens: float = 0


class Bucket(msgspec.Struct):
    requests: float
    tokens: float
    at: float

    def take(self, limit: RateLimit, requests: float, tokens: float, now: float) -> float:
        """Seconds until what was taken is there. Negative amounts are given back."""
        minutes = max(now - self.at, 0.0) / 60
        self.requests = min(self.requests + minutes * limit.requests, limit.requests) - requests
        self.tokens = min(self.tokens + minutes * limit.tokens, limit.tokens) - tokens
        self.at = max(self.at, now)
        waits = [
            -left * 60 / rate
            for left, rate in ((self.requests, limit.requests), (self.tokens, limit.tokens))
            if rate and left < 0
        ]
        return max(waits, default=0.0)


def take_from_file(kitbag_home: str, name: str, limit: RateLimit, requests: float, tokens: float) -> float:
    """Like `Bucket.take`. A damaged file counts as full buckets. Raises StoreError."""
    with private_files.hold_lock(kitbag_home, _LOCK):
        buckets: dict[str, Any] = {}
        with contextlib.suppress(ValueError):
            found: object = json.loads(private_files.read(kitbag_home, _FILE) or b"{}")
            buckets = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        now = time.time()
        try:
            bucket = msgspec.convert(buckets.get(name), Bucket)
        except msgspec.ValidationError:
            bucket = Bucket(limit.requests, limit.tokens, now)
        wait = bucket.take(limit, requests, tokens, now)
        buckets[name] = msgspec.to_builtins(bucket)
        private_files.write(kitbag_home, _FILE, json.dumps(buckets).encode())
        return wait


def bucket_home(journal_path: str) -> str:
    """The Kitbag home of a journal file, which is in its directory `state`."""
    return os.path.dirname(os.path.dirname(journal_path))
