"""Workers for the tests of this folder; none of them outlives its test."""

from collections.abc import Iterator

import pytest

import needs
from conftest import World
from tasks.workshop import Nursery, Workshop, opened


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


@pytest.fixture
def workshop(world: World, nursery: Nursery) -> Iterator[Workshop]:
    needs.bubblewrap()  # its agents run commands
    with opened(world, nursery) as made:
        yield made
