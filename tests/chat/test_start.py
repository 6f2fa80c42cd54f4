"""The start of the chat: one can type, and leave, before all that belongs to it is there."""

import asyncio
import json
import sys
from typing import Any

import pytest

from chat.queue_face import QueueFace, in_a_loop
from conftest import World
from kitbag.assembly.run_options import Options
from kitbag.chat.start import run_chat
from kitbag.chat.ui import ExitRequested, KeyPressed
from kitbag.errors import InvalidError
from kitbag.library.scopes import find_places
from kitbag.runtime.session_locks import hold_session
from support.waiting import TEST_TIMEOUT

pytestmark = pytest.mark.usefixtures("at_home")


def begin(world: World, face: QueueFace, **more: Any) -> "asyncio.Task[int]":
    options = Options(directory=str(world.workspace), model="offline", trust_workspace=True, **more)
    return asyncio.ensure_future(run_chat(face, find_places(str(world.workspace)), options, lambda agent: None))


def slow_server(world: World) -> None:
    """It never says a word."""
    program = "import pathlib, time; pathlib.Path('begun').touch(); time.sleep(600)"
    settings = f"[mcp_servers.slow]\ncommand = {json.dumps(sys.executable)}\nargs = ['-c', {json.dumps(program)}]\n"
    world.write("~/.kitbag/settings.toml", settings)


@in_a_loop
async def test_one_can_leave_while_a_server_keeps_it_waiting(world: World) -> None:
    slow_server(world)
    face = QueueFace()
    talking = begin(world, face)
    await face.until(lambda: face.live.activity == "starting" and (world.workspace / "begun").exists())
    face.do(ExitRequested(exit_code=130))
    assert await asyncio.wait_for(talking, TEST_TIMEOUT) == 130
    assert face.blocks == []


@in_a_loop
async def test_what_was_said_before_it_was_there_is_answered_in_its_order(world: World) -> None:
    world.write("README.md", "# The Shop\n\nA shop for hats.\n")
    face = QueueFace()
    face.do(KeyPressed("cancel"), "What does this project do?", "/mode plan", ExitRequested(immediately=False))
    assert await asyncio.wait_for(begin(world, face), TEST_TIMEOUT) == 0
    assert face.said()[0] == "What does this project do?"
    assert "A shop for hats." in face.seen()


@in_a_loop
async def test_a_conversation_that_is_open_elsewhere_is_gone_on_with_only_in_a_copy(world: World) -> None:
    face = QueueFace()
    face.do("hello", ExitRequested(immediately=False))
    assert await asyncio.wait_for(begin(world, face), TEST_TIMEOUT) == 0
    home = find_places(str(world.workspace)).kitbag_home
    shown = face.seen().partition("kitbag --resume ")[2].split()[0]
    with hold_session(home, shown):
        with pytest.raises(InvalidError, match="open in another window"):
            await asyncio.wait_for(begin(world, QueueFace(), resume=shown), TEST_TIMEOUT)
        again = QueueFace()
        again.do(ExitRequested(immediately=False))
        assert await asyncio.wait_for(begin(world, again, resume="last", fork=True), TEST_TIMEOUT) == 0
