"""The end of the chat: whoever leaves is out, whatever still hangs."""

import os

from chat.driving import Driven
from chat.pseudo_terminal import CTRL_D
from conftest import World

HANGS = """
import asyncio, time
from kitbag.chat.commands import doctor
async def hanging(chat, arguments):
    await asyncio.to_thread(time.sleep, 600)  # as a disk that does not answer
doctor.doctor_command = hanging
from kitbag.cli import main
main()
"""


def test_a_thread_that_hangs_keeps_nobody_from_leaving(world: World) -> None:
    world.env["KITBAG_MODEL"] = "offline"
    with Driven(world, program=HANGS) as driven:
        driven.until_seen("/help")
        driven.say("/doctor")
        driven.until(lambda: _threads(driven.process.pid) > 1)
        driven.press(CTRL_D)
        assert driven.until_ended() == 0
        assert driven.settings_are_as_before()


def _threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))
