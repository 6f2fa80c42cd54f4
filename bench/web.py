"""What the web UI costs: its start, the first view, long sessions, and many browsers at once.

    python bench/web.py [--streams 200] [--rate 50] [--seconds 10] [--json FILE]

- Start: CPU time of `kitbag web` until it has served its page, beside a bare uvicorn that answers "hello".
- First view: bytes transferred, and CPU time of the page's main thread until a message can be typed (Chromium).
- Long sessions: from the request to open one until a browser has the end of it; 10,000 records, and 32 MB.
- Streams: the real application with chats that show so many replies per second, each first as it is being written;
  every stream follows one of the chats. A reply that is missing, doubled or out of order ends the benchmark.

Elapsed times count for little on a busy machine; the load is printed beside them.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx2

from kitbag.agent.session import Session
from kitbag.agent.session_records import SessionHeader
from kitbag.messages import Message, Text, ToolCall, ToolResult, Usage
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor

TICKS = os.sysconf("SC_CLK_TCK")
ROUNDS = 5
BARE = """
import asyncio, socket, uvicorn
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"hello"})
listener = socket.create_server(("127.0.0.1", 0))
print(f"http://127.0.0.1:{listener.getsockname()[1]}/#token=none", flush=True)
config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))
"""
CHATS = 10
SHOWING = """
import asyncio, sys, time
from kitbag.assembly.run_options import Options
from kitbag.chat.ui import ChatStatus, LiveState
from kitbag.library.scopes import find_places
from kitbag.net.local_server import bind_socket, run_application
from kitbag.net.request_checks import RequestChecks
from kitbag.views.blocks import ReplyBlock
from kitbag.web.access_log import AccessLog
from kitbag.web.application import create_application
from kitbag.web.server_state import WebState
from kitbag.web.web_ui import WebUI

chats, rate, seconds = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])

async def show(uis):
    await asyncio.to_thread(sys.stdin.readline)
    start = time.monotonic()
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, start + number / rate - time.monotonic()))
        ui = uis[number % len(uis)]
        for words in range(0, 60, 6):
            ui.draw(LiveState(activity="writing", tail="word " * words), ChatStatus(model="m"))
        ui.show(ReplyBlock(f"{time.monotonic()} is **when** this was `shown`. " + "A sentence of a reply. " * 20))

async def main():
    places = find_places(".")
    state = WebState(places, lambda: Options(directory="."))
    uis = [WebUI(f"bench:{number}") for number in range(chats)]
    for ui in uis:
        state.add_topic(ui.topic)
    with bind_socket("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        checks = RequestChecks(frozenset((f"127.0.0.1:{port}",)), "t")
        print(f"http://127.0.0.1:{port}/#token=t", flush=True)
        application = create_application(state, checks, AccessLog(places.kitbag_home))
        serving = asyncio.create_task(run_application(application, listener, 1000))
        await show(uis)
        await serving

asyncio.run(main())
"""


class Server:
    def __init__(self, process: "subprocess.Popen[str]", url: str) -> None:
        self.process = process
        self.base, _, self.token = url.partition("/#token=")

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self) -> int:
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())
        return int(found[1]) // 1024 if found else 0

    def http(self) -> httpx2.Client:
        return httpx2.Client(base_url=self.base, headers={"authorization": f"Bearer {self.token}"}, timeout=120)


@contextlib.contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Server]:
    """A program that prints its URL; Kitbag's home is in `folder`."""
    environment = {**os.environ, "HOME": str(folder / "home")}
    for name in ("KITBAG_HOME", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    work = folder / "work"
    work.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=work,
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://"), url
        yield Server(process, url)
    finally:
        process.terminate()
        process.communicate(timeout=60)


KITBAG = ("-m", "kitbag", "web", "--no-open", "--model", "offline")


def measure_start(folder: Path) -> dict[str, Any]:
    found: dict[str, list[float]] = {"bare": [], "kitbag": []}
    for _ in range(ROUNDS + 1):
        for name, arguments in (("bare", ("-c", BARE)), ("kitbag", KITBAG)):
            with serving(folder, *arguments) as server, server.http() as client:
                assert client.get("/").status_code == 200
                found[name].append(server.cpu())
    least = {name: min(times[1:]) for name, times in found.items()}
    print(
        f"start, CPU: bare uvicorn {least['bare']:.2f} s, kitbag web {least['kitbag']:.2f} s, "
        f"{least['kitbag'] / least['bare']:.2f} x"
    )
    return least


# Long sessions


async def write_session(journal: Journal, name: str, directory: str, exchanges: int, size: int) -> None:
    """Five records for each exchange, with `size` bytes of text in all."""
    session = Session(journal, name)
    await session.start(SessionHeader(directory=directory, model="offline", mode="default"))
    output = "1: a line of output of a tool that was called\n" * (size // 3 // 46)
    reply = "A line of *text* with `code` in **it**.\n" * (size // 3 // 40)
    for number in range(exchanges):
        await session.add_user([Text(f"Question {number}?")])
        call = ToolCall(id=f"call{number}", name="Read", arguments={"file_path": "a.txt"})
        await session.add_reply(Message("assistant", (Text("Reading."), call)), Usage(input=10, output=5), 0.0, "m")
        await session.record_intent(call)
        await session.record_result(
            ToolResult(call_id=call.id, content=(Text(output),)), summary="read", details=output
        )
        answer = Message("assistant", (Text(f"Answer {number}.\n\n{reply}"),))
        await session.add_reply(answer, Usage(input=10, output=5), 0.0, "m")


def measure_sessions(folder: Path) -> dict[str, Any]:
    home = str(folder / "home" / ".kitbag")
    (folder / "work").mkdir(parents=True, exist_ok=True)
    directory = str((folder / "work").resolve())
    sizes = {"small": (2, 1_000), "events": (2_000, 2_000), "large": (400, 84_000)}
    with Journal.open(journal_path(home), Redactor()) as journal:
        for name, (exchanges, size) in sizes.items():
            asyncio.run(write_session(journal, name, directory, exchanges, size))
    found: dict[str, Any] = {}
    with serving(folder, *KITBAG) as server, server.http() as client:
        for name, (exchanges, size) in sizes.items():
            begun, cpu = time.monotonic(), server.cpu()
            topic = client.post("/api/chats", json={"resume": name}).raise_for_status().json()["topic"]
            received = 0
            with client.stream("POST", "/api/stream", json={"topics": {topic: -1}}) as stream:
                for line in stream.iter_lines():
                    received += len(line)
                    if f"Answer {exchanges - 1}." in line:
                        break
            elapsed, cpu = time.monotonic() - begun, server.cpu() - cpu
            found[name] = {"cpu": cpu, "elapsed": elapsed, "bytes": received}
            about = f"{exchanges * 5:,} records, {exchanges * size / 1e6:.0f} MB"
            print(
                f"opening a session ({about}): {cpu:.2f} s CPU, {elapsed:.2f} s elapsed, {received / 1000:.0f} KB sent"
            )
    return found


# The first view


def measure_first_view(folder: Path) -> dict[str, Any]:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from playwright.sync_api import sync_playwright

    from support.browser import Chromium

    chromium = Chromium()
    found: list[tuple[float, float, int]] = []
    try:
        with serving(folder, *KITBAG) as server, sync_playwright() as playwright:
            browser = playwright.chromium.connect_over_cdp(chromium.address)
            for _ in range(ROUNDS):
                context = browser.new_context(viewport={"width": 1440, "height": 900})
                page = context.new_page()
                session = context.new_cdp_session(page)
                session.send("Performance.enable")
                page.goto(f"{server.base}/#token={server.token}")
                page.get_by_role("combobox", name="Message").wait_for()
                metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
                page.locator(".block").first.wait_for()
                entries = "[...performance.getEntriesByType('resource'), ...performance.getEntriesByType('navigation')]"
                size = page.evaluate(f"{entries}.reduce((sum, one) => sum + one.transferSize, 0)")
                found.append((metrics["TaskDuration"], metrics["ScriptDuration"], size))
                context.close()
            browser.close()
    finally:
        chromium.close()
    task, script, size = min(found)
    print(
        f"first view: {size / 1000:.0f} KB transferred; main thread {task * 1000:.0f} ms, "
        f"of which scripts {script * 1000:.0f} ms"
    )
    return {"task": task, "script": script, "bytes": max(one[2] for one in found)}


# Many streams


async def follow(server: Server, topic: str, until: int, delays: list[float]) -> None:
    """Reads one stream to its last reply. Raises if one is missing or out of order."""
    host, _, port = server.base.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 24)
    body = json.dumps({"topics": {topic: -1}}).encode()
    head = f"POST /api/stream HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {server.token}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    expected = 0
    while expected < until:
        line = await reader.readline()
        if not line:
            raise SystemExit(f"a stream ended after {expected} of {until} replies")
        if not line.startswith(b"data: ") or b'"kind":"block"' not in line:
            continue
        number = json.loads(line[6:])["number"]
        if number != expected:
            raise SystemExit(f"reply {number} came instead of {expected}")
        expected += 1
        shown = re.search(rb"([\d.]+) is ", line)
        if shown:
            delays.append(time.monotonic() - float(shown[1]))
    writer.close()


async def follow_all(server: Server, streams: int, total: int) -> list[float]:
    delays: list[float] = []
    async with asyncio.TaskGroup() as group:
        for number in range(streams):
            group.create_task(follow(server, f"bench:{number % CHATS}", total // CHATS, delays))
        await asyncio.sleep(3)  # until all are connected
        assert server.process.stdin is not None
        server.process.stdin.write("go\n")
        server.process.stdin.flush()
    return delays


def measure_streams(folder: Path, streams: int, rate: int, seconds: int) -> dict[str, Any]:
    total = rate * seconds // CHATS * CHATS
    with serving(folder, "-c", SHOWING, str(CHATS), str(rate), str(total / rate)) as server:
        begun, cpu = time.monotonic(), server.cpu()
        delays = asyncio.run(follow_all(server, streams, total))
        elapsed, cpu, memory = time.monotonic() - begun - 3, server.cpu() - cpu, server.memory()
    wanted = streams * (total // CHATS)
    assert len(delays) == wanted, (len(delays), wanted)
    p95 = quantiles(delays, n=20)[-1]
    print(
        f"{streams} streams, {rate} replies per second for {total / rate:.0f} s: {wanted:,} replies received, "
        "none lost or out of order; "
        f"{cpu:.1f} s CPU in {elapsed:.1f} s; delay: {median(delays) * 1000:.0f} ms, 95% {p95 * 1000:.0f} ms"
    )
    return {"cpu": cpu, "elapsed": elapsed, "median": median(delays), "p95": p95, "memory": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--rate", type=int, default=50)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = {
            "start": measure_start(folder / "start"),
            "first view": measure_first_view(folder / "view"),
            "sessions": measure_sessions(folder / "sessions"),
            "streams": measure_streams(folder / "streams", options.streams, options.rate, options.seconds),
        }
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
