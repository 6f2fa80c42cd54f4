"""While the database does not answer, the event loop of a chat keeps turning: reads go on, and writes wait."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import World
from kitbag.agent.session_list import list_sessions
from kitbag.assembly.run_options import Options
from kitbag.runtime.agent import Agent
from kitbag.runtime.session_locks import is_session_open
from kitbag.store import postgres
from kitbag.store.journal import NotFetchedError
from kitbag.store.postgres import Database
from kitbag.store.postgres_journal import PostgresJournal
from kitbag.store.private_files import StoreError
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import Board
from kitbag.tasks.fleet import read_fleet
from kitbag.testing import Rule, Script, Scripted, Step
from kitbag.views.tasks import ReportCache
from support.postgres import Schema
from support.tcp_proxy import TcpProxy
from support.waiting import TEST_TIMEOUT, until_true, wait_until

TURNS = 20


@pytest.fixture
def proxy(schema: Schema) -> Iterator[TcpProxy]:
    with TcpProxy(schema.server.port) as proxy:
        yield proxy


class Watchdog:
    """Lets the database answer again if the loop is blocked, so that the test fails instead of hanging."""

    def __init__(self, proxy: TcpProxy) -> None:
        self.has_barked = False
        self._proxy = proxy
        self._timer = threading.Timer(TEST_TIMEOUT, self._bark)

    def _bark(self) -> None:
        self.has_barked = True
        self._proxy.resume()

    def __enter__(self) -> "Watchdog":
        self._proxy.pause()
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._proxy.resume()


def test_a_chat_turns_on_while_the_database_does_not_answer(
    world: World, schema: Schema, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = str(world.home / ".kitbag")
    monkeypatch.setenv("KITBAG_DATABASE_URL", schema.url.replace(f":{schema.server.port}/", f":{proxy.port}/"))
    monkeypatch.setenv("KITBAG_HOME", home)
    with PostgresJournal.connect(schema.url, str(world.home / "other"), Redactor([])) as other:
        other.append("session/large", "session", {"directory": "/x", "model": "m", "mode": "default"})
        other.append("session/large", "note", {"text": "x" * 5_000})

    async def use() -> None:
        script = Scripted(Script([Rule([Step(text="One."), Step(text="Two.")])]))
        async with Agent("scripted", options=Options(directory=str(world.workspace)), provider=script) as agent:
            async with agent.run("first") as run:
                await run.wait()
            board, reports = Board(agent.journal), None
            with Watchdog(proxy) as watchdog:
                writing = asyncio.create_task(agent.journal.write("s", "k", {}))
                async with agent.run("second") as run:
                    for _ in range(TURNS):
                        board.refresh()
                        reports = reports or ReportCache(board)
                        read_fleet(board)
                        assert [one.id for one in list_sessions(agent.journal, str(world.workspace))] == [
                            agent.session.id
                        ]
                        assert [record.kind for record in agent.journal.read(agent.session.stream)][:1] == ["session"]
                        assert is_session_open(home, agent.session.id, agent.journal, wait=False)
                        with pytest.raises(NotFetchedError):
                            agent.journal.read("session/large")
                        await asyncio.sleep(0.005)
                    assert not writing.done()
                    assert not watchdog.has_barked
                    proxy.resume()
                    await writing
                    ended = await run.wait()
            assert ended.status == "completed"
            assert agent.session.messages()[-1].text == "Two."

    asyncio.run(use())


def test_closing_does_not_wait_for_a_database_that_does_not_answer(
    schema: Schema, proxy: TcpProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = schema.url.replace(f":{schema.server.port}/", f":{proxy.port}/")
    journal = PostgresJournal.connect(url, str(tmp_path), Redactor([]))
    journal.append("s", "k", 1)
    wait_until(lambda: journal._following._connection is not None, "the follower does not connect")
    monkeypatch.setattr(Database.close, "__defaults__", (0.0,))
    with Watchdog(proxy) as watchdog:

        async def write() -> None:
            writing = asyncio.create_task(journal.write("s", "k", 2))
            await asyncio.sleep(0)
            await asyncio.to_thread(journal.close)
            with pytest.raises(StoreError, match=r"the server does not answer|is closed"):
                await writing

        asyncio.run(write())
        assert not watchdog.has_barked


def test_a_statement_without_an_answer_is_sent_again_and_written_once(
    schema: Schema, proxy: TcpProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = schema.url.replace(f":{schema.server.port}/", f":{proxy.port}/")
    monkeypatch.setattr(postgres, "_ANSWER_SECONDS", 0.1)
    with PostgresJournal.connect(url, str(tmp_path), Redactor([])) as journal:
        journal.append("s", "k", 1)
        before = proxy.connections

        async def write() -> int:
            with Watchdog(proxy) as watchdog:
                writing = asyncio.create_task(journal.write("s", "k", 2))
                await until_true(lambda: proxy.connections > before, "it does not connect again")
                monkeypatch.setattr(postgres, "_ANSWER_SECONDS", 60.0)
                assert not watchdog.has_barked
            return await writing

        assert asyncio.run(write()) == 2
    assert schema.rows("SELECT body FROM kitbag_records ORDER BY seq") == [("1",), ("2",)]
