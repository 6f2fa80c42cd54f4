"""What comes through a pipe may be words of others: nobody stands behind a file that they name."""

import asyncio

import pytest

from conftest import World
from kitbag.chat.ui import ExitRequested, Submitted, UserAction
from support.talking_face import TalkingFace, talking


class Sent(TalkingFace):
    def __init__(self, said: Submitted) -> None:
        super().__init__(plain=True)
        self.said: list[Submitted] = [said]

    async def next(self) -> UserAction:
        return self.said.pop() if self.said else ExitRequested(immediately=False)


@pytest.mark.parametrize("from_pipe", [True, False])
def test_a_file_outside_is_taken_as_named_by_the_person_only_where_they_typed_it(
    at_home: World, from_pipe: bool
) -> None:
    path = at_home.write("other.txt", "OUTSIDE\n", at_home.outside)

    async def go() -> str:
        face = Sent(Submitted(text=f"look at @{path}", is_piped=from_pipe))
        async with talking(at_home, "Done.", face=face) as talk:
            await talk.chat.run()
            return f"{talk.last_request()}\n{face.seen()}"

    seen = asyncio.run(go())
    assert ("OUTSIDE" in seen) != from_pipe
    assert ("is not shown to the model" in seen) == from_pipe
