from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.talking import Talk
from conftest import World


@pytest.fixture
def talk(world: World) -> Iterator[Callable[..., Talk]]:
    made: list[Talk] = []

    def begin(*arguments: Any, **options: Any) -> Talk:
        made.append(Talk(world, *arguments, **options))
        return made[-1]

    yield begin
    for one in made:
        one.close()
