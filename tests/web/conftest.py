"""A Chromium for the tests of the web UI."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from support import needs

if TYPE_CHECKING:
    from support.browser import Chromium


@pytest.fixture(scope="session")
def chromium() -> "Iterator[Chromium]":
    needs.chromium()
    from support.browser import Chromium

    running = Chromium()
    yield running
    running.close()
