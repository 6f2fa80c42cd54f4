"""What some tests need of the machine: where it is missing they are skipped, saying so, and in CI they fail."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from kitbag.sandbox.confine import detect_sandbox
from kitbag.sandbox.landlock import detect_landlock

HOW = "scripts/system-packages installs bubblewrap"
ROOT = Path(__file__).parents[2]


def bubblewrap() -> None:
    """Skips the test, or fails it in CI, where bubblewrap does not run."""
    found = detect_sandbox()
    if found.kind != "bubblewrap":
        missing(f"bubblewrap does not run here: {found.problem}; {HOW}")


def sandlock() -> None:
    version, problem = detect_landlock()
    if not version:
        missing(f"sandlock does not run here: {problem}; it needs Linux 6.12 or newer")


def package(name: str) -> None:
    """One that the project's own `dev` extra installs."""
    if find_spec(name) is None:
        missing(f"{name} is not installed; pip install -e '.[dev]' brings it")


def chromium() -> None:
    """Skips the test, or fails it in CI, where the browser or what drives it is missing."""
    package("playwright")
    if shutil.which("chromium") is None:
        missing("Chromium is not installed; scripts/system-packages installs it")


def axe_core() -> Path:
    """The path of its script; skips the test, or fails it in CI, where it is not installed."""
    path = ROOT / ".cache/axe-core/node_modules/axe-core/axe.min.js"
    if not path.exists():
        missing("axe-core is not installed; scripts/axe-core installs it with npm")
    return path


def conformance_suite() -> str:
    """The path of its program; skips the test, or fails it in CI, where it is not installed."""
    path = ROOT / ".cache/mcp-conformance/node_modules/@modelcontextprotocol/conformance/dist/index.js"
    if shutil.which("node") is None or not path.exists():
        missing("the MCP conformance suite is not installed; scripts/conformance-suite installs it with npm")
    return str(path)


def missing(reason: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
