"""A bench for each test, and each engine for what searches."""

from pathlib import Path

import pytest

from kitbag.tools.search import ripgrep
from support.using import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(params=["ripgrep", "python"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Once with the ripgrep that is installed beside Python and once with none to be found."""
    if request.param == "python":
        without_ripgrep(monkeypatch)
    return str(request.param)


def without_ripgrep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    # Its wheel may be installed beside Python, where no PATH is needed.
    monkeypatch.setattr(ripgrep, "EXECUTABLE", "no-such-rg")
