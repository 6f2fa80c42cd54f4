"""A victim for each test of a hostile model."""

from collections.abc import Iterator

import pytest

from behaviour.hostile import Victim, hostile_world


@pytest.fixture
def victim(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Victim]:
    cache = request.config.cache
    assert cache is not None, "the world of these tests lies in pytest's cache"
    with hostile_world(cache, monkeypatch) as world:
        yield Victim(world)
