"""Sessions in a journal that machines share: open on one of them at a time, and free when its holder is gone."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from conftest import World
from kitbag.agent.session import STREAM_PREFIX, Session
from kitbag.agent.session_records import SessionHeader
from kitbag.messages import Text
from kitbag.runtime import session_leases
from kitbag.runtime.retention import prune
from kitbag.runtime.session_in_use import SessionInUseError
from kitbag.runtime.session_leases import lease_session
from kitbag.runtime.session_locks import is_session_open
from kitbag.store.fencing import StreamFencedError
from kitbag.store.postgres_journal import PostgresJournal
from kitbag.store.redaction import Redactor
from kitbag.tasks.owner import Owner, this_process
from support.postgres import Schema, Server
from support.waiting import wait_until

ELSEWHERE = Owner(machine="other-host/pid:[1]", boot="other-boot", pid=4711, started="1")


def open_machine(schema: Schema, tmp_path: Path, name: str) -> PostgresJournal:
    return PostgresJournal.connect(schema.url, str(tmp_path / name), Redactor([]))


def act_as(monkeypatch: pytest.MonkeyPatch, owner: Owner) -> None:
    """What follows is done by a process of that machine."""
    monkeypatch.setattr(session_leases, "this_process", lambda: owner)
    monkeypatch.setattr(session_leases, "_held", {})


def shorten_lease(schema: Schema, server: Server) -> None:
    lease = "UPDATE kitbag_facts SET value = '0.5' WHERE name = 'lease_seconds'"
    server.run(f"SET search_path = {schema.name}", lease)


async def start_session(journal: PostgresJournal) -> Session:
    session = Session(journal, "s1")
    await session.start(SessionHeader(directory="/work", model="m", mode="default"), deferred=True)
    return session


def test_a_session_that_is_open_on_another_machine_is_refused_until_it_is_closed_there(
    schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = this_process()
    with open_machine(schema, tmp_path, "one") as one, open_machine(schema, tmp_path, "two") as two:

        async def use() -> None:
            act_as(monkeypatch, ELSEWHERE)
            session = await start_session(one)
            async with lease_session(session):
                assert one.streams() == []  # no message, no session
                await session.add_user([Text("Hello.")])
                act_as(monkeypatch, here)
                two.catch_up()
                assert await asyncio.to_thread(is_session_open, str(tmp_path / "two"), "s1", two)
                with pytest.raises(
                    SessionInUseError, match=r"s1 is open in another window \(process 4711 on other-host"
                ):
                    async with lease_session(Session(two, "s1")):
                        pass
                monkeypatch.setattr(session_leases, "_held", {(one.path, "s1"): (1, 1)})
            async with lease_session(Session(two, "s1")), lease_session(Session(two, "s1")):
                assert [record.body["number"] for record in two.read("open/s1", kind="opened")] == [1, 2]

        asyncio.run(use())
        two.catch_up()
        assert [record.kind for record in two.read("open/s1")] == ["opened", "closed", "opened", "closed"]


def test_the_session_of_a_machine_without_a_sign_of_life_is_free_and_what_that_still_writes_is_refused(
    schema: Schema, postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = this_process()
    with open_machine(schema, tmp_path, "one") as one, open_machine(schema, tmp_path, "two") as two:
        shorten_lease(schema, postgres)

        async def use() -> None:
            act_as(monkeypatch, ELSEWHERE)
            session = await start_session(one)
            async with lease_session(session):
                await session.add_user([Text("Hello.")])
                one._stopping.set()  # frozen
                one._wake_follower()
                await asyncio.to_thread(one._follower.join)
                act_as(monkeypatch, here)
                await asyncio.to_thread(
                    wait_until, lambda: two.check_lease(ELSEWHERE.name) is False, "the lease does not end"
                )
                async with lease_session(Session(two, "s1")):
                    await two.write(f"{STREAM_PREFIX}s1", "note", {})
                    with pytest.raises(StreamFencedError, match="another process took over the session"):
                        await session.add_note("<continuation>late")
                    await one.write("other", "k", {})
                monkeypatch.setattr(session_leases, "_held", {(one.path, "s1"): (1, 1)})

        asyncio.run(use())
        two.catch_up()
        assert [record.kind for record in two.read(f"{STREAM_PREFIX}s1")] == ["session", "user", "note"]


def test_a_session_that_is_open_on_another_machine_is_not_pruned(
    schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = this_process()
    with open_machine(schema, tmp_path, "one") as one, open_machine(schema, tmp_path, "two") as two:

        async def use() -> None:
            act_as(monkeypatch, ELSEWHERE)
            session = await start_session(one)
            async with lease_session(session):
                await session.add_user([Text("Hello.")])
                act_as(monkeypatch, here)
                two.catch_up()
                report = await asyncio.to_thread(prune, two, str(tmp_path / "two"), -1)
                assert report.kept == [("s1", "it is open in another process")]
                monkeypatch.setattr(session_leases, "_held", {(one.path, "s1"): (1, 1)})

        asyncio.run(use())
        two.catch_up()
        assert prune(two, str(tmp_path / "two"), -1).sessions == ["s1"]
        one.catch_up()
        assert one.streams() == two.streams() == []


def test_the_program_on_a_second_machine_refuses_and_then_resumes(world: World, schema: Schema, tmp_path: Path) -> None:
    from kitbag.assembly.run_options import Options
    from kitbag.runtime.agent import Agent

    world.env["KITBAG_DATABASE_URL"] = schema.url
    world.ok("-p", "hello", "--model", "offline")
    [session] = world.json("sessions", "list", "--all")
    (tmp_path / "other").mkdir()
    other = World(tmp_path / "other", world.forkserver)
    other.env["KITBAG_DATABASE_URL"] = schema.url
    holder: dict[str, Any] = {}

    async def hold(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KITBAG_DATABASE_URL", schema.url)
        monkeypatch.setenv("KITBAG_HOME", str(world.home / ".kitbag"))
        options = Options(directory=str(world.workspace), resume=session["id"])
        async with Agent("offline", options=options):
            holder["denied"] = await asyncio.to_thread(
                other.run, "-p", "more", "--model", "offline", "--resume", session["id"]
            )

    with pytest.MonkeyPatch.context() as monkeypatch:
        asyncio.run(hold(monkeypatch))
    denied = holder["denied"]
    assert denied.returncode == 6
    assert f"session {session['id']} is open in another window (process " in denied.stderr
    assert f"on {this_process().machine.partition('/')[0]}, since 20" in denied.stderr
    assert other.run("-p", "more", "--model", "offline", "--resume", session["id"]).returncode == 0
