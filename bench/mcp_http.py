"""Many MCP clients at once over HTTP, beside a bare server of the same SDK, in one run.

    python bench/mcp_http.py [--clients 200] [--rounds 3] [--json FILE]

Each client opens a session, lists the tools and loads a skill, all clients at once; the bare server has one tool that
returns a text of the same size. Printed are the time of a request as clients see it, requests per second, the server's
CPU time per request and its memory, and what Kitbag costs over the floor. A client of a few lines speaks to both.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SKILLS = 1_000
HEAD = "---\nname: skill-{n:04d}\ndescription: Reviews part {n} of a change and explains what to fix, in order.\n---\n"
BODY = "Read the change as a whole before you judge a line of it, and say what you did not read.\n" * 40
BARE = f"""
import asyncio, socket
import uvicorn
from mcp.server import Server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

BODY = {BODY!r}

async def tools(context, params):
    schema = {{"type": "object", "properties": {{"skill_name": {{"type": "string"}}}}}}
    return ListToolsResult(tools=[Tool(name="load_skill", description="Returns a text.", input_schema=schema)])

async def call(context, params):
    return CallToolResult(content=[TextContent(text=BODY)])

server = Server("bare", on_list_tools=tools, on_call_tool=call)
listener = socket.create_server(("127.0.0.1", 0))
print(f"at http://127.0.0.1:{{listener.getsockname()[1]}}/mcp; no token", flush=True)
config = uvicorn.Config(server.streamable_http_app(host="127.0.0.1"), log_config=None, access_log=False)
asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))
"""
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}


class Server:
    def __init__(self, command: list[str], home: Path, workspace: Path, log: Path) -> None:
        environment = {**os.environ, "HOME": str(home)}
        environment.pop("KITBAG_HOME", None)
        with log.open("wb") as out:
            self.process = subprocess.Popen(command, cwd=workspace, env=environment, stdout=out, stderr=out)
        while not (said := re.search(r"at http://([\d.]+):(\d+)/mcp; (.*)", log.read_text())):
            assert self.process.poll() is None, log.read_text()
            time.sleep(0.05)
        self.address, self.port = said[1], int(said[2])
        path = Path(said[3].split()[-1])
        self.token = path.read_text() if path.is_file() else ""

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """In MB, at its highest."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1_024

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


class Client:
    """One session on one connection."""

    def __init__(self, server: Server, number: int) -> None:
        self.server = server
        self.number = number
        self.session = ""
        self.times: list[float] = []

    async def run(self, start: asyncio.Event) -> None:
        await start.wait()
        self.reader, self.writer = await asyncio.open_connection(self.server.address, self.server.port)
        await self.ask("initialize", INITIALIZE)
        await self.send({"method": "notifications/initialized"})
        listed = await self.ask("tools/list", {})
        assert listed["tools"]
        loaded = await self.ask("tools/call", {"name": "load_skill", "arguments": {"skill_name": self.skill}})
        assert BODY.strip() in loaded["content"][0]["text"], loaded
        self.writer.close()

    @property
    def skill(self) -> str:
        return f"skill-{self.number % SKILLS:04d}"

    async def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        began = time.perf_counter()
        body = await self.send({"id": 1, "method": method, "params": params})
        self.times.append(time.perf_counter() - began)
        if not body.startswith(b"{"):  # a stream of events
            body = next(line[5:] for line in body.splitlines() if line.startswith(b"data:") and b'"id":1' in line)
        return json.loads(body)["result"]

    async def send(self, message: dict[str, Any]) -> bytes:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        lines = [
            "POST /mcp HTTP/1.1",
            f"Host: {self.server.address}:{self.server.port}",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            f"Content-Length: {len(body)}",
            *([f"Authorization: Bearer {self.server.token}"] if self.server.token else []),
            *([f"Mcp-Session-Id: {self.session}"] if self.session else []),
        ]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        assert head.split()[1] in ("200", "202"), head
        if "mcp-session-id: " in head:
            self.session = head.partition("mcp-session-id: ")[2].split()[0]
        if "content-length: " in head:
            return await self.reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))
        received = b""
        while size := int(await self.reader.readline(), 16):
            received += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)
        return received


async def measure(server: Server, count: int) -> dict[str, Any]:
    clients = [Client(server, number) for number in range(count)]
    start = asyncio.Event()
    running = [asyncio.create_task(client.run(start)) for client in clients]
    cpu, began = server.cpu_seconds(), time.perf_counter()
    start.set()
    await asyncio.gather(*running)
    seconds, cpu = time.perf_counter() - began, server.cpu_seconds() - cpu
    times = sorted(value for client in clients for value in client.times)
    requests = len(times) + count  # and the notifications
    return {
        "p50": statistics.median(times),
        "p95": times[int(len(times) * 0.95)],
        "per_second": requests / seconds,
        "cpu_per_request": cpu / requests,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    best: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        home, workspace = Path(folder) / "home", Path(folder) / "workspace"
        (workspace / ".git").mkdir(parents=True)
        for number in range(SKILLS):
            skill = home / ".kitbag" / "skills" / f"skill-{number:04d}"
            skill.mkdir(parents=True)
            (skill / "SKILL.md").write_text(HEAD.format(n=number) + BODY)
        commands = {
            "bare": [sys.executable, "-c", BARE],
            "kitbag": [sys.executable, "-m", "kitbag", "mcp", "--http", "0"],
        }
        for _ in range(options.rounds):
            for name, command in commands.items():
                server = Server(command, home, workspace, Path(folder) / "log")
                try:
                    asyncio.run(measure(server, 5))  # imports, caches
                    found = {**asyncio.run(measure(server, options.clients)), "memory": server.memory()}
                finally:
                    server.stop()
                if name not in best or found["cpu_per_request"] < best[name]["cpu_per_request"]:
                    best[name] = found
    print(f"{options.clients} clients at once, {SKILLS:,} skills; the best of {options.rounds} rounds, by CPU time")
    for name, found in best.items():
        print(
            f"  {name:8} p50 {found['p50'] * 1_000:6.0f} ms   p95 {found['p95'] * 1_000:6.0f} ms   "
            f"{found['per_second']:6.0f} requests/s   CPU {found['cpu_per_request'] * 1_000:5.2f} ms per request   "
            f"{found['memory']:5.0f} MB"
        )
    print(f"  CPU {best['kitbag']['cpu_per_request'] / best['bare']['cpu_per_request']:.2f} x the floor")
    if options.json:
        Path(options.json).write_text(json.dumps(best))


if __name__ == "__main__":
    main()
