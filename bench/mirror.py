"""What machines that share a PostgreSQL journal receive of each other's sessions, and what opening one costs.

    python bench/mirror.py [--machines 10] [--sessions 20] [--turns 25]

Starts a server of its own on loopback. Each machine records its sessions at the same time as the others, through a
proxy that counts what it receives. Then a session of 10,000 records is opened on another machine, twice, and
`kitbag tasks list` starts with a mirror that is behind by all records.
"""

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from kitbag.agent.resume import resume
from kitbag.agent.session import Session
from kitbag.agent.session_records import SessionHeader
from kitbag.messages import Message, Text, ToolCall, ToolResult, Usage
from kitbag.store.journal import Journal
from kitbag.store.postgres_journal import PostgresJournal
from kitbag.store.redaction import Redactor
from support.postgres import Server, new_schema
from support.tcp_proxy import TcpProxy

QUESTION, REPLY, RESULT, PROMPT = 400, 800, 6_000, 12_000
"""Characters."""
RECORDS = 10_000


async def record_session(journal: Journal, name: str, turns: int) -> None:
    session = Session(journal, name)
    await session.start(SessionHeader(directory="/work", model="m", mode="default"))
    await journal.write(session.stream, "prompt", {"entries": [], "made_for": {"text": "p" * PROMPT}})
    for number in range(turns):
        if number % 5 == 0:
            await session.add_user([Text("q" * QUESTION)])
        call = ToolCall(id=f"c{number}", name="Bash", arguments={"command": "make"})
        await session.add_reply(Message("assistant", (Text("r" * REPLY), call)), Usage(input=9, output=5), 0.1, "m")
        await session.record_intent(call)
        await session.record_result(ToolResult(call_id=call.id, content=(Text("o" * RESULT),)))
    await session.record_end("completed")


def measure_traffic(server: Server, machines: int, sessions: int, turns: int) -> None:
    with tempfile.TemporaryDirectory() as folder, new_schema(server) as schema:
        proxies = [TcpProxy(server.port) for _ in range(machines)]
        journals = [
            PostgresJournal.connect(
                schema.url.replace(f":{server.port}/", f":{proxy.port}/"), f"{folder}/{number}", Redactor([])
            )
            for number, proxy in enumerate(proxies)
        ]

        async def record() -> None:
            names = [(number, f"s{number}-{one}") for number in range(machines) for one in range(sessions)]
            await asyncio.gather(*(record_session(journals[number], name, turns) for number, name in names))

        began = time.perf_counter()
        asyncio.run(record())
        for journal in journals:
            journal.catch_up()
        elapsed = time.perf_counter() - began
        [(records, stored)] = schema.rows("SELECT count(*), sum(length(body)) FROM kitbag_records")
        received = [proxy.received for proxy in proxies]
        mirrors = [sum(file.stat().st_size for file in Path(folder, str(n)).rglob("mirror-*")) for n in range(machines)]
        for journal, proxy in zip(journals, proxies, strict=True):
            journal.close()
            proxy.__exit__(None, None, None)
        print(f"{machines} machines x {sessions} sessions: {records:,} records, {stored / 1e6:.1f} MB of bodies")
        print(f"  received per machine {sum(received) / machines / 1e6:.2f} MB, mirror {max(mirrors) / 1e6:.1f} MB")
        print(f"  recorded by all in {elapsed:.1f} s")


def measure_opening(server: Server) -> None:
    with tempfile.TemporaryDirectory() as folder, new_schema(server) as schema:
        with PostgresJournal.connect(schema.url, f"{folder}/one", Redactor([])) as one:
            asyncio.run(record_session(one, "long", RECORDS // 3))
        for label in ("first time", "again"):
            began, cpu = time.perf_counter(), time.process_time()
            with PostgresJournal.connect(schema.url, f"{folder}/two", Redactor([])) as two:
                connected = time.perf_counter()
                resume(two, "long")
                now = time.perf_counter()
            times = f"start {connected - began:.2f} s, open {now - connected:.2f} s"
            print(f"session of {RECORDS:,} records, {label}: {times}, CPU {time.process_time() - cpu:.2f} s")
        environment = {**os.environ, "KITBAG_DATABASE_URL": schema.url, "KITBAG_HOME": f"{folder}/three"}
        for label in ("mirror behind by all", "mirror up to date"):
            began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [sys.executable, "-m", "kitbag", "tasks", "list"], env=environment, check=True, capture_output=True
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            print(
                f"tasks list, {label}: {time.perf_counter() - began:.2f} s,"
                f" CPU {after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime:.2f} s"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("machines", 10), ("sessions", 20), ("turns", 25)):
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    server = Server()
    try:
        measure_traffic(server, given.machines, given.sessions, given.turns)
        measure_opening(server)
    finally:
        server.close()


if __name__ == "__main__":
    main()
