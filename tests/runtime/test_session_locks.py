"""Which conversations are open: by their ids, and by nothing that leads elsewhere."""

import asyncio
import fcntl
import json
import os
import subprocess
import sys
import threading
from typing import Any

import pytest

from conftest import World
from kitbag.assembly.run_options import Options
from kitbag.runtime.agent import Agent
from kitbag.runtime.session_in_use import SessionInUseError
from kitbag.runtime.session_locks import hold_session, is_session_open
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from kitbag.testing import Rule, Script, Scripted, Step
from support.waiting import TEST_TIMEOUT
from support.workshop import Workshop, call


def test_one_that_is_held_is_open_and_then_forgotten(world: World) -> None:
    home = str(world.home / ".kitbag")
    assert not is_session_open(home, "abc")
    with hold_session(home, "abc"):
        assert is_session_open(home, "abc")
    assert not is_session_open(home, "abc")
    assert list((world.home / ".kitbag/state/open").iterdir()) == []


def test_those_who_look_at_the_same_moment_do_not_hide_it(world: World) -> None:
    home, done = str(world.home / ".kitbag"), threading.Event()

    def look() -> None:
        while not done.is_set():
            is_session_open(home, "abc")

    looking = [threading.Thread(target=look) for _ in range(3)]
    for thread in looking:
        thread.start()
    try:
        for _ in range(300):
            with hold_session(home, "abc"):
                assert is_session_open(home, "abc")
    finally:
        done.set()
        for thread in looking:
            thread.join(TEST_TIMEOUT)


def test_one_that_is_removed_before_it_is_locked_is_made_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    home, lock = str(world.home / ".kitbag"), fcntl.flock

    def looked_at(descriptor: int, kind: int) -> None:
        monkeypatch.undo()
        assert not is_session_open(home, "abc")
        lock(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", looked_at)
    with hold_session(home, "abc"):
        assert is_session_open(home, "abc")
    assert not is_session_open(home, "abc")


@pytest.mark.parametrize("name", ["../../settings.toml", "/etc/hostname", "..", ".", "", "a\0b"])
def test_a_name_that_leads_elsewhere_removes_nothing(world: World, name: str) -> None:
    settings = world.write("~/.kitbag/settings.toml", "")
    (world.home / ".kitbag/state/open").mkdir(parents=True)
    assert not is_session_open(str(world.home / ".kitbag"), name)
    with hold_session(str(world.home / ".kitbag"), name):
        pass
    assert settings.exists()


RESUMED = Script([Rule([Step(text="Fine.")] * 9)])


async def _converse(world: World, **options: Any) -> str:
    given = Options(directory=str(world.workspace), **options)
    async with Agent(options=given, provider=Scripted(RESUMED)) as agent, agent.run("Hello") as run:
        await run.wait()
        return agent.session.id


def _records(world: World, session: str) -> list[str]:
    with Journal.open(journal_path(str(world.home / ".kitbag")), Redactor([])) as journal:
        return [record.kind for record in journal.read(f"session/{session}")]


def _resume(world: World, session: str, *more: str) -> Any:
    script = world.write("~/script.json", json.dumps({"rules": [{"replies": [{"text": "Again."}] * 3}]}))
    world.env["KITBAG_HOME"] = str(world.home / ".kitbag")
    return world.run("-p", "Again", "--resume", session, "--model", f"scripted:{script}", *more)


def test_a_run_does_not_write_to_a_session_that_another_process_has_open(at_home: World) -> None:
    session = asyncio.run(_converse(at_home))
    before = _records(at_home, session)

    async def hold() -> None:
        options = Options(directory=str(at_home.workspace), resume=session)
        async with Agent(options=options, provider=Scripted(RESUMED)):
            held = _records(at_home, session)
            denied = await asyncio.to_thread(_resume, at_home, session)
            assert denied.returncode == 6
            assert f"session {session} is open in another window (process {os.getpid()}, since 20" in denied.stderr
            assert "--fork" in denied.stderr
            assert _records(at_home, session) == held
            copied = await asyncio.to_thread(_resume, at_home, session, "--fork")
            assert (copied.returncode, copied.stdout) == (0, "Again.\n"), copied.stderr
            assert _records(at_home, session) == held

    asyncio.run(hold())
    assert len(_records(at_home, session)) >= len(before)
    assert _resume(at_home, session).returncode == 0
    assert list((at_home.home / ".kitbag/state/open").iterdir()) == []


def test_agents_of_one_process_hold_a_session_together_until_the_last_one_is_closed(at_home: World) -> None:
    home, session = str(at_home.home / ".kitbag"), asyncio.run(_converse(at_home))

    async def hold() -> None:
        options = Options(directory=str(at_home.workspace), resume=session)
        async with Agent(options=options, provider=Scripted(RESUMED)):
            async with Agent(options=options, provider=Scripted(RESUMED)):
                assert is_session_open(home, session)
            assert is_session_open(home, session)
        assert not is_session_open(home, session)
        with hold_session(home, session), pytest.raises(SessionInUseError):
            await _converse(at_home, resume="last")

    asyncio.run(hold())


def test_a_new_session_is_held_too(at_home: World) -> None:
    async def hold() -> None:
        options = Options(directory=str(at_home.workspace))
        async with Agent(options=options, provider=Scripted(RESUMED)) as agent, agent.run("Hello") as run:
            await run.wait()
            assert (await asyncio.to_thread(_resume, at_home, agent.session.id)).returncode == 6

    asyncio.run(hold())


def test_a_holder_that_was_killed_does_not_block(world: World) -> None:
    home = str(world.home / ".kitbag")
    program = (
        "import sys\nfrom kitbag.runtime.session_locks import hold_session\n"
        "with hold_session(sys.argv[1], 'abc'):\n    print('held', flush=True)\n    sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, home], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(SessionInUseError, match=f"process {holder.pid}, since "), hold_session(home, "abc"):
        pass
    holder.kill()
    holder.communicate(timeout=TEST_TIMEOUT)
    with hold_session(home, "abc"):
        assert is_session_open(home, "abc")
    assert not is_session_open(home, "abc")


def test_the_session_of_a_task_that_runs_is_not_resumed_beside_it(workshop: Workshop) -> None:
    workshop.script(call("Bash", command="while [ ! -e release ]; do sleep 0.05; done"), {"text": "Done."})
    task_id = workshop.put()
    workshop.worker()
    workshop.until(lambda: workshop.records(task_id, "intent"))
    before = _records(workshop.world, task_id)
    denied = _resume(workshop.world, task_id)
    assert (denied.returncode, f"belongs to task {task_id}, which is running" in denied.stderr) == (6, True)
    assert _records(workshop.world, task_id) == before
    (workshop.world.workspace / "release").touch()
    workshop.until_status(task_id, "completed")
