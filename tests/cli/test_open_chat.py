"""The end of the chat: whoever leaves is out, whatever still hangs."""

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable

from conftest import World
from kitbag.testing import ModelServer
from support.driving import Driven
from support.headless import point, script
from support.pseudo_terminal import CTRL_C, CTRL_D
from support.waiting import TEST_TIMEOUT, wait_until

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


def test_one_ctrl_c_too_many_ends_in_no_traceback(world: World) -> None:
    world.env["KITBAG_MODEL"] = "offline"
    with Driven(world, program=HANGS) as driven:
        driven.until_seen("/help")
        driven.say("/doctor")
        driven.until(lambda: _threads(driven.process.pid) > 1)
        driven.press(CTRL_D)
        driven.until(lambda: driven.settings_are_as_before() or driven.process.poll() is not None)
        driven.press(CTRL_C, CTRL_C)
        # At its very end the signal itself ends it, which a shell calls 130, too.
        assert driven.until_ended() in (0, 130, -signal.SIGINT)
        assert "Traceback" not in driven.all()


STUCK = """
from kitbag.chat import forced_exit as last_resort
last_resort.GRACE_SECONDS = 0.3
from kitbag.cli import main
main()
"""


def test_sigterm_ends_it_also_where_nobody_reads_what_it_writes(world: World) -> None:
    with ModelServer(script("word word word\n\n" * 20_000)) as server:
        point(world, server)
        with Driven(world, program=STUCK) as driven:
            driven.until_seen("/help")
            driven.say("tell me")
            wait_until(_is_stuck(driven._master))
            driven.process.send_signal(signal.SIGTERM)
            assert driven.process.wait(TEST_TIMEOUT) == 143
            assert driven.settings_are_as_before()


def test_sigterm_ends_it_also_at_a_pipe_that_nobody_reads(world: World) -> None:
    with ModelServer(script("word word word\n\n" * 20_000)) as server:
        point(world, server)
        started = subprocess.Popen(
            [sys.executable, "-c", STUCK],
            cwd=world.workspace,
            env=world.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with started as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"tell me\n")
            process.stdin.flush()
            wait_until(_is_stuck(process.stdout.fileno()))
            process.send_signal(signal.SIGTERM)
            assert process.wait(TEST_TIMEOUT) == 143


def _is_stuck(descriptor: int) -> Callable[[], bool]:
    """Something is there to be read, and no more comes."""
    seen: list[int] = []

    def look() -> bool:
        number = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))[0]
        seen.append(number)
        return number > 1_000 and len(seen) > 25 and set(seen[-25:]) == {number}

    return look
