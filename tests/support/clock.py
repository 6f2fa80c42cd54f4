"""Time that passes when a test says so: what has a limit gets as far as it should before the limit is over."""

import time
from types import ModuleType
from typing import Any

import pytest


class Clock:
    """Stands in for `time` in some modules: the real time, and what was let pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
        self._passed = 0.0
        for module in modules:
            monkeypatch.setattr(module, "time", self)

    def let_pass(self, seconds: float) -> None:
        self._passed += seconds

    def monotonic(self) -> float:
        return time.monotonic() + self._passed

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)
