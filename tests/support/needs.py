"""What some tests need of the machine: where it is missing they are skipped, saying so, and in CI they fail."""

import os
from importlib.util import find_spec

import pytest

from kitbag.sandbox.confine import detect_sandbox
from kitbag.sandbox.landlock import detect_landlock

HOW = "scripts/system-packages installs bubblewrap"


def bubblewrap() -> None:
    """Skips the test, or fails it in CI, where bubblewrap does not run."""
    found = detect_sandbox()
    if found.kind != "bubblewrap":
        _missing(f"bubblewrap does not run here: {found.problem}; {HOW}")


def sandlock() -> None:
    version, problem = detect_landlock()
    if not version:
        _missing(f"sandlock does not run here: {problem}; it needs Linux 6.12 or newer")


def package(name: str) -> None:
    """One that the project's own `dev` extra installs."""
    if find_spec(name) is None:
        _missing(f"{name} is not installed; pip install -e '.[dev]' brings it")


def _missing(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
